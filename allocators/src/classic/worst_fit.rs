//! `classic.worst_fit`: the largest free piece.
//!
//! | rule | what it says |
//! |---|---|
//! | `worst_fit` | the largest free piece serves the request, if it is large enough; of equal ones the lowest |
//! | `unit`, `split`, `coalesce` | as in `tagged` beside this file |
//! | `grow` and the rest | as in `pool` beside this file |
//!
//! Source: P. Wilson et al., "Dynamic storage allocation: a survey and critical review",
//! 1995, section 3.4. O(log n), by a `MaxHeap`.

use vramlab_sim::allocator::Allocator;

use super::options::{TAGGED, inert};
use super::tagged::{self, FreeIndex};
use crate::options::{OptionError, Options};
use crate::parts::max_heap::MaxHeap;
use crate::parts::pieces::Pieces;
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy =
    Strategy::plain("classic.worst_fit", new, Status::Model, TAGGED, "largest free piece")
        .inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(tagged::build("classic.worst_fit", options, WorstFit(MaxHeap::default()))?))
}

struct WorstFit(MaxHeap);

impl FreeIndex for WorstFit {
    const POOL: &'static str = "worst_fit";

    #[inline]
    fn find(&mut self, _pieces: &Pieces, units: u32) -> Option<u32> {
        let (slot, largest) = self.0.largest()?;
        (largest >= units).then_some(slot)
    }

    #[inline]
    fn insert(&mut self, pieces: &mut Pieces, slot: u32) {
        self.0.insert(pieces, slot);
    }

    #[inline]
    fn remove(&mut self, pieces: &mut Pieces, slot: u32) {
        self.0.remove(pieces, slot);
    }

    #[inline]
    fn resized(&mut self, pieces: &mut Pieces, slot: u32, _old_units: u32, _old_address: u64) {
        self.0.resized(pieces, slot);
    }

    fn largest(&self, _pieces: &Pieces) -> u32 {
        self.0.largest().map_or(0, |(_, units)| units)
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
