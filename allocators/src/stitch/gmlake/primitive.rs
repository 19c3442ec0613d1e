//! Primitive blocks: ranges that own their memory, cut and joined as in PyTorch.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `best_fit` | the smallest free block of the stream that is large enough, then the lowest address | 2284-2293, gm04 |
//! | `split` | the low end is handed out if 512 B (small pool) or 2 MiB (large) or more are left | 2239-2247, gm03 |
//! | `max_split_size` | blocks from the limit on are not split, and serve only requests from it on that are less than 20 MiB smaller | 2471-2480 |
//! | `merge` | a freed block is joined with free neighbours at once | 1838-1905, gm03 |

use vramlab_sim::units::StreamId;

use super::GmLake;
use super::sizes::{LARGE_SEGMENT_SIZE, PIECE_UNITS, UNIT};
use super::stitched::{Cover, Run, Table};
use crate::parts::pieces::{NIL, Pieces};
use crate::parts::size_order::SizeOrder;

/// A pool of one stream.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) stream: StreamId,
    pub(super) is_small: bool,
    /// Its free blocks.
    pub(super) order: SizeOrder,
    pub(super) free_units: u64,
    pub(super) free_count: u64,
}

/// What is kept of a block beside [`Pieces`], by its slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) segment: u32,
    pub(super) set: u32,
    /// It, or the stitched block over it, is freed and waits for other streams.
    pub(super) waiting: bool,
    /// It lies under a stitched block that is in use; its token is nobody's.
    pub(super) under: bool,
}

/// Free and used memory that is not whole segments, as PyTorch counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    pub(super) count: u64,
    pub(super) units: u64,
}

impl Split {
    fn add(&mut self, units: u32) {
        self.count += 1;
        self.units += u64::from(units);
    }

    fn sub(&mut self, units: u32) {
        self.count -= 1;
        self.units -= u64::from(units);
    }
}

/// Bytes in units; what no block has becomes [`u32::MAX`].
pub(super) fn units_of(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT).unwrap_or(u32::MAX)
}

impl GmLake {
    /// Rules `best_fit` and `max_split_size`; `Err`: there is one, but it is not for this request.
    #[inline]
    pub(super) fn best_fit(&self, set: u32, units: u32) -> Option<Result<u32, ()>> {
        let slot = self.sets[set as usize].order.smallest_from(&self.pieces, units)?;
        let found = self.pieces.get(slot).units;
        let refused = if units < self.split_limit {
            found >= self.split_limit
        } else {
            u64::from(found) >= u64::from(units) + LARGE_SEGMENT_SIZE / UNIT
        };
        Some(if refused { Err(()) } else { Ok(slot) })
    }

    /// A free block joins its set.
    pub(super) fn put_in(&mut self, slot: u32) {
        let piece = *self.pieces.get(slot);
        let set = &mut self.sets[self.marks[slot as usize].set as usize];
        set.order.insert(&mut self.pieces, slot);
        set.free_units += u64::from(piece.units);
        set.free_count += 1;
        if !piece.is_whole() {
            self.split.add(piece.units);
        }
    }

    /// A free block leaves its set.
    pub(super) fn take_out(&mut self, slot: u32) {
        let piece = *self.pieces.get(slot);
        let set = &mut self.sets[self.marks[slot as usize].set as usize];
        set.order.remove(&mut self.pieces, slot, piece.units, piece.address());
        set.free_units -= u64::from(piece.units);
        set.free_count -= 1;
        if !piece.is_whole() {
            self.split.sub(piece.units);
        }
    }

    /// Cuts `units` off the low end of a block that is in no set; gives the slot of the low end, the rest stays.
    pub(super) fn split_low(&mut self, slot: u32, units: u32) -> u32 {
        let low = self.pieces.split_low(slot, units);
        self.mark(low, self.marks[slot as usize]);
        low
    }

    pub(super) fn mark(&mut self, slot: u32, mark: Mark) {
        if self.marks.len() <= slot as usize {
            self.marks.resize(slot as usize + 1, Mark::default());
        }
        self.marks[slot as usize] = mark;
    }

    /// A free block of the set, or the low end of it, comes into use (rule `split`); gives its slot.
    #[inline]
    pub(super) fn cut(&mut self, slot: u32, units: u32) -> u32 {
        let piece = *self.pieces.get(slot);
        let mark = self.marks[slot as usize];
        let set = &mut self.sets[mark.set as usize];
        let rest = piece.units - units;
        let splits = match set.is_small {
            true => rest > 0,
            false => rest >= PIECE_UNITS && units < self.split_limit,
        };
        if !splits {
            self.take_out(slot);
            return slot;
        }
        let low = self.pieces.split_low(slot, units);
        set.order.resized(&mut self.pieces, slot, piece.units, piece.address());
        set.free_units -= u64::from(units);
        if piece.is_whole() {
            self.split.add(rest);
        } else {
            self.split.units -= u64::from(units);
        }
        self.mark(low, mark);
        low
    }

    /// The pieces of a block.
    pub(super) fn run(&self, slot: u32) -> Run {
        let (piece, segment) = (self.pieces.get(slot), self.marks[slot as usize].segment);
        let before = piece.address() - self.segments.get(segment).base;
        Run { segment, first: units_of(before) / PIECE_UNITS, count: piece.units / PIECE_UNITS }
    }

    /// The stitched blocks over a block learn that it is in use, or free again.
    #[inline]
    pub(super) fn tell_covers(&mut self, slot: u32, used: bool) {
        if self.table.len() > 0 {
            let run = self.run(slot);
            tell(&mut self.table, &self.segments.get(run.segment).covers, &run, used);
        }
    }

    /// A block is no longer in use (rule `merge`).
    #[inline]
    pub(super) fn give(&mut self, slot: u32) {
        let units = self.pieces.get(slot).units;
        self.active_units -= u64::from(units);
        self.tell_covers(slot, false);
        let mark = &mut self.marks[slot as usize];
        let Mark { segment, set, .. } = *mark;
        *mark = Mark { segment, set, ..Mark::default() };
        match (self.pieces.free_before(slot), self.pieces.free_after(slot)) {
            (None, None) => {
                self.pieces.give(slot);
                self.put_in(slot);
            }
            (None, Some(high)) => {
                self.grow(set, high, units, |pieces| pieces.join_down(high, slot));
            }
            (Some(low), None) => {
                self.grow(set, low, units, |pieces| pieces.join_up(low, slot));
                self.keep_tail(segment, low);
            }
            (Some(low), Some(high)) => {
                let more = units + self.pieces.get(high).units;
                self.take_out(high);
                self.grow(set, low, more, |pieces| {
                    pieces.join_up(low, slot);
                    pieces.join_up(low, high);
                });
                self.keep_tail(segment, low);
            }
        }
    }

    /// A free block of the set takes in what lies beside it.
    #[inline]
    fn grow(&mut self, set: u32, slot: u32, more: u32, join: impl FnOnce(&mut Pieces)) {
        let old = *self.pieces.get(slot);
        join(&mut self.pieces);
        let set = &mut self.sets[set as usize];
        set.order.resized(&mut self.pieces, slot, old.units, old.address());
        set.free_units += u64::from(more);
        if self.pieces.get(slot).is_whole() {
            self.split.sub(old.units);
        } else {
            self.split.units += u64::from(more);
        }
    }

    #[inline]
    fn keep_tail(&mut self, segment: u32, slot: u32) {
        if self.pieces.after(slot) == NIL {
            self.segments.get_mut(segment).tail = slot;
        }
    }
}

/// Tells the stitched blocks of a segment that pieces of it are in use, or free again.
fn tell(table: &mut Table, covers: &[Cover], run: &Run, used: bool) {
    for cover in covers {
        let pieces = cover.run.overlap(run);
        if pieces > 0 {
            table.count(cover.stitched, pieces, used);
        }
    }
}
