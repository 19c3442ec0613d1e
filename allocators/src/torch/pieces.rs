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

use crate::parts::free_set::{Links, Nodes, SIZE_MAX};

/// Every block is a multiple of this many bytes (RULES 1).
pub(super) const UNIT: u64 = 512;
/// Bytes that pieces can be cut from at most, in one range.
pub(super) const RANGE_SIZE_MAX: u64 = (SIZE_MAX as u64) * UNIT;
/// No piece; also the wall.
pub(super) const WALL: u32 = 0;
/// Not expandable.
pub(super) const NO_RANGE: u32 = u32::MAX;

const STATE_SHIFT: u32 = 28;
/// Pieces that an index can name: 2^28, of 32 bytes each.
const INDEX_MASK: u32 = (1 << STATE_SHIFT) - 1;
/// Gone segments that are kept numbered, at least, before numbers are made dense again.
const GONE_MIN: usize = 64;
/// Slots that the arena grows by: as many as it has, within these.
const GROWTH_MIN: usize = 16;
const GROWTH_MAX: usize = 1 << 16;

/// What a piece is. Only `Free` is in a free set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// A slot of the arena that holds no piece, and the wall.
    Vacant = 0,
    Free,
    /// Handed out.
    Used,
    /// Handed out, with other streams recorded: `extra` is the entry of them.
    Shared,
    /// Freed, waits for events: `extra` counts them.
    Waiting,
    /// Freed during a capture, events are recorded later: `extra` is the entry of its streams.
    Deferred,
    /// Freed, waits for work that this run cannot see.
    Unseen,
    /// Addresses of an expandable segment without memory.
    Unmapped,
    /// A slot whose token may still be heard of; holds no piece.
    Ghost,
}

const STATES: [State; 16] = {
    let mut states = [State::Vacant; 16];
    states[1] = State::Free;
    states[2] = State::Used;
    states[3] = State::Shared;
    states[4] = State::Waiting;
    states[5] = State::Deferred;
    states[6] = State::Unseen;
    states[7] = State::Unmapped;
    states[8] = State::Ghost;
    states
};

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct Piece {
    pub(super) segment: u32,
    /// Units from the segment's beginning.
    pub(super) offset: u32,
    /// Units.
    pub(super) size: u32,
    /// State in the upper 4 bits, piece before it in the others.
    before: u32,
    /// Piece after it; of a vacant slot, the next vacant one.
    after: u32,
    /// Free: links of its free set. Else bytes asked for (two halves) and an extra number.
    links: Links,
}

const _: () = assert!(size_of::<Piece>() == 32, "two pieces a cache line");

impl Piece {
    #[inline]
    pub(super) fn state(&self) -> State {
        STATES[(self.before >> STATE_SHIFT) as usize]
    }
    #[inline]
    pub(super) fn is(&self, state: State) -> bool {
        self.before >> STATE_SHIFT == state as u32
    }
    #[inline]
    pub(super) fn set_state(&mut self, state: State) {
        self.before = (self.before & INDEX_MASK) | ((state as u32) << STATE_SHIFT);
    }
    #[inline]
    pub(super) fn prev(&self) -> u32 {
        self.before & INDEX_MASK
    }
    #[inline]
    fn set_prev(&mut self, prev: u32) {
        self.before = (self.before & !INDEX_MASK) | prev;
    }
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.after
    }
    /// Is it a part of its segment, and not all of it?
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        (self.prev() | self.after) != WALL
    }
    /// Bytes.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.size) * UNIT
    }
    /// Bytes asked for, of an active piece.
    #[inline]
    pub(super) fn requested(&self) -> u64 {
        u64::from(self.links.child) | (u64::from(self.links.next) << 32)
    }
    #[inline]
    pub(super) fn set_requested(&mut self, bytes: u64) {
        self.links.child = bytes as u32;
        self.links.next = (bytes >> 32) as u32;
    }
    /// Entry or count, of an active piece.
    #[inline]
    pub(super) fn extra(&self) -> u32 {
        self.links.prev
    }
    #[inline]
    pub(super) fn set_extra(&mut self, extra: u32) {
        self.links.prev = extra;
    }
}

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

    /// The hot path's hold on the pieces.
    #[inline(always)]
    pub(super) fn view(&mut self) -> View<'_> {
        View {
            list: &mut self.list,
            segments: &self.segments,
            vacant: &mut self.vacant,
            by_address: self.by_address,
        }
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

/// The arena's slices at hand, so that the hot path need not look up where they are for each step.
pub(super) struct View<'a> {
    list: &'a mut [Piece],
    segments: &'a [Segment],
    vacant: &'a mut u32,
    by_address: bool,
}

impl View<'_> {
    #[inline(always)]
    fn view(&mut self) -> View<'_> {
        View {
            list: self.list,
            segments: self.segments,
            vacant: self.vacant,
            by_address: self.by_address,
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, piece: u32) -> &Piece {
        &self.list[piece as usize]
    }
    #[inline(always)]
    pub(super) fn get_mut(&mut self, piece: u32) -> &mut Piece {
        &mut self.list[piece as usize]
    }
    #[inline(always)]
    pub(super) fn segment(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    /// Cuts a piece after `units`; the rest becomes a new piece. There must be a vacant slot.
    #[inline(always)]
    pub(super) fn split(&mut self, piece: u32, units: u32, state: State) -> u32 {
        let rest = *self.vacant;
        let front = self.get_mut(piece);
        let Piece { segment, offset, size, after, .. } = *front;
        front.size = units;
        front.after = rest;
        let slot = self.get_mut(rest);
        let vacant = slot.after;
        *slot = Piece {
            segment,
            offset: offset + units,
            size: size - units,
            before: ((state as u32) << STATE_SHIFT) | piece,
            after,
            links: Links::default(),
        };
        self.get_mut(after).set_prev(rest);
        *self.vacant = vacant;
        rest
    }

    /// As [`Pieces::absorb_next`].
    #[inline(always)]
    pub(super) fn absorb_next(&mut self, piece: u32) {
        let gone = self.get(piece).after;
        let vacant = std::mem::replace(self.vacant, gone);
        let slot = self.get_mut(gone);
        let Piece { size, after, .. } = *slot;
        *slot = Piece { after: vacant, ..Piece::default() };
        let grown = self.get_mut(piece);
        grown.size += size;
        grown.after = after;
        self.get_mut(after).set_prev(piece);
    }
}

#[inline(always)]
fn comes_before(list: &[Piece], segments: &[Segment], by_address: bool, a: u32, b: u32) -> bool {
    let (a, b) = (&list[a as usize], &list[b as usize]);
    if by_address {
        let address = |at: &Piece| segments[at.segment as usize].base + u64::from(at.offset) * UNIT;
        return address(a) < address(b);
    }
    let key = |at: &Piece| (u64::from(at.segment) << 32) | u64::from(at.offset);
    key(a) < key(b)
}

macro_rules! nodes {
    ($of:ty, $view:expr) => {
        impl Nodes for $of {
            type Brief<'b>
                = View<'b>
            where
                Self: 'b;
            #[inline(always)]
            fn brief(&mut self) -> View<'_> {
                $view(self)
            }
            #[inline(always)]
            fn size(&self, piece: u32) -> u32 {
                self.get(piece).size
            }
            #[inline(always)]
            fn before(&self, a: u32, b: u32) -> bool {
                comes_before(&self.list, &self.segments, self.by_address, a, b)
            }
            #[inline(always)]
            fn links(&self, piece: u32) -> Links {
                self.get(piece).links
            }
            #[inline(always)]
            fn links_mut(&mut self, piece: u32) -> &mut Links {
                &mut self.get_mut(piece).links
            }
        }
    };
}

nodes!(Pieces, Pieces::view);
nodes!(View<'_>, View::view);

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
        assert!(kept.windows(2).all(|two| pieces.before(two[0].0, two[1].0)));
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
