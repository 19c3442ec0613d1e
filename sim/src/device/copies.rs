//! Copies: who may be copied where, and how long it takes.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `engines` | one copy engine for each direction, first in, first out; reads and writes of the file share one | CUDA C++ Programming Guide 3.2.8 (one engine each way); one drive |
//! | `link` | a copy takes the link's latency and size over bandwidth, in stream order; pinned host memory is assumed | - |
//! | `places` | each end of a copy lies in memory of the kind that its direction says, else it is an invalid value | CUDA runtime API, `cudaMemcpyAsync`; cuFile API, host memory from CUDA 12.2 |

use super::{Device, SimMachine, invalid};
use crate::driver::{Address, Answer, Call, DriverError};
use crate::machine::Direction;
use crate::units::StreamId;

/// Where one end of a copy must lie.
#[derive(Clone, Copy)]
enum End {
    Device(Address),
    Host(Address),
}

impl Device {
    /// Is all of the range memory of this device?
    pub(super) fn reaches(&self, address: Address, size: u64) -> bool {
        let place = self.mallocs.physical(address).or_else(|| self.pools.physical(address));
        place.is_some_and(|place| place.run >= size) || self.vmm.accessible(address, size)
    }

    fn check_end(&self, call: &'static str, end: End, size: u64) -> Result<(), DriverError> {
        let (fine, address, kind) = match end {
            End::Device(address) => (self.reaches(address, size), address, "device"),
            End::Host(address) => (self.host.contains(address, size), address, "host"),
        };
        if fine {
            return Ok(());
        }
        let what = format!("found {size} bytes at {address:#x}, expected memory of the {kind}");
        Err(invalid(call, what))
    }
}

impl SimMachine {
    pub(super) fn queue_transfer(&mut self, stream: StreamId, bytes: u64, direction: Direction) {
        let slot = self.slot(stream);
        let device = &mut self.devices[self.current];
        let engine = &mut device.engines[direction as usize];
        *engine = self.time.queue(slot, device.options.links.get(direction).ns(bytes), *engine);
    }

    pub(super) fn copy_call(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        let (ends, size, direction, stream) = match call {
            Call::Copy { from, to, size, direction, stream } => {
                let ends = match direction {
                    Direction::HostToDevice => [End::Host(from), End::Device(to)],
                    Direction::DeviceToHost => [End::Device(from), End::Host(to)],
                    Direction::DeviceToDevice => [End::Device(from), End::Device(to)],
                    Direction::PeerToPeer | Direction::Disk => {
                        let what = format!(
                            "found {direction:?}, expected a copy within or between the host and this device"
                        );
                        return Err(invalid(call.name(), what));
                    }
                };
                (ends, size, direction, stream)
            }
            Call::FileRead { to, size, stream, .. } => {
                ([End::Host(to); 2], size, Direction::Disk, stream)
            }
            Call::FileWrite { from, size, stream, .. } => {
                ([End::Host(from); 2], size, Direction::Disk, stream)
            }
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        };
        for end in ends {
            self.devices[self.current].check_end(call.name(), end, size)?;
        }
        self.pay(kind, size);
        self.queue_transfer(stream, size, direction);
        Ok(Answer::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceOptions, Link, Links};
    use crate::driver::{DriverExt, Families};
    use crate::machine::Machine;

    const OUT: StreamId = StreamId(7);
    const IN: StreamId = StreamId(8);

    /// 1 GB/s each way, the disk a tenth of it.
    fn machine() -> SimMachine {
        let link = |rate| Link { bytes_per_second: rate, latency_ns: 100 };
        let links = Links {
            host_to_device: link(1e9),
            device_to_host: link(1e9),
            disk: link(1e8),
            ..Links::INSTANT
        };
        SimMachine::new(DeviceOptions { links, ..DeviceOptions::default() })
    }

    #[test]
    fn directions_run_side_by_side_and_each_in_turn() -> Result<(), DriverError> {
        let mut machine = machine();
        let (device, host) = (machine.malloc(4096)?, machine.malloc_host(4096, true)?);
        machine.copy(device, host, 1000, Direction::DeviceToHost, OUT)?;
        machine.copy(host, device, 1000, Direction::HostToDevice, IN)?;
        machine.copy(device, host, 1000, Direction::DeviceToHost, StreamId(9))?;
        machine.stream_synchronize(IN)?;
        assert_eq!(machine.now().0, 1100);
        machine.device_synchronize()?;
        assert_eq!(machine.now().0, 2200, "the second one out waited for the engine");
        machine.file_write(host, 0, 1000, OUT)?;
        machine.file_read(0, host, 1000, IN)?;
        machine.device_synchronize()?;
        assert_eq!(machine.now().0, 2200 + 2 * 10_100, "one drive");
        Ok(())
    }

    #[test]
    fn an_end_in_the_wrong_memory_is_an_invalid_value() -> Result<(), DriverError> {
        let mut machine = machine();
        let (device, host) = (machine.malloc(4096)?, machine.malloc_host(4096, true)?);
        for (from, to, size, direction) in [
            (host, device, 4097, Direction::HostToDevice),
            (device, host, 8, Direction::HostToDevice),
            (device, 64, 8, Direction::DeviceToHost),
            (device, device, 8, Direction::Disk),
        ] {
            let refused = machine.copy(from, to, size, direction, OUT);
            assert!(matches!(refused, Err(DriverError::InvalidValue { .. })), "{direction:?}");
        }
        assert!(machine.file_write(device, 0, 8, OUT).is_err());
        machine.device_synchronize()?;
        assert_eq!(machine.now().0, 0, "nothing was queued");
        Ok(())
    }

    #[test]
    fn a_device_without_files_says_so() {
        let families = Families { files: false, ..Families::ALL };
        let mut machine = SimMachine::new(DeviceOptions { families, ..DeviceOptions::default() });
        let host = machine.malloc_host(8, true).expect("host memory");
        let refused = machine.file_write(host, 0, 8, OUT);
        assert_eq!(refused, Err(DriverError::NotSupported { call: "cuFileWriteAsync" }));
    }

    /// The stopwatch: a stream that waits for another's copy.
    #[test]
    fn events_tell_how_long_a_stream_stood_still() -> Result<(), DriverError> {
        let mut machine = machine();
        let (device, host) = (machine.malloc(4096)?, machine.malloc_host(4096, true)?);
        let [before, copied, after] =
            [machine.event_create()?, machine.event_create()?, machine.event_create()?];
        machine.launch_kernel(StreamId(0), 400)?;
        machine.copy(host, device, 1000, Direction::HostToDevice, IN)?;
        machine.event_record(copied, IN)?;
        machine.event_record(before, StreamId(0))?;
        machine.wait_event(StreamId(0), copied)?;
        machine.event_record(after, StreamId(0))?;
        assert!(machine.event_elapsed(before, after).is_err(), "not ready");
        machine.device_synchronize()?;
        assert_eq!(machine.event_elapsed(before, after), Ok(700));
        assert_eq!(machine.event_elapsed(after, before), Ok(0));
        Ok(())
    }
}
