//! Streams, events, and the work that a strategy queues.

use vramlab_sim::driver::{Answer, Call, DriverError};
use vramlab_sim::units::{EventId, StreamId};

use super::books::invalid;
use super::{CudaMachine, failed};
use crate::cuda::calls::{self, Event, Stream};

/// ns in a ms.
const MS: f64 = 1e6;

impl CudaMachine {
    /// Makes a stream if it is new (rule `streams`). That is none of the run's time.
    pub(super) fn stream(
        &mut self,
        call: &'static str,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        if self.device().streams.contains_key(&stream) {
            return Ok(());
        }
        let new = self.aside(|_| calls::stream_create()).map_err(|e| failed(call, &e))?;
        if let Some(outside) = &mut self.outside {
            outside.made(stream, new.handle());
        }
        let made = self.next_made();
        self.device().streams.insert(stream, (new, made));
        Ok(())
    }

    /// Does something with a stream of the current device.
    pub(super) fn on_stream<T>(
        &mut self,
        call: &'static str,
        stream: StreamId,
        act: impl FnOnce(&Stream) -> Result<T, crate::cuda::Refusal>,
    ) -> Result<T, DriverError> {
        self.stream(call, stream)?;
        let Some((stream, _)) = self.device().streams.get(&stream) else {
            return Err(invalid(call, "found a stream that could not be made"));
        };
        act(stream).map_err(|e| failed(call, &e))
    }

    fn event(&self, call: &'static str, event: EventId) -> Result<&Event, DriverError> {
        let found = self.events.get(event.0 as usize).and_then(Option::as_ref);
        found.map(|(event, _)| event).ok_or_else(|| {
            invalid(call, format!("found event {event}, expected one that was made"))
        })
    }

    pub(super) fn order_call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let name = call.name();
        let fail = |refusal| failed(name, &refusal);
        match call {
            Call::StreamCreate => {
                let new = calls::stream_create().map_err(fail)?;
                let made = self.next_made();
                let stream = self.device().new_stream();
                self.device().streams.insert(stream, (new, made));
                return Ok(Answer::Stream(stream));
            }
            Call::CaptureStatus { stream } => {
                if self.outside.is_some() {
                    self.stream(name, stream)?;
                    return Ok(Answer::Flag(self.device().capturing.contains(&stream)));
                }
                // an adopted stream may be captured without our doing
                let real = self.on_stream(name, stream, calls::is_capturing)?;
                return Ok(Answer::Flag(real || self.device().capturing.contains(&stream)));
            }
            Call::WaitEvent { stream, event } => {
                self.stream(name, stream)?;
                let event = self.event(name, event)?;
                if let Some((stream, _)) = self.devices[self.current].streams.get(&stream) {
                    calls::stream_wait(stream, event).map_err(fail)?;
                }
            }
            Call::StreamSynchronize { stream } => {
                self.on_stream(name, stream, calls::stream_synchronize)?;
                self.ask_pools();
            }
            Call::DeviceSynchronize => {
                calls::synchronize().map_err(fail)?;
                self.ask_pools();
            }
            Call::EventCreate => {
                let event = (calls::event_create().map_err(fail)?, self.next_made());
                let number = match self.spare_events.pop() {
                    Some(number) => {
                        self.events[number as usize] = Some(event);
                        number
                    }
                    None => {
                        self.events.push(Some(event));
                        (self.events.len() - 1) as u32
                    }
                };
                return Ok(Answer::Event(EventId(number)));
            }
            Call::EventRecord { event, stream } => {
                self.stream(name, stream)?;
                let event = self.event(name, event)?;
                if let Some((stream, _)) = self.devices[self.current].streams.get(&stream) {
                    calls::event_record(event, stream).map_err(fail)?;
                }
            }
            Call::EventQuery { event } => {
                return calls::event_query(self.event(name, event)?)
                    .map(Answer::Flag)
                    .map_err(fail);
            }
            Call::EventSynchronize { event } => {
                calls::event_synchronize(self.event(name, event)?).map_err(fail)?;
                self.ask_pools();
            }
            Call::EventDestroy { event } => {
                self.event(name, event)?;
                if let Some((gone, _)) = self.events[event.0 as usize].take() {
                    self.spare_events.push(event.0);
                    calls::event_destroy(gone).map_err(fail)?;
                }
            }
            Call::EventElapsed { from, to } => return self.elapsed(name, from, to),
            Call::Launch { stream, duration } => self.spin(name, stream, duration, true)?,
            _ => return Err(DriverError::NotSupported { call: name }),
        }
        Ok(Answer::Done)
    }

    fn elapsed(
        &self,
        name: &'static str,
        from: EventId,
        to: EventId,
    ) -> Result<Answer, DriverError> {
        if !self.has_elapsed {
            return Err(DriverError::NotSupported { call: name });
        }
        let (from, to) = (self.event(name, from)?, self.event(name, to)?);
        match calls::event_elapsed(from, to).map_err(|e| failed(name, &e))? {
            Some(ms) => Ok(Answer::Value((f64::from(ms).max(0.0) * MS).round() as u64)),
            None => {
                let what = "an event is not complete: not ready".into();
                Err(DriverError::Failed { call: name, what })
            }
        }
    }

    /// Queues a kernel that takes so many ns; `own`: of a strategy.
    pub(super) fn spin(
        &mut self,
        call: &'static str,
        stream: StreamId,
        ns: u64,
        own: bool,
    ) -> Result<(), DriverError> {
        self.stream(call, stream)?;
        self.aside(|machine| machine.device().kernels()).map_err(|e| failed(call, &e))?;
        let device = self.device();
        match (&device.kernels, device.streams.get(&stream)) {
            (Some(kernels), Some((stream, _))) => {
                kernels.spin(stream, ns, own).map_err(|e| failed(call, &e))
            }
            _ => Ok(()),
        }
    }
}
