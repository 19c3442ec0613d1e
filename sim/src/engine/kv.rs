//! Ops of sequences, and what the caches hold.

use super::{Engine, Outcome, RunError};
use crate::allocator::{AllocError, Notice, Reply, Usage};
use crate::kv::{Admitted, Below, KvCache, KvError, KvUsage, MoreTokens, Sequence};
use crate::op::Op;
use crate::source::Source;
use crate::units::{DeviceId, SequenceId, StreamId};

/// A sequence's slot.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// In the cache of this device.
    Live(DeviceId, Sequence),
    /// It was refused: its other ops are skipped.
    Refused,
}

/// The caches of a run, one for each device, and the sequences in them.
pub(super) struct Caches<'a> {
    caches: &'a mut [Box<dyn KvCache>],
    slots: Vec<Option<Known>>,
    /// What each cache last said; empty until the first op of a sequence.
    last: Vec<KvUsage>,
}

impl<'a> Caches<'a> {
    pub(super) fn new(caches: &'a mut [Box<dyn KvCache>]) -> Self {
        Self { caches, slots: Vec::new(), last: Vec::new() }
    }

    /// Was there an op of a sequence, so that the caches count, and has the device one?
    #[inline]
    pub(super) fn in_use(&self, device: DeviceId) -> bool {
        usize::from(device.0) < self.last.len()
    }

    /// The usage of a device's allocator, with the cache's blocks in place of what it holds for them.
    #[inline]
    pub(super) fn with(&self, device: DeviceId, usage: Usage) -> Usage {
        let Some(kv) = self.last.get(usize::from(device.0)) else { return usage };
        let blocks = |bytes: u64| bytes.saturating_sub(kv.arena) + kv.allocated;
        Usage {
            allocated: blocks(usage.allocated),
            active: blocks(usage.active),
            reserved: usage.reserved + kv.own,
        }
    }

    fn put(&mut self, seq: SequenceId, known: Known) {
        let index = seq.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some(known);
    }

    fn slot(&mut self, seq: SequenceId) -> Option<&mut Option<Known>> {
        self.slots.get_mut(seq.0 as usize)
    }
}

impl Engine<'_> {
    pub(super) fn kv(&mut self, op: &Op, source: &dyn Source) -> Result<Outcome, RunError> {
        let (at, count) = (usize::from(self.device.0), self.kv.caches.len());
        if at >= count {
            self.tally.unsupported(op.name());
            return Ok(Outcome::Skipped);
        }
        if self.kv.last.is_empty() {
            self.kv.last = vec![KvUsage::default(); count];
        }
        let outcome = match *op {
            Op::KvNew { seq } => self.kv_new(op, source, seq),
            Op::KvFork { seq, from } => self.kv_fork(op, source, seq, from),
            Op::KvMore { seq } => self.kv_more(op, source, seq),
            Op::KvFree { seq } => self.kv_free(op, source, seq),
            _ => Ok(Outcome::Skipped),
        };
        self.kv_account();
        self.account();
        outcome
    }

    fn kv_new(
        &mut self,
        op: &Op,
        source: &dyn Source,
        seq: SequenceId,
    ) -> Result<Outcome, RunError> {
        self.vacant(op, source, seq)?;
        let ask = source.kv();
        let answer = self.request(|cache, below| cache.begin(below, &ask));
        if let Ok(admitted) = &answer {
            self.tally.kv.admitted(ask.tokens, admitted.hit);
            let cache = &self.kv.caches[usize::from(self.device.0)];
            self.tally.kv.said(ask.token_bytes, cache.usage().token_bytes);
        }
        self.admitted(op, seq, ask.waits, answer)
    }

    fn kv_fork(
        &mut self,
        op: &Op,
        source: &dyn Source,
        seq: SequenceId,
        from: SequenceId,
    ) -> Result<Outcome, RunError> {
        self.vacant(op, source, seq)?;
        let Some(from) = self.sequence(op, source, from)? else {
            self.kv.put(seq, Known::Refused);
            return Ok(Outcome::Skipped);
        };
        let answer = self.request(|cache, below| cache.fork(below, from));
        self.admitted(op, seq, false, answer)
    }

    fn kv_more(
        &mut self,
        op: &Op,
        source: &dyn Source,
        seq: SequenceId,
    ) -> Result<Outcome, RunError> {
        let Some(sequence) = self.sequence(op, source, seq)? else { return Ok(Outcome::Skipped) };
        let ask = source.kv();
        let more = MoreTokens { tokens: ask.tokens, keys: ask.keys };
        match self.request(|cache, below| cache.more(below, sequence, &more)) {
            Ok(blocks) => Ok(Outcome::Slots { hit: 0, blocks }),
            Err(error) => self.no_slots(op, ask.waits, error),
        }
    }

    fn kv_free(
        &mut self,
        op: &Op,
        source: &dyn Source,
        seq: SequenceId,
    ) -> Result<Outcome, RunError> {
        let sequence = self.sequence(op, source, seq)?;
        if let Some(slot) = self.kv.slot(seq) {
            *slot = None;
        }
        let Some(sequence) = sequence else { return Ok(Outcome::Skipped) };
        let start = self.enter(StreamId(0));
        let answer = self.cache(|cache, below| cache.end(below, sequence));
        self.spend();
        let took = self.leave(StreamId(0), start);
        self.tally.free_took(took);
        answer.map_err(|e| self.kv_error(op, e)).map(|()| Outcome::Done)
    }

    /// Tells the current device's cache, if it is in use.
    pub(super) fn kv_notice(&mut self, op: &Op, notice: Notice<'_>) -> Result<Reply, RunError> {
        if !self.kv.in_use(self.device) {
            return Ok(Reply::Unsupported);
        }
        let reply = self.cache(|cache, below| cache.notice(below, notice));
        self.kv_account();
        reply.map_err(|e| self.kv_error(op, e))
    }

    /// A request that is timed as an allocation.
    fn request<T>(
        &mut self,
        act: impl FnOnce(&mut dyn KvCache, &mut Below<'_>) -> Result<T, KvError>,
    ) -> Result<T, KvError> {
        let start = self.enter(StreamId(0));
        let answer = self.cache(act);
        self.spend();
        let took = self.leave(StreamId(0), start);
        self.tally.alloc_took(took);
        answer
    }

    /// Does something with the current device's cache.
    fn cache<T>(
        &mut self,
        act: impl FnOnce(&mut dyn KvCache, &mut Below<'_>) -> Result<T, KvError>,
    ) -> Result<T, KvError> {
        let at = usize::from(self.device.0);
        let (arena, ordinal) = (&mut *self.strategies[at], &mut self.ordinals[at]);
        let mut below = Below { arena, driver: &mut *self.machine, ordinal };
        act(&mut *self.kv.caches[at], &mut below)
    }

    fn admitted(
        &mut self,
        op: &Op,
        seq: SequenceId,
        waits: bool,
        answer: Result<Admitted, KvError>,
    ) -> Result<Outcome, RunError> {
        match answer {
            Ok(Admitted { sequence, hit, blocks }) => {
                self.kv.put(seq, Known::Live(self.device, sequence));
                Ok(Outcome::Slots { hit, blocks })
            }
            Err(error) => {
                self.kv.put(seq, Known::Refused);
                self.no_slots(op, waits, error)
            }
        }
    }

    fn no_slots(&mut self, op: &Op, waits: bool, error: KvError) -> Result<Outcome, RunError> {
        if !error.is_refusal() {
            return Err(self.kv_error(op, error));
        }
        if waits {
            self.tally.kv.waits += 1;
        } else {
            self.tally.kv_refused((self.index, op), self.device, &error);
        }
        Ok(Outcome::NoSlots(error))
    }

    /// The slot of a new sequence must be empty.
    fn vacant(&mut self, op: &Op, source: &dyn Source, seq: SequenceId) -> Result<(), RunError> {
        match self.kv.slot(seq) {
            None | Some(None) => Ok(()),
            Some(Some(_)) => Err(self.bad_sequence(op, source, seq, "which is live already")),
        }
    }

    /// The sequence of an op; `None` if it was refused.
    fn sequence(
        &mut self,
        op: &Op,
        source: &dyn Source,
        seq: SequenceId,
    ) -> Result<Option<Sequence>, RunError> {
        let device = self.device;
        let wrong = match self.kv.slot(seq).map(|slot| *slot) {
            Some(Some(Known::Refused)) => return Ok(None),
            Some(Some(Known::Live(home, sequence))) if home == device => return Ok(Some(sequence)),
            Some(Some(Known::Live(..))) => {
                "which is on another device; expected the sequence's own"
            }
            None | Some(None) => {
                "which is not live; expected one that a kv_new began and no kv_free ended since"
            }
        };
        Err(self.bad_sequence(op, source, seq, wrong))
    }

    fn bad_sequence(
        &self,
        op: &Op,
        source: &dyn Source,
        seq: SequenceId,
        wrong: &'static str,
    ) -> RunError {
        let name = source.sequence(seq);
        RunError::Sequence { op: self.index, what: op.name(), name, wrong }
    }

    /// Takes the current device's cache into the figures.
    fn kv_account(&mut self) {
        let at = usize::from(self.device.0);
        let now = self.kv.caches[at].usage();
        let before = std::mem::replace(&mut self.kv.last[at], now);
        let bytes = |usage: KvUsage| usage.filled.saturating_mul(usage.token_bytes);
        self.tally.released(self.device, bytes(before));
        self.tally.requested(self.device, bytes(now));
        self.tally.kv.replace(&before, &now);
    }

    fn kv_error(&self, op: &Op, error: KvError) -> RunError {
        match error {
            KvError::Below(AllocError::Driver(error)) => self.driver(op, error),
            error => RunError::Cache { op: self.index, what: op.name(), error },
        }
    }

    /// The counters of all caches.
    pub(super) fn kv_finish(&mut self) {
        let counters = self.cache(|cache, below| cache.notice(below, Notice::Counters));
        if let Ok(Reply::Counters(counters)) = counters {
            self.tally.counters(&counters);
        }
    }
}
