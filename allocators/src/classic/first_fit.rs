//! `classic.first_fit`: the free piece of lowest address that is large enough.
//!
//! | rule | what it says |
//! |---|---|
//! | `first_fit` | the free list is in address order and searched from its beginning; the first piece that is large enough serves the request |
//! | `unit`, `split`, `coalesce` | as in `tagged` beside this file |
//! | `grow` and the rest | as in `pool` beside this file |
//!
//! Source: D. Knuth, The Art of Computer Programming 1, section 2.5, algorithm A; address order as in P. Wilson et al., "Dynamic storage
//! allocation: a survey and critical review", 1995, section 3.4. The list is a tree that knows the largest piece of each part, so the search takes O(log n)
//! and finds what a walk along the list would.

use vramlab_sim::allocator::Allocator;

use super::options::{TAGGED, inert};
use super::tagged::{self, FreeIndex};
use crate::options::{OptionError, Options};
use crate::parts::max_tree::MaxTree;
use crate::parts::pieces::Pieces;
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.first_fit",
    new,
    Status::Model,
    TAGGED,
    "lowest free piece that is large enough",
)
.inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(tagged::build("classic.first_fit", options, FirstFit(MaxTree::new()))?))
}

struct FirstFit(MaxTree);

impl FreeIndex for FirstFit {
    const POOL: &'static str = "first_fit";

    #[inline]
    fn find(&mut self, _pieces: &Pieces, units: u32) -> Option<u32> {
        self.0.first_from(0, units)
    }

    #[inline]
    fn insert(&mut self, pieces: &mut Pieces, slot: u32) {
        let piece = pieces.get(slot);
        self.0.insert(piece.address(), piece.units, slot);
    }

    #[inline]
    fn remove(&mut self, pieces: &mut Pieces, slot: u32) {
        self.0.remove(pieces.get(slot).address());
    }

    #[inline]
    fn resized(&mut self, pieces: &mut Pieces, slot: u32, _old_units: u32, old_address: u64) {
        let piece = pieces.get(slot);
        self.0.update(old_address, piece.address(), piece.units, slot);
    }

    fn largest(&self, _pieces: &Pieces) -> u32 {
        self.0.most()
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn first_fit_takes_the_lowest_gap() {
        let mut probe = Probe::new("classic.first_fit");
        let [a, _, c, _] = [8, 4, 16, 4].map(|kib| probe.alloc(kib * KIB));
        probe.free(a);
        probe.free(c);
        let got = [4, 8, 4, 16].map(|kib| probe.place(kib * KIB) / KIB);
        assert_eq!(
            got,
            [0, 12, 4, 32],
            "low end of the first gap; its rest of 4 KiB is too small for 8"
        );
    }
}
