//! Watches a run from both sides of a strategy: every driver call below it, every answer above it, in names that two machines share.
//!
//! | rule | what it says |
//! |---|---|
//! | `place` | an address is named by its range (`m3+512`: byte 512 of the fourth malloc) |
//! | `pool_place` | where in the driver a pool's memory lies cannot be seen: places in pools are counted from the first one that a pool of the device gave |

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vramlab_sim::driver::{
    Address, Answer, CALL_KINDS, CALL_NAMES, Call, Driver, DriverError, Families,
};
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::machine::{Direction, Machine, Memory, Origin, RangeKind};
use vramlab_sim::report::Spread;
use vramlab_sim::units::{DeviceId, StreamId};

/// Where an address lies, as two machines name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(Option<(RangeKind, u32, u64)>);

/// A driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSeen {
    call: Call,
    /// Of the addresses in it.
    places: [Place; 2],
    answer: Answered,
}

/// How a call was answered, without the addresses and the words in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Done,
    /// The answer was a number that both must give.
    Same(Answer),
    OutOfMemory,
    NotSupported,
    Invalid,
    Failed,
}

/// What an op came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpSeen {
    pub(crate) outcome: Came,
    pub(crate) reserved: u64,
}

/// Its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Placed(Place, u64),
    Refused,
    Other,
}

/// An op, and the driver calls that it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) calls: Vec<CallSeen>,
    pub(crate) seen: OpSeen,
}

/// Hears each op of a run, with its calls.
pub(crate) trait Listener: Send {
    fn hear(&mut self, op: u64, name: &'static str, step: Step);
}

/// What both sides write to.
struct Notes<'l> {
    calls: Vec<CallSeen>,
    times: Vec<Spread>,
    listener: &'l mut dyn Listener,
}

/// A watch on a run: a machine, and the observer that belongs to it.
pub(crate) struct Watch<'l>(Arc<Mutex<Notes<'l>>>);

impl<'l> Watch<'l> {
    pub(crate) fn new(listener: &'l mut dyn Listener) -> Self {
        let times = (0..CALL_KINDS).map(|_| Spread::new(0)).collect();
        Self(Arc::new(Mutex::new(Notes { calls: Vec::new(), times, listener })))
    }

    /// The machine, watched. Without `with_work` no work and no copies of the workload are queued; its touches of memory are.
    pub(crate) fn machine<'m>(
        &self,
        inner: &'m mut dyn Machine,
        with_work: bool,
    ) -> Watched<'m, 'l> {
        Watched { inner, with_work, pool_bases: Vec::new(), device: 0, notes: Arc::clone(&self.0) }
    }

    /// The observer, for a strategy of this memory.
    pub(crate) fn observer(&self, memory: Memory) -> Ears<'l> {
        Ears { memory, notes: Arc::clone(&self.0) }
    }

    /// Host time of each driver call that was made, by CUDA's name.
    pub(crate) fn times(&self) -> Vec<(&'static str, vramlab_sim::report::Summary)> {
        let notes = lock(&self.0);
        let all =
            CALL_NAMES.iter().zip(&notes.times).map(|(name, spread)| (*name, spread.summary()));
        all.filter(|(_, summary)| summary.count > 0).collect()
    }
}

fn lock<'a, 'l>(notes: &'a Mutex<Notes<'l>>) -> MutexGuard<'a, Notes<'l>> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine whose calls are noted.
pub(crate) struct Watched<'m, 'l> {
    inner: &'m mut dyn Machine,
    with_work: bool,
    /// By device: address of the first range that a pool gave (rule `pool_place`).
    pool_bases: Vec<(usize, Address)>,
    device: usize,
    notes: Arc<Mutex<Notes<'l>>>,
}

impl Watched<'_, '_> {
    fn place(&self, address: Address) -> Place {
        Place(self.origin(address).map(|origin| (origin.kind, origin.ordinal, origin.offset)))
    }

    fn places(&self, call: &Call) -> [Place; 2] {
        let (one, two) = match *call {
            Call::Free { address }
            | Call::FreeAsync { address, .. }
            | Call::Unreserve { address }
            | Call::Map { address, .. }
            | Call::SetAccess { address, .. }
            | Call::Unmap { address, .. }
            | Call::Prefetch { address, .. }
            | Call::Advise { address, .. }
            | Call::FreeHost { address } => (Some(address), None),
            Call::Copy { from, to, .. } => (Some(from), Some(to)),
            Call::FileRead { to, .. } => (Some(to), None),
            Call::FileWrite { from, .. } => (Some(from), None),
            _ => (None, None),
        };
        [one, two].map(|address| address.map_or(Place(None), |address| self.place(address)))
    }
}

/// The call with its addresses left out: they are named by places.
fn without_addresses(call: Call) -> Call {
    match call {
        Call::Free { .. } => Call::Free { address: 0 },
        Call::FreeAsync { stream, .. } => Call::FreeAsync { address: 0, stream },
        Call::Unreserve { .. } => Call::Unreserve { address: 0 },
        Call::Map { handle, .. } => Call::Map { address: 0, handle },
        Call::SetAccess { size, .. } => Call::SetAccess { address: 0, size },
        Call::Unmap { size, .. } => Call::Unmap { address: 0, size },
        Call::Prefetch { size, to, stream, .. } => Call::Prefetch { address: 0, size, to, stream },
        Call::Advise { size, advice, .. } => Call::Advise { address: 0, size, advice },
        Call::FreeHost { .. } => Call::FreeHost { address: 0 },
        Call::Copy { size, direction, stream, .. } => {
            Call::Copy { from: 0, to: 0, size, direction, stream }
        }
        Call::FileRead { offset, size, stream, .. } => {
            Call::FileRead { offset, to: 0, size, stream }
        }
        Call::FileWrite { offset, size, stream, .. } => {
            Call::FileWrite { from: 0, offset, size, stream }
        }
        other => other,
    }
}

fn answered(result: &Result<Answer, DriverError>) -> Answered {
    match result {
        // what a clock says, and what is free beside the run, are no rules
        Ok(Answer::Address(_) | Answer::Done | Answer::Value(_) | Answer::Info { .. }) => {
            Answered::Done
        }
        Ok(same) => Answered::Same(*same),
        Err(DriverError::OutOfMemory { .. }) => Answered::OutOfMemory,
        Err(DriverError::NotSupported { .. }) => Answered::NotSupported,
        Err(DriverError::InvalidValue { .. }) => Answered::Invalid,
        Err(DriverError::Failed { .. }) => Answered::Failed,
    }
}

impl Driver for Watched<'_, '_> {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let places = self.places(&call);
        let start = self.inner.now();
        let result = self.inner.call(call);
        let took = self.inner.now().0.saturating_sub(start.0);
        if let (Call::MallocAsync { .. }, Ok(Answer::Address(address))) = (call, &result)
            && !self.pool_bases.iter().any(|(device, _)| *device == self.device)
        {
            self.pool_bases.push((self.device, *address));
        }
        let mut notes = lock(&self.notes);
        notes.times[call.kind()].record(took);
        let (call, answer) = (without_addresses(call), answered(&result));
        notes.calls.push(CallSeen { call, places, answer });
        result
    }

    fn families(&self) -> Families {
        self.inner.families()
    }
}

impl Machine for Watched<'_, '_> {
    fn select(&mut self, device: DeviceId) -> Result<(), DriverError> {
        self.device = device.0.into();
        self.inner.select(device)
    }

    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError> {
        if self.with_work { self.inner.launch(stream, duration) } else { Ok(()) }
    }

    fn transfer(
        &mut self,
        stream: StreamId,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DriverError> {
        if self.with_work { self.inner.transfer(stream, bytes, direction) } else { Ok(()) }
    }

    fn origin(&self, address: Address) -> Option<Origin> {
        let origin = self.inner.origin(address)?;
        if origin.kind != RangeKind::Pool {
            return Some(origin);
        }
        let base = self.pool_bases.iter().find(|(device, _)| *device == self.device);
        let offset = address.wrapping_sub(base.map_or(address, |(_, base)| *base));
        Some(Origin { kind: RangeKind::Pool, ordinal: 0, offset })
    }

    vramlab_sim::forward_machine!(inner:
        thread, now, wait_until, spend, touch, held, physical, stamp, ordered, capture,
        other_process, calls, driver_work,
    );
}

/// Hears what became of each op.
pub(crate) struct Ears<'l> {
    memory: Memory,
    notes: Arc<Mutex<Notes<'l>>>,
}

impl Observer for Ears<'_> {
    fn after(&mut self, seen: &Seen<'_>) {
        let outcome = match seen.outcome {
            Outcome::Placed(placement) => {
                let origin = seen.machine.origin(placement.address);
                let place = origin.map(|origin| (origin.kind, origin.ordinal, origin.offset));
                Came::Placed(Place(place), placement.size)
            }
            Outcome::Refused(_) | Outcome::NoSlots(_) => Came::Refused,
            _ => Came::Other,
        };
        let (reserved, _) = seen.held.of(self.memory);
        let mut notes = lock(&self.notes);
        let calls = std::mem::take(&mut notes.calls);
        let step = Step { calls, seen: OpSeen { outcome, reserved } };
        notes.listener.hear(seen.index, seen.op.name(), step);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((kind, ordinal, offset)) => write!(f, "{}{ordinal}+{offset}", kind.letter()),
            None => f.write_str("nowhere"),
        }
    }
}

impl fmt::Display for CallSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call.name())?;
        match self.call {
            Call::Malloc { size }
            | Call::Reserve { size }
            | Call::Create { size }
            | Call::MallocAsync { size, .. }
            | Call::MallocManaged { size }
            | Call::MallocHost { size, .. }
            | Call::SetAccess { size, .. }
            | Call::Unmap { size, .. }
            | Call::Copy { size, .. } => write!(f, " of {size}")?,
            Call::Map { handle, .. } | Call::Release { handle } => write!(f, " of h{}", handle.0)?,
            _ => {}
        }
        for place in self.places.iter().filter(|place| place.0.is_some()) {
            write!(f, " at {place}")?;
        }
        match self.answer {
            Answered::Done => Ok(()),
            Answered::Same(answer) => write!(f, ": {answer:?}"),
            Answered::OutOfMemory => f.write_str(": out of memory"),
            Answered::NotSupported => f.write_str(": not supported"),
            Answered::Invalid => f.write_str(": invalid value"),
            Answered::Failed => f.write_str(": failed"),
        }
    }
}

impl fmt::Display for OpSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Came::Placed(place, size) => write!(f, "{size} bytes at {place}"),
            Came::Refused => f.write_str("refused"),
            Came::Other => f.write_str("done"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_written_at_places_not_addresses() {
        let (offset, size, stream) = (5, 70, StreamId(1));
        for at in [1, 2_u64] {
            let read = without_addresses(Call::FileRead { offset, to: at, size, stream });
            assert_eq!(read, Call::FileRead { offset, to: 0, size, stream });
            let write = without_addresses(Call::FileWrite { from: at, offset, size, stream });
            assert_eq!(write, Call::FileWrite { from: 0, offset, size, stream });
        }
    }
}
