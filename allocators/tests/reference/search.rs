//! Which free block a request takes, and whether it is split (rules 5–7, 21, 24).

use super::settings::{BLOCK_SIZE_MIN, SMALL_SIZE_MAX};
use super::{Block, PoolKey, Reference, State, Version};

impl Reference {
    /// Place of a free block in the search order: stream, size, age of the segment (2.15 only), address.
    fn order(&self, at: u64, block: &Block) -> (u64, u64, u64, u64) {
        let age = if self.version == Version::V2_15 { block.segment } else { 0 };
        (block.stream, block.size, age, at)
    }

    /// The free blocks of a pool for which `wanted` holds, in search order.
    pub(super) fn free_blocks(&self, pool: PoolKey, wanted: impl Fn(&Block) -> bool) -> Vec<u64> {
        let mut found: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.state == State::Free && block.pool == pool && wanted(block))
            .map(|(at, block)| self.order(*at, block))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, _, at)| at).collect()
    }

    /// The block's size together with the unmapped piece right after it.
    fn expandable_size(&self, at: u64) -> u64 {
        let after =
            self.next(at).map(|next| self.block(next)).filter(|next| next.state == State::Unmapped);
        self.block(at).size + after.map_or(0, |next| next.size)
    }

    /// The free block for a request, still in its pool.
    pub(super) fn find_free_block(&mut self, pool: PoolKey, size: u64, stream: u64) -> Option<u64> {
        if self.collects_garbage() {
            *self.searches.entry(pool).or_default() += 1;
        }
        let found = self.free_blocks(pool, |block| block.stream == stream && block.size >= size);
        let candidate = if self.settings.expandable {
            let mut at = 0;
            while at + 1 < found.len()
                && self.block(found[at]).expandable
                && self.expandable_size(found[at + 1]) < self.expandable_size(found[at])
            {
                at += 1;
            }
            *found.get(at)?
        } else {
            *found.iter().find(|at| !self.block(**at).expandable)?
        };
        let limit = self.settings.max_split_size;
        let block = self.block(candidate).size;
        let refused = if size < limit {
            block >= limit
        } else {
            block >= size.saturating_add(self.settings.max_non_split_rounding)
        };
        (!refused).then_some(candidate)
    }

    /// Whether the rest of a block becomes a block of its own.
    pub(super) fn should_split(&self, at: u64, size: u64) -> bool {
        let block = self.block(at);
        let rest = block.size - size;
        if block.pool.small || self.settings.expandable {
            rest >= BLOCK_SIZE_MIN
        } else {
            size < self.settings.max_split_size && rest > SMALL_SIZE_MAX
        }
    }
}
