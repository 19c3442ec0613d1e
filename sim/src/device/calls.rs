//! What each driver call does to the current device, and what it costs the host.

use super::pool::ANYONE;
use super::timeline::Moment;
use super::{Device, SimMachine, cost::Other, invalid};
use crate::driver::{Address, Answer, Call, DriverError};
use crate::units::{PoolId, StreamId};

impl SimMachine {
    fn do_malloc(&mut self, kind: usize, size: u64) -> Result<Answer, DriverError> {
        let got = self.with_evictions(|machine| {
            let device = &mut machine.devices[machine.current];
            device.mallocs.malloc(&mut device.books, size, &mut machine.next_physical)
        });
        if got.as_ref().is_ok_and(|got| got.packed) {
            self.pay_price(Other::MallocPacked, size);
        } else if !matches!(got, Err(DriverError::InvalidValue { .. })) {
            // a refused malloc costs its base price
            self.pay(kind, if got.is_ok() { size } else { 0 });
        }
        got.map(|got| Answer::Address(got.address))
    }

    /// Rule: `cudaFree` waits for the whole device first (NVIDIA blog on RMM; pytorch/pytorch#106200).
    fn do_free(&mut self, kind: usize, address: Address) -> Result<Answer, DriverError> {
        if address == 0 {
            return Ok(Answer::Done);
        }
        let device = &mut self.devices[self.current];
        if let Some(piece) = device.pools.used_at(address) {
            device.pools.free(&mut device.books, piece, ANYONE, Moment::default());
            self.pay(kind, 0);
            return Ok(Answer::Done);
        }
        if device.managed.is_live(address) {
            self.join_device();
            let Device { managed, books, .. } = self.device();
            let asked = managed.free(books, address);
            self.pay(kind, asked);
            return Ok(Answer::Done);
        }
        if device.leaving.iter().any(|(_, leaving)| *leaving == address) {
            let what = format!("found address {address:#x}, freed by cudaFreeAsync already");
            return Err(invalid("cudaFree", what));
        }
        let freed = device.mallocs.free(&mut device.books, address)?;
        self.join_device();
        if freed.packed {
            self.pay_price(Other::MallocPacked, freed.asked);
        } else {
            self.pay(kind, freed.asked);
        }
        Ok(Answer::Done)
    }

    fn do_malloc_async(
        &mut self,
        kind: usize,
        pool: PoolId,
        size: u64,
        stream: StreamId,
    ) -> Result<Answer, DriverError> {
        let slot = self.slot(stream);
        self.pay(kind, size);
        let got = self.with_evictions(|machine| {
            let SimMachine { devices, time, current, next_physical, .. } = machine;
            let Device { pools, books, .. } = &mut devices[*current];
            pools.malloc(books, time, pool, size, slot, next_physical)
        })?;
        if got.grown > 0 {
            self.pay_price(Other::PoolGrow, got.grown);
        }
        Ok(Answer::Address(got.address))
    }

    fn do_free_async(
        &mut self,
        kind: usize,
        address: Address,
        stream: StreamId,
    ) -> Result<Answer, DriverError> {
        let Device { pools, mallocs, leaving, .. } = self.device();
        let pooled = pools.used_at(address);
        let left = leaving.iter().any(|(_, leaving)| *leaving == address);
        if pooled.is_none() && (left || mallocs.taken(address).is_none()) {
            return Err(invalid(
                "cudaFreeAsync",
                format!("found address {address:#x}, expected the beginning of a live range"),
            ));
        }
        self.pay(kind, 0);
        let slot = self.slot(stream);
        let moment = self.time.queue_free(slot);
        let Device { pools, books, leaving, .. } = self.device();
        match pooled {
            Some(piece) => pools.free(books, piece, slot, moment),
            None => leaving.push((moment.at, address)),
        }
        Ok(Answer::Done)
    }

    fn pool_call(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        let Self { devices, time, current, .. } = self;
        let Device { pools, books, .. } = &mut devices[*current];
        let answer = match call {
            Call::MallocAsync { pool, size, stream } => {
                return self.do_malloc_async(kind, pool, size, stream);
            }
            Call::FreeAsync { address, stream } => {
                return self.do_free_async(kind, address, stream);
            }
            Call::PoolCreate => Answer::Pool(pools.create()),
            Call::PoolDestroy { pool } => {
                pools.destroy(books, pool)?;
                Answer::Done
            }
            Call::PoolSet { pool, attribute, value } => {
                pools.set(pool, attribute, value)?;
                Answer::Done
            }
            Call::PoolGet { pool, attribute } => Answer::Value(pools.get(pool, attribute)?),
            Call::PoolTrim { pool, keep } => {
                let given = pools.trim(books, time, pool, keep)?;
                if given > 0 {
                    self.pay_price(Other::PoolShrink, given);
                }
                Answer::Done
            }
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        };
        self.pay(kind, 0);
        Ok(answer)
    }

    fn managed_call(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        let Device { managed, books, .. } = &mut self.devices[self.current];
        let (answer, bytes) = match call {
            Call::MallocManaged { size } => {
                let made = managed.malloc(books, size, &mut self.next_physical);
                (Answer::Address(made?), size)
            }
            Call::Advise { address, size, advice } => {
                managed.advise(books, address, size, advice)?;
                (Answer::Done, size)
            }
            Call::Prefetch { address, size, to, stream } => {
                let effort = managed.prefetch(books, address, size, to)?;
                self.pay(kind, size);
                let slot = self.slot(stream);
                self.stream_effort(slot, &effort);
                return Ok(Answer::Done);
            }
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        };
        self.pay(kind, bytes);
        Ok(answer)
    }

    /// A physical handle, for which managed memory makes room.
    fn do_create(&mut self, kind: usize, size: u64) -> Result<Answer, DriverError> {
        let made = self.with_evictions(|machine| {
            let Device { vmm, books, .. } = &mut machine.devices[machine.current];
            vmm.create(books, size, &mut machine.next_physical)
        });
        match made {
            Ok(_) => self.pay(kind, size),
            Err(DriverError::OutOfMemory { .. }) => self.pay(kind, 0),
            Err(_) => {}
        }
        made.map(Answer::Handle)
    }

    fn vmm_call(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        let Device { vmm, books, .. } = &mut self.devices[self.current];
        let (answer, bytes) = match call {
            Call::Reserve { size } => (Answer::Address(vmm.reserve(size)?), size),
            Call::Unreserve { address } => (Answer::Done, vmm.unreserve(address)?),
            Call::Create { size } => return self.do_create(kind, size),
            Call::Map { address, handle } => (Answer::Done, vmm.map(address, handle)?),
            Call::SetAccess { address, size } => {
                let count = vmm.set_access(address, size)?;
                self.pay_each(kind, count, size);
                return Ok(Answer::Done);
            }
            Call::Unmap { address, size } => {
                let count = vmm.unmap(books, address, size)?;
                self.pay_each(kind, count, size);
                return Ok(Answer::Done);
            }
            Call::Release { handle } => (Answer::Done, vmm.release(books, handle)?),
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        };
        self.pay(kind, bytes);
        Ok(answer)
    }

    fn stream_call(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        self.pay(kind, 0);
        match call {
            Call::StreamCreate => {
                let stream = self.device().streams.create();
                self.slot(stream);
                return Ok(Answer::Stream(stream));
            }
            Call::CaptureStatus { stream } => {
                let slot = self.slot(stream);
                return Ok(Answer::Flag(self.time.capturing(slot)));
            }
            Call::WaitEvent { stream, event } => {
                let slot = self.slot(stream);
                self.time.wait(slot, event)?;
            }
            Call::StreamSynchronize { stream } => {
                let slot = self.slot(stream);
                self.time.join_stream(slot);
                self.synchronised();
            }
            Call::DeviceSynchronize => self.join_device(),
            Call::EventCreate => return Ok(Answer::Event(self.time.create_event())),
            Call::EventRecord { event, stream } => {
                let slot = self.slot(stream);
                self.time.record(event, slot)?;
            }
            Call::EventQuery { event } => return Ok(Answer::Flag(self.time.query(event)?)),
            Call::EventSynchronize { event } => {
                self.time.join_event(event)?;
                self.synchronised();
            }
            Call::EventDestroy { event } => self.time.destroy_event(event)?,
            Call::EventElapsed { from, to } => {
                return Ok(Answer::Value(self.time.elapsed(from, to)?));
            }
            Call::Launch { stream, duration } => {
                let slot = self.slot(stream);
                self.time.queue(slot, duration, 0);
            }
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        }
        Ok(Answer::Done)
    }

    pub(super) fn dispatch(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        let families = self.devices[self.current].options.families;
        let lacks = || Err(DriverError::NotSupported { call: call.name() });
        match call {
            Call::Malloc { size } => self.do_malloc(kind, size),
            Call::Free { address } => self.do_free(kind, address),
            Call::PoolCreate
            | Call::PoolDestroy { .. }
            | Call::PoolSet { .. }
            | Call::PoolGet { .. }
            | Call::PoolTrim { .. }
            | Call::MallocAsync { .. }
            | Call::FreeAsync { .. } => {
                if families.pools {
                    self.pool_call(kind, call)
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
                    self.vmm_call(kind, call)
                } else {
                    lacks()
                }
            }
            Call::MallocManaged { .. } | Call::Prefetch { .. } | Call::Advise { .. } => {
                if families.managed { self.managed_call(kind, call) } else { lacks() }
            }
            Call::MallocHost { .. } | Call::FreeHost { .. } if !families.host => lacks(),
            Call::MallocHost { size, .. } => {
                let Device { host, books, .. } = self.device();
                let address = host.malloc(books, size)?;
                self.pay(kind, size);
                Ok(Answer::Address(address))
            }
            Call::FreeHost { address } => {
                let size = self.device().host.free(address)?;
                self.device().books.give_host(size);
                self.pay(kind, size);
                Ok(Answer::Done)
            }
            Call::Copy { .. } => self.copy_call(kind, call),
            Call::FileRead { .. } | Call::FileWrite { .. } if !families.files => lacks(),
            Call::FileRead { .. } | Call::FileWrite { .. } => self.copy_call(kind, call),
            Call::MemInfo => {
                self.pay(kind, 0);
                let books = &self.device().books;
                Ok(Answer::Info { free: books.free(), total: books.capacity() })
            }
            _ => self.stream_call(kind, call),
        }
    }
}
