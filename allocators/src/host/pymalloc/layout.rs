//! What is where: a segment for each arena and for each raw block.

use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};
use vramlab_sim::driver::Address;

use super::PyMalloc;
use super::arenas::Arena;

/// Tiles a segment from its beginning; gaps (headers of pools too) are free.
struct Tiles {
    blocks: Vec<LayoutBlock>,
    end: Address,
}

impl Tiles {
    fn gap(&mut self, until: Address) {
        let (address, size, state) = (self.end, until - self.end, BlockState::Free);
        if size > 0 {
            self.blocks.push(LayoutBlock { address, size, requested: 0, state, age: 0 });
        }
        self.end = until;
    }

    fn block(&mut self, address: Address, size: u64, requested: u64) {
        self.gap(address);
        let state = BlockState::Allocated;
        self.blocks.push(LayoutBlock { address, size, requested, state, age: 0 });
        self.end = address + size;
    }
}

fn segment(
    address: Address,
    size: u64,
    pool: &'static str,
    blocks: Vec<LayoutBlock>,
) -> LayoutSegment {
    LayoutSegment { address, size, pool, blocks, ..LayoutSegment::default() }
}

impl PyMalloc {
    fn arena(&self, slot: u32, arena: &Arena) -> LayoutSegment {
        let mut tiles = Tiles { blocks: Vec::new(), end: arena.address };
        let first = slot * self.geometry.pools();
        for pool in 0..arena.pools {
            let begin = arena.first + u64::from(pool) * u64::from(self.geometry.pool);
            for (offset, size, requested) in self.pools.blocks(first + pool) {
                tiles.block(begin + u64::from(offset), size.into(), requested);
            }
        }
        tiles.gap(arena.address + self.geometry.arena);
        segment(arena.address, self.geometry.arena, "arena", tiles.blocks)
    }

    /// In address order.
    pub(super) fn layout(&self) -> Layout {
        let arenas = self.arenas.live().map(|(slot, arena)| self.arena(slot, arena));
        let raw = self.raw.iter().map(|range| {
            let mut tiles = Tiles { blocks: Vec::new(), end: range.address };
            tiles.block(range.address, range.size, range.size);
            segment(range.address, range.size, "raw", tiles.blocks)
        });
        let mut segments: Vec<LayoutSegment> = arenas.chain(raw).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        Layout { segments }
    }
}
