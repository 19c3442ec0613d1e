//! [`SimMachine`]: devices, their memory, queues and clock, without a GPU.
//!
//! | file | holds |
//! |---|---|
//! | `address` | which addresses are given out |
//! | `books` | who holds how many bytes |
//! | `classic` | `cudaMalloc`, `cudaFree`, host memory |
//! | `vmm` | reserved ranges, physical handles, mappings |
//! | `pools`, `pool` | stream-ordered malloc and free |
//! | `managed` | managed memory: faults, moves, eviction |
//! | `calls` | what each driver call does |
//! | `copies` | copies between device, host and file |
//! | `machine` | what only the engine may ask |
//! | `options` | what a device is like |
//! | `timeline` | host clock, streams, events, happens-before |
//! | `cost` | what calls cost |
//! | [`profile`], `file` | devices by name, and their text form |
//!
//! Deterministic: same calls, same answers, on every computer. Each device has an address space of its own; two devices use the same
//! numbers. Time is integer ns.

mod address;
mod books;
mod calls;
mod classic;
mod copies;
mod cost;
mod file;
mod machine;
mod managed;
mod options;
mod pool;
mod pools;
pub mod profile;
mod timeline;
mod vmm;

pub use address::AddressPlacement;
pub use cost::{CostTable, Other, Price};
pub use file::{Figure, Trust};
pub use options::{DeviceOptions, Link, Links};

use address::AddressSpace;
use books::Books;
use classic::{HostMemory, Mallocs};
use managed::{Effort, Managed};
use pools::Pools;
use timeline::{Slot, StreamNames, Timeline};
use vmm::Vmm;

use crate::driver::{Address, Answer, CALL_KINDS, Call, Driver, DriverError, Families};
use crate::machine::{CallCounts, Direction};
use crate::units::{Nanos, StreamId};

/// Where each kind of range begins. What lies between two bases is far more than any device has, except for reserved ranges, which
/// come last and have no end.
mod base {
    pub(super) const HOST: u64 = 0x1000_0000_0000;
    pub(super) const MANAGED: u64 = 0x4000_0000_0000;
    pub(super) const MALLOC: u64 = 0x7000_0000_0000;
    pub(super) const POOL: u64 = 0x7400_0000_0000;
    pub(super) const RESERVED: u64 = 0x7800_0000_0000;
}

/// `call` makes no sense; `what` was found and expected.
fn invalid(call: &'static str, what: impl Into<Box<str>>) -> DriverError {
    DriverError::InvalidValue { call, what: what.into() }
}

/// One device.
#[derive(Clone, Debug)]
struct Device {
    options: DeviceOptions,
    books: Books,
    mallocs: Mallocs,
    vmm: Vmm,
    pools: Pools,
    managed: Managed,
    host: HostMemory,
    streams: StreamNames,
    /// Mallocs freed in stream order: ns at which they go back.
    leaving: Vec<(u64, Address)>,
    /// ns at which each direction's copy engine is idle.
    engines: [u64; 5],
}

impl Device {
    fn new(options: DeviceOptions) -> Self {
        let space = |from, to| AddressSpace::new(from, to, options.placement);
        let granule = options.granule.max(1);
        let host = options.host_capacity.min(base::MALLOC - base::HOST);
        Self {
            books: Books::new(options.capacity, options.context, host),
            mallocs: Mallocs::new(space(base::MALLOC, base::POOL), granule, options.pack_small),
            vmm: Vmm::new(space(base::RESERVED, u64::MAX >> 1), granule, options.any_size),
            pools: Pools::new(space(base::POOL, base::RESERVED), granule),
            managed: Managed::new(base::MANAGED, base::MALLOC),
            host: HostMemory::new(base::HOST, base::MANAGED),
            streams: StreamNames::default(),
            leaving: Vec::new(),
            engines: [0; 5],
            options,
        }
    }
}

/// Simulated devices with one host clock.
#[derive(Clone, Debug)]
pub struct SimMachine {
    devices: Vec<Device>,
    current: usize,
    time: Timeline,
    calls: [u64; CALL_KINDS],
    refused: [u64; CALL_KINDS],
    /// Number of the next physical allocation.
    next_physical: u64,
}

impl SimMachine {
    /// A machine with one device.
    pub fn new(options: DeviceOptions) -> Self {
        Self::with_devices([options])
    }

    /// A machine with these devices, numbered from 0.
    pub fn with_devices(options: impl IntoIterator<Item = DeviceOptions>) -> Self {
        Self {
            devices: options.into_iter().map(Device::new).collect(),
            current: 0,
            time: Timeline::default(),
            calls: [0; CALL_KINDS],
            refused: [0; CALL_KINDS],
            next_physical: 0,
        }
    }

    /// A machine with the default device, but of `capacity` bytes.
    pub fn of_capacity(capacity: u64) -> Self {
        Self::new(DeviceOptions { capacity, ..DeviceOptions::default() })
    }

    /// The options of the current device.
    pub fn options(&self) -> &DeviceOptions {
        &self.devices[self.current].options
    }

    /// How often each call was refused, on all devices.
    pub fn refused(&self) -> CallCounts {
        CallCounts(self.refused)
    }

    /// Sets the clock of the present host thread, also back: for a driver built on this machine that prices its calls itself, or asks
    /// something that is none of the run's. Streams keep what they were given.
    pub fn set_now(&mut self, now: Nanos) {
        self.time.now = now.0;
    }

    fn device(&mut self) -> &mut Device {
        &mut self.devices[self.current]
    }

    /// The slot of a stream of the current device.
    fn slot(&mut self, stream: StreamId) -> Slot {
        self.time.slot(&mut self.devices[self.current].streams, stream)
    }

    /// The host pays for a call that touched `bytes` bytes.
    fn pay(&mut self, kind: usize, bytes: u64) {
        let options = &self.devices[self.current].options;
        if !options.costs.is_free_of_charge() {
            self.time.spend(options.costs.call(kind).of(bytes, options.granule));
        }
    }

    /// The same for a call that touched `handles` handles; the base price is for each (pytorch/pytorch#96995).
    fn pay_each(&mut self, kind: usize, handles: u64, bytes: u64) {
        let options = &self.devices[self.current].options;
        let price = options.costs.call(kind);
        let price = Price { base_ns: price.base_ns * handles as f64, ..*price };
        self.time.spend(price.of(bytes, options.granule));
    }

    fn pay_price(&mut self, other: Other, bytes: u64) {
        let options = &self.devices[self.current].options;
        if !options.costs.is_free_of_charge() {
            self.time.spend(options.costs.other(other).of(bytes, options.granule));
        }
    }

    /// The host waits for every stream of the current device.
    fn join_device(&mut self) {
        self.time.join_all(self.devices[self.current].streams.slots());
        self.synchronised();
    }

    /// The host came back from waiting: pools may give memory back.
    fn synchronised(&mut self) {
        let device = &mut self.devices[self.current];
        let given = device.pools.synchronised(&mut device.books, &self.time);
        if given > 0 {
            self.pay_price(Other::PoolShrink, given);
        }
    }

    /// Makes managed pages leave the device until `call` finds room, if there are any (rule `evict_for_others` of [`managed`]). The host waits
    /// for the copies.
    fn with_evictions<T>(
        &mut self,
        mut call: impl FnMut(&mut Self) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let mut effort = Effort::default();
        let done = loop {
            let done = call(self);
            let Device { managed, books, .. } = self.device();
            let Err(DriverError::OutOfMemory { asked, .. }) = done else { break done };
            let would_do = asked <= books.free().saturating_add(managed.resident_at_most());
            if !would_do || !managed.evict_one(books, None, &mut effort) {
                break done;
            }
        };
        if effort != Effort::default() {
            self.host_effort(&effort);
        }
        done
    }

    /// The host takes part in moving managed memory.
    fn host_effort(&mut self, effort: &Effort) {
        let Self { devices, time, current, .. } = self;
        let Device { options, engines, .. } = &mut devices[*current];
        let costs = &options.costs;
        let faults = costs.other(Other::HostFault).times(effort.faults, 0, 0);
        time.spend(faults);
        time.spend(costs.other(Other::Evict).times(effort.evicted_blocks, 0, 0));
        if effort.bytes_out > 0 {
            let engine = &mut engines[Direction::DeviceToHost as usize];
            let link = options.links.get(Direction::DeviceToHost);
            *engine = time.now.max(*engine).saturating_add(link.ns(effort.bytes_out));
            time.now = *engine;
        }
    }

    /// A stream waits for managed memory to be moved.
    fn stream_effort(&mut self, slot: Slot, effort: &Effort) {
        let Self { devices, time, current, .. } = self;
        let Device { options, engines, .. } = &mut devices[*current];
        let costs = &options.costs;
        let Effort { batches, served, bytes_in, bytes_out, bytes_remote, evicted_blocks, .. } =
            *effort;
        let ns = costs.other(Other::FaultBatch).times(batches, served, bytes_in);
        let evictions = costs.other(Other::Evict).times(evicted_blocks, 0, 0);
        time.queue(slot, ns.saturating_add(evictions), 0);
        for (bytes, direction) in [
            (bytes_out, Direction::DeviceToHost),
            (bytes_in + bytes_remote, Direction::HostToDevice),
        ] {
            if bytes > 0 {
                let engine = &mut engines[direction as usize];
                *engine = time.queue(slot, options.links.get(direction).ns(bytes), *engine);
            }
        }
    }

    /// Mallocs that were freed in stream order go back once their stream has passed the free.
    fn settle(&mut self) {
        let now = self.time.now;
        let Device { leaving, mallocs, books, .. } = &mut self.devices[self.current];
        leaving.retain(|(at, address)| {
            let stays = *at > now;
            if !stays {
                mallocs.free(books, *address).ok();
            }
            stays
        });
    }

    /// Bytes of the range that begins at `address`: granules of a malloc, asked size of a reservation.
    pub(crate) fn range_size(&self, address: Address) -> Option<u64> {
        let device = &self.devices[self.current];
        device.mallocs.taken(address).or_else(|| device.vmm.reserved(address))
    }

    /// Bytes of a physical handle.
    pub(crate) fn handle_size(&self, handle: crate::driver::Handle) -> Option<u64> {
        self.devices[self.current].vmm.size(handle)
    }
}

impl Driver for SimMachine {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let kind = call.kind();
        self.calls[kind] += 1;
        if !self.devices[self.current].leaving.is_empty() {
            self.settle();
        }
        let answer = self.dispatch(kind, call);
        self.refused[kind] += u64::from(answer.is_err());
        answer
    }

    fn families(&self) -> Families {
        self.devices[self.current].options.families
    }
}

#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod tests;
