//! A piece of a segment, in 32 bytes.
//!
//! ```text
//!  segment │ offset │ size │ state, before │ after │ free: child, next, prev in its set
//!                                                  │ else: bytes asked for (64 bits), extra
//! ```

use crate::parts::free_set::Links;

/// Every block is a multiple of this many bytes (RULES 1).
pub(super) const UNIT: u64 = 512;
/// No piece; also the wall, which stands before the first and after the last piece of every segment.
pub(super) const WALL: u32 = 0;
const STATE_SHIFT: u32 = 28;
/// Pieces that an index can name: 2^28, of 32 bytes each.
pub(super) const INDEX_MASK: u32 = (1 << STATE_SHIFT) - 1;

/// What a piece is. Only `Free` is in a free set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// A slot of the arena that holds no piece, and the wall.
    Vacant = 0,
    Free,
    /// Handed out.
    Used,
    /// Handed out, with other streams recorded: `extra` is the mark of them.
    Shared,
    /// Freed, waits for events: `extra` counts them.
    Waiting,
    /// Freed during a capture, events are recorded later: `extra` is the mark of its streams.
    Deferred,
    /// Freed, waits for work that this run cannot see: `extra` is its place in the list of those.
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
    pub(super) before: u32,
    /// Piece after it; of a vacant slot, the next vacant one.
    pub(super) after: u32,
    /// Free: links of its free set. Else bytes asked for (two halves) and an extra number.
    pub(super) links: Links,
}

const _: () = assert!(size_of::<Piece>() == 32, "two pieces a cache line");

impl Piece {
    /// A piece in this state behind `prev`, with nothing after it.
    #[inline(always)]
    pub(super) fn behind(prev: u32, state: State) -> Self {
        Self { before: ((state as u32) << STATE_SHIFT) | prev, ..Self::default() }
    }
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
    pub(super) fn set_prev(&mut self, prev: u32) {
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
    /// Mark, count or place, of an active piece.
    #[inline]
    pub(super) fn extra(&self) -> u32 {
        self.links.prev
    }
    #[inline]
    pub(super) fn set_extra(&mut self, extra: u32) {
        self.links.prev = extra;
    }
}
