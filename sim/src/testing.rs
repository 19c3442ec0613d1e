//! A machine on a script, for tests of strategies: events complete on cue, calls fail on cue, and every call is logged.
//!
//! It keeps books as [`SimMachine`] does, at no cost and with work that takes no time, but **nothing completes by itself**: an event is
//! complete once a `complete` came after it was recorded, or once it was waited for.
//!
//! ```
//! use vramlab_sim::driver::{DriverError, DriverExt};
//! use vramlab_sim::testing::ScriptedMachine;
//! use vramlab_sim::units::StreamId;
//!
//! let mut machine = ScriptedMachine::of_capacity(8 << 20);
//! let event = machine.event_create()?;
//! machine.event_record(event, StreamId(1))?;
//! assert!(!machine.event_query(event)?);
//! machine.complete(StreamId(1));
//! assert!(machine.event_query(event)?);
//!
//! machine.malloc(3 << 20)?;
//! let log: Vec<_> = machine.drain_log().map(|call| call.to_string()).collect();
//! assert_eq!(log, ["cudaEventRecord,,,0,s1,1", "cudaMalloc,m0,0,3145728,,1"]);
//! # Ok::<(), DriverError>(())
//! ```

mod dice;
mod log;

pub use dice::Dice;
pub use log::{LoggedCall, Reference, sort_event_runs};

use crate::device::{DeviceOptions, SimMachine};
use crate::driver::{Answer, CALL_NAMES, Call, Driver, DriverError, Families};
use crate::machine::{Direction, Machine};
use crate::units::{EventId, StreamId};

#[derive(Clone, Copy, Debug, Default)]
struct EventMark {
    /// Where and when it was recorded; when 0: never, or waited for since.
    stream: StreamId,
    recorded: u64,
}

#[derive(Clone, Debug)]
struct Cue {
    kind: usize,
    /// Calls of the kind to let pass.
    skip: u64,
    error: DriverError,
}

/// A machine on a script. See the module.
#[derive(Clone, Debug)]
pub struct ScriptedMachine {
    inner: SimMachine,
    /// Rises with every record and every completion.
    moment: u64,
    /// Moment of the last `complete` of each stream.
    completed: rustc_hash::FxHashMap<u32, u64>,
    completed_all: u64,
    events: Vec<EventMark>,
    sync_completes: bool,
    logging: bool,
    log: Vec<LoggedCall>,
    cues: Vec<Cue>,
}

impl ScriptedMachine {
    /// A machine with this device; its costs and links are dropped.
    pub fn new(options: DeviceOptions) -> Self {
        let free = DeviceOptions::default();
        let options = DeviceOptions { costs: free.costs, links: free.links, ..options };
        Self {
            inner: SimMachine::new(options),
            moment: 0,
            completed: rustc_hash::FxHashMap::default(),
            completed_all: 0,
            events: Vec::new(),
            sync_completes: false,
            logging: true,
            log: Vec::new(),
            cues: Vec::new(),
        }
    }

    /// The fake device of the golden sets: `capacity` bytes, first fit, 2 MiB granule, handles of any size.
    pub fn of_capacity(capacity: u64) -> Self {
        Self::new(DeviceOptions { capacity, any_size: true, ..DeviceOptions::default() })
    }

    /// All events recorded on the stream so far are complete.
    pub fn complete(&mut self, stream: StreamId) {
        self.moment += 1;
        self.completed.insert(stream.0, self.moment);
    }

    /// All events recorded so far are complete.
    pub fn complete_all(&mut self) {
        self.moment += 1;
        self.completed_all = self.moment;
    }

    /// Does a stream or device synchronise, or a `cudaFree`, complete the events of the streams it waits for? Not in the golden sets (the default).
    pub fn set_sync_completes(&mut self, on: bool) {
        self.sync_completes = on;
    }

    /// Switches the log on (as at the start) or off.
    pub fn set_logging(&mut self, on: bool) {
        self.logging = on;
    }

    /// The calls since the last drain, in order. Queries (event state, free memory, attributes) and the making and ending of events are
    /// not among them.
    pub fn drain_log(&mut self) -> std::vec::Drain<'_, LoggedCall> {
        self.log.drain(..)
    }

    /// The `nth` call from now (0: the next one) of the call with CUDA's name `name` answers `error`, and nothing else happens.
    ///
    /// # Panics
    /// If no call has that name.
    pub fn fail_on(&mut self, name: &str, nth: u64, error: DriverError) {
        let kind = CALL_NAMES.iter().position(|known| *known == name);
        let kind = kind.unwrap_or_else(|| panic!("no call is named {name:?}"));
        self.cues.push(Cue { kind, skip: nth, error });
    }

    /// Are there calls that have yet to fail on cue?
    pub fn has_cues(&self) -> bool {
        !self.cues.is_empty()
    }

    fn is_complete(&self, event: EventId) -> bool {
        let Some(mark) = self.events.get(event.0 as usize) else { return true };
        let completed = self.completed.get(&mark.stream.0).copied().unwrap_or_default();
        mark.recorded == 0 || mark.recorded < completed.max(self.completed_all)
    }

    fn mark(&mut self, event: EventId) -> &mut EventMark {
        let at = event.0 as usize;
        if self.events.len() <= at {
            self.events.resize(at + 1, EventMark::default());
        }
        &mut self.events[at]
    }

    fn cued(&mut self, kind: usize) -> Option<DriverError> {
        let mut due = None;
        for (at, cue) in self.cues.iter_mut().enumerate().filter(|(_, cue)| cue.kind == kind) {
            if cue.skip == 0 {
                due = due.or(Some(at));
            } else {
                cue.skip -= 1;
            }
        }
        due.map(|at| self.cues.remove(at).error)
    }

    /// What to log of a call before it is made; `None` if it is not logged.
    fn describe(&self, call: &Call) -> Option<LoggedCall> {
        let mut row = LoggedCall {
            call: call.name(),
            ok: false,
            segment: None,
            offset: 0,
            size: 0,
            reference: None,
        };
        let place = |row: &mut LoggedCall, address| {
            if let Some(origin) = self.inner.origin(address) {
                row.segment = Some((origin.kind, origin.ordinal));
                row.offset = origin.offset;
            }
        };
        match *call {
            Call::Malloc { size }
            | Call::Reserve { size }
            | Call::Create { size }
            | Call::MallocManaged { size }
            | Call::MallocHost { size, .. } => row.size = size,
            Call::MallocAsync { size, stream, .. } => {
                row.size = size;
                row.reference = Some(Reference::Stream(stream));
            }
            Call::FreeAsync { address, stream } => {
                place(&mut row, address);
                row.reference = Some(Reference::Stream(stream));
            }
            Call::Free { address } | Call::Unreserve { address } | Call::FreeHost { address } => {
                place(&mut row, address);
                row.size = self.inner.range_size(address).unwrap_or_default();
            }
            Call::Map { address, handle } => {
                place(&mut row, address);
                row.size = self.inner.handle_size(handle).unwrap_or_default();
                row.reference = Some(Reference::Handle(handle));
            }
            Call::SetAccess { address, size }
            | Call::Unmap { address, size }
            | Call::Prefetch { address, size, .. }
            | Call::Advise { address, size, .. } => {
                place(&mut row, address);
                row.size = size;
            }
            Call::Release { handle } => {
                row.size = self.inner.handle_size(handle).unwrap_or_default();
                row.reference = Some(Reference::Handle(handle));
            }
            Call::WaitEvent { stream, .. }
            | Call::StreamSynchronize { stream }
            | Call::EventRecord { stream, .. } => row.reference = Some(Reference::Stream(stream)),
            Call::EventSynchronize { event } => {
                let mark = self.events.get(event.0 as usize)?;
                row.reference = Some(Reference::Stream(mark.stream));
            }
            Call::Copy { from, to, size, direction, stream } => {
                place(&mut row, if direction == Direction::HostToDevice { to } else { from });
                row.size = size;
                row.reference = Some(Reference::Stream(stream));
            }
            Call::FileRead { to: address, size, stream, .. }
            | Call::FileWrite { from: address, size, stream, .. } => {
                place(&mut row, address);
                row.size = size;
                row.reference = Some(Reference::Stream(stream));
            }
            Call::Launch { stream, .. } => row.reference = Some(Reference::Stream(stream)),
            Call::PoolCreate
            | Call::PoolDestroy { .. }
            | Call::PoolSet { .. }
            | Call::PoolTrim { .. }
            | Call::StreamCreate
            | Call::DeviceSynchronize => {}
            Call::PoolGet { .. }
            | Call::CaptureStatus { .. }
            | Call::EventCreate
            | Call::EventQuery { .. }
            | Call::EventDestroy { .. }
            | Call::EventElapsed { .. }
            | Call::MemInfo => return None,
        }
        Some(row)
    }

    /// Fills in what only the answer tells.
    fn finish(&self, row: &mut LoggedCall, answer: &Result<Answer, DriverError>) {
        row.ok = answer.is_ok();
        match answer {
            Ok(Answer::Address(address)) => {
                if let Some(origin) = self.inner.origin(*address) {
                    row.segment = Some((origin.kind, origin.ordinal));
                    row.offset = origin.offset;
                }
            }
            Ok(Answer::Handle(handle)) => row.reference = Some(Reference::Handle(*handle)),
            _ => {}
        }
    }

    fn perform(&mut self, call: Call) -> Result<Answer, DriverError> {
        let call = match call {
            Call::EventQuery { event } if !self.is_complete(event) => {
                return Ok(Answer::Flag(false));
            }
            Call::EventElapsed { from, to }
                if !(self.is_complete(from) && self.is_complete(to)) =>
            {
                let what = "an event is not complete: not ready".into();
                return Err(DriverError::Failed { call: call.name(), what });
            }
            Call::Launch { stream, .. } => Call::Launch { stream, duration: 0 },
            call => call,
        };
        let answer = self.inner.call(call)?;
        match call {
            Call::EventRecord { event, stream } => {
                self.moment += 1;
                *self.mark(event) = EventMark { stream, recorded: self.moment };
            }
            Call::EventSynchronize { event } => self.mark(event).recorded = 0,
            Call::StreamSynchronize { stream } if self.sync_completes => self.complete(stream),
            Call::DeviceSynchronize | Call::Free { .. } if self.sync_completes => {
                self.complete_all();
            }
            _ => {}
        }
        if let Answer::Event(event) = answer {
            *self.mark(event) = EventMark::default();
        }
        Ok(answer)
    }
}

impl Driver for ScriptedMachine {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let mut row = if self.logging { self.describe(&call) } else { None };
        let cued = if self.cues.is_empty() { None } else { self.cued(call.kind()) };
        let answer = match cued {
            Some(error) => Err(error),
            None => self.perform(call),
        };
        if let Some(row) = &mut row {
            self.finish(row, &answer);
            self.log.push(*row);
        }
        answer
    }

    fn families(&self) -> Families {
        self.inner.families()
    }
}

/// As [`SimMachine`], but work and transfers take no time.
impl Machine for ScriptedMachine {
    fn launch(&mut self, stream: StreamId, _duration: u64) -> Result<(), DriverError> {
        self.inner.launch(stream, 0)
    }

    crate::forward_machine!(inner:
        select, thread, now, wait_until, spend, transfer, touch, held, origin, physical, stamp,
        ordered, capture, other_process, calls, driver_work,
    );
}

#[cfg(test)]
mod tests;
