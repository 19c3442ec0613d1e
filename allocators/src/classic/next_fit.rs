//! `classic.next_fit`: first fit that goes on where the last search ended.
//!
//! | rule | what it says |
//! |---|---|
//! | `next_fit` | the free list is in address order; the first piece that begins at or after the end of the last block placed and is large enough serves the request |
//! | `wrap` | past the last piece the search goes on at the lowest address |
//! | `unit`, `split`, `coalesce` | as in `tagged` beside this file |
//! | `grow` and the rest | as in `pool` beside this file |
//!
//! Source: D. Knuth, The Art of Computer Programming 1, section 2.5, exercise 6 (the roving pointer); P. Wilson et al., "Dynamic storage allocation: a
//! survey and critical review", 1995, section 3.4. O(log n), as first fit.

use vramlab_sim::allocator::Allocator;

use super::options::{TAGGED, inert};
use super::tagged::{self, FreeIndex};
use crate::options::{OptionError, Options};
use crate::parts::max_tree::MaxTree;
use crate::parts::pieces::Pieces;
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.next_fit",
    new,
    Status::Model,
    TAGGED,
    "first fit that goes on where the last search ended",
)
.inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(tagged::build(
        "classic.next_fit",
        options,
        NextFit { tree: MaxTree::new(), from: 0 },
    )?))
}

struct NextFit {
    tree: MaxTree,
    /// Where the search begins: the end of the last block placed.
    from: u64,
}

impl FreeIndex for NextFit {
    const POOL: &'static str = "next_fit";

    #[inline]
    fn find(&mut self, _pieces: &Pieces, units: u32) -> Option<u32> {
        self.tree.first_from(self.from, units).or_else(|| self.tree.first_from(0, units))
    }

    #[inline]
    fn insert(&mut self, pieces: &mut Pieces, slot: u32) {
        let piece = pieces.get(slot);
        self.tree.insert(piece.address(), piece.units, slot);
    }

    #[inline]
    fn remove(&mut self, pieces: &mut Pieces, slot: u32) {
        self.tree.remove(pieces.get(slot).address());
    }

    #[inline]
    fn resized(&mut self, pieces: &mut Pieces, slot: u32, _old_units: u32, old_address: u64) {
        let piece = pieces.get(slot);
        self.tree.update(old_address, piece.address(), piece.units, slot);
    }

    #[inline]
    fn placed(&mut self, pieces: &Pieces, slot: u32) {
        let piece = pieces.get(slot);
        self.from = piece.address() + pieces.bytes(piece.units);
    }

    fn largest(&self, _pieces: &Pieces) -> u32 {
        self.tree.most()
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn next_fit_goes_on_where_it_was() {
        let mut probe = Probe::new("classic.next_fit");
        let [a, _, c, _] = [8, 4, 16, 4].map(|kib| probe.alloc(kib * KIB));
        probe.free(a);
        probe.free(c);
        assert_eq!(probe.place(4 * KIB), 32 * KIB, "after the last block, not in a gap");
        let end = 32 * 1024 * KIB;
        assert_eq!(probe.place(end - 36 * KIB), 36 * KIB, "up to the end of the segment");
        let got = [4, 8, 4].map(|kib| probe.place(kib * KIB) / KIB);
        assert_eq!(got, [0, 12, 20], "round to the first gap, then on from there");
    }
}
