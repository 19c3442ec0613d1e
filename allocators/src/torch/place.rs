//! The hot path: cutting a block off a piece, and joining a freed one with its neighbours.
//!
//! | rule | what it says |
//! |---|---|
//! | `split` | small pool: if 512 B remain; large pool: if the request is below the split limit and **more** than 1 MiB remains; while expandable segments are on: if 512 B remain, whatever the block. Else the whole block is handed out and counts whole (RULES 7, `split_small`, `split_large`, `carve_20m`, `xp_split`) |
//! | `merge` | a block that comes back joins the one before, then the one after, if they are free and wait for nothing (RULES 15, `coalesce*`) |

use vramlab_sim::allocator::{Block, Placement};

use super::Caching;
use super::pieces::{State, UNIT};

impl Caching {
    /// Hands out a free piece that is large enough; `IN_SET`: it is in its set, and taken out.
    #[inline(always)]
    pub(super) fn hand_out<const IN_SET: bool>(
        &mut self,
        set: u32,
        kind: usize,
        piece: u32,
        units: u32,
        requested: u64,
    ) -> Placement {
        self.pieces.reserve();
        let mut view = self.pieces.view();
        let free = &mut self.pools.sets[set as usize].free;
        if IN_SET {
            free.remove(&mut view, piece);
        }
        let at = view.get_mut(piece);
        let (size, was_part) = (at.size, at.is_split());
        at.set_state(State::Used);
        at.set_requested(requested);
        let (segment, offset) = (at.segment, at.offset);
        let segment = view.segment(segment);
        let address = segment.base + u64::from(offset) * UNIT;
        let counts_parts = !segment.is_expandable();
        let rest_size = size - units;
        let splits = rest_size >= self.rest_min[kind] && units < self.split_below[kind];
        let given = if splits { units } else { size };
        let bytes = u64::from(given) * UNIT;
        self.tally.alloc(kind, bytes, requested);
        if given >= self.split_limit {
            self.tally.oversize_blocks.rise(1);
        }
        if splits {
            let rest = view.split(piece, units, State::Free);
            free.insert(&mut view, rest);
            if counts_parts && was_part {
                self.tally.part_cut(kind, bytes);
            } else if counts_parts {
                self.tally.part_made(kind, u64::from(rest_size) * UNIT);
            }
            if self.has_births {
                self.note_birth(set, rest);
            }
        } else if counts_parts && was_part {
            self.tally.part_taken(kind, bytes);
        }
        Placement { block: Block(u64::from(piece)), address, size: bytes }
    }

    /// Frees a block in use that no other stream used. False if it is not one: nothing happens then.
    #[inline(always)]
    pub(super) fn free_plain(&mut self, block: Block) -> bool {
        if block.0 >= u64::from(self.pieces.slots()) {
            return false;
        }
        let piece = block.0 as u32;
        let at = self.pieces.get(piece);
        if !at.is(State::Used) {
            return false;
        }
        let (units, requested) = (at.size, at.requested());
        let kind = self.come_back(piece);
        self.tally.free(kind, u64::from(units) * UNIT, requested);
        self.book_oversize_free(units);
        true
    }

    /// A piece is free: joins it, puts it into its set, and books the change of free parts. Says of which kind it is.
    #[inline(always)]
    fn come_back(&mut self, piece: u32) -> usize {
        let view = self.pieces.view();
        let at = view.get(piece);
        let (units, segment) = (at.size, view.segment(at.segment));
        let (set, counts_parts) = (segment.set, !segment.is_expandable());
        let (whole, joined, joined_units) = self.join(set, piece);
        let kind = self.pools.sets[set as usize].kind & 1;
        if counts_parts && self.pieces.get(whole).is_split() {
            self.tally.part_joined(kind, u64::from(units) * UNIT, joined);
        } else if counts_parts {
            self.tally.parts_gone(kind, u64::from(joined_units) * UNIT, joined);
        }
        kind
    }

    /// As [`Self::come_back`], for other than plain frees.
    #[inline(never)]
    pub(super) fn give_back(&mut self, piece: u32) {
        self.come_back(piece);
    }

    /// Rule `merge`: joins a piece with its free neighbours and puts the whole into its set. Says also how many it joined, and their units.
    #[inline(always)]
    fn join(&mut self, set: u32, piece: u32) -> (u32, u32, u32) {
        let mut view = self.pieces.view();
        let free = &mut self.pools.sets[set as usize].free;
        let (mut whole, mut joined, mut units) = (piece, 0, 0);
        let at = view.get(piece);
        let (prev, next) = (at.prev(), at.next());
        if view.get(prev).is(State::Free) {
            free.remove(&mut view, prev);
            units += view.get(prev).size;
            view.absorb_next(prev);
            whole = prev;
            joined += 1;
        }
        if view.get(next).is(State::Free) {
            free.remove(&mut view, next);
            units += view.get(next).size;
            view.absorb_next(whole);
            joined += 1;
        }
        view.get_mut(whole).set_state(State::Free);
        free.insert(&mut view, whole);
        if self.has_births {
            self.note_birth(set, whole);
        }
        (whole, joined, units)
    }

    /// As [`Self::join`], where only the joined piece is of interest.
    pub(super) fn merge(&mut self, set: u32, piece: u32) -> u32 {
        self.join(set, piece).0
    }

    /// Puts a piece into its set.
    pub(super) fn put(&mut self, set: u32, piece: u32) {
        self.pieces.get_mut(piece).set_state(State::Free);
        self.pools.sets[set as usize].free.insert(&mut self.pieces, piece);
        if self.has_births {
            self.note_birth(set, piece);
        }
    }

    #[cold]
    fn note_birth(&mut self, set: u32, piece: u32) {
        let at = piece as usize;
        if self.births.len() <= at {
            self.births.resize(at + 1, 0);
        }
        self.births[at] = self.pools.pool_of(set).searches;
    }

    #[inline]
    pub(super) fn book_oversize_free(&mut self, units: u32) {
        if units >= self.split_limit {
            self.tally.oversize_blocks.fall(1);
        }
    }
}
