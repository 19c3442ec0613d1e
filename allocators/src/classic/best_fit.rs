//! `classic.best_fit`: the smallest free piece that is large enough.
//!
//! | rule | what it says |
//! |---|---|
//! | `best_fit` | the smallest free piece that is large enough serves the request; of equal ones the lowest |
//! | `unit`, `split`, `coalesce` | as in `tagged` beside this file |
//! | `grow` and the rest | as in `pool` beside this file |
//!
//! Source: D. Knuth, The Art of Computer Programming 1, section 2.5; P. Wilson et al., "Dynamic storage allocation: a survey and critical review",
//! 1995, section 3.4. Exact, and O(log n): the order is that of `SizeOrder`, not of size classes.

use vramlab_sim::allocator::Allocator;

use super::options::{TAGGED, inert};
use super::tagged::{self, FreeIndex};
use crate::options::{OptionError, Options};
use crate::parts::pieces::Pieces;
use crate::parts::size_order::SizeOrder;
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.best_fit",
    new,
    Status::Model,
    TAGGED,
    "smallest free piece that is large enough",
)
.inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(tagged::build("classic.best_fit", options, BestFit(SizeOrder::new()))?))
}

struct BestFit(SizeOrder);

impl FreeIndex for BestFit {
    const POOL: &'static str = "best_fit";

    #[inline]
    fn find(&mut self, pieces: &Pieces, units: u32) -> Option<u32> {
        self.0.smallest_from(pieces, units)
    }

    #[inline]
    fn insert(&mut self, pieces: &mut Pieces, slot: u32) {
        self.0.insert(pieces, slot);
    }

    #[inline]
    fn remove(&mut self, pieces: &mut Pieces, slot: u32) {
        let piece = pieces.get(slot);
        let (units, address) = (piece.units, piece.address());
        self.0.remove(pieces, slot, units, address);
    }

    #[inline]
    fn resized(&mut self, pieces: &mut Pieces, slot: u32, old_units: u32, old_address: u64) {
        self.0.resized(pieces, slot, old_units, old_address);
    }

    fn largest(&self, pieces: &Pieces) -> u32 {
        self.0.largest(pieces).map_or(0, |slot| pieces.get(slot).units)
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn best_fit_takes_the_tightest_gap_and_the_lowest_of_equal_ones() {
        let mut probe = Probe::new("classic.best_fit");
        let [a, _, c, _, e, _] = [8, 4, 16, 4, 8, 4].map(|kib| probe.alloc(kib * KIB));
        probe.free_all([a, c, e]);
        let got = [16, 8, 8, 8].map(|kib| probe.place(kib * KIB) / KIB);
        assert_eq!(got, [12, 0, 32, 44]);
    }
}
