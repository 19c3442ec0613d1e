//! `classic.worst_fit`: the largest free piece.
//!
//! | rule | what it says |
//! |---|---|
//! | `worst_fit` | the largest free piece serves the request, if it is large enough; of equal ones the lowest |
//! | `unit`, `split`, `coalesce` | as in `tagged` beside this file |
//! | `grow` and the rest | as in `pool` beside this file |
//!
//! Source: P. Wilson et al., "Dynamic storage allocation: a survey and critical review",
//! 1995, section 3.4. Exact, and O(log n): the order is that of [`SizeOrder`], not of size classes.

use vramlab_sim::allocator::Allocator;

use super::tagged::{self, FreeIndex};
use crate::options::{OptionError, Options};
use crate::parts::pieces::Pieces;
use crate::parts::size_order::SizeOrder;

pub(crate) fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(tagged::build("classic.worst_fit", options, WorstFit(SizeOrder::new()))?))
}

struct WorstFit(SizeOrder);

impl FreeIndex for WorstFit {
    const POOL: &'static str = "worst_fit";

    #[inline]
    fn find(&mut self, pieces: &Pieces, units: u32) -> Option<u32> {
        self.0.largest(pieces).filter(|slot| pieces.get(*slot).units >= units)
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
    fn worst_fit_takes_the_largest_piece() {
        let mut probe = Probe::new("classic.worst_fit");
        let [a, _, c, _] = [8, 4, 16, 4].map(|kib| probe.alloc(kib * KIB));
        probe.free_all([a, c]);
        let got = [8, 8].map(|kib| probe.place(kib * KIB) / KIB);
        assert_eq!(got, [32, 40], "the rest of the segment, although 8 KiB are free at 0");
    }
}
