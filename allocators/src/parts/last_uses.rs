//! Who used freed memory last: stream order for strategies with one pool for all streams.
//!
//! | rule | what it says |
//! |---|---|
//! | `one_stream` | as long as the strategy has heard of one stream only, stream order makes reuse safe: nothing is kept and no event is made |
//! | `users` | a freed block remembers the streams that used it: that of its request, the recorded ones, and that of its free; joined pieces remember those of both |
//! | `wait` | when memory goes to a stream that did not use it last, that stream is made to wait (`cudaEventRecord` there, `cudaStreamWaitEvent` here) for each stream that did, unless it has waited since the memory was freed |
//! | `synchronised` | a `cudaFree` or a device synchronisation orders everything before it |
//!
//! So freed memory is reusable at once, the host never waits, and the price of one pool is that streams wait for each other: the event is recorded at
//! the reuse, hence also covers what was queued after the free. RAPIDS RMM's pool resource takes memory from another stream's list in the same
//! way (`stream_ordered_memory_resource.hpp`).

use rustc_hash::FxHashMap;
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

/// Streams that have a bit of their own in [`Mark::users`]; later ones share the last bit.
const OWN_BITS: usize = 63;

/// Users of a block or a free piece.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// One bit per stream, by number of first appearance.
    users: u64,
    /// Time of the last free, on the strategy's own count of frees.
    freed: u64,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    event: Option<EventId>,
    /// By number of the other stream: the count of frees up to which this one has waited for it.
    waited: Vec<u64>,
}

/// Remembers users by slot: the strategy's number of a block or piece.
#[derive(Debug, Default)]
pub(crate) struct LastUses {
    /// The stream of the last call; with `streams.len() == 1` the only one.
    last: StreamId,
    many: bool,
    streams: Vec<Stream>,
    /// By slot, once there is a second stream; a slot that is missing was used by the first stream only. Looked up, never walked.
    marks: FxHashMap<u32, Mark>,
    /// Counts frees.
    clock: u64,
    /// Frees up to which everything is ordered.
    synchronised: u64,
    waits: u64,
}

impl LastUses {
    /// Stream waits that were inserted.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// Are there two streams or more? Before, nothing is kept.
    #[inline]
    pub(crate) fn is_many(&self) -> bool {
        self.many
    }

    /// The strategy hears of a stream.
    #[inline]
    pub(crate) fn see(&mut self, stream: StreamId) {
        if stream != self.last || self.streams.is_empty() {
            self.last = stream;
            self.number(stream);
        }
    }

    fn number(&mut self, stream: StreamId) -> usize {
        if let Some(at) = self.streams.iter().position(|s| s.id == stream) {
            return at;
        }
        self.streams.push(Stream { id: stream, event: None, waited: Vec::new() });
        if self.streams.len() == 2 {
            self.many = true;
            self.clock += 1; // what the first stream freed so far counts as freed now
        }
        self.streams.len() - 1
    }

    fn bit(number: usize) -> u64 {
        1 << number.min(OWN_BITS)
    }

    fn mark(&self, slot: u32) -> Mark {
        self.marks.get(&slot).copied().unwrap_or(Mark { users: 1, freed: 1 })
    }

    /// `to` was cut from `from`.
    #[inline]
    pub(crate) fn cut(&mut self, from: u32, to: u32) {
        if self.many {
            self.marks.insert(to, self.mark(from));
        }
    }

    /// `part` lies in `whole`.
    #[inline]
    pub(crate) fn blend(&mut self, whole: u32, part: u32) {
        if self.many {
            let (a, b) = (self.mark(whole), self.mark(part));
            let both = Mark { users: a.users | b.users, freed: a.freed.max(b.freed) };
            self.marks.insert(whole, both);
        }
    }

    /// `gone` became part of `into`.
    #[inline]
    pub(crate) fn join(&mut self, into: u32, gone: u32) {
        if self.many {
            self.blend(into, gone);
            self.marks.remove(&gone);
        }
    }

    /// The slot now means memory that nobody used yet.
    #[inline]
    pub(crate) fn fresh(&mut self, slot: u32) {
        if self.many {
            self.marks.insert(slot, Mark::default());
        }
    }

    /// The slot means nothing any more.
    #[inline]
    pub(crate) fn forget(&mut self, slot: u32) {
        if self.many {
            self.marks.remove(&slot);
        }
    }

    /// The device was waited for: all that was freed until now is ordered.
    pub(crate) fn device_waited(&mut self) {
        self.synchronised = self.clock;
    }

    /// The block is also used on a stream.
    pub(crate) fn record(&mut self, slot: u32, stream: StreamId) {
        self.see(stream);
        if self.many {
            let bit = Self::bit(self.number(stream));
            let mark = self.mark(slot);
            self.marks.insert(slot, Mark { users: mark.users | bit, ..mark });
        }
    }

    /// The block was freed, ordered in `stream` if one is given. Call before the slot is joined with others.
    #[inline]
    pub(crate) fn freed(&mut self, slot: u32, stream: Option<StreamId>) {
        if let Some(stream) = stream {
            self.see(stream);
        }
        if self.many {
            self.freed_by_many(slot, stream);
        }
    }

    fn freed_by_many(&mut self, slot: u32, stream: Option<StreamId>) {
        self.clock += 1;
        let bit = stream.map_or(0, |stream| Self::bit(self.number(stream)));
        let users = self.mark(slot).users | bit;
        self.marks.insert(slot, Mark { users, freed: self.clock });
    }

    /// The slot goes to `stream`, which is made to wait for those who used it last.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn hand_out(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        if self.many { self.hand_out_ordered(driver, slot, stream) } else { Ok(()) }
    }

    fn hand_out_ordered(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let (mark, to) = (self.mark(slot), self.number(stream));
        if mark.freed > self.synchronised {
            let others = (0..self.streams.len()).filter(|at| *at != to);
            for from in others.filter(|at| mark.users & Self::bit(*at) != 0) {
                self.wait(driver, from, to, mark.freed)?;
            }
        }
        self.marks.insert(slot, Mark { users: Self::bit(to), freed: 0 });
        Ok(())
    }

    /// Makes stream number `to` wait for `from`, unless it has since `freed`.
    fn wait(
        &mut self,
        driver: &mut dyn Driver,
        from: usize,
        to: usize,
        freed: u64,
    ) -> Result<(), DriverError> {
        if self.streams[to].waited.len() <= from {
            self.streams[to].waited.resize(from + 1, 0);
        }
        if self.streams[to].waited[from] >= freed {
            return Ok(());
        }
        let event = match self.streams[from].event {
            Some(event) => event,
            None => driver.event_create()?,
        };
        self.streams[from].event = Some(event);
        driver.event_record(event, self.streams[from].id)?;
        driver.wait_event(self.streams[to].id, event)?;
        self.streams[to].waited[from] = self.clock;
        self.waits += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    const S0: StreamId = StreamId(0);
    const S7: StreamId = StreamId(7);

    fn log(machine: &mut ScriptedMachine) -> Vec<String> {
        machine.drain_log().map(|call| call.to_string()).collect()
    }

    /// Alloc on one stream, free, alloc on another: the second waits once.
    #[test]
    fn another_stream_waits_once_for_what_was_freed() -> Result<(), DriverError> {
        let (mut uses, mut machine) = (LastUses::default(), ScriptedMachine::of_capacity(1 << 30));
        uses.see(S0);
        uses.hand_out(&mut machine, 4, S0)?;
        uses.freed(4, None);
        uses.hand_out(&mut machine, 4, S0)?;
        uses.freed(4, None);
        assert!(log(&mut machine).is_empty(), "one stream needs no event");
        uses.see(S7);
        uses.cut(4, 5);
        uses.hand_out(&mut machine, 4, S7)?;
        uses.hand_out(&mut machine, 5, S7)?;
        assert_eq!(log(&mut machine), ["cudaEventRecord,,,0,s0,1", "cudaStreamWaitEvent,,,0,s7,1"]);
        uses.freed(5, None);
        uses.hand_out(&mut machine, 5, S7)?;
        assert!(log(&mut machine).is_empty(), "its own memory back");
        assert_eq!(uses.waits(), 1);
        Ok(())
    }

    #[test]
    fn joined_pieces_remember_the_users_of_both() -> Result<(), DriverError> {
        let (mut uses, mut machine) = (LastUses::default(), ScriptedMachine::of_capacity(1 << 30));
        for (slot, stream) in [(1, S0), (2, S7)] {
            uses.see(stream);
            uses.hand_out(&mut machine, slot, stream)?;
        }
        machine.drain_log();
        uses.freed(1, None);
        uses.freed(2, None);
        uses.join(1, 2);
        uses.hand_out(&mut machine, 1, S0)?;
        assert_eq!(log(&mut machine), ["cudaEventRecord,,,0,s7,1", "cudaStreamWaitEvent,,,0,s0,1"]);
        uses.record(1, S7);
        uses.freed(1, None);
        uses.device_waited();
        uses.hand_out(&mut machine, 1, S0)?;
        assert!(log(&mut machine).is_empty(), "the device was waited for");
        Ok(())
    }
}
