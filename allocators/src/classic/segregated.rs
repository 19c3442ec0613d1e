//! `classic.segregated`: simple segregated storage, a free list per size class.
//!
//! | rule | what it says |
//! |---|---|
//! | `classes` | a request is rounded up to a size class: multiples of `align` up to 8, then four classes per power of two |
//! | `lists` | a freed block goes to the list of its class and serves only that class again, last in, first out |
//! | `carve` | a class with an empty list gets a block from the unused tail of the newest segment |
//! | `tail` | what is left of a tail that is too small is cut into free blocks of the largest classes that fit |
//! | `own` | a block of a quarter of `segment` or more gets a segment of its own |
//! | `no_joining` | blocks are never split or joined; a segment goes back only when all its blocks are free |
//!
//! Source: P. Wilson, M. Johnstone, M. Neely, D. Boles, "Dynamic storage allocation: a survey and critical review", 1995, section 3.6 (simple
//! segregated storage). The rest as in `pool` beside this file.

use vramlab_sim::allocator::{Allocator, Block, LayoutSegment, Placement};

use super::options::{self, Growth};
use super::pool::Pool;
use super::rule::{GRANULE, Need, Rule};
use crate::options::{OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::{NIL, Piece, Pieces, Segment};
use crate::parts::two_level::TwoLevel;
use crate::registry::{Status, Strategy};

/// Four classes per power of two (rule `classes`).
type Levels = TwoLevel<2>;

/// A block of this part of a segment has one of its own (rule `own`).
const OWN_PART: u64 = 4;

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.segregated",
    new,
    Status::Model,
    options::TAGGED,
    "a free list per size class, no splitting or joining",
)
.inert(options::inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("classic.segregated", options::TAGGED)?;
    let (align, segment) = (options::align(options)?, options::segment(options)?);
    let rule = Segregated {
        pieces: Pieces::new(align),
        levels: Levels::new(),
        heads: vec![NIL; Levels::CLASSES],
        tail: None,
        segment,
    };
    Ok(Box::new(Pool::shell(rule, Growth::parse(options)?)))
}

struct Segregated {
    pieces: Pieces,
    levels: Levels,
    /// Lists through the pieces: `a` is the one before, `b` the one after.
    heads: Vec<u32>,
    /// The free piece from which new blocks are carved; in no list.
    tail: Option<u32>,
    /// Bytes.
    segment: u64,
}

impl Segregated {
    /// Class of a request and units of its blocks.
    #[inline]
    fn class(&self, size: u64) -> Option<(usize, u32)> {
        let class = Levels::class_above(self.pieces.units(size)?);
        Some((class, Levels::floor(class)?))
    }

    #[inline]
    fn push(&mut self, slot: u32) {
        let class = Levels::class(self.pieces.get(slot).units);
        let head = std::mem::replace(&mut self.heads[class], slot);
        let piece = self.pieces.get_mut(slot);
        (piece.a, piece.b) = (NIL, head);
        if head == NIL {
            self.levels.set(class);
        } else {
            self.pieces.get_mut(head).a = slot;
        }
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let (before, after) = (self.pieces.get(slot).a, self.pieces.get(slot).b);
        if after != NIL {
            self.pieces.get_mut(after).a = before;
        }
        if before != NIL {
            self.pieces.get_mut(before).b = after;
            return;
        }
        let class = Levels::class(self.pieces.get(slot).units);
        self.heads[class] = after;
        if after == NIL {
            self.levels.clear(class);
        }
    }

    /// Takes `units` off the low end of a piece that is in no list; what is left of it.
    #[inline]
    fn carve(&mut self, slot: u32, units: u32, uses: &mut LastUses) -> (u32, Option<u32>) {
        if self.pieces.get(slot).units == units {
            return (slot, None);
        }
        let low = self.pieces.split_low(slot, units);
        uses.cut(slot, low);
        (low, Some(slot))
    }

    /// Cuts a piece into blocks of the largest classes that fit, all free (rule `tail`).
    fn cut_up(&mut self, piece: Option<u32>, uses: &mut LastUses) {
        let mut rest = piece;
        while let Some(slot) = rest {
            let units = self.pieces.get(slot).units;
            let largest = Levels::floor(Levels::class(units)).unwrap_or(units);
            let (block, left) = self.carve(slot, largest, uses);
            self.push(block);
            rest = left;
        }
    }
}

impl Rule for Segregated {
    #[inline]
    fn take(&mut self, size: u64, uses: &mut LastUses) -> Option<u32> {
        let (class, units) = self.class(size)?;
        let head = self.heads[class];
        if head != NIL {
            self.unlink(head);
            self.pieces.take(head, size);
            return Some(head);
        }
        let tail = self.tail.filter(|tail| self.pieces.get(*tail).units >= units)?;
        let (block, rest) = self.carve(tail, units, uses);
        self.tail = rest;
        self.pieces.take(block, size);
        Some(block)
    }

    fn need(&self, size: u64) -> Option<Need> {
        let block = self.pieces.bytes(self.class(size)?.1);
        let least = block.next_multiple_of(GRANULE);
        self.pieces.units(least)?;
        let own = block >= self.segment / OWN_PART;
        Some(Need { least, full: if own { least } else { least.max(self.segment) } })
    }

    fn segment_max(&self) -> u64 {
        self.pieces.bytes(u32::MAX)
    }

    fn add(&mut self, segment: Segment, size: u64, uses: &mut LastUses) -> u32 {
        let slot = self.pieces.add(segment);
        uses.fresh(slot);
        let whole = self.pieces.get(slot).units;
        let units = self.class(size).map_or(whole, |(_, units)| units);
        let (block, rest) = self.carve(slot, units, uses);
        let spent = if self.pieces.bytes(units) >= self.segment / OWN_PART {
            rest
        } else {
            std::mem::replace(&mut self.tail, rest)
        };
        self.pieces.take(block, size);
        self.cut_up(spent, uses);
        block
    }

    #[inline]
    fn find(&self, token: Block) -> Option<u32> {
        self.pieces.find(token)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        self.pieces.placement(slot)
    }

    #[inline]
    fn give(&mut self, slot: u32, _uses: &mut LastUses) {
        self.pieces.give(slot);
        self.push(slot);
    }

    fn idle(&self) -> Vec<(u32, Segment)> {
        let pieces = |head: u32| self.pieces.from(head).map(|(_, piece)| piece);
        let mut heads = self.pieces.heads();
        heads.retain(|head| pieces(*head).all(Piece::is_free));
        let segment = |head: u32| {
            let size = pieces(head).map(|piece| self.pieces.bytes(piece.units)).sum();
            (head, Segment { address: self.pieces.get(head).address(), size })
        };
        heads.into_iter().rev().map(segment).collect()
    }

    fn drop_idle(&mut self, slot: u32, uses: &mut LastUses) {
        let slots: Vec<u32> = self.pieces.from(slot).map(|(slot, _)| slot).collect();
        for piece in slots {
            if self.tail == Some(piece) {
                self.tail = None;
            } else {
                self.unlink(piece);
            }
            if piece != slot {
                self.pieces.join_up(slot, piece);
            }
            uses.forget(piece);
        }
        self.pieces.remove(slot);
    }

    fn largest_free(&self) -> u64 {
        let listed = self.levels.last().and_then(Levels::floor).unwrap_or(0);
        let tail = self.tail.map_or(0, |tail| self.pieces.get(tail).units);
        self.pieces.bytes(listed.max(tail))
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.pieces.walk("segregated")
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn a_freed_block_serves_its_class_only() {
        let mut probe = Probe::new("classic.segregated");
        let a = probe.alloc(10 * KIB);
        probe.free(a);
        assert_eq!(probe.place(8 * KIB), 10 * KIB, "a smaller class does not take it");
        assert_eq!(probe.placement(8 * KIB + 1).size, 10 * KIB, "classes of 8, 10, 12, 14, 16 KiB");
        assert_eq!(probe.place(10 * KIB), 18 * KIB, "it is taken again");
    }

    #[test]
    fn a_spent_tail_is_cut_into_blocks() {
        let mut probe = Probe::new("classic.segregated:segment=8MiB");
        let _large = [0; 5].map(|_| probe.alloc(1600 * KIB)); // classes of 1.75 MiB
        assert_eq!(probe.reserved(), 16 << 20);
        assert_eq!(probe.place(1024 * KIB), 7168 * KIB, "1 MiB was left of the first segment");
    }

    #[test]
    fn a_large_block_has_its_own_segment() {
        let mut probe = Probe::new("classic.segregated");
        probe.alloc(8 << 20);
        assert_eq!(probe.reserved(), 8 << 20);
    }
}
