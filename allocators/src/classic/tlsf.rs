//! `classic.tlsf`: two-level segregated fit, a good fit in constant time.
//!
//! | rule | what it says |
//! |---|---|
//! | `classes` | free pieces are listed by size class: powers of two of units, each cut into 32 equal classes; below 32 units one class per size |
//! | `good_fit` | a request is rounded up to the next class border for the search, so that any piece of the class found is large enough: the first of the first list that is not empty |
//! | `lifo` | a freed piece goes to the front of its list |
//! | `split`, `coalesce` | as in `tagged` beside this file: the block keeps its own size, the rest goes back |
//!
//! Source: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004.
//! Departures: the tags lie beside the memory, so there is no header in the block and no least block of four words; segments are added as in
//! `pool` beside this file, and the request that a segment was made for is served from it without a search.

use vramlab_sim::allocator::Allocator;

use super::options::{TAGGED, inert};
use super::tagged::{self, FreeIndex};
use crate::options::{OptionError, Options};
use crate::parts::pieces::Pieces;
use crate::parts::two_level::TwoLevel;
use crate::registry::{Status, Strategy};

/// 2^5 classes per power of two, as the paper advises.
type Levels = TwoLevel<5>;

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.tlsf",
    new,
    Status::Model,
    TAGGED,
    "two-level segregated fit: a good fit in constant time",
)
.inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(tagged::build("classic.tlsf", options, Tlsf { levels: Levels::new() })?))
}

/// Lists through the pieces: `a` is the one before, `b` the one after. They are rings with an end in slot `class`, so that a
/// piece is put in and taken out without a branch.
struct Tlsf {
    levels: Levels,
}

impl Tlsf {
    #[inline]
    fn push(&mut self, pieces: &mut Pieces, slot: u32, class: usize) {
        let end = class as u32;
        let first = std::mem::replace(&mut pieces.get_mut(end).b, slot);
        pieces.get_mut(first).a = slot;
        let piece = pieces.get_mut(slot);
        (piece.a, piece.b) = (end, first);
        self.levels.set(class);
    }

    #[inline]
    fn unlink(&mut self, pieces: &mut Pieces, slot: u32, class: usize) {
        let (before, after) = (pieces.get(slot).a, pieces.get(slot).b);
        pieces.get_mut(before).b = after;
        pieces.get_mut(after).a = before;
        self.levels.clear_if(class, before == after); // both are the end
    }
}

impl FreeIndex for Tlsf {
    const POOL: &'static str = "tlsf";
    const ENDS: usize = Levels::CLASSES;

    #[inline]
    fn find(&mut self, pieces: &Pieces, units: u32) -> Option<u32> {
        let class = self.levels.first_from(Levels::class_above(units))?;
        Some(pieces.get(class as u32).b)
    }

    #[inline]
    fn insert(&mut self, pieces: &mut Pieces, slot: u32) {
        let class = Levels::class(pieces.get(slot).units);
        self.push(pieces, slot, class);
    }

    #[inline]
    fn remove(&mut self, pieces: &mut Pieces, slot: u32) {
        let class = Levels::class(pieces.get(slot).units);
        self.unlink(pieces, slot, class);
    }

    #[inline(always)]
    fn resized(&mut self, pieces: &mut Pieces, slot: u32, old_units: u32, _old_address: u64) {
        let (old, class) = (Levels::class(old_units), Levels::class(pieces.get(slot).units));
        if old == class && pieces.get(slot).a == class as u32 {
            return; // it would go to the front, where it is
        }
        self.unlink(pieces, slot, old);
        self.push(pieces, slot, class);
    }

    fn largest(&self, pieces: &Pieces) -> u32 {
        let Some(class) = self.levels.last() else { return 0 };
        let (mut at, mut largest) = (pieces.get(class as u32).b, 0);
        while at != class as u32 {
            largest = largest.max(pieces.get(at).units);
            at = pieces.get(at).b;
        }
        largest
    }

    fn findable(units: u32) -> u64 {
        Levels::floor(Levels::class_above(units)).unwrap_or(units).into()
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn good_fit_passes_over_a_piece_of_its_own_class() {
        let mut probe = Probe::new("classic.tlsf");
        // classes of 64 to 128 units (32 to 64 KiB) are 2 units wide
        let [a, _] = [33 * 512, 512].map(|size| probe.alloc(size));
        let [b, _] = [67 * 512, 512].map(|size| probe.alloc(size));
        probe.free(a);
        probe.free(b);
        assert_eq!(probe.place(33 * 512), 0, "a border of its class");
        assert_eq!(
            probe.place(67 * 512),
            102 * 512,
            "67 is searched as 68: the freed 67 are not seen"
        );
        assert_eq!(probe.place(66 * 512), 34 * 512, "66 is");
    }

    #[test]
    fn freed_pieces_are_taken_last_in_first_out() {
        let mut probe = Probe::new("classic.tlsf");
        let [a, _, c, _] = [4, 1, 4, 1].map(|kib| probe.alloc(kib * KIB));
        probe.free(a);
        probe.free(c);
        assert_eq!([4, 4].map(|kib| probe.place(kib * KIB) / KIB), [5, 0]);
    }

    /// A segment is as large as the search for its request needs, or each request of 300.5 MiB would get a new one.
    #[test]
    fn a_large_segment_is_found_again() {
        let mut probe = Probe::new("classic.tlsf");
        for _ in 0..3 {
            let block = probe.alloc(601 << 19);
            probe.free(block);
        }
        assert_eq!(probe.reserved(), 304 << 20);
    }
}
