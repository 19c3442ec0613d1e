//! Tokens where blocks have no slots of their own: of plain ranges, and of a wrapper, which hands out its own since the strategies
//! inside, of which there may be several, each have theirs.

use vramlab_sim::allocator::{AllocError, Block, BlockState, Layout};

#[derive(Clone, Copy, Debug)]
struct Slot<T> {
    generation: u32,
    /// None while the slot is vacant.
    held: Option<T>,
}

/// What is known of each block that was handed out, by token.
#[derive(Clone, Debug)]
pub(crate) struct Tokens<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Tokens<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Tokens<T> {
    /// A new token.
    #[inline]
    pub(crate) fn insert(&mut self, held: T) -> Block {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot { generation: 0, held: None });
                (self.slots.len() - 1) as u32
            }
        };
        let at = &mut self.slots[slot as usize];
        at.generation = at.generation.wrapping_add(1);
        at.held = Some(held);
        Block(u64::from(at.generation) << 32 | u64::from(slot))
    }

    #[inline]
    fn slot(&self, token: Block) -> Option<usize> {
        let slot = token.0 as u32 as usize;
        let at = self.slots.get(slot)?;
        (u64::from(at.generation) == token.0 >> 32).then_some(slot)
    }

    /// What the token stands for.
    ///
    /// # Errors
    /// [`AllocError::UnknownBlock`] if it stands for nothing any more.
    #[inline]
    pub(crate) fn get(&self, token: Block) -> Result<&T, AllocError> {
        let held = self.slot(token).and_then(|slot| self.slots[slot].held.as_ref());
        held.ok_or(AllocError::UnknownBlock(token))
    }

    /// What the token stands for.
    ///
    /// # Errors
    /// As [`Tokens::get`].
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Block) -> Result<&mut T, AllocError> {
        let slot = self.slot(token);
        let held = slot.and_then(|slot| self.slots[slot].held.as_mut());
        held.ok_or(AllocError::UnknownBlock(token))
    }

    /// The token stands for nothing from now on.
    #[inline]
    pub(crate) fn remove(&mut self, token: Block) {
        if let Some(slot) = self.slot(token)
            && self.slots[slot].held.take().is_some()
        {
            self.vacant.push(slot as u32);
        }
    }

    /// All that is held, by number of the slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.held.as_ref())
    }
}

/// Blocks of a layout that contain one of the addresses are waiting, not allocated.
pub(crate) fn mark_pending(layout: &mut Layout, mut addresses: Vec<u64>) {
    addresses.sort_unstable();
    for block in layout.segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
        let next = addresses.partition_point(|address| *address < block.address);
        let inside = addresses.get(next).is_some_and(|at| *at - block.address < block.size);
        if inside && block.state == BlockState::Allocated {
            block.state = BlockState::Pending;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_dies_with_what_it_stood_for() {
        let mut tokens = Tokens::default();
        let first = tokens.insert('a');
        assert_eq!(tokens.get(first), Ok(&'a'));
        tokens.remove(first);
        tokens.remove(first);
        assert_eq!(tokens.get(first), Err(AllocError::UnknownBlock(first)));
        let second = tokens.insert('b');
        assert_ne!(first, second, "the slot is the same, the token is not");
        assert_eq!(tokens.get(first), Err(AllocError::UnknownBlock(first)));
        assert_eq!(tokens.iter().collect::<String>(), "b");
    }
}
