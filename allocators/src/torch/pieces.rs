//! The pieces that segments are cut into, in one arena, and the segments in order of age.
//!
//! ```text
//!  segments   0        1          2           oldest first; numbers are made dense again when many have gone
//!             │        │          │
//!  pieces     a─b─c    d          e─f         neighbours by address; each piece: segment, offset, size, state
//! ```
//!
//! Sizes and offsets are counted in units of 512 B, so that a piece is 32 bytes; the largest piece is thus just below 2 TiB. Piece 0 is a
//! wall: it stands before the first and after the last piece of every segment, is never free, and may be written to.

use crate::parts::free_set::SIZE_MAX;

pub(super) use super::piece::{Piece, State, UNIT, WALL};

use super::piece::INDEX_MASK;
use super::view::View;

/// Bytes that pieces can be cut from at most, in one range.
pub(super) const RANGE_SIZE_MAX: u64 = (SIZE_MAX as u64) * UNIT;
/// Not expandable.
pub(super) const NO_RANGE: u32 = u32::MAX;

/// Gone segments that are kept numbered, at least, before numbers are made dense again.
const GONE_MIN: usize = 64;
/// Slots that the arena grows by: as many as it has, within these.
const GROWTH_MIN: usize = 16;
const GROWTH_MAX: usize = 1 << 16;

/// A range of addresses that one malloc or one reservation gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) base: u64,
    /// The free set of its stream and pool.
    pub(super) set: u32,
    /// Number of the expandable range, or [`NO_RANGE`].
    pub(super) range: u32,
    /// How many segments were made before it.
    pub(super) registration: u64,
    gone: bool,
}

impl Segment {
    #[inline]
    pub(super) fn is_expandable(&self) -> bool {
        self.range != NO_RANGE
    }
}

/// All pieces and segments.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    list: Vec<Piece>,
    vacant: u32,
    segments: Vec<Segment>,
    gone: usize,
    registrations: u64,
    /// Ties between pieces of one size go by address, not by age of the segment first (RULES 5).
    by_address: bool,
}

impl Pieces {
    pub(super) fn new(by_address: bool) -> Self {
        Self {
            list: vec![Piece::default()],
            vacant: WALL,
            segments: Vec::new(),
            gone: 0,
            registrations: 0,
            by_address,
        }
    }

    #[inline]
    pub(super) fn get(&self, piece: u32) -> &Piece {
        &self.list[piece as usize]
    }
    #[inline]
    pub(super) fn get_mut(&mut self, piece: u32) -> &mut Piece {
        &mut self.list[piece as usize]
    }
    /// Has there been no segment yet?
    pub(super) fn is_new(&self) -> bool {
        self.registrations == 0
    }
    /// Slots of the arena, the wall included.
    pub(super) fn slots(&self) -> u32 {
        self.list.len() as u32
    }
    #[inline]
    pub(super) fn state(&self, piece: u32) -> State {
        self.get(piece).state()
    }
    #[inline]
    pub(super) fn segment_of(&self, piece: u32) -> &Segment {
        &self.segments[self.get(piece).segment as usize]
    }
    #[inline]
    pub(super) fn address(&self, piece: u32) -> u64 {
        let at = self.get(piece);
        self.segments[at.segment as usize].base + u64::from(at.offset) * UNIT
    }

    /// A segment that is younger than all others, as one piece in state `state`.
    pub(super) fn add_segment(
        &mut self,
        base: u64,
        set: u32,
        range: u32,
        size: u32,
        state: State,
    ) -> u32 {
        if self.gone > GONE_MIN.max(self.segments.len() / 2).max(self.list.len() / 8) {
            self.renumber();
        }
        let segment = self.segments.len() as u32;
        let registration = self.registrations;
        self.registrations += 1;
        self.segments.push(Segment { base, set, range, registration, gone: false });
        let piece = Piece { segment, offset: 0, size, ..Piece::default() };
        let piece = self.add(piece);
        self.get_mut(piece).set_state(state);
        piece
    }

    /// The order of creation of the next segment; an adopted state sets it.
    pub(super) fn set_registration(&mut self, piece: u32, registration: u64) {
        let segment = self.get(piece).segment as usize;
        self.segments[segment].registration = registration;
        self.registrations = self.registrations.max(registration + 1);
    }

    /// Drops a segment that is one piece.
    pub(super) fn drop_segment(&mut self, piece: u32) {
        let segment = self.get(piece).segment as usize;
        self.segments[segment].gone = true;
        self.gone += 1;
        self.vacate(piece);
    }

    /// Makes the numbers of segments dense; their order stays.
    fn renumber(&mut self) {
        let mut numbers = Vec::with_capacity(self.segments.len());
        let mut next = 0;
        for segment in &self.segments {
            numbers.push(next);
            next += u32::from(!segment.gone);
        }
        self.segments.retain(|segment| !segment.gone);
        self.gone = 0;
        for piece in self.list.iter_mut().filter(|piece| piece.state() != State::Vacant) {
            piece.segment = numbers[piece.segment as usize];
        }
    }

    fn add(&mut self, piece: Piece) -> u32 {
        if self.vacant == WALL {
            self.grow();
        }
        let index = self.vacant;
        self.vacant = self.get(index).after;
        *self.get_mut(index) = piece;
        index
    }

    /// A piece can be cut once without the arena growing.
    #[inline(always)]
    pub(super) fn reserve(&mut self) {
        if self.vacant == WALL {
            self.grow();
        }
    }

    /// More vacant slots.
    #[cold]
    fn grow(&mut self) {
        let first = self.list.len();
        let more = first.clamp(GROWTH_MIN, GROWTH_MAX);
        assert!(first + more <= INDEX_MASK as usize, "2^28 pieces are the most there can be");
        self.list.resize(first + more, Piece::default());
        (first..first + more).rev().for_each(|piece| self.vacate(piece as u32));
    }

    /// Does `a` come before `b`, both of one size?
    #[inline]
    pub(super) fn comes_before(&self, a: u32, b: u32) -> bool {
        comes_before(&self.list, &self.segments, self.by_address, a, b)
    }

    /// The hot path's hold on the pieces.
    #[inline(always)]
    pub(super) fn view(&mut self) -> View<'_> {
        View::new(&mut self.list, &self.segments, &mut self.vacant, self.by_address)
    }

    /// The slot is free for another piece.
    pub(super) fn vacate(&mut self, piece: u32) {
        let after = self.vacant;
        *self.get_mut(piece) = Piece { after, ..Piece::default() };
        self.vacant = piece;
    }

    /// Cuts a piece after `units`; the rest becomes a new piece in the same state.
    pub(super) fn split(&mut self, piece: u32, units: u32) -> u32 {
        self.reserve();
        let state = self.state(piece);
        self.view().split(piece, units, state)
    }

    /// A piece grows over the one after it, whose slot becomes vacant.
    pub(super) fn absorb_next(&mut self, piece: u32) {
        self.view().absorb_next(piece);
    }

    /// Moves a piece to another slot and leaves a ghost behind.
    pub(super) fn haunt(&mut self, piece: u32) -> u32 {
        let moved = *self.get(piece);
        let index = self.add(moved);
        if moved.prev() != WALL {
            self.get_mut(moved.prev()).after = index;
        }
        if moved.after != WALL {
            self.get_mut(moved.after).set_prev(index);
        }
        let ghost = self.get_mut(piece);
        *ghost = Piece::default();
        ghost.set_state(State::Ghost);
        index
    }

    /// Every piece that lies first in its segment.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u32> + '_ {
        (1..self.slots()).filter(|&piece| {
            let at = self.get(piece);
            at.prev() == WALL && !matches!(at.state(), State::Vacant | State::Ghost)
        })
    }
}

/// In the order of best fit, both of one size (RULES 5).
#[inline(always)]
pub(super) fn comes_before(
    list: &[Piece],
    segments: &[Segment],
    by_address: bool,
    a: u32,
    b: u32,
) -> bool {
    let (a, b) = (&list[a as usize], &list[b as usize]);
    if by_address {
        let address = |at: &Piece| segments[at.segment as usize].base + u64::from(at.offset) * UNIT;
        return address(a) < address(b);
    }
    let key = |at: &Piece| (u64::from(at.segment) << 32) | u64::from(at.offset);
    key(a) < key(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_and_joining_leave_one_piece() {
        let mut pieces = Pieces::new(false);
        let a = pieces.add_segment(1 << 30, 0, NO_RANGE, 100, State::Used);
        let b = pieces.split(a, 30);
        let c = pieces.split(b, 50);
        assert_eq!([a, b, c].map(|p| pieces.get(p).size), [30, 50, 20]);
        assert_eq!(pieces.address(c), (1 << 30) + 80 * UNIT);
        pieces.absorb_next(a);
        assert_eq!((pieces.get(a).next(), pieces.get(c).prev()), (c, a));
        pieces.absorb_next(a);
        assert!(!pieces.get(a).is_split());
        assert_eq!((pieces.get(a).size, pieces.get(WALL).size), (100, 0));
    }

    #[test]
    fn renumbering_keeps_ages_and_registrations() {
        let mut pieces = Pieces::new(false);
        let mut kept = Vec::new();
        for n in 0..1000 {
            let piece = pieces.add_segment(n << 21, 0, NO_RANGE, 8, State::Used);
            if n % 100 == 0 {
                kept.push((piece, n));
            } else {
                pieces.drop_segment(piece);
            }
        }
        assert!(pieces.segments.len() < 200, "{} segments", pieces.segments.len());
        for &(piece, n) in &kept {
            assert_eq!(pieces.segment_of(piece).registration, n);
            assert_eq!(pieces.address(piece), n << 21);
        }
        assert!(kept.windows(2).all(|two| pieces.comes_before(two[0].0, two[1].0)));
    }

    #[test]
    fn a_ghost_keeps_its_slot_until_it_is_laid() {
        let mut pieces = Pieces::new(false);
        let a = pieces.add_segment(0, 0, NO_RANGE, 10, State::Unseen);
        let moved = pieces.haunt(a);
        assert_eq!((pieces.state(a), pieces.state(moved)), (State::Ghost, State::Unseen));
        let b = pieces.split(moved, 4);
        assert!(b != a);
        pieces.vacate(a);
        assert_eq!(pieces.split(b, 2), a);
    }
}
