//! What only the engine may ask of the machine.

use vramlab_sim::driver::{Address, DriverError};
use vramlab_sim::machine::{
    CallCounts, Direction, DriverWork, Held, Machine, Origin, Physical, RangeKind, Stamp, Toucher,
};
use vramlab_sim::units::{DeviceId, Nanos, StreamId};

use super::books::{Keep, invalid};
use super::{CudaMachine, failed};
use crate::cuda::host::HostRange;
use crate::cuda::{Refusal, calls};

/// Most bytes of a copy that names no memory; longer ones are queued in pieces.
pub(super) const SCRATCH: u64 = 32 << 20;

/// Memory for copies that name none. It is in no books: the limit is that much lower where there may be such copies.
pub(super) struct Scratch {
    /// The device that it is on.
    pub(super) at: usize,
    pub(super) device: Address,
    pub(super) host: HostRange,
}

impl CudaMachine {
    /// Memory for copies that name none, made at the first of them on a device.
    fn ready_scratch(&mut self, call: &'static str) -> Result<(), DriverError> {
        let at = self.current;
        if self.scratch.iter().any(|scratch| scratch.at == at) {
            return Ok(());
        }
        let made = self.aside(|_| -> Result<Option<Scratch>, Refusal> {
            let Some(host) = HostRange::pinned(SCRATCH as usize)? else { return Ok(None) };
            match calls::malloc(SCRATCH) {
                Ok(device) => Ok(Some(Scratch { at, device, host })),
                Err(refusal) => host.give_back().and(Err(refusal)),
            }
        });
        match made {
            Ok(Some(scratch)) => {
                self.scratch.push(scratch);
                Ok(())
            }
            Ok(None) => Err(DriverError::OutOfMemory { asked: SCRATCH, free: 0 }),
            Err(refusal) => Err(self.refused(call, SCRATCH, &refusal)),
        }
    }
}

impl Machine for CudaMachine {
    fn select(&mut self, device: DeviceId) -> Result<(), DriverError> {
        const CALL: &str = "cudaSetDevice";
        let count = self.devices.len();
        if usize::from(device.0) >= count {
            let what = format!("found device {device}, expected one of {count} devices");
            return Err(invalid(CALL, what));
        }
        if usize::from(device.0) == self.current {
            return Ok(());
        }
        self.enter(device.0.into()).map_err(|e| failed(CALL, &e))
    }

    fn thread(&mut self, thread: u32) {
        self.clock.thread(thread);
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock.now())
    }

    fn wait_until(&mut self, time: Nanos) {
        self.clock.wait_until(time.0);
    }

    fn spend(&mut self, ns: u64) {
        self.clock.spend(ns);
    }

    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError> {
        self.spin("cudaLaunchKernel", stream, duration, false)
    }

    fn transfer(
        &mut self,
        stream: StreamId,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cudaMemcpyAsync";
        self.ready_scratch(CALL)?;
        self.stream(CALL, stream)?;
        let at = self.current;
        let scratch = self.scratch.iter().find(|scratch| scratch.at == at);
        let queue = self.devices[at].streams.get(&stream);
        let (Some(Scratch { device, host, .. }), Some((queue, _))) = (scratch, queue) else {
            return Ok(());
        };
        let mut rest = bytes;
        while rest > 0 {
            let piece = rest.min(SCRATCH) as usize;
            match direction {
                Direction::HostToDevice | Direction::Disk => {
                    calls::copy_in(*device, (host, 0), piece, queue).map(drop)
                }
                Direction::DeviceToHost => {
                    calls::copy_out((host, 0), *device, piece, queue).map(drop)
                }
                Direction::DeviceToDevice | Direction::PeerToPeer => {
                    calls::copy_within(*device, *device, piece, queue)
                }
            }
            .map_err(|e| failed(CALL, &e))?;
            rest -= piece as u64;
        }
        Ok(())
    }

    fn touch(
        &mut self,
        address: Address,
        bytes: u64,
        write: bool,
        by: Toucher,
    ) -> Result<(), DriverError> {
        const CALL: &str = "touch";
        if self.outside.is_some() {
            return Ok(());
        }
        let found = self.device().books.range_around(address);
        let outside = || {
            let what = format!(
                "found {bytes} bytes at {address:#x}, expected memory that can be accessed from there"
            );
            invalid(CALL, what)
        };
        let (start, range) = found.ok_or_else(outside)?;
        let offset = address - start;
        match by {
            Toucher::Host => {
                let done = match &range.keep {
                    Keep::Managed(managed) => managed.touch(offset, bytes, write),
                    Keep::Host(host) => {
                        usize::try_from(bytes).is_ok_and(|bytes| host.touch(offset, bytes, write))
                    }
                    Keep::Address => false,
                };
                done.then_some(()).ok_or_else(outside)
            }
            Toucher::Device(stream) => {
                let within = match range.kind {
                    RangeKind::Managed => bytes <= range.asked - offset.min(range.asked),
                    RangeKind::Host => false,
                    _ => self.device().books.physical(address).is_some(),
                };
                if !within {
                    return Err(outside());
                }
                self.stream(CALL, stream)?;
                self.aside(|machine| machine.device().kernels()).map_err(|e| failed(CALL, &e))?;
                let device = self.device();
                if let (Some(kernels), Some((queue, _))) =
                    (&device.kernels, device.streams.get(&stream))
                {
                    let queued = kernels.touch(queue, address, bytes, write);
                    queued.map_err(|e| failed(CALL, &e))?;
                }
                Ok(())
            }
        }
    }

    fn held(&self) -> Held {
        if let Some(outside) = &self.outside {
            return outside.held();
        }
        self.devices[self.current].books.held
    }

    fn origin(&self, address: Address) -> Option<Origin> {
        self.devices[self.current].books.origin(address)
    }

    fn physical(&self, address: Address) -> Option<Physical> {
        self.devices[self.current].books.physical(address)
    }

    fn stamp(&self, _stream: StreamId) -> Option<Stamp> {
        None
    }

    fn ordered(&self, _earlier: Stamp, _stream: StreamId) -> bool {
        true
    }

    fn capture(&mut self, stream: StreamId, on: bool) {
        let capturing = &mut self.device().capturing;
        if on {
            capturing.insert(stream);
        } else {
            capturing.remove(&stream);
        }
    }

    fn other_process(&mut self, bytes: u64) {
        self.device().other = bytes;
    }

    fn calls(&self) -> CallCounts {
        CallCounts(self.outside.as_ref().map_or(self.calls, super::outside::Outside::calls))
    }

    fn driver_work(&self) -> DriverWork {
        DriverWork::default()
    }
}
