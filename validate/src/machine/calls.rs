//! Device and host memory, copies, memory info; and which file does which call.

use vramlab_sim::driver::{Address, Answer, Call, DriverError};
use vramlab_sim::machine::{Direction, RangeKind};
use vramlab_sim::units::StreamId;

use super::books::{Keep, invalid};
use super::{CudaMachine, failed};
use crate::cuda::host::HostRange;
use crate::cuda::{Refusal, calls, families};

impl CudaMachine {
    pub(super) fn dispatch(&mut self, call: Call) -> Result<Answer, DriverError> {
        let families = self.device().families;
        let lacks = || Err(DriverError::NotSupported { call: call.name() });
        match call {
            Call::Malloc { size } => self.malloc(size),
            Call::Free { address } => self.free(address),
            Call::MallocHost { size, pinned } => self.malloc_host(size, pinned),
            Call::FreeHost { address } => self.free_host(address),
            Call::Copy { from, to, size, direction, stream } => {
                self.copy(from, to, size, direction, stream)
            }
            Call::MemInfo => {
                let (free, total) = calls::mem_info().map_err(|e| failed(call.name(), &e))?;
                // what another takes is not in our books
                if self.outside.is_some() {
                    return Ok(Answer::Info { free, total });
                }
                let device = self.device();
                Ok(Answer::Info { free: free.min(device.room()), total: device.limit })
            }
            Call::PoolCreate
            | Call::PoolDestroy { .. }
            | Call::PoolSet { .. }
            | Call::PoolGet { .. }
            | Call::PoolTrim { .. }
            | Call::MallocAsync { .. }
            | Call::FreeAsync { .. } => {
                if families.pools {
                    self.pool_call(call)
                } else {
                    lacks()
                }
            }
            Call::Reserve { .. }
            | Call::Unreserve { .. }
            | Call::Create { .. }
            | Call::Map { .. }
            | Call::SetAccess { .. }
            | Call::Unmap { .. }
            | Call::Release { .. } => {
                if families.vmm {
                    self.vmm_call(call)
                } else {
                    lacks()
                }
            }
            Call::MallocManaged { .. } | Call::Prefetch { .. } | Call::Advise { .. } => {
                if families.managed { self.managed_call(call) } else { lacks() }
            }
            Call::FileRead { .. } | Call::FileWrite { .. } => lacks(),
            _ => self.order_call(call),
        }
    }

    fn malloc(&mut self, size: u64) -> Result<Answer, DriverError> {
        const CALL: &str = "cudaMalloc";
        if size == 0 {
            return Err(invalid(CALL, "found size 0, expected at least 1 byte"));
        }
        let taken = self.device().malloc_takes(size)?;
        let address = calls::malloc(size).map_err(|e| self.refused(CALL, size, &e))?;
        let made = self.next_made();
        let range = (RangeKind::Malloc, size, taken);
        self.device().books.add(address, range, made, Keep::Address);
        Ok(Answer::Address(address))
    }

    /// `cudaFree` takes what came from a malloc, a pool or managed memory.
    fn free(&mut self, address: Address) -> Result<Answer, DriverError> {
        const CALL: &str = "cudaFree";
        if address == 0 {
            return Ok(Answer::Done);
        }
        let kinds = [RangeKind::Malloc, RangeKind::Pool, RangeKind::Managed];
        let range = self.device().books.take(CALL, address, &kinds)?;
        let pooled = range.kind == RangeKind::Pool;
        let freed = match range.keep {
            Keep::Managed(managed) => families::free_managed(managed),
            _ => calls::free(address),
        };
        freed.map_err(|e| failed(CALL, &e))?;
        // who waits for the device makes its pools give memory back
        if !pooled {
            self.ask_pools();
        }
        Ok(Answer::Done)
    }

    fn malloc_host(&mut self, size: u64, pinned: bool) -> Result<Answer, DriverError> {
        const CALL: &str = "cudaMallocHost";
        let bytes = usize::try_from(size).ok().filter(|bytes| *bytes > 0);
        let Some(bytes) = bytes else {
            return Err(invalid(CALL, format!("found size {size}, expected 1 byte or more")));
        };
        self.device().check_host(size)?;
        let range = if pinned { HostRange::pinned(bytes) } else { Ok(HostRange::pageable(bytes)) };
        let full = || DriverError::OutOfMemory { asked: size, free: 0 };
        let range = match range {
            Ok(range) => range.ok_or_else(full)?,
            // the host's memory, of which the device knows nothing
            Err(refusal) if refusal.is_out_of_memory() => return Err(full()),
            Err(refusal) => return Err(failed(CALL, &refusal)),
        };
        let (address, made) = (range.address(), self.next_made());
        self.device().books.add(address, (RangeKind::Host, size, 0), made, Keep::Host(range));
        Ok(Answer::Address(address))
    }

    fn free_host(&mut self, address: Address) -> Result<Answer, DriverError> {
        const CALL: &str = "cudaFreeHost";
        let range = self.device().books.take(CALL, address, &[RangeKind::Host])?;
        if let Keep::Host(range) = range.keep {
            range.give_back().map_err(|e| failed(CALL, &e))?;
        }
        Ok(Answer::Done)
    }

    fn copy(
        &mut self,
        from: Address,
        to: Address,
        size: u64,
        direction: Direction,
        stream: StreamId,
    ) -> Result<Answer, DriverError> {
        const CALL: &str = "cudaMemcpyAsync";
        self.stream(CALL, stream)?;
        let device = self.device();
        let outside = |address: Address, kind: &str| {
            let what = format!("found {size} bytes at {address:#x}, expected memory of the {kind}");
            invalid(CALL, what)
        };
        let (Some((stream, _)), Ok(bytes)) = (device.streams.get(&stream), usize::try_from(size))
        else {
            return Err(outside(from, "device"));
        };
        let books = &device.books;
        let host = |address: Address| {
            let (start, range) = books.host.range(..=address).next_back()?;
            match &range.keep {
                Keep::Host(memory) => Some((memory, address - start)),
                _ => None,
            }
        };
        let reaches = |address: Address| size == 0 || books.physical(address).is_some();
        let done: Result<bool, Refusal> = match direction {
            Direction::HostToDevice => {
                let end = host(from).ok_or_else(|| outside(from, "host"))?;
                if !reaches(to) {
                    return Err(outside(to, "device"));
                }
                calls::copy_in(to, end, bytes, stream)
            }
            Direction::DeviceToHost => {
                let end = host(to).ok_or_else(|| outside(to, "host"))?;
                if !reaches(from) {
                    return Err(outside(from, "device"));
                }
                calls::copy_out(end, from, bytes, stream)
            }
            Direction::DeviceToDevice => {
                if let Some(bad) = [from, to].into_iter().find(|end| !reaches(*end)) {
                    return Err(outside(bad, "device"));
                }
                calls::copy_within(to, from, bytes, stream).map(|()| true)
            }
            Direction::PeerToPeer | Direction::Disk => {
                let what = format!(
                    "found {direction:?}, expected a copy within or between the host and this device"
                );
                return Err(invalid(CALL, what));
            }
        };
        match done {
            Ok(true) => Ok(Answer::Done),
            Ok(false) => {
                Err(outside(if direction == Direction::HostToDevice { from } else { to }, "host"))
            }
            Err(refusal) => Err(failed(CALL, &refusal)),
        }
    }
}
