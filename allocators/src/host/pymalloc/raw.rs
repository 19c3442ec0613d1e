//! Blocks of the raw allocator (rule `raw` of [`super`]): each is a range of host memory of its own.

use vramlab_sim::allocator::Block;
use vramlab_sim::driver::Address;

/// Tokens of raw blocks have this bit.
const RAW: u64 = 1 << 63;

/// A range, or a vacant slot (size 0).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) address: Address,
    /// Bytes; never 0 while it is live.
    pub(super) size: u64,
    generation: u32,
}

/// The live ones.
#[derive(Debug, Default)]
pub(super) struct Raw {
    ranges: Vec<Range>,
    vacant: Vec<u32>,
    /// How many.
    pub(super) live: u64,
}

impl Raw {
    /// Is it a token of a raw block, live or not?
    pub(super) fn owns(block: Block) -> bool {
        block.0 & RAW != 0
    }

    pub(super) fn add(&mut self, address: Address, size: u64) -> Block {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.ranges.push(Range::default());
            (self.ranges.len() - 1) as u32
        });
        let range = &mut self.ranges[slot as usize];
        let generation = range.generation.wrapping_add(1) & (u32::MAX >> 1);
        *range = Range { address, size, generation };
        self.live += 1;
        Block(RAW | u64::from(generation) << 32 | u64::from(slot))
    }

    pub(super) fn find(&self, block: Block) -> Option<Range> {
        let range = self.ranges.get(block.0 as u32 as usize)?;
        let same = u64::from(range.generation) == (block.0 & !RAW) >> 32;
        (range.size > 0 && same).then_some(*range)
    }

    /// Drops a live one.
    pub(super) fn remove(&mut self, block: Block) {
        let slot = block.0 as u32;
        self.ranges[slot as usize].size = 0;
        self.vacant.push(slot);
        self.live -= 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.ranges.iter().filter(|range| range.size > 0)
    }
}
