//! The part that all strategies with boundary tags and immediate coalescing share: they differ in which free piece serves a request.
//!
//! | rule | what it says |
//! |---|---|
//! | `unit` | a block takes whole units of `align` bytes |
//! | `split` | a block is cut off the low end of its piece whenever a unit or more is left |
//! | `coalesce` | a freed block is joined with free neighbours at once; never across segments |

use vramlab_sim::allocator::{Block, LayoutSegment, Placement};

use super::options::{self, Growth};
use super::pool::Pool;
use super::rule::{GRANULE, Need, Rule};
use crate::options::{OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::{Pieces, Segment};
use crate::parts::shell::Shell;

/// Free pieces in a strategy's order. It keeps `a` and `b` of free pieces.
pub(super) trait FreeIndex: Send {
    /// The pool's name in layouts.
    const POOL: &'static str;

    /// Slots that it wants for the ends of its lists, from 0 on.
    const ENDS: usize = 0;

    /// The piece that serves a request of `units` (1 or more). It stays in the index.
    fn find(&mut self, pieces: &Pieces, units: u32) -> Option<u32>;

    /// Takes a free piece in.
    fn insert(&mut self, pieces: &mut Pieces, slot: u32);

    /// Takes a free piece out, as it is.
    fn remove(&mut self, pieces: &mut Pieces, slot: u32);

    /// A free piece changed its size, or its beginning too; before, it had these. It has the same free neighbours in address order.
    fn resized(&mut self, pieces: &mut Pieces, slot: u32, old_units: u32, old_address: u64);

    /// A block was set aside.
    fn placed(&mut self, _pieces: &Pieces, _slot: u32) {}

    /// Units of the largest free piece.
    fn largest(&self, pieces: &Pieces) -> u32;

    /// Units of a segment in which [`FreeIndex::find`] finds a request of `units` again.
    fn findable(units: u32) -> u64 {
        units.into()
    }
}

/// Boundary tags and an index.
pub(super) struct Tagged<I> {
    pieces: Pieces,
    index: I,
    /// Bytes.
    segment: u64,
    /// Segments that are one free piece.
    idle: usize,
}

/// Builds a strategy of this kind.
pub(super) fn build<I: FreeIndex>(
    name: &str,
    given: &Options,
    index: I,
) -> Result<Shell<Pool<Tagged<I>>>, OptionError> {
    given.check(name, options::TAGGED)?;
    let (align, segment) = (options::align(given)?, options::segment(given)?);
    let rule = Tagged { pieces: Pieces::new(align).with_ends(I::ENDS), index, segment, idle: 0 };
    Ok(Pool::shell(rule, Growth::parse(given)?))
}

impl<I: FreeIndex> Tagged<I> {
    /// Makes a block of `units` out of a piece that is in the index.
    #[inline(always)]
    fn cut(&mut self, slot: u32, units: u32, size: u64, uses: &mut LastUses) -> u32 {
        let piece = *self.pieces.get(slot);
        self.idle -= usize::from(piece.is_whole());
        let block = if piece.units > units {
            let low = self.pieces.split_low(slot, units);
            self.index.resized(&mut self.pieces, slot, piece.units, piece.address());
            uses.cut(slot, low);
            low
        } else {
            self.index.remove(&mut self.pieces, slot);
            slot
        };
        self.pieces.take(block, size);
        self.index.placed(&self.pieces, block);
        block
    }
}

impl<I: FreeIndex> Rule for Tagged<I> {
    #[inline(always)]
    fn take(&mut self, size: u64, uses: &mut LastUses) -> Option<u32> {
        let units = self.pieces.units(size)?;
        let slot = self.index.find(&self.pieces, units)?;
        Some(self.cut(slot, units, size, uses))
    }

    fn need(&self, size: u64) -> Option<Need> {
        let units = self.pieces.units(size)?;
        let whole = |units: u64| (units * self.pieces.unit()).next_multiple_of(GRANULE);
        let least = whole(units.into());
        let full = whole(I::findable(units)).max(self.segment);
        let fits = |bytes: u64| self.pieces.units(bytes).is_some();
        fits(least).then_some(Need { least, full: if fits(full) { full } else { least } })
    }

    fn segment_max(&self) -> u64 {
        self.pieces.bytes(u32::MAX)
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, segment: Segment, size: u64, uses: &mut LastUses) -> u32 {
        let slot = self.pieces.add(segment);
        uses.fresh(slot);
        self.index.insert(&mut self.pieces, slot);
        self.idle += 1;
        let units = self.pieces.units(size).unwrap_or(u32::MAX);
        self.cut(slot, units, size, uses)
    }

    #[inline]
    fn find(&self, token: Block) -> Option<u32> {
        self.pieces.find(token)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        self.pieces.placement(slot)
    }

    #[inline(always)]
    fn give(&mut self, slot: u32, uses: &mut LastUses) {
        let (before, after) = (self.pieces.free_before(slot), self.pieces.free_after(slot));
        let grown = before.or(after).map(|slot| (slot, *self.pieces.get(slot)));
        if let (Some(_), Some(high)) = (before, after) {
            self.index.remove(&mut self.pieces, high);
        }
        let joined = match (before, after) {
            (None, None) => {
                self.pieces.give(slot);
                self.index.insert(&mut self.pieces, slot);
                slot
            }
            (None, Some(high)) => {
                self.pieces.join_down(high, slot);
                uses.join(high, slot);
                high
            }
            (Some(low), after) => {
                self.pieces.join_up(low, slot);
                uses.join(low, slot);
                if let Some(high) = after {
                    self.pieces.join_up(low, high);
                    uses.join(low, high);
                }
                low
            }
        };
        if let Some((_, old)) = grown {
            self.index.resized(&mut self.pieces, joined, old.units, old.address());
        }
        self.idle += usize::from(self.pieces.get(joined).is_whole());
    }

    fn idle(&self) -> Vec<(u32, Segment)> {
        let whole = if self.idle == 0 { Vec::new() } else { self.pieces.whole_free() };
        whole.into_iter().map(|slot| (slot, self.pieces.extent(slot))).collect()
    }

    fn drop_idle(&mut self, slot: u32, uses: &mut LastUses) {
        self.index.remove(&mut self.pieces, slot);
        self.idle -= 1;
        uses.forget(slot);
        self.pieces.remove(slot);
    }

    fn largest_free(&self) -> u64 {
        self.pieces.bytes(self.index.largest(&self.pieces))
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.pieces.walk(I::POOL)
    }
}
