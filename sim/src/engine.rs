//! The loop: takes steps from a source, asks strategies, moves the machine's time, keeps the figures.
//!
//! The host issues ops in order and pays for each call; streams run side by side below, in the machine. A strategy's own work on a
//! hit costs [`Setup::host_ns`]. Out of memory is an answer: the buffer stays unallocated, its later ops are skipped, the run goes on.

mod buffers;
mod error;
mod kv;
mod locks;
mod memory;
mod setup;
mod tally;
mod work;

use rustc_hash::FxHashMap;

use crate::allocator::{AllocError, Allocator, Notice, Reply, Usage, Use};
use crate::driver::{DriverError, DriverExt};
use crate::machine::{Machine, Memory};
use crate::op::{NameId, Op};
use crate::report::Report;
use crate::source::{Answered, Source, Step};
use crate::units::{DeviceId, EventId, StreamId};

use buffers::Buffers;
pub use buffers::Prelude;
pub use error::RunError;
use kv::Caches;
pub use locks::Locking;
use locks::Locks;
pub use setup::{Observer, Outcome, Seen, Setup};
use tally::Tally;

/// Steps without progress after which a source that reacts to answers is said to be stuck.
const LIVELOCK_STEPS: u64 = 100_000;

/// Runs a source to its end.
///
/// # Errors
/// When the input is bad, an op names a buffer that is not live, or the driver fails; out of memory is a result, not an error.
pub fn run(source: &mut dyn Source, setup: Setup<'_>) -> Result<Report, RunError> {
    let Setup { machine, strategies, caches, host_ns, memory, locking, observer, .. } = setup;
    let (keep_marks, prelude) = (setup.keep_marks, setup.prelude);
    let mut tally = Tally::new(strategies.len(), host_ns, memory, keep_marks);
    let mut buffers = Buffers::default();
    tally.adopt(&buffers.adopt(prelude), &*strategies, machine);
    let mut engine = Engine {
        machine,
        strategies,
        kv: Caches::new(caches),
        locks: Locks::new(locking),
        host_ns,
        memory,
        tally,
        buffers,
        device: DeviceId(0),
        events: FxHashMap::default(),
        ordinals: Vec::new(),
        uses: Vec::new(),
        index: 0,
    };
    engine.ordinals = vec![0; engine.strategies.len()];
    engine.drive(source, observer)?;
    engine.finish(source)
}

struct Engine<'a> {
    machine: &'a mut dyn Machine,
    strategies: &'a mut [Box<dyn Allocator>],
    kv: Caches<'a>,
    locks: Locks,
    host_ns: u64,
    memory: Memory,
    tally: Tally,
    buffers: Buffers,
    device: DeviceId,
    /// The driver's event for each of the workload's.
    events: FxHashMap<EventId, EventId>,
    /// Requests so far, by device.
    ordinals: Vec<u64>,
    uses: Vec<Use>,
    index: u64,
}

impl Engine<'_> {
    fn drive(
        &mut self,
        source: &mut dyn Source,
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<(), RunError> {
        let (mut answered, mut idle, mut last_time) = (Answered::Done, 0_u64, self.machine.now());
        let independent = source.independent();
        loop {
            let op = match source.next(self.machine.now(), answered)? {
                Step::End => return Ok(()),
                Step::WaitUntil(time) => {
                    self.machine.wait_until(time);
                    None
                }
                Step::Op(op) => Some(op),
            };
            let mut progress = false;
            if let Some(op) = op {
                let done = self.op(&op, source);
                // by reference: an outcome is large, and few read more of it than its kind
                let outcome = match &done {
                    Ok(outcome) => outcome,
                    Err(_) => return done.map(drop),
                };
                progress = outcome.is_progress();
                answered = match outcome {
                    // work that could not be resident is no request
                    Outcome::Refused(_) if matches!(op, Op::Work { .. } | Op::Touch { .. }) => {
                        Answered::Skipped
                    }
                    _ => outcome.answer(),
                };
                if !op.is_setting() {
                    if let Some(observer) = observer.as_deref_mut() {
                        observer.after(&self.seen(&op, outcome, source));
                        if observer.wants_layout(self.index)
                            && let Ok(Reply::Layout(layout)) =
                                self.on(|strategy, machine| strategy.notice(machine, Notice::Walk))
                        {
                            observer.layout(&self.seen(&op, outcome, source), &layout);
                        }
                        if observer.is_enough() {
                            self.index += 1;
                            return Ok(());
                        }
                    }
                    self.index += 1;
                }
            }
            if !independent {
                let now = self.machine.now();
                idle = if progress || now > last_time { 0 } else { idle + 1 };
                last_time = now;
                if idle >= LIVELOCK_STEPS {
                    return Err(RunError::Livelock { op: self.index, steps: idle });
                }
            }
        }
    }

    fn op(&mut self, op: &Op, source: &dyn Source) -> Result<Outcome, RunError> {
        match *op {
            Op::Alloc { id, stream, size, .. } => self.alloc(source, id, stream, size),
            Op::Free { id, stream } => self.free(op, source, id, stream),
            Op::FreeDeferred { id } => self.free_deferred(op, source, id),
            Op::FreeCompleted { id } => self.free_completed(op, source, id),
            Op::Realloc { id, size } => self.realloc(op, source, id, size),
            Op::RecordStream { id, stream } => match self.block(op, source, id)? {
                Some(buffer) => {
                    let block = buffer.block;
                    self.memory_notice(op, Notice::RecordStream { block, stream })
                }
                None => Ok(Outcome::Skipped),
            },
            Op::Work { stream, duration } => self.work(op, source, stream, duration),
            Op::Copy { stream, direction, bytes } => self
                .machine
                .transfer(stream, bytes, direction)
                .map_err(|e| self.driver(op, e))
                .map(|()| Outcome::Done),
            Op::Touch { id } => self.touch(op, source, id),
            Op::Event { event, stream } => {
                let event = self.event(op, event)?;
                self.machine
                    .event_record(event, stream)
                    .map_err(|e| self.driver(op, e))
                    .map(|()| Outcome::Done)
            }
            Op::Wait { event, stream } => {
                let event = self.event(op, event)?;
                self.machine
                    .wait_event(stream, event)
                    .map_err(|e| self.driver(op, e))
                    .map(|()| Outcome::Done)
            }
            Op::Sync { stream } => {
                let done = match stream {
                    Some(stream) => self.machine.stream_synchronize(stream),
                    None => self.machine.device_synchronize(),
                };
                done.map_err(|e| self.driver(op, e)).map(|()| Outcome::Done)
            }
            Op::EmptyCache => self.memory_notice(op, Notice::EmptyCache),
            Op::Trim { keep } => self.memory_notice(op, Notice::Trim { keep }),
            Op::PoolBegin { pool, stream } => {
                self.memory_notice(op, Notice::PoolBegin { pool, stream })
            }
            Op::PoolEnd { pool } => self.memory_notice(op, Notice::PoolEnd { pool }),
            Op::PoolRelease { pool } => self.memory_notice(op, Notice::PoolRelease { pool }),
            Op::CaptureBegin { stream } => {
                self.machine.capture(stream, true);
                self.memory_notice(op, Notice::CaptureBegin { stream })
            }
            Op::CaptureEnd { stream } => {
                self.machine.capture(stream, false);
                self.memory_notice(op, Notice::CaptureEnd { stream })
            }
            Op::KvNew { .. } | Op::KvMore { .. } | Op::KvFork { .. } | Op::KvFree { .. } => {
                self.kv(op, source)
            }
            Op::Set { key, value } => self.memory_notice(
                op,
                Notice::Set { key: source.text(key), value: source.text(value) },
            ),
            Op::Request { req } => {
                self.tally.request(req, self.machine.now());
                Ok(Outcome::Done)
            }
            Op::Response { req } => {
                self.tally.response(req, self.machine.now());
                Ok(Outcome::Done)
            }
            Op::Mark { name } => self.mark(op, source, name),
            Op::Device { device } => self.select(device),
            Op::Thread { thread } => {
                self.thread(thread);
                Ok(Outcome::Done)
            }
        }
    }

    /// A notice on the current device that costs time and may change what is held.
    fn memory_notice(&mut self, op: &Op, notice: Notice<'_>) -> Result<Outcome, RunError> {
        let start = self.enter(StreamId(0));
        let reply = self.hear(op, notice);
        let took = self.leave(StreamId(0), start);
        let reply = reply?;
        self.tally.stalled(took);
        self.account();
        if reply == Reply::Unsupported {
            self.tally.unsupported(op.name());
            return Ok(Outcome::Skipped);
        }
        Ok(Outcome::Done)
    }

    /// The cache hears a notice, and the allocator, if it is not the cache's alone.
    fn hear(&mut self, op: &Op, notice: Notice<'_>) -> Result<Reply, RunError> {
        let heard = self.kv_notice(op, notice.clone())?;
        // a setting of the cache's is none of the allocator's
        if heard != Reply::Unsupported && matches!(notice, Notice::Set { .. }) {
            return Ok(heard);
        }
        let reply = self.on(|strategy, machine| strategy.notice(machine, notice));
        let reply = reply.map_err(|e| self.strategy(op, e))?;
        Ok(if reply == Reply::Unsupported { heard } else { reply })
    }

    fn mark(&mut self, op: &Op, source: &dyn Source, name: NameId) -> Result<Outcome, RunError> {
        let text = source.text(name);
        let device = self.device;
        let told =
            self.on(|strategy, machine| strategy.notice(machine, Notice::Mark { name: text }));
        told.map_err(|e| self.strategy(op, e))?;
        self.kv_notice(op, Notice::Mark { name: text })?;
        self.account();
        self.tally.mark(text, self.index, self.machine.now(), device);
        Ok(Outcome::Done)
    }

    fn select(&mut self, device: DeviceId) -> Result<Outcome, RunError> {
        let count = self.strategies.len();
        if usize::from(device.0) >= count || self.machine.select(device).is_err() {
            return Err(RunError::NoDevice { op: self.index, device, count });
        }
        self.device = device;
        Ok(Outcome::Done)
    }

    fn event(&mut self, op: &Op, event: EventId) -> Result<EventId, RunError> {
        if let Some(known) = self.events.get(&event) {
            return Ok(*known);
        }
        let made = self.machine.event_create().map_err(|e| self.driver(op, e))?;
        self.events.insert(event, made);
        Ok(made)
    }

    /// Does something with the current device's strategy.
    fn on<T>(
        &mut self,
        act: impl FnOnce(&mut dyn Allocator, &mut dyn Machine) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        act(&mut *self.strategies[usize::from(self.device.0)], self.machine)
    }

    #[inline]
    fn spend(&mut self) {
        if self.host_ns > 0 {
            self.machine.spend(self.host_ns);
        }
    }

    #[inline]
    fn account(&mut self) {
        self.tally.account(self.device, self.usage(), self.machine.held());
    }

    /// What the current device's strategy and cache hold.
    #[inline]
    fn usage(&self) -> Usage {
        self.kv.with(self.device, self.strategies[usize::from(self.device.0)].usage())
    }

    fn seen<'a>(&'a self, op: &'a Op, outcome: &'a Outcome, source: &'a dyn Source) -> Seen<'a> {
        Seen {
            index: self.index,
            op,
            outcome,
            requested: self.tally.devices[usize::from(self.device.0)].requested.current,
            usage: self.usage(),
            held: self.machine.held(),
            machine: self.machine,
            source,
        }
    }

    fn strategy(&self, op: &Op, error: AllocError) -> RunError {
        match error {
            AllocError::Driver(error) => self.driver(op, error),
            error => RunError::Strategy { op: self.index, what: op.name(), error },
        }
    }

    fn driver(&self, op: &Op, error: DriverError) -> RunError {
        RunError::Driver { op: self.index, what: op.name(), error }
    }

    fn finish(mut self, source: &dyn Source) -> Result<Report, RunError> {
        for i in 0..self.strategies.len() {
            let end = |error| RunError::Driver { op: self.index, what: "end", error };
            self.device = DeviceId(i as u16);
            self.machine.select(self.device).map_err(end)?;
            if self.kv.in_use(self.device) {
                self.kv_finish();
            }
            let strategy = &mut self.strategies[i];
            if let Ok(Reply::Counters(counters)) = strategy.notice(self.machine, Notice::Counters) {
                self.tally.counters(&counters);
            }
            if let Ok(Reply::Layout(layout)) = strategy.notice(self.machine, Notice::Walk) {
                self.tally.layout(&layout);
            }
        }
        let races = std::mem::take(&mut self.buffers.races);
        let end = self.locks.end(self.machine.now());
        let mut report = self.tally.finish(self.index, source.gaps(), self.machine, races);
        report.time = end;
        report.served = source.served();
        if let Some(served) = &report.served {
            report.request_ns = served.e2e.spread;
            report.done = source.done().to_vec();
        }
        report.answers = source.answers();
        Ok(report)
    }
}
