//! Pools and their blocks (rules `in_pool`, `class_list` and `pool_reuse` of [`super`]).

use super::arenas::NIL;
use super::geometry::{CLASSES, Geometry, HEADER, block_size};
use super::place::Place;

/// Largest generation of a token.
pub(super) const GENERATION_MAX: u32 = (1 << 23) - 1;
/// No block.
const NO_BLOCK: u16 = u16::MAX;

/// A block of a pool.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The block freed before it, while it is free.
    next: u16,
    /// Bytes asked for; 0 while it is free.
    requested: u16,
    /// Of its token, while it is live.
    generation: u32,
}

/// A pool; a number in [`Pools`].
#[derive(Clone, Debug)]
struct Pool {
    /// It was last used for this class; its blocks are still in their order.
    class: u8,
    live: u16,
    /// The block freed last.
    free: u16,
    /// Blocks that it can have.
    room: u16,
    /// Blocks that were used since it was carved for its class.
    blocks: Vec<Block>,
    prev: u32,
    next: u32,
}

const UNUSED: Pool = Pool {
    class: u8::MAX,
    live: 0,
    free: NO_BLOCK,
    room: 0,
    blocks: Vec::new(),
    prev: NIL,
    next: NIL,
};

/// All pools of all arenas.
#[derive(Debug)]
pub(super) struct Pools {
    list: Vec<Pool>,
    /// First pool with room, by class.
    heads: [u32; CLASSES],
    geometry: Geometry,
    /// Pools with a live block.
    pub(super) in_use: u64,
    /// Live blocks.
    pub(super) live: u64,
    /// Counts blocks handed out, as far as a token can tell.
    clock: u32,
}

impl Pools {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { list: Vec::new(), heads: [NIL; CLASSES], geometry, in_use: 0, live: 0, clock: 0 }
    }

    fn at(&mut self, pool: u32) -> &mut Pool {
        &mut self.list[pool as usize]
    }

    /// The pool that serves a class, if one has room.
    #[inline]
    pub(super) fn head(&self, class: u8) -> Option<u32> {
        let head = self.heads[class as usize];
        (head != NIL).then_some(head)
    }

    /// A pool that its arena gave begins to serve a class.
    pub(super) fn begin(&mut self, pool: u32, class: u8) {
        let at = pool as usize;
        if self.list.len() <= at {
            self.list.resize(at + 1, UNUSED);
        }
        if self.list[at].class != class {
            let room = ((self.geometry.pool - HEADER) / block_size(class)) as u16;
            self.list[at] = Pool { class, room, ..UNUSED };
        }
        self.in_use += 1;
        self.link(pool);
    }

    /// To the front of its class's list.
    fn link(&mut self, pool: u32) {
        let class = self.at(pool).class as usize;
        let next = std::mem::replace(&mut self.heads[class], pool);
        let at = self.at(pool);
        (at.prev, at.next) = (NIL, next);
        if next != NIL {
            self.at(next).prev = pool;
        }
    }

    fn unlink(&mut self, pool: u32) {
        let Pool { class, prev, next, .. } = *self.at(pool);
        if prev == NIL {
            self.heads[class as usize] = next;
        } else {
            self.at(prev).next = next;
        }
        if next != NIL {
            self.at(next).prev = prev;
        }
    }

    /// A block of a pool that has room: the one freed last, or the first that was not used yet.
    #[inline]
    pub(super) fn take(&mut self, pool: u32, requested: u16) -> Place {
        self.clock = (self.clock + 1) & GENERATION_MAX;
        self.live += 1;
        let generation = self.clock;
        let at = self.at(pool);
        let new = Block { next: NO_BLOCK, requested, generation };
        let block = if at.free == NO_BLOCK {
            at.blocks.push(new);
            (at.blocks.len() - 1) as u16
        } else {
            let block = at.free;
            let old = &mut at.blocks[block as usize];
            at.free = old.next;
            *old = new;
            block
        };
        at.live += 1;
        if at.live == at.room {
            self.unlink(pool);
        }
        Place { block, pool, generation }
    }

    /// The class of a live block.
    pub(super) fn find(&self, place: Place) -> Option<u8> {
        let at = self.list.get(place.pool as usize)?;
        let block = at.blocks.get(place.block as usize)?;
        (block.requested > 0 && block.generation == place.generation).then_some(at.class)
    }

    /// The block stays; so many bytes are used of it.
    pub(super) fn resize(&mut self, place: Place, requested: u16) {
        self.at(place.pool).blocks[place.block as usize].requested = requested;
    }

    /// Has the pool one live block?
    #[inline]
    pub(super) fn is_last(&self, pool: u32) -> bool {
        self.list[pool as usize].live == 1
    }

    /// Takes a live block back; its pool leaves its class if that is empty now.
    #[inline]
    pub(super) fn give(&mut self, place: Place) {
        let Place { block, pool, .. } = place;
        self.live -= 1;
        let at = self.at(pool);
        let was_full = at.live == at.room;
        at.live -= 1;
        let free = std::mem::replace(&mut at.free, block);
        at.blocks[block as usize] = Block { next: free, requested: 0, generation: 0 };
        let empty = at.live == 0;
        if was_full {
            self.link(pool);
        }
        if empty {
            self.unlink(pool);
            self.in_use -= 1;
        }
    }

    /// The arena of these pools is gone.
    pub(super) fn forget(&mut self, pools: std::ops::Range<u32>) {
        for pool in pools {
            if let Some(pool) = self.list.get_mut(pool as usize) {
                *pool = UNUSED;
            }
        }
    }

    /// Live blocks of a pool by offset: bytes from the pool's beginning, size, bytes asked for.
    pub(super) fn blocks(&self, pool: u32) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        let at = self.list.get(pool as usize);
        let blocks = at.map_or(&[][..], |pool| &pool.blocks);
        let size = at.map_or(0, |pool| block_size(pool.class));
        let live = (0_u32..).zip(blocks).filter(|(_, block)| block.requested > 0);
        live.map(move |(n, block)| (HEADER + n * size, size, block.requested.into()))
    }
}
