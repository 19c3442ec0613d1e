//! A device whose events complete a number of launches after they were recorded, whatever the time: how the recordings' stand-in for CUDA works
//! (`traces/pytorch_recorded`, README: "Events").

use std::collections::BTreeMap;

use vramlab_sim::SimMachine;
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, Families};
use vramlab_sim::machine::Machine;
use vramlab_sim::units::{EventId, StreamId};

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
    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError> {
        self.launches += 1;
        self.inner.launch(stream, duration)
    }

    vramlab_sim::forward_machine!(inner:
        select, thread, now, wait_until, spend, transfer, touch, held, origin, physical, stamp,
        ordered, capture, other_process, calls, driver_work,
    );
}
