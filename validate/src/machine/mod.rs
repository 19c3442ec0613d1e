//! [`CudaMachine`]: the real driver behind the seams, so that strategies and workloads run on it unchanged.
//!
//! | file | holds |
//! |---|---|
//! | `device` | a device: context, streams, pools, limit |
//! | `books` | what is held of a device, and where an address lies |
//! | `calls`, `order`, `pools`, `vmm`, `managed` | what each driver call does: memory; streams and events; the families |
//! | `engine` | what only the engine may ask |
//! | `outside` | a library beside the machine that calls the driver by itself |
//! | `clock` | the clock |
//! | `close` | giving everything back |
//!
//! | rule | what it says |
//! |---|---|
//! | `limit` | the run holds at most so many bytes of a device: mallocs above 1 MiB by whole granules and smaller ones, which devices have share granules, by their bytes; physical allocations, what pools hold, managed ranges. What goes beyond is out of memory without asking the driver; a pool that must grow although it has enough in pieces may be over for the moment of a call. Host memory and managed ranges together stay within it too |
//! | `managed_fits` | managed ranges count against the limit, so never exceed what was free: a device is not oversubscribed |
//! | `streams` | a workload's stream is made when it is first used, and waits for no other by itself |
//! | `foreign` | a stream that was adopted is used as it is, and never ended |
//! | `capture` | that a stream is captured is noted and answered; nothing is captured, so that all work runs |
//! | `give_back` | all is given back in reverse order, when a run ends, also by an error, and when the machine is dropped |
//!
//! Left out: reads and writes of files; copies between devices; happens-before (the machine knows no stamps).
//!
//! The contexts are current on the thread that made the machine, and it stays there.

mod books;
mod calls;
mod clock;
mod close;
mod device;
mod engine;
mod managed;
mod order;
mod outside;
mod pools;
mod vmm;

use vramlab_sim::driver::{Answer, CALL_KINDS, Call, Driver, DriverError, Families};
use vramlab_sim::units::StreamId;

use crate::cuda::calls::{CLASSIC, Event};
use crate::cuda::{self, Refusal};
use crate::probe::Trouble;

use clock::Clock;
use device::Device;
pub(crate) use outside::Handles;
use outside::Outside;

/// Devices of the real driver with one host clock.
pub(crate) struct CudaMachine {
    devices: Vec<Device>,
    current: usize,
    clock: Clock,
    /// By number; `None`: destroyed. With the order of making.
    events: Vec<Option<(Event, u64)>>,
    spare_events: Vec<u32>,
    calls: [u64; CALL_KINDS],
    /// How many things were made so far.
    made: u64,
    /// Reused for copies of a workload, which name no memory; one for each device that has had any.
    scratch: Vec<engine::Scratch>,
    /// The driver can tell the time between events.
    has_elapsed: bool,
    /// Someone else calls the driver too.
    outside: Option<Outside>,
}

/// What a machine is asked to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// How many devices at most.
    pub(crate) devices: usize,
    /// Most bytes of each to hold; if not given, nine tenths of what is free.
    pub(crate) limit: Option<u64>,
    /// Work is queued: later times are waited for (rule `skip` of the clock), and memory for the workload's copies is set aside from the limit.
    pub(crate) with_work: bool,
}

impl CudaMachine {
    /// Loads the driver and makes a context on each of the first devices.
    ///
    /// # Errors
    /// Without a driver or a device, when the driver is too old, or refuses a context.
    pub(crate) fn open(wanted: Wanted) -> Result<Self, Trouble> {
        let (_, count) = cuda::begin(CLASSIC)?;
        let count = count.min(i32::try_from(wanted.devices.max(1)).unwrap_or(i32::MAX));
        Self::of(0..count, wanted)
    }

    /// The same for one device, which is then the machine's first.
    ///
    /// # Errors
    /// As `open`, and when there is no device of this number.
    pub(crate) fn open_one(number: i32, limit: Option<u64>) -> Result<Self, Trouble> {
        let (_, count) = cuda::begin(CLASSIC)?;
        if !(0..count).contains(&number) {
            let error = "CUDA_ERROR_INVALID_DEVICE".to_owned();
            return Err(Trouble::Refused { call: "cuDeviceGet", error });
        }
        Self::of(number..number + 1, Wanted { limit, ..Wanted::default() })
    }

    fn of(numbers: std::ops::Range<i32>, wanted: Wanted) -> Result<Self, Trouble> {
        let mut machine = Self {
            devices: Vec::new(),
            current: 0,
            clock: Clock::new(wanted.with_work),
            events: Vec::new(),
            spare_events: Vec::new(),
            calls: [0; CALL_KINDS],
            made: 0,
            scratch: Vec::new(),
            has_elapsed: cuda::calls::has_elapsed(),
            outside: None,
        };
        let aside = if wanted.with_work { engine::SCRATCH } else { 0 };
        for number in numbers {
            // one that was opened before is released if this one cannot be
            machine.devices.push(Device::open(number, wanted.limit, aside)?);
        }
        machine.enter(0)?;
        Ok(machine)
    }

    /// How many devices it has.
    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    /// Most bytes of the current device that a run may hold.
    pub(crate) fn limit(&self) -> u64 {
        self.devices[self.current].limit
    }

    /// Is the clock a stand-in driver's, on which nothing passes by itself?
    pub(crate) fn has_own_clock(&self) -> bool {
        matches!(self.clock, Clock::StandIn(_))
    }

    /// Bytes of the current device's physical granule.
    pub(crate) fn granule(&self) -> u64 {
        self.devices[self.current].granule
    }

    /// Makes the current device's context this thread's.
    pub(crate) fn enter_thread(&mut self) -> Result<(), Refusal> {
        self.enter(self.current)
    }

    /// Takes a stream of someone else's into the current device's (rule `foreign`); `handle` is CUDA's, 0 the null stream.
    pub(crate) fn adopt_stream(&mut self, stream: StreamId, handle: usize) {
        let made = self.next_made();
        self.device().streams.insert(stream, (cuda::calls::Stream::foreign(handle), made));
    }

    fn enter(&mut self, device: usize) -> Result<(), Refusal> {
        if let Some(context) = &self.devices[device].context {
            cuda::calls::make_current(context)?;
        }
        self.current = device;
        Ok(())
    }

    fn device(&mut self) -> &mut Device {
        &mut self.devices[self.current]
    }

    /// The number of the next thing that is made.
    fn next_made(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Asks something that takes no time of the run (rule `aside` of the clock).
    fn aside<T>(&mut self, ask: impl FnOnce(&mut Self) -> T) -> T {
        let start = self.clock.now();
        let answer = ask(self);
        self.clock.forget_since(start);
        answer
    }

    /// What a refused call means to a strategy that asked for so many bytes.
    fn refused(&mut self, call: &'static str, asked: u64, refusal: &Refusal) -> DriverError {
        if refusal.is_out_of_memory() {
            let room = self.device().room();
            let free = self.aside(|_| cuda::calls::mem_info()).map_or(0, |(free, _)| free);
            return DriverError::OutOfMemory { asked, free: free.min(room) };
        }
        failed(call, refusal)
    }
}

/// What a refused call means that asks for no memory.
fn failed(call: &'static str, refusal: &Refusal) -> DriverError {
    let what = format!("the driver answered {} with {}", refusal.call, refusal.error());
    if refusal.is_not_supported() {
        DriverError::NotSupported { call }
    } else if refusal.is_invalid_value() {
        DriverError::InvalidValue { call, what: what.into() }
    } else {
        DriverError::Failed { call, what: what.into() }
    }
}

impl Driver for CudaMachine {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        self.calls[call.kind()] += 1;
        self.dispatch(call)
    }

    fn families(&self) -> Families {
        self.devices[self.current].families
    }
}
