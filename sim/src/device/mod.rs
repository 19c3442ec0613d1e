//! [`SimMachine`]: devices, their memory, queues and clock, without a GPU.
//!
//! | file | holds |
//! |---|---|
//! | `address` | which addresses are given out |
//! | `books` | who holds how many bytes |
//! | `classic` | `cudaMalloc`, `cudaFree`, host memory |
//! | `vmm` | reserved ranges, physical handles, mappings |
//! | `pools` | stream-ordered malloc and free |
//! | `timeline` | host clock, streams, events, happens-before |
//! | `cost` | what calls cost |
//!
//! Deterministic: same calls, same answers, on every computer. Each device has an address space of its own; two devices use the same
//! numbers. Time is integer ns.

mod address;
mod books;
mod classic;
mod cost;
mod pools;
mod timeline;
mod vmm;

pub use address::AddressPlacement;
pub use cost::{CostTable, Price};

use address::AddressSpace;
use books::Books;
use classic::{HostMemory, Mallocs};
use pools::Pools;
use timeline::{Slot, StreamNames, Timeline};
use vmm::Vmm;

use crate::driver::{Address, Answer, CALL_KINDS, Call, Driver, DriverError, Families};
use crate::machine::{CallCounts, Direction, Held, Machine, Origin, Physical, Stamp, Toucher};
use crate::units::{Bytes, DeviceId, Nanos, PoolId, StreamId};

/// Where each kind of range begins. What lies between two bases is far more than any device has, except for reserved ranges, which
/// come last and have no end.
mod base {
    pub(super) const HOST: u64 = 0x1000_0000_0000;
    pub(super) const MALLOC: u64 = 0x7000_0000_0000;
    pub(super) const POOL: u64 = 0x7400_0000_0000;
    pub(super) const RESERVED: u64 = 0x7800_0000_0000;
}

/// A link's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second; infinite if transfers take no time.
    pub bytes_per_second: f64,
    /// ns before the first byte.
    pub latency_ns: u64,
}

impl Link {
    /// Takes no time.
    pub const INSTANT: Self = Self { bytes_per_second: f64::INFINITY, latency_ns: 0 };

    /// ns for `bytes`, rounded to the nearest.
    pub fn ns(&self, bytes: u64) -> u64 {
        self.latency_ns.saturating_add((bytes as f64 / self.bytes_per_second * 1e9).round() as u64)
    }
}

/// A device's links, one for each [`Direction`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Links {
    pub host_to_device: Link,
    pub device_to_host: Link,
    pub device_to_device: Link,
    pub peer_to_peer: Link,
    pub disk: Link,
}

impl Links {
    /// Transfers take no time.
    pub const INSTANT: Self = Self {
        host_to_device: Link::INSTANT,
        device_to_host: Link::INSTANT,
        device_to_device: Link::INSTANT,
        peer_to_peer: Link::INSTANT,
        disk: Link::INSTANT,
    };

    const fn get(&self, direction: Direction) -> &Link {
        match direction {
            Direction::HostToDevice => &self.host_to_device,
            Direction::DeviceToHost => &self.device_to_host,
            Direction::DeviceToDevice => &self.device_to_device,
            Direction::PeerToPeer => &self.peer_to_peer,
            Direction::Disk => &self.disk,
        }
    }
}

/// What a simulated device is like. The default is the device of the golden sets: 80 GiB, all free, no cost.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes that the context takes.
    pub context: u64,
    /// Physical granule in bytes.
    pub granule: u64,
    /// Choice of addresses.
    pub placement: AddressPlacement,
    /// Mallocs of up to 1 MiB share a granule.
    pub pack_small: bool,
    /// `cuMemCreate` takes sizes that are no multiple of the granule (they take whole granules).
    pub any_size: bool,
    /// Families of calls that it has.
    pub families: Families,
    /// Speed of transfers.
    pub links: Links,
    /// Price of calls.
    pub costs: CostTable,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            capacity: Bytes::gib(80).0,
            context: 0,
            granule: Bytes::mib(2).0,
            placement: AddressPlacement::FirstFit,
            pack_small: false,
            any_size: false,
            families: Families { managed: false, ..Families::ALL },
            links: Links::INSTANT,
            costs: CostTable::zero(),
        }
    }
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
        Self {
            books: Books::new(options.capacity, options.context),
            mallocs: Mallocs::new(space(base::MALLOC, base::POOL), granule, options.pack_small),
            vmm: Vmm::new(space(base::RESERVED, u64::MAX >> 1), granule, options.any_size),
            pools: Pools::new(space(base::POOL, base::RESERVED), granule),
            host: HostMemory::new(base::HOST, base::MALLOC),
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
            self.time.now += options.costs.call(kind).of(bytes, options.granule);
        }
    }

    fn pay_price(&mut self, price: impl Fn(&CostTable) -> &Price, bytes: u64) {
        let options = &self.devices[self.current].options;
        self.time.now += price(&options.costs).of(bytes, options.granule);
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
            self.pay_price(CostTable::pool_shrink, given);
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

    fn do_malloc(&mut self, kind: usize, size: u64) -> Result<Answer, DriverError> {
        let device = &mut self.devices[self.current];
        let got = device.mallocs.malloc(&mut device.books, size, &mut self.next_physical);
        if got.as_ref().is_ok_and(|got| got.packed) {
            self.pay_price(CostTable::malloc_packed, size);
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
        if device.pools.is_used(address) {
            device.pools.free(&mut device.books, address, None);
            self.pay(kind, 0);
            return Ok(Answer::Done);
        }
        if device.leaving.iter().any(|(_, leaving)| *leaving == address) {
            let what = format!("found address {address:#x}, freed by cudaFreeAsync already");
            return Err(invalid("cudaFree", what));
        }
        let freed = device.mallocs.free(&mut device.books, address)?;
        self.join_device();
        if freed.packed {
            self.pay_price(CostTable::malloc_packed, freed.asked);
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
        let Self { devices, time, current, next_physical, .. } = self;
        let Device { pools, books, .. } = &mut devices[*current];
        let got = pools.malloc(books, time, pool, size, slot, next_physical)?;
        if got.grown > 0 {
            self.pay_price(CostTable::pool_grow, got.grown);
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
        let pooled = pools.is_used(address);
        let left = leaving.iter().any(|(_, leaving)| *leaving == address);
        if !pooled && (left || mallocs.taken(address).is_none()) {
            return Err(invalid(
                "cudaFreeAsync",
                format!("found address {address:#x}, expected the beginning of a live range"),
            ));
        }
        self.pay(kind, 0);
        let slot = self.slot(stream);
        let moment = self.time.queue_free(slot);
        let Device { pools, books, leaving, .. } = self.device();
        if pooled {
            pools.free(books, address, Some((slot, moment)));
        } else {
            leaving.push((moment.at, address));
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
                    self.pay_price(CostTable::pool_shrink, given);
                }
                Answer::Done
            }
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        };
        self.pay(kind, 0);
        Ok(answer)
    }

    fn vmm_call(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
        let Device { vmm, books, .. } = &mut self.devices[self.current];
        let (answer, bytes) = match call {
            Call::Reserve { size } => (Answer::Address(vmm.reserve(size)?), size),
            Call::Unreserve { address } => (Answer::Done, vmm.unreserve(address)?),
            Call::Create { size } => {
                let made = vmm.create(books, size, &mut self.next_physical);
                if matches!(made, Err(DriverError::OutOfMemory { .. })) {
                    self.pay(kind, 0);
                }
                (Answer::Handle(made?), size)
            }
            Call::Map { address, handle } => (Answer::Done, vmm.map(address, handle)?),
            Call::SetAccess { address, size } => {
                vmm.set_access(address, size)?;
                (Answer::Done, size)
            }
            Call::Unmap { address, size } => {
                vmm.unmap(books, address, size)?;
                (Answer::Done, size)
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
            _ => return Err(DriverError::NotSupported { call: call.name() }),
        }
        Ok(Answer::Done)
    }

    fn dispatch(&mut self, kind: usize, call: Call) -> Result<Answer, DriverError> {
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
            Call::MallocManaged { .. } | Call::Prefetch { .. } | Call::Advise { .. } => lacks(),
            Call::MallocHost { .. } | Call::FreeHost { .. } if !families.host => lacks(),
            Call::MallocHost { size, .. } => {
                let address = self.device().host.malloc(size)?;
                self.pay(kind, size);
                Ok(Answer::Address(address))
            }
            Call::FreeHost { address } => {
                let size = self.device().host.free(address)?;
                self.pay(kind, size);
                Ok(Answer::Done)
            }
            Call::MemInfo => {
                self.pay(kind, 0);
                let books = &self.device().books;
                Ok(Answer::Info { free: books.free(), total: books.capacity() })
            }
            _ => self.stream_call(kind, call),
        }
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
        // managed memory is not modelled yet
        Families { managed: false, ..self.devices[self.current].options.families }
    }
}

impl Machine for SimMachine {
    fn select(&mut self, device: DeviceId) -> Result<(), DriverError> {
        if usize::from(device.0) >= self.devices.len() {
            return Err(invalid(
                "cudaSetDevice",
                format!("found device {device}, expected one of {} devices", self.devices.len()),
            ));
        }
        self.current = device.0.into();
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(self.time.now)
    }

    fn wait_until(&mut self, time: Nanos) {
        self.time.now = self.time.now.max(time.0);
    }

    fn spend(&mut self, ns: u64) {
        self.time.now += ns;
    }

    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError> {
        self.pay_price(CostTable::launch, 0);
        let slot = self.slot(stream);
        self.time.queue(slot, duration, 0);
        Ok(())
    }

    fn transfer(
        &mut self,
        stream: StreamId,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DriverError> {
        self.pay_price(CostTable::launch, 0);
        let slot = self.slot(stream);
        let device = &mut self.devices[self.current];
        let engine = &mut device.engines[direction as usize];
        *engine = self.time.queue(slot, device.options.links.get(direction).ns(bytes), *engine);
        Ok(())
    }

    fn touch(
        &mut self,
        address: Address,
        bytes: u64,
        _write: bool,
        by: Toucher,
    ) -> Result<(), DriverError> {
        let device = &self.devices[self.current];
        let place = device.mallocs.physical(address);
        let place = place.or_else(|| device.pools.physical(address));
        let place = place.is_some_and(|place| place.run >= bytes);
        let fine = match by {
            Toucher::Host => device.host.origin(address).is_some(),
            Toucher::Device(_) => place || device.vmm.accessible(address, bytes),
        };
        if fine {
            return Ok(());
        }
        let from = if by == Toucher::Host { "host" } else { "device" };
        let what = format!(
            "found {bytes} bytes at {address:#x}, expected memory that the {from} can access"
        );
        Err(invalid("touch", what))
    }

    fn held(&self) -> Held {
        self.devices[self.current].books.held()
    }

    fn origin(&self, address: Address) -> Option<Origin> {
        let device = &self.devices[self.current];
        match address {
            base::RESERVED.. => device.vmm.origin(address),
            base::POOL.. => device.pools.origin(address),
            base::MALLOC.. => device.mallocs.origin(address),
            _ => device.host.origin(address),
        }
    }

    fn physical(&self, address: Address) -> Option<Physical> {
        let device = &self.devices[self.current];
        match address {
            base::RESERVED.. => device.vmm.physical(address),
            base::POOL.. => device.pools.physical(address),
            _ => device.mallocs.physical(address),
        }
    }

    fn stamp(&self, stream: StreamId) -> Option<Stamp> {
        let slot = self.time.known(&self.devices[self.current].streams, stream);
        Some(Stamp { stream, epoch: slot.map_or(0, |slot| self.time.epoch(slot)) })
    }

    fn ordered(&self, earlier: Stamp, stream: StreamId) -> bool {
        let names = &self.devices[self.current].streams;
        let later = self.time.known(names, stream);
        self.time
            .known(names, earlier.stream)
            .is_none_or(|slot| self.time.ordered(slot, earlier.epoch, later))
    }

    fn capture(&mut self, stream: StreamId, on: bool) {
        let slot = self.slot(stream);
        self.time.set_capturing(slot, on);
    }

    fn other_process(&mut self, bytes: u64) {
        self.device().books.set_other(bytes);
    }

    fn calls(&self) -> CallCounts {
        CallCounts(self.calls)
    }
}

#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod tests;
