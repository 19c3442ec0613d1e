//! Null placements: what a request for 0 bytes gets.

use rustc_hash::FxHashSet;
use vramlab_sim::allocator::{AllocError, Block, Placement};

/// The low half of every null token; no slot has this number.
pub(crate) const NULL_SLOT: u32 = u32::MAX;

/// Live null placements. Each has a token of its own, so that a second free of one is found.
#[derive(Debug, Default)]
pub(crate) struct Nulls {
    next: u32,
    /// Looked up, never walked.
    live: FxHashSet<u32>,
}

impl Nulls {
    /// A new null placement.
    pub(crate) fn place(&mut self) -> Placement {
        while !self.live.insert(self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let block = Block(u64::from(self.next) << 32 | u64::from(NULL_SLOT));
        self.next = self.next.wrapping_add(1);
        Placement { block, address: 0, size: 0 }
    }

    /// Is it the token of a null placement, live or not?
    #[inline]
    pub(crate) const fn owns(block: Block) -> bool {
        block.0 as u32 == NULL_SLOT
    }

    /// Is it live?
    pub(crate) fn is_live(&self, block: Block) -> bool {
        Self::owns(block) && self.live.contains(&((block.0 >> 32) as u32))
    }

    /// Is it live?
    ///
    /// # Errors
    /// [`AllocError::UnknownBlock`] if it is not.
    pub(crate) fn check(&self, block: Block) -> Result<(), AllocError> {
        self.is_live(block).then_some(()).ok_or(AllocError::UnknownBlock(block))
    }

    /// Takes one back.
    ///
    /// # Errors
    /// [`AllocError::UnknownBlock`] if it is not live.
    pub(crate) fn free(&mut self, block: Block) -> Result<(), AllocError> {
        self.take(block).then_some(()).ok_or(AllocError::UnknownBlock(block))
    }

    /// Takes one back; false if it is not live.
    pub(crate) fn take(&mut self, block: Block) -> bool {
        Self::owns(block) && self.live.remove(&((block.0 >> 32) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_placement_is_taken_back_once() {
        let mut nulls = Nulls::default();
        let (a, b) = (nulls.place(), nulls.place());
        assert_eq!((a.address, a.size), (0, 0));
        assert_ne!(a.block, b.block);
        assert!(nulls.take(a.block));
        assert!(!nulls.take(a.block));
        assert!(nulls.is_live(b.block));
        let unknown = Err(AllocError::UnknownBlock(a.block));
        assert_eq!((nulls.check(a.block), nulls.free(a.block)), (unknown.clone(), unknown));
        assert_eq!((nulls.check(b.block), nulls.free(b.block)), (Ok(()), Ok(())));
    }
}
