//! The clock of a stand-in driver. A driver whose calls take no real time may bring a clock of its own: one function,
//! `vramlabClock(what, value)`, which no real driver has. The times of a run are then its times, and exact.

use std::ffi::c_uint;

use cudarc::driver::sys;
use vramlab_sim::driver::CALL_KINDS;
use vramlab_sim::machine::Held;

use super::has;

const SYMBOL: &str = "vramlabClock";

type Function = unsafe extern "C" fn(c_uint, u64) -> u64;

/// A stand-in's clock.
#[derive(Clone, Copy)]
pub(crate) struct StandIn(Function);

/// What is asked of it; the numbers are part of the interface.
#[derive(Clone, Copy)]
enum What {
    /// Is it in use? 1 or 0.
    InUse = 0,
    /// ns since the beginning, of the present host thread.
    Now = 1,
    /// The host is busy for so many ns.
    Spend = 2,
    /// The host waits until then.
    WaitUntil = 3,
    /// The host is this thread.
    Thread = 4,
    /// The clock is set to this time.
    Set = 5,
}

impl StandIn {
    /// The clock of the driver that was loaded, if it has one and uses it.
    pub(crate) fn find() -> Option<Self> {
        if !has(SYMBOL) {
            return None;
        }
        // SAFETY: the symbol was found; only a stand-in of ours has it, with this signature
        let function = unsafe { sys::culib().get::<Function>(SYMBOL.as_bytes()) };
        let clock = Self(*function.ok()?);
        (clock.ask(What::InUse, 0) == 1).then_some(clock)
    }

    fn ask(self, what: What, value: u64) -> u64 {
        // SAFETY: the library stays loaded, and the function takes any two numbers
        unsafe { (self.0)(what as c_uint, value) }
    }

    pub(crate) fn now(self) -> u64 {
        self.ask(What::Now, 0)
    }

    pub(crate) fn spend(self, ns: u64) {
        self.ask(What::Spend, ns);
    }

    pub(crate) fn wait_until(self, time: u64) {
        self.ask(What::WaitUntil, time);
    }

    pub(crate) fn thread(self, thread: u32) {
        self.ask(What::Thread, thread.into());
    }

    pub(crate) fn set(self, time: u64) {
        self.ask(What::Set, time);
    }
}

const BOOKS: &str = "vramlabBooks";

type Books = unsafe extern "C" fn(c_uint) -> u64;

/// A stand-in's books of the current device.
#[derive(Clone, Copy)]
pub(crate) struct StandInBooks(Books);

impl StandInBooks {
    /// The books of the driver that was loaded, if it is a stand-in.
    pub(crate) fn find() -> Option<Self> {
        if !has(BOOKS) {
            return None;
        }
        // SAFETY: the symbol was found; only a stand-in of ours has it, with this signature
        let function = unsafe { sys::culib().get::<Books>(BOOKS.as_bytes()) };
        Some(Self(*function.ok()?))
    }

    fn ask(self, what: usize) -> u64 {
        // SAFETY: the library stays loaded, and the function takes any number
        unsafe { (self.0)(what as c_uint) }
    }

    /// Bytes held.
    pub(crate) fn held(self) -> Held {
        Held {
            reserved: self.ask(0),
            device_used: self.ask(1),
            peak_reserved: self.ask(2),
            peak_device_used: self.ask(3),
            ..Held::default()
        }
    }

    /// How often each call was made.
    pub(crate) fn calls(self) -> [u64; CALL_KINDS] {
        std::array::from_fn(|kind| self.ask(kind + 4))
    }
}
