//! Finds races: memory that is given out again while an earlier use is not ordered before the new one.
//!
//! By happens-before, whatever the cost table says: stream order, events, waits, synchronisation, `cudaFree`, the driver's pools. What a
//! strategy promises is that the memory may be used on the request's stream at once, so that is checked when a buffer is placed; a later use on
//! another stream is checked when it is queued. Judged on physical bytes.
//!
//! ```text
//! work on s1 uses A ──stamp──▶ free A ──▶ B placed on the same bytes for s0: is the stamp ordered before s0?
//! ```

use std::collections::BTreeMap;

use crate::driver::Address;
use crate::machine::{Machine, Stamp};
use crate::report::Race;
use crate::units::StreamId;

/// Races kept with their details.
const RACES_KEPT: usize = 1000;

/// An earlier use of bytes that were given back since.
#[derive(Clone, Debug)]
struct Past {
    stamp: Stamp,
    buffer: u64,
}

/// Uses of one live buffer, and uses of its bytes from before.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferHistory {
    stamps: Vec<Stamp>,
    inherited: Vec<Past>,
}

/// The finder.
#[derive(Debug, Default)]
pub(crate) struct RaceFinder {
    /// By (handle, first byte): (byte after the last, uses).
    past: BTreeMap<(u64, u64), (u64, Vec<Past>)>,
    pub(crate) found: Vec<Race>,
    pub(crate) count: u64,
}

impl RaceFinder {
    /// Work was queued on `stream` that uses the buffer.
    pub(crate) fn used(
        &mut self,
        machine: &dyn Machine,
        history: &mut BufferHistory,
        (op, buffer): (u64, u64),
        stream: StreamId,
    ) {
        let inherited = std::mem::take(&mut history.inherited);
        history.inherited = self.check(machine, inherited, (op, buffer), stream);
        if let Some(stamp) = machine.stamp(stream) {
            history.stamps.retain(|s| s.stream != stream);
            history.stamps.push(stamp);
        }
    }

    /// The buffer was given back to the strategy.
    pub(crate) fn freed(
        &mut self,
        machine: &dyn Machine,
        history: BufferHistory,
        buffer: u64,
        address: Address,
        size: u64,
    ) {
        if history.stamps.is_empty() && history.inherited.is_empty() {
            return;
        }
        let mut uses: Vec<Past> =
            history.stamps.into_iter().map(|stamp| Past { stamp, buffer }).collect();
        uses.extend(history.inherited);
        keep_latest(&mut uses);
        for (handle, start, end) in pieces(machine, address, size) {
            self.take(handle, start, end);
            self.past.insert((handle, start), (end, uses.clone()));
        }
    }

    /// A buffer was placed for `stream`.
    pub(crate) fn placed(
        &mut self,
        machine: &dyn Machine,
        (op, buffer): (u64, u64),
        stream: StreamId,
        address: Address,
        size: u64,
    ) -> BufferHistory {
        if self.past.is_empty() {
            return BufferHistory::default();
        }
        let mut earlier = Vec::new();
        for (handle, start, end) in pieces(machine, address, size) {
            earlier.extend(self.take(handle, start, end));
        }
        keep_latest(&mut earlier);
        BufferHistory {
            stamps: Vec::new(),
            inherited: self.check(machine, earlier, (op, buffer), stream),
        }
    }

    /// Reports what is not ordered before `stream`; gives back what is.
    fn check(
        &mut self,
        machine: &dyn Machine,
        earlier: Vec<Past>,
        (op, buffer): (u64, u64),
        stream: StreamId,
    ) -> Vec<Past> {
        let (ordered, raced): (Vec<_>, Vec<_>) =
            earlier.into_iter().partition(|p| machine.ordered(p.stamp, stream));
        for past in raced {
            self.count += 1;
            if self.found.len() < RACES_KEPT {
                let earlier_stream = past.stamp.stream.0;
                self.found.push(Race {
                    op,
                    buffer,
                    earlier: past.buffer,
                    earlier_stream,
                    stream: stream.0,
                });
            }
        }
        ordered
    }

    /// Takes the uses of these bytes out; parts outside stay.
    fn take(&mut self, handle: u64, start: u64, end: u64) -> Vec<Past> {
        let from = self
            .past
            .range(..(handle, start))
            .next_back()
            .filter(|((h, _), (e, _))| *h == handle && *e > start);
        let first = from.map_or((handle, start), |(key, _)| *key);
        let keys: Vec<(u64, u64)> =
            self.past.range(first..(handle, end)).map(|(key, _)| *key).collect();
        let mut taken = Vec::new();
        for key in keys {
            let Some((stop, uses)) = self.past.remove(&key) else { continue };
            if key.1 < start {
                self.past.insert(key, (start, uses.clone()));
            }
            if stop > end {
                self.past.insert((handle, end), (stop, uses.clone()));
            }
            taken.extend(uses);
        }
        taken
    }
}

/// Keeps the latest use of each stream: where that is ordered before something, so are those before it in its stream. Without this,
/// bytes that are handed out again and again would carry all their past.
fn keep_latest(uses: &mut Vec<Past>) {
    uses.sort_by_key(|p| (p.stamp.stream, std::cmp::Reverse(p.stamp)));
    uses.dedup_by_key(|p| p.stamp.stream);
}

/// The physical runs of a range: (handle, first byte, byte after the last).
fn pieces(machine: &dyn Machine, address: Address, size: u64) -> Vec<(u64, u64, u64)> {
    let (mut at, end, mut pieces) = (address, address.saturating_add(size), Vec::new());
    while at < end {
        let Some(physical) = machine.physical(at) else { break };
        let run = physical.run.min(end - at).max(1);
        pieces.push((physical.handle, physical.offset, physical.offset + run));
        at += run;
    }
    pieces
}
