//! The machine for a process that is not ours: its streams are the caller's, any of its threads calls, and its current context stays what it was.
//!
//! | rule | what it says |
//! |---|---|
//! | `thread` | whichever thread calls: the device's primary context is made current for the moment of the call, and the former one put back; so is the thread's capture mode, which is relaxed meanwhile, since a request that needs the driver would end a capture (PyTorch captures in global mode) |
//! | `streams` | a caller's stream gets a number at its first use, 0 for the null stream, and is used as it is; it is the caller's to end. A handle that the driver gives out again, after its stream was ended, means the new stream |
//! | `limit` | as for a run: at most so many bytes, nine tenths of what is free at the start unless told |

use std::collections::BTreeMap;

use vramlab_sim::machine::Machine;
use vramlab_sim::units::StreamId;

use crate::cuda::{Refusal, calls};
use crate::machine::CudaMachine;
use crate::probe::Trouble;

/// A device of the process.
pub struct Shared {
    machine: CudaMachine,
    /// By CUDA's handle.
    streams: BTreeMap<usize, StreamId>,
}

fn refused(refusal: &Refusal) -> String {
    format!("the driver answered {} with {}", refusal.call, refusal.error())
}

/// Does something in relaxed capture mode, and puts that and the context back (rule `thread`).
fn aside<T>(act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let before = calls::current().map_err(|e| refused(&e))?;
    let done = act();
    calls::put_back(before).map_err(|e| refused(&e))?;
    done
}

impl Shared {
    /// Loads the driver and retains the primary context of a device. `limit`: most bytes to hold.
    ///
    /// # Errors
    /// In words: no driver, no such device, or a refusal.
    pub fn open(device: i32, limit: Option<u64>) -> Result<Self, String> {
        crate::cuda::begin(calls::CLASSIC).map_err(|trouble: Trouble| trouble.to_string())?;
        let machine = aside(|| CudaMachine::open_one(device, limit).map_err(|e| e.to_string()))?;
        let mut shared = Self { machine, streams: BTreeMap::new() };
        shared.stream(0);
        Ok(shared)
    }

    /// Most bytes that it will hold.
    pub fn limit(&self) -> u64 {
        self.machine.limit()
    }

    /// The number of a caller's stream (rule `streams`).
    pub fn stream(&mut self, handle: usize) -> StreamId {
        let next = StreamId(self.streams.len() as u32);
        let stream = *self.streams.entry(handle).or_insert(next);
        if stream == next {
            self.machine.adopt_stream(stream, handle);
        }
        stream
    }

    /// The machine's own books, for which the driver is not asked: bytes held, calls made.
    pub fn books(&self) -> &dyn Machine {
        &self.machine
    }

    /// Does something with the machine in the device's context, on whichever thread (rule `thread`).
    ///
    /// # Errors
    /// When the context cannot be made current; in words.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut dyn Machine) -> T) -> Result<T, String> {
        let machine = &mut self.machine;
        aside(|| {
            machine.enter_thread().map_err(|e| refused(&e))?;
            Ok(act(machine))
        })
    }

    /// Gives all back: no address that came from here may be used any more.
    ///
    /// # Errors
    /// The first refusal, in words, after everything was tried.
    pub fn close(mut self) -> Result<(), String> {
        aside(|| self.machine.close().map_err(|e| refused(&e)))
    }
}
