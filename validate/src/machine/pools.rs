//! Stream-ordered pools.

use cudarc::driver::sys::CUmemPool_attribute as Attribute;
use vramlab_sim::driver::{Address, Answer, Call, DEFAULT_POOL, DriverError, PoolAttribute};
use vramlab_sim::machine::RangeKind;
use vramlab_sim::units::{PoolId, StreamId};

use super::books::{Keep, invalid};
use super::device::PoolState;
use super::{CudaMachine, failed};
use crate::cuda::{calls, families};

const fn attribute_of(attribute: PoolAttribute) -> Attribute {
    match attribute {
        PoolAttribute::ReleaseThreshold => Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        PoolAttribute::ReuseFollowEventDependencies => {
            Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        }
        PoolAttribute::ReuseAllowOpportunistic => {
            Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        }
        PoolAttribute::ReuseAllowInternalDependencies => {
            Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
        }
        PoolAttribute::ReservedCurrent => Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        PoolAttribute::ReservedHigh => Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
        PoolAttribute::UsedCurrent => Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        PoolAttribute::UsedHigh => Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
    }
}

impl CudaMachine {
    /// Asks what the pools hold now, which is seen only by asking; aside.
    pub(super) fn ask_pools(&mut self) {
        if self.device().pools.iter().all(Option::is_none) {
            return;
        }
        let held = self.aside(|machine| {
            let pools = machine.device().pools.iter().flatten();
            let reserved = attribute_of(PoolAttribute::ReservedCurrent);
            pools.map(|state| families::pool_get(&state.pool, reserved).unwrap_or(0)).sum()
        });
        self.device().books.set_pooled(held);
    }

    pub(super) fn pool_call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let name = call.name();
        match call {
            Call::PoolCreate => {
                let number = self.device().number;
                let pool = families::pool_create(number).map_err(|e| failed(name, &e))?;
                let made = self.next_made();
                let pools = &mut self.device().pools;
                pools.push(Some(PoolState { pool, made }));
                Ok(Answer::Pool(PoolId((pools.len() - 1) as u32)))
            }
            Call::PoolDestroy { pool } => {
                self.known(name, pool)?;
                if pool == DEFAULT_POOL {
                    let what = "found pool 0, expected one made by cudaMemPoolCreate";
                    return Err(invalid(name, what));
                }
                if let Some(state) = self.device().pools[pool.0 as usize].take() {
                    families::pool_destroy(state.pool).map_err(|e| failed(name, &e))?;
                }
                self.ask_pools();
                Ok(Answer::Done)
            }
            Call::PoolSet { pool, attribute, value } => {
                let pool = self.known(name, pool)?;
                let done = families::pool_set(pool, attribute_of(attribute), value);
                done.map(|()| Answer::Done).map_err(|e| failed(name, &e))
            }
            Call::PoolGet { pool, attribute } => {
                let pool = self.known(name, pool)?;
                let got = families::pool_get(pool, attribute_of(attribute));
                got.map(Answer::Value).map_err(|e| failed(name, &e))
            }
            Call::PoolTrim { pool, keep } => {
                let pool = self.known(name, pool)?;
                families::pool_trim(pool, keep).map_err(|e| failed(name, &e))?;
                self.ask_pools();
                Ok(Answer::Done)
            }
            Call::MallocAsync { pool, size, stream } => self.malloc_async(name, pool, size, stream),
            Call::FreeAsync { address, stream } => self.free_async(name, address, stream),
            _ => Err(DriverError::NotSupported { call: name }),
        }
    }

    fn known(&mut self, call: &'static str, pool: PoolId) -> Result<&calls::Pool, DriverError> {
        if pool == DEFAULT_POOL && self.device().pools[0].is_none() {
            let made = self.next_made();
            self.aside(|machine| machine.device().find_default_pool(call, made))?;
        }
        self.device().pool(call, pool)
    }

    fn malloc_async(
        &mut self,
        call: &'static str,
        pool: PoolId,
        size: u64,
        stream: StreamId,
    ) -> Result<Answer, DriverError> {
        self.stream(call, stream)?;
        self.known(call, pool)?;
        if size == 0 {
            return Err(invalid(call, "found size 0, expected at least 1 byte"));
        }
        let device = self.device();
        let room = device.room();
        if size > room.saturating_add(device.books.pool_free()) {
            // before a driver refuses, the pool gives back what it does not use
            let pool = self.known(call, pool)?;
            let trimmed = families::pool_trim(pool, 0);
            trimmed.map_err(|e| failed(call, &e))?;
            self.ask_pools();
            return Err(DriverError::OutOfMemory { asked: size, free: self.device().room() });
        }
        let (Some(state), Some((queue, _))) =
            (&device.pools[pool.0 as usize], device.streams.get(&stream))
        else {
            return Err(invalid(call, format!("found pool {pool}, expected one that was made")));
        };
        let got = families::malloc_async(&state.pool, size, queue);
        let address = match got {
            Ok(address) => address,
            Err(refusal) => {
                self.ask_pools();
                return Err(self.refused(call, size, &refusal));
            }
        };
        let made = self.next_made();
        self.device().books.add(address, (RangeKind::Pool, size, 0), made, Keep::Address);
        self.ask_pools();
        let device = self.device();
        if device.books.taken > device.limit {
            // rule `limit`: it grew beyond
            self.free_async(call, address, stream)?;
            self.aside(|machine| -> Result<(), DriverError> {
                machine.on_stream(call, stream, calls::stream_synchronize)?;
                let pool = machine.known(call, pool)?;
                families::pool_trim(pool, 0).map_err(|e| failed(call, &e))
            })?;
            self.ask_pools();
            return Err(DriverError::OutOfMemory { asked: size, free: self.device().room() });
        }
        Ok(Answer::Address(address))
    }

    /// What came from a malloc goes back in stream order too.
    fn free_async(
        &mut self,
        call: &'static str,
        address: Address,
        stream: StreamId,
    ) -> Result<Answer, DriverError> {
        self.stream(call, stream)?;
        self.device().books.take(call, address, &[RangeKind::Pool, RangeKind::Malloc])?;
        self.on_stream(call, stream, |stream| families::free_async(address, stream))?;
        Ok(Answer::Done)
    }
}
