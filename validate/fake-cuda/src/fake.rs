//! The fake's state: a simulated machine, what is live, and the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use vramlab_sim::SimMachine;
use vramlab_sim::driver::{Answer, Call, Driver, DriverError};
use vramlab_sim::machine::Machine;
use vramlab_sim::units::{DeviceId, Nanos, StreamId};

use crate::enter::Code;
use crate::settings::Settings;
use crate::spaces::Mapped;

/// Kinds of things that a program makes and gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Memory,
    Reserved,
    Physical,
    Host,
    Managed,
    Pool,
    Stream,
    Event,
    Module,
}

/// The fake driver.
pub(crate) struct Fake {
    pub(crate) settings: Settings,
    pub(crate) machine: SimMachine,
    /// Live things by device, kind and number, with their bytes.
    pub(crate) live: BTreeMap<(u16, Kind, u64), u64>,
    /// Numbers that were live once.
    ended: BTreeSet<(u16, Kind, u64)>,
    /// What was done wrong.
    pub(crate) misuses: Vec<String>,
    /// What was left when a device was released.
    pub(crate) leaks: Vec<String>,
    /// Host and managed memory, by where it is.
    pub(crate) host: Mapped,
    pub(crate) managed: Mapped,
    pub(crate) contexts: Vec<u32>,
    pub(crate) modules: u64,
    device: u16,
    began: Instant,
    dice: u64,
}

impl Fake {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            contexts: vec![0; settings.devices.len()],
            machine: machine(&settings),
            settings,
            live: BTreeMap::new(),
            ended: BTreeSet::new(),
            misuses: Vec::new(),
            leaks: Vec::new(),
            host: Mapped::default(),
            managed: Mapped::default(),
            modules: 0,
            device: 0,
            began: Instant::now(),
            dice: 1,
        }
    }

    /// The last context is gone, and what was in it: streams, queues, pools.
    pub(crate) fn start_anew(&mut self) {
        self.machine = machine(&self.settings);
        self.ended.clear();
        self.began = Instant::now();
    }

    pub(crate) fn select(&mut self, device: u16) -> Result<(), Code> {
        self.device = device;
        self.machine.select(DeviceId(device)).map_err(|_| Code::INVALID_DEVICE)
    }

    /// The device of the present call.
    pub(crate) fn device(&self) -> u16 {
        self.device
    }

    /// One call of the simulated machine.
    pub(crate) fn call(&mut self, call: Call) -> Result<Answer, Code> {
        self.machine.call(call).map_err(|error| self.refused(&error))
    }

    /// Notes what is wrong with a call that makes no sense.
    pub(crate) fn refused(&mut self, error: &DriverError) -> Code {
        if let DriverError::InvalidValue { .. } = error {
            self.misuses.push(error.to_string());
        }
        Code::from(error)
    }

    pub(crate) fn misused(&mut self, what: impl Into<String>) -> Code {
        self.misuses.push(what.into());
        Code::INVALID_VALUE
    }

    /// Something was made.
    pub(crate) fn made(&mut self, kind: Kind, number: u64, bytes: u64) {
        self.live.insert((self.device, kind, number), bytes);
    }

    /// Something is given back: its bytes.
    pub(crate) fn gone(&mut self, function: &str, kind: Kind, number: u64) -> Result<u64, Code> {
        let key = (self.device, kind, number);
        if let Some(bytes) = self.live.remove(&key) {
            self.ended.insert(key);
            return Ok(bytes);
        }
        let how = if self.ended.contains(&key) { "given back twice" } else { "never given out" };
        Err(self.misused(format!("{function}: {kind:?} {number:#x} was {how}")))
    }

    /// The machine's clock, before a call.
    pub(crate) fn begins(&mut self) -> u64 {
        if self.settings.spin {
            let real = self.began.elapsed().as_nanos() as u64;
            self.machine.wait_until(Nanos(real));
        }
        self.machine.now().0
    }

    /// After a call that began then: what it cost is varied, and waited for.
    pub(crate) fn ends(&mut self, function: &str, start: u64) {
        let took = self.machine.now().0 - start;
        // who waits for the device waits as long as it takes
        let waits = function.contains("Synchronize");
        if self.settings.jitter > 0.0 && took > 0 && !waits {
            let share = 1.0 + self.settings.jitter * (self.draw() + self.draw() - 1.0);
            self.machine.set_now(Nanos(start + (took as f64 * share).round() as u64));
        }
        if self.settings.spin {
            let until = self.machine.now().0;
            while (self.began.elapsed().as_nanos() as u64) < until {
                std::hint::spin_loop();
            }
        }
    }

    /// From 0 to 1, seeded (splitmix64).
    fn draw(&mut self) -> f64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.dice;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn machine(settings: &Settings) -> SimMachine {
    SimMachine::with_devices(settings.devices.iter().map(|device| device.options.clone()))
}

/// A stream's handle is its number; the null stream is stream 0.
pub(crate) fn stream(handle: *mut std::ffi::c_void) -> StreamId {
    StreamId(handle.addr() as u32)
}
