//! Memory events of PyTorch's profiler, recorded with `profile_memory=True`.
//!
//! | format | what it has | source |
//! |---|---|---|
//! | Chrome trace, JSON | instant events called `[memory]` with `Device Type`, `Device Id`, `Bytes`, and since 1.10 `Addr`, `Total Allocated`, `Total Reserved`; `[OutOfMemory]` since 1.11 | pytorch/kineto, libkineto/src/output_json.cpp; pytorch/pytorch, torch/csrc/profiler/collection.cpp |
//! | event list, CSV | the same fields as `ts_us`, `device_type`, `device_id`, `addr`, `bytes`, `total_allocated`, `total_reserved` | lists cut out of such traces |
//!
//! | rule | what it says |
//! |---|---|
//! | `devices` | each device has its own history; the host's (type 0) is left out |
//! | `order` | by `ts`; at equal times as in the file, which is not sorted |
//! | `bytes` | positive: a request, negative: a free; they are sizes of blocks, as the recorded allocator rounded them |
//! | `address` | a free belongs to the request of that address that is live |
//! | `by_size` | without addresses a free belongs to the latest live request of that size |
//! | `start` | a block that is freed but was not requested before was live at the start, and is requested first; what `Total Allocated` says beyond these blocks is one request more |
//! | `lost` | an address that is given out again while it is live: its free was not recorded, which is a gap; so is a free of an address that was freed before |
//!
//! Streams, work and stacks are not read.

mod chrome;
mod history;
mod list;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use vramlab_sim::source::SourceError;

use super::bytes::{self, FileError};
use super::events::{EVENTS_MAX, Events};
use super::text::Lines;

/// The histories of a trace.
#[derive(Debug, Default)]
pub struct Profile {
    /// One each, by type and number.
    pub devices: Vec<DeviceHistory>,
    /// Events of the host, which are left out.
    pub host_events: u64,
}

/// The history of one device.
#[derive(Debug)]
pub struct DeviceHistory {
    /// PyTorch's number of the type: 1 is CUDA.
    pub device_type: i64,
    /// Its number.
    pub device: u16,
    /// Requests and frees, those of the start first.
    pub events: Arc<Events>,
    /// Blocks that were live at the start.
    pub start_blocks: u64,
    /// Bytes that were live at the start, as far as the file says so.
    pub start_bytes: u64,
    /// The highest `Total Allocated` (B).
    pub peak_allocated: Option<u64>,
    /// The highest `Total Reserved` (B).
    pub peak_reserved: Option<u64>,
}

/// Type and number of a device, as a file has them.
type DeviceKey = (i64, i64);
/// Most devices of a file.
const DEVICES_MAX: usize = 1024;

/// One memory event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryEvent {
    /// Host time (ns).
    time: u64,
    /// 0 in files without addresses.
    addr: u64,
    /// Of a request that failed: what it asked for.
    bytes: i64,
    allocated: Option<u64>,
    reserved: Option<u64>,
    failed: bool,
}

/// Opens a trace of either format, plain or compressed.
///
/// # Errors
/// It cannot be read, or an event is bad; the error names the file.
pub fn open(path: &Path) -> Result<Profile, FileError> {
    let input = bytes::open(path)?;
    read(input, "trace").map_err(|error| FileError::new(path, error))
}

/// As [`open`], from anywhere; `origin` names it in messages. Of the trace only memory events are held.
///
/// # Errors
/// It cannot be read, or an event is bad: place, found, expected.
pub fn read(input: impl Read, origin: &str) -> Result<Profile, SourceError> {
    let mut kept = Kept::default();
    let lines = Lines::new(input, origin)?;
    if matches!(lines.rest().trim_ascii_start().first(), Some(b'{' | b'[')) {
        chrome::read(lines, &mut kept)?;
    } else {
        list::read(lines, &mut kept)?;
    }
    let first = kept.devices.values().flatten().map(|event| event.time).min().unwrap_or(0);
    let history = |((device_type, device), events)| history::of(device_type, device, events, first);
    Ok(Profile {
        devices: kept.devices.into_iter().map(history).collect(),
        host_events: kept.host_events,
    })
}

/// Events by device, in the order of the file.
#[derive(Default)]
struct Kept {
    devices: BTreeMap<(i64, u16), Vec<MemoryEvent>>,
    host_events: u64,
    count: usize,
}

impl Kept {
    /// An event of the device of this type and number.
    fn keep(&mut self, (kind, number): DeviceKey, event: MemoryEvent) -> Result<(), String> {
        if kind == 0 {
            self.host_events += 1;
            return Ok(());
        }
        self.count += 1;
        if self.count > EVENTS_MAX {
            return Err(format!("found over {EVENTS_MAX} memory events, expected fewer"));
        }
        let number = u16::try_from(number)
            .map_err(|_| format!("found device {number}, expected a number from 0 to 65535"))?;
        self.devices.entry((kind, number)).or_default().push(event);
        if self.devices.len() > DEVICES_MAX {
            return Err(format!("found over {DEVICES_MAX} devices, expected fewer"));
        }
        Ok(())
    }
}

/// A total that may be missing; older versions write a negative number then.
fn total(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}
