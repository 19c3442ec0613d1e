//! Where a small block is: the parts of its token.

use vramlab_sim::allocator::Block;

/// Bits of a block's number, and of a pool's.
const BLOCK_BITS: u32 = 16;
const POOL_BITS: u32 = 24;
/// Pools have numbers below this.
pub(super) const POOLS_MAX: u32 = 1 << POOL_BITS;

/// A block in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// In the pool.
    pub(super) block: u16,
    /// Of all pools of all arenas.
    pub(super) pool: u32,
    /// Tells it from earlier blocks at this place; up to [`super::pools::GENERATION_MAX`].
    pub(super) generation: u32,
}

impl Place {
    pub(super) fn token(self) -> Block {
        let above = u64::from(self.generation) << POOL_BITS | u64::from(self.pool);
        Block(above << BLOCK_BITS | u64::from(self.block))
    }

    /// Of a token without the bit of raw blocks.
    pub(super) fn of(token: Block) -> Self {
        let above = token.0 >> BLOCK_BITS;
        Self {
            block: token.0 as u16,
            pool: above as u32 & (POOLS_MAX - 1),
            generation: (above >> POOL_BITS) as u32,
        }
    }
}
