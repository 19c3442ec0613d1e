//! The times of frees, where the allocator keeps them (rule `timestamps` of [`super::bfc`]).

use std::collections::VecDeque;

use crate::parts::bfc::chunks::{Chunks, Joining};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Pieces;
use crate::parts::size_order::SizeOrder;

/// Times of free chunks, and the chunks that wait to be joined.
#[derive(Debug, Default)]
pub(super) struct Timestamps {
    /// By slot; 0: none, or not that new.
    freed_at: Vec<u64>,
    /// Slots, in the order of their frees. A slot in it may stand for another chunk by now, and is in it as often as it was freed: each place
    /// joins anew, as in the real queue, which like this one grows until the frontier passes.
    waiting: VecDeque<u32>,
    /// Counts frees.
    counter: u64,
    /// Times below this are safe.
    pub(super) safe_frontier: u64,
    /// What the next request says of itself: it may have chunks that were freed up to then; 0: any.
    pub(super) freed_by: u64,
}

/// The rule for joining: chunks without a time, or all.
struct Untimed<'a> {
    times: &'a mut Vec<u64>,
    all: bool,
}

impl Untimed<'_> {
    fn at(&self, slot: u32) -> u64 {
        self.times.get(slot as usize).copied().unwrap_or(0)
    }
}

impl Joining for Untimed<'_> {
    fn may_join(&self, a: u32, b: u32) -> bool {
        // the first chunk has a time only if its neighbours' do not matter either
        self.all || (self.at(a) == 0 && self.at(b) == 0)
    }

    fn joined(&mut self, into: u32, gone: u32) {
        let later = self.at(into).max(self.at(gone));
        set(self.times, into, later);
    }
}

fn set(times: &mut Vec<u64>, slot: u32, time: u64) {
    let at = slot as usize;
    if times.len() <= at {
        times.resize(at + 1, 0);
    }
    times[at] = time;
}

impl Timestamps {
    fn at(&self, slot: u32) -> u64 {
        self.freed_at.get(slot as usize).copied().unwrap_or(0)
    }

    /// May a request have this free chunk?
    pub(super) fn allows(&self, slot: u32) -> bool {
        self.freed_by == 0 || self.at(slot) <= self.freed_by
    }

    /// Is any chunk waiting?
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A chunk was freed: it keeps the time and waits.
    pub(super) fn freed(&mut self, slot: u32) {
        self.counter += 1;
        set(&mut self.freed_at, slot, self.counter);
        self.waiting.push_back(slot);
    }

    /// A rest was split off: it has its chunk's time, but does not wait.
    pub(super) fn split(&mut self, slot: u32, rest: u32) {
        let time = self.at(slot);
        set(&mut self.freed_at, rest, time);
    }

    /// New memory has no time; it is joined like a chunk without one.
    pub(super) fn settle(
        &mut self,
        chunks: &mut Chunks,
        order: &mut SizeOrder,
        slot: u32,
        uses: &mut LastUses,
    ) {
        set(&mut self.freed_at, slot, 0);
        let mut rule = Untimed { times: &mut self.freed_at, all: false };
        chunks.settle(order, slot, &mut rule, uses);
    }

    /// The waiting chunks that are free, by slot and address: those to be joined now. The others wait on.
    fn due(&mut self, pieces: &Pieces, all: bool) -> Vec<(u32, u64)> {
        let (mut due, mut still) = (Vec::new(), VecDeque::new());
        for slot in std::mem::take(&mut self.waiting) {
            if !pieces.get(slot).is_free() {
                continue; // handed out, or joined and its number not used again
            }
            if self.at(slot) < self.safe_frontier {
                set(&mut self.freed_at, slot, 0);
            }
            if all || self.at(slot) == 0 {
                due.push((slot, pieces.get(slot).address()));
            } else {
                still.push_back(slot);
            }
        }
        self.waiting = still;
        due
    }

    /// Joins the waiting chunks whose time has become safe.
    pub(super) fn merge_safe(
        &mut self,
        chunks: &mut Chunks,
        order: &mut SizeOrder,
        uses: &mut LastUses,
    ) {
        for (slot, address) in self.due(&chunks.pieces, false) {
            if is_still(&chunks.pieces, slot, address) {
                self.merge(chunks, order, slot, false, uses);
            }
        }
    }

    /// Joins waiting chunks whether they are safe or not, until one has `units`; the others wait on.
    pub(super) fn merge_until(
        &mut self,
        chunks: &mut Chunks,
        order: &mut SizeOrder,
        units: u32,
        uses: &mut LastUses,
    ) -> bool {
        let mut satisfied = false;
        for (slot, address) in self.due(&chunks.pieces, true) {
            if !is_still(&chunks.pieces, slot, address) {
                continue;
            }
            if satisfied {
                self.waiting.push_back(slot);
                continue;
            }
            let joined = self.merge(chunks, order, slot, true, uses);
            if joined != slot && self.at(joined) > 0 {
                self.waiting.push_back(joined);
            }
            satisfied = chunks.pieces.get(joined).units >= units;
        }
        satisfied
    }

    fn merge(
        &mut self,
        chunks: &mut Chunks,
        order: &mut SizeOrder,
        slot: u32,
        all: bool,
        uses: &mut LastUses,
    ) -> u32 {
        let piece = *chunks.pieces.get(slot);
        order.remove(&mut chunks.pieces, slot, piece.units, piece.address());
        let mut rule = Untimed { times: &mut self.freed_at, all };
        chunks.settle(order, slot, &mut rule, uses)
    }
}

/// Does the slot still stand for the free chunk at this address?
fn is_still(pieces: &Pieces, slot: u32, address: u64) -> bool {
    let piece = pieces.get(slot);
    piece.is_free() && piece.address() == address
}
