//! The host clock, stream queues and events of all devices, and what is ordered before what.
//!
//! Streams are first in, first out and run side by side; so a stream is the time at which its queue ends. An event is the end of a queue
//! when it was recorded. No stream waits for stream 0 by itself: all are as if made with `cudaStreamNonBlocking`.
//!
//! **Happens-before.** Each stream, each event and the host carry a clock: the last piece of work of every stream that is known to be
//! over, or queued before. Work gets the stream's next epoch.
//!
//! | what | learns from |
//! |---|---|
//! | work on a stream | the stream's earlier work, and all that the host knows when it queues it |
//! | event record | the stream |
//! | stream waits for event | the event |
//! | host: event query answered true, event synchronise | the event |
//! | host: stream or device synchronise, `cudaFree` | the stream, or all streams of the device |

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::DriverError;
use crate::units::{EventId, StreamId};

use super::invalid;

/// Epochs by stream slot; shorter than the number of slots means 0.
type Clock = Vec<u64>;

/// `into` learns what `from` knows; did that tell it anything?
fn learn(into: &mut Clock, from: &[u64]) -> bool {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    let mut news = false;
    for (mine, theirs) in into.iter_mut().zip(from) {
        news |= *theirs > *mine;
        *mine = (*mine).max(*theirs);
    }
    news
}

fn set(clock: &mut Clock, slot: Slot, epoch: u64) {
    let at = slot as usize;
    if clock.len() <= at {
        clock.resize(at + 1, 0);
    }
    clock[at] = clock[at].max(epoch);
}

/// The same for a clock that moments may share; it is copied only when there is news.
fn learn_shared(into: &mut Arc<Clock>, from: &[u64]) -> bool {
    let known = |at: usize| into.get(at).copied().unwrap_or_default();
    let news = from.iter().enumerate().any(|(at, epoch)| *epoch > known(at));
    news && learn(Arc::make_mut(into), from)
}

/// A point in a stream's queue that memory is freed at, or the latest of such points of several streams.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// ns; over from here on.
    pub(super) at: u64,
    /// The stream ([`MANY`]: several) and its epoch. Who knows this epoch knows all that the stream knew then.
    by: Slot,
    epoch: u64,
    /// What the stream knew then; of several, all.
    clock: Option<Arc<Clock>>,
}

/// A moment of several streams, or of none.
const MANY: Slot = Slot::MAX;

impl Default for Moment {
    /// Before everything.
    fn default() -> Self {
        Self { at: 0, by: MANY, epoch: 0, clock: None }
    }
}

impl Moment {
    /// The later of both.
    pub(super) fn join(&mut self, other: &Self) {
        let at = self.at.max(other.at);
        if self.by == other.by && self.by != MANY {
            if other.epoch > self.epoch {
                self.clone_from(other); // a stream forgets nothing
            }
        } else if other.by != MANY || other.clock.is_some() {
            let mut clock = self.whole_clock();
            learn(&mut clock, &other.whole_clock());
            *self = Self { at, by: MANY, epoch: 0, clock: Some(Arc::new(clock)) };
        }
        self.at = at;
    }

    /// The epoch on this stream; 0, which everyone knows, if the moment is not that stream's alone.
    pub(super) fn epoch_on(&self, stream: Slot) -> u64 {
        if self.by == stream { self.epoch } else { 0 }
    }

    fn whole_clock(&self) -> Clock {
        let mut clock = self.clock.as_deref().cloned().unwrap_or_default();
        if self.by != MANY {
            set(&mut clock, self.by, self.epoch);
        }
        clock
    }
}

#[derive(Clone, Debug, Default)]
struct Stream {
    /// ns; the queue is empty from here on.
    ends_at: u64,
    epoch: u64,
    clock: Arc<Clock>,
    /// The host's version that the clock has learned.
    host_version: u64,
    capturing: bool,
}

#[derive(Clone, Debug, Default)]
struct Event {
    live: bool,
    /// ns; 0 if never recorded.
    at: u64,
    /// ns that a stopwatch shows: the stream passes the event not before it is recorded.
    passed_at: u64,
    clock: Clock,
}

/// A stream of one device, by dense number.
pub(super) type Slot = u32;

/// Which slot each stream of a device has.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamNames {
    /// Slot + 1 by stream number, for small numbers.
    dense: Vec<Slot>,
    sparse: rustc_hash::FxHashMap<u32, Slot>,
    /// In order of first use.
    slots: Vec<Slot>,
    created: u32,
}

/// Stream numbers below this are looked up in a table.
const DENSE_STREAMS: u32 = 1 << 12;
/// `cudaStreamCreate` numbers its streams from here on, out of the way of the workload's.
const CREATED_STREAMS: u32 = 1 << 31;

impl StreamNames {
    fn get(&self, stream: StreamId) -> Option<Slot> {
        if stream.0 < DENSE_STREAMS {
            let slot = self.dense.get(stream.0 as usize).copied().unwrap_or_default();
            return slot.checked_sub(1);
        }
        self.sparse.get(&stream.0).copied()
    }

    fn set(&mut self, stream: StreamId, slot: Slot) {
        if stream.0 < DENSE_STREAMS {
            let at = stream.0 as usize;
            if self.dense.len() <= at {
                self.dense.resize(at + 1, 0);
            }
            self.dense[at] = slot + 1;
        } else {
            self.sparse.insert(stream.0, slot);
        }
        self.slots.push(slot);
    }

    /// The slots of all streams seen so far.
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// A number that no stream has.
    pub(super) fn create(&mut self) -> StreamId {
        self.created += 1;
        StreamId(CREATED_STREAMS + self.created - 1)
    }
}

/// Host clock, streams and events.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// The clock of the present host thread, in ns.
    pub(super) now: u64,
    thread: u32,
    /// Clocks of the other host threads that were here.
    elsewhere: BTreeMap<u32, u64>,
    host: Clock,
    /// Rises when the host learns something.
    host_version: u64,
    streams: Vec<Stream>,
    events: Vec<Event>,
    spare: Vec<u32>,
}

impl Timeline {
    /// The host is another thread. What one thread learnt of the streams the others know too: they tell each other.
    pub(super) fn thread(&mut self, thread: u32) {
        if thread != self.thread {
            self.elsewhere.insert(self.thread, self.now);
            (self.thread, self.now) = (thread, self.elsewhere.remove(&thread).unwrap_or_default());
        }
    }

    /// The host is busy for `ns`; the clock stops at its end.
    pub(super) fn spend(&mut self, ns: u64) {
        self.now = self.now.saturating_add(ns);
    }

    /// The slot of a stream, made at first use.
    pub(super) fn slot(&mut self, names: &mut StreamNames, stream: StreamId) -> Slot {
        if let Some(slot) = names.get(stream) {
            return slot;
        }
        let slot = self.streams.len() as Slot;
        self.streams.push(Stream::default());
        names.set(stream, slot);
        slot
    }

    /// The slot of a stream that was used before.
    pub(super) fn known(&self, names: &StreamNames, stream: StreamId) -> Option<Slot> {
        names.get(stream)
    }

    fn stream(&mut self, slot: Slot) -> &mut Stream {
        &mut self.streams[slot as usize]
    }

    /// The stream learns what the host knows, before the host queues something on it.
    fn hear_host(&mut self, slot: Slot) {
        let stream = &mut self.streams[slot as usize];
        if stream.host_version != self.host_version {
            learn_shared(&mut stream.clock, &self.host);
            stream.host_version = self.host_version;
        }
    }

    fn host_learns(&mut self, slot: Slot) {
        let stream = &self.streams[slot as usize];
        let known = self.host.get(slot as usize).copied().unwrap_or_default();
        let news = learn(&mut self.host, &stream.clock) | (stream.epoch > known);
        set(&mut self.host, slot, stream.epoch);
        self.host_version += u64::from(news);
    }

    /// Queues `duration` ns that begin not before `not_before`; when they end.
    pub(super) fn queue(&mut self, slot: Slot, duration: u64, not_before: u64) -> u64 {
        self.hear_host(slot);
        let begins = self.now.max(not_before).max(self.streams[slot as usize].ends_at);
        let stream = self.stream(slot);
        stream.epoch += 1;
        stream.ends_at = begins.saturating_add(duration);
        stream.ends_at
    }

    /// When the stream's queue ends, in ns.
    pub(super) fn ends_at(&self, slot: Slot) -> u64 {
        self.streams[slot as usize].ends_at
    }

    /// The host waits for the stream.
    pub(super) fn join_stream(&mut self, slot: Slot) {
        self.now = self.now.max(self.ends_at(slot));
        self.host_learns(slot);
    }

    /// The host waits for all these streams.
    pub(super) fn join_all(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.join_stream(*slot);
        }
    }

    pub(super) fn create_event(&mut self) -> EventId {
        let at = self.spare.pop().unwrap_or_else(|| {
            self.events.push(Event::default());
            (self.events.len() - 1) as u32
        });
        let event = &mut self.events[at as usize];
        event.live = true;
        event.at = 0;
        event.passed_at = 0;
        event.clock.clear();
        EventId(at)
    }

    fn event(&self, call: &'static str, event: EventId) -> Result<usize, DriverError> {
        match self.events.get(event.0 as usize) {
            Some(state) if state.live => Ok(event.0 as usize),
            Some(_) => Err(invalid(call, format!("found event {event}, which was destroyed"))),
            None => Err(invalid(
                call,
                format!("found event {event}, expected one of {} events", self.events.len()),
            )),
        }
    }

    pub(super) fn destroy_event(&mut self, event: EventId) -> Result<(), DriverError> {
        let at = self.event("cudaEventDestroy", event)?;
        self.events[at].live = false;
        self.spare.push(event.0);
        Ok(())
    }

    pub(super) fn record(&mut self, event: EventId, slot: Slot) -> Result<(), DriverError> {
        let at = self.event("cudaEventRecord", event)?;
        self.hear_host(slot);
        let stream = &self.streams[slot as usize];
        let event = &mut self.events[at];
        event.at = stream.ends_at;
        event.passed_at = stream.ends_at.max(self.now);
        event.clock.clone_from(&*stream.clock);
        set(&mut event.clock, slot, stream.epoch);
        Ok(())
    }

    /// Is it complete? If so the host knows now.
    pub(super) fn query(&mut self, event: EventId) -> Result<bool, DriverError> {
        let at = self.event("cudaEventQuery", event)?;
        // another host thread may have recorded it at a time that this one has not come to
        let complete = self.events[at].passed_at <= self.now;
        if complete {
            self.host_version += u64::from(learn(&mut self.host, &self.events[at].clock));
        }
        Ok(complete)
    }

    /// ns from one event to another; 0 if it is the other way round.
    pub(super) fn elapsed(&self, from: EventId, to: EventId) -> Result<u64, DriverError> {
        let call = "cudaEventElapsedTime";
        let (from, to) = (self.event(call, from)?, self.event(call, to)?);
        let [from, to] = [from, to].map(|at| self.events[at].passed_at);
        if from.max(to) > self.now {
            let what = "an event is not complete: not ready".into();
            return Err(DriverError::Failed { call, what });
        }
        Ok(to.saturating_sub(from))
    }

    pub(super) fn join_event(&mut self, event: EventId) -> Result<(), DriverError> {
        let at = self.event("cudaEventSynchronize", event)?;
        self.now = self.now.max(self.events[at].passed_at);
        self.host_version += u64::from(learn(&mut self.host, &self.events[at].clock));
        Ok(())
    }

    pub(super) fn wait(&mut self, slot: Slot, event: EventId) -> Result<(), DriverError> {
        let at = self.event("cudaStreamWaitEvent", event)?;
        let Event { at, clock, .. } = &self.events[at];
        let stream = &mut self.streams[slot as usize];
        stream.ends_at = stream.ends_at.max(*at);
        learn_shared(&mut stream.clock, clock);
        Ok(())
    }

    /// Queues a free on the stream: when the stream passes it, and what it knows there.
    pub(super) fn queue_free(&mut self, slot: Slot) -> Moment {
        let at = self.queue(slot, 0, 0);
        let Stream { epoch, clock, .. } = self.stream(slot);
        Moment { at, by: slot, epoch: *epoch, clock: Some(Arc::clone(clock)) }
    }

    /// Is what the stream (or, with none, the host) does next ordered after the moment?
    pub(super) fn is_after(&self, slot: Option<Slot>, moment: &Moment) -> bool {
        if moment.by != MANY {
            return self.ordered(moment.by, moment.epoch, slot);
        }
        let mut epochs = (0..).zip(moment.clock.iter().flat_map(|clock| clock.iter()));
        epochs.all(|(earlier, epoch)| self.ordered(earlier, *epoch, slot))
    }

    /// What the stream is given next is ordered after `moment`; with `waits` it also begins not before it.
    pub(super) fn follow(&mut self, slot: Slot, moment: &Moment, waits: bool) {
        let stream = self.stream(slot);
        if waits {
            stream.ends_at = stream.ends_at.max(moment.at);
        }
        if moment.by == slot || moment.clock.is_none() {
            return; // it knows
        }
        learn_shared(&mut stream.clock, &moment.whole_clock());
    }

    pub(super) fn capturing(&self, slot: Slot) -> bool {
        self.streams[slot as usize].capturing
    }

    pub(super) fn set_capturing(&mut self, slot: Slot, on: bool) {
        self.stream(slot).capturing = on;
    }

    /// Work that the stream was given.
    pub(super) fn epoch(&self, slot: Slot) -> u64 {
        self.streams[slot as usize].epoch
    }

    /// Is work `epoch` of `earlier` ordered before what is queued next on `later` (`None`: a stream never used)?
    pub(super) fn ordered(&self, earlier: Slot, epoch: u64, later: Option<Slot>) -> bool {
        let knows = |clock: &[u64]| clock.get(earlier as usize).is_some_and(|e| *e >= epoch);
        epoch == 0
            || knows(&self.host)
            || later
                .is_some_and(|later| later == earlier || knows(&self.streams[later as usize].clock))
    }
}
