//! `predictor=stride`: the last turn of the loop comes again, and what grew or shrank from turn to turn goes on doing so.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `turn` | a loop's turn began at the last work that looked like this one: as many uses, of the same sizes, read and written the same | Chen, Baer, Effective hardware-based data prefetching (IEEE ToC 1995): the reference prediction table is looked up by the instruction |
//! | `stride` | a distance is that of a turn ago, and its change since the turn before that | Chen, Baer 3.2 |
//! | `memory` | turns of up to 16,384 tokens | - |

use super::plan::{Predictor, USE};

/// Tokens remembered, a power of two.
const REMEMBERED: usize = 1 << 15;
/// Entries of the table of works, a power of two.
const WORKS: usize = 1 << 12;
/// Tokens foretold for each work, and works that the list may reach ahead.
const REACH: (u32, u64) = (256, 4096);

/// The last turn, and where in it one is.
pub(super) struct Stride {
    /// Tokens seen, by position; then those foretold.
    tape: Vec<u32>,
    seen: usize,
    cursor: usize,
    /// By what a work looks like: its mark, and the position after it.
    works: Vec<(u32, usize)>,
    /// The work under way, so far.
    look: u32,
    /// Tokens of a turn; 0: none is known.
    turn: usize,
    /// That of the list.
    cursor_turn: usize,
}

impl Stride {
    pub(super) fn new() -> Self {
        Self {
            tape: vec![0; REMEMBERED],
            seen: 0,
            cursor: 0,
            works: vec![(0, 0); WORKS],
            look: 1,
            turn: 0,
            cursor_turn: 0,
        }
    }

    fn at(&self, position: usize) -> u32 {
        self.tape[position % REMEMBERED]
    }

    fn put(&mut self, position: usize, token: u32) {
        self.tape[position % REMEMBERED] = token;
    }

    /// A work ended.
    fn ended(&mut self) {
        let entry = &mut self.works[self.look as usize % WORKS];
        let (mark, position) = std::mem::replace(entry, (self.look, self.seen));
        let turn = self.seen - position;
        self.turn = if mark == self.look && turn <= REMEMBERED / 2 { turn } else { 0 };
        self.look = 1;
    }
}

impl Predictor for Stride {
    fn see(&mut self, token: u32, kind: u32) {
        self.put(self.seen, token);
        self.seen += 1;
        if token >= USE {
            self.look = (self.look.rotate_left(5) ^ kind).wrapping_mul(0x9E37_79B1);
        } else if token == super::plan::END {
            self.ended();
        }
    }

    fn rewind(&mut self) {
        self.cursor = self.seen;
        self.cursor_turn = self.turn;
    }

    fn foretell(&mut self) -> Option<u32> {
        let turn = self.cursor_turn;
        // what was foretold lies on the tape too: the oldest that is looked at must not be overwritten
        if turn == 0 || 2 * turn > self.cursor || self.cursor + 2 * turn > self.seen + REMEMBERED {
            return None;
        }
        let [last, before] = [turn, 2 * turn].map(|back| self.at(self.cursor - back));
        let token = if last < USE || before < USE {
            last
        } else {
            last.checked_add_signed(last.wrapping_sub(before).cast_signed())?
        };
        if token == USE || (last >= USE && token < USE) {
            return None; // nothing is used at distance 0
        }
        self.put(self.cursor, token);
        self.cursor += 1;
        Some(token)
    }

    fn reach(&self) -> (u32, u64) {
        REACH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiered::plan::{BIRTH, END};

    /// A turn: a request, two uses, the end of the work; the second use is further back each time.
    fn turn(stride: &mut Stride, distance: u32) {
        stride.see(BIRTH, 9);
        stride.see(USE + 1, 3);
        stride.see(USE + distance, 4);
        stride.see(END, 0);
    }

    #[test]
    fn what_grows_goes_on_growing() {
        let mut stride = Stride::new();
        [100, 110, 120].into_iter().for_each(|distance| turn(&mut stride, distance));
        stride.rewind();
        let foretold: Vec<_> = (0..8).filter_map(|_| stride.foretell()).collect();
        let want = [BIRTH, USE + 1, USE + 130, END, BIRTH, USE + 1, USE + 140, END];
        assert_eq!(foretold, want);
    }

    #[test]
    fn what_shrinks_ends_before_it_is_nothing() {
        let mut stride = Stride::new();
        [21, 14, 7].into_iter().for_each(|distance| turn(&mut stride, distance));
        stride.rewind();
        assert_eq!([stride.foretell(), stride.foretell()], [Some(BIRTH), Some(USE + 1)]);
        assert_eq!(stride.foretell(), None, "distance 0");
    }
}
