//! A device whose events complete a number of launches after they were recorded, whatever the time: how the recordings' stand-in for CUDA works
//! (`traces/pytorch_recorded`, README: "Events").

use std::collections::BTreeMap;

use vramlab_sim::SimMachine;
use vramlab_sim::driver::{Address, Answer, Call, Driver, DriverError, Families};
use vramlab_sim::machine::{
    CallCounts, Direction, DriverWork, Held, Machine, Origin, Physical, Stamp, Toucher,
};
use vramlab_sim::units::{DeviceId, EventId, Nanos, StreamId};

pub(crate) struct Lagging {
    pub(crate) inner: SimMachine,
    /// Launches until an event is complete.
    pub(crate) lag: u64,
    pub(crate) launches: u64,
    /// Launches before each event that is not known to be complete.
    pub(crate) recorded: BTreeMap<EventId, u64>,
}

impl Driver for Lagging {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        match call {
            Call::EventRecord { event, .. } => {
                self.recorded.insert(event, self.launches);
            }
            Call::EventQuery { event } => {
                self.inner.call(call)?;
                let since = self.recorded.get(&event).map(|at| self.launches - at);
                return Ok(Answer::Flag(since.is_none_or(|since| since >= self.lag)));
            }
            // what synchronises completes everything
            Call::Free { .. }
            | Call::StreamSynchronize { .. }
            | Call::DeviceSynchronize
            | Call::EventSynchronize { .. } => self.recorded.clear(),
            _ => {}
        }
        self.inner.call(call)
    }

    fn families(&self) -> Families {
        self.inner.families()
    }
}

impl Machine for Lagging {
    fn select(&mut self, device: DeviceId) -> Result<(), DriverError> {
        self.inner.select(device)
    }

    fn thread(&mut self, thread: u32) {
        self.inner.thread(thread);
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn wait_until(&mut self, time: Nanos) {
        self.inner.wait_until(time);
    }

    fn spend(&mut self, ns: u64) {
        self.inner.spend(ns);
    }

    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError> {
        self.launches += 1;
        self.inner.launch(stream, duration)
    }

    fn transfer(
        &mut self,
        stream: StreamId,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DriverError> {
        self.inner.transfer(stream, bytes, direction)
    }

    fn touch(
        &mut self,
        address: Address,
        bytes: u64,
        write: bool,
        by: Toucher,
    ) -> Result<(), DriverError> {
        self.inner.touch(address, bytes, write, by)
    }

    fn held(&self) -> Held {
        self.inner.held()
    }

    fn origin(&self, address: Address) -> Option<Origin> {
        self.inner.origin(address)
    }

    fn physical(&self, address: Address) -> Option<Physical> {
        self.inner.physical(address)
    }

    fn stamp(&self, stream: StreamId) -> Option<Stamp> {
        self.inner.stamp(stream)
    }

    fn ordered(&self, earlier: Stamp, stream: StreamId) -> bool {
        self.inner.ordered(earlier, stream)
    }

    fn capture(&mut self, stream: StreamId, on: bool) {
        self.inner.capture(stream, on);
    }

    fn other_process(&mut self, bytes: u64) {
        self.inner.other_process(bytes);
    }

    fn calls(&self) -> CallCounts {
        self.inner.calls()
    }

    fn driver_work(&self) -> DriverWork {
        self.inner.driver_work()
    }
}
