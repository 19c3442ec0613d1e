//! Memory: device, host, pools, virtual, managed, copies.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use vramlab_sim::driver::{
    Address, Advice, Answer, Call, DEFAULT_POOL, Handle, Place, PoolAttribute,
};
use vramlab_sim::machine::{Direction, Machine};
use vramlab_sim::units::PoolId;

use crate::enter::{Code, enter, enter_device, exports, put};
use crate::fake::{Fake, Kind, stream};

/// `CUmemLocation`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    const HOST: c_int = 2;

    fn place(self) -> Place {
        if self.kind == Self::HOST { Place::Host } else { Place::Device }
    }
}

fn address(answer: Answer) -> Result<Address, Code> {
    match answer {
        Answer::Address(address) => Ok(address),
        _ => Err(Code::UNKNOWN),
    }
}

/// A pool's handle is its number plus 1.
fn pool(fake: &mut Fake, handle: *mut c_void) -> Result<PoolId, Code> {
    let number = handle.addr().checked_sub(1).and_then(|number| u32::try_from(number).ok());
    number.map(PoolId).ok_or_else(|| fake.misused("a null pool"))
}

/// A physical allocation's handle is its number plus 1.
fn physical(fake: &mut Fake, handle: c_ulonglong) -> Result<Handle, Code> {
    let number = handle.checked_sub(1).and_then(|number| u32::try_from(number).ok());
    number.map(Handle).ok_or_else(|| fake.misused("a null physical allocation"))
}

fn attribute(number: c_uint) -> Result<PoolAttribute, Code> {
    Ok(match number {
        1 => PoolAttribute::ReuseFollowEventDependencies,
        2 => PoolAttribute::ReuseAllowOpportunistic,
        3 => PoolAttribute::ReuseAllowInternalDependencies,
        4 => PoolAttribute::ReleaseThreshold,
        5 => PoolAttribute::ReservedCurrent,
        6 => PoolAttribute::ReservedHigh,
        7 => PoolAttribute::UsedCurrent,
        8 => PoolAttribute::UsedHigh,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// The first three are ints, the others 64 bits wide.
const LAST_INT: c_uint = 3;

fn malloc_from(
    fake: &mut Fake,
    to: *mut u64,
    size: usize,
    pool: PoolId,
    queue: *mut c_void,
) -> Result<(), Code> {
    let stream = stream(queue);
    let got = address(fake.call(Call::MallocAsync { pool, size: size as u64, stream })?)?;
    fake.made(Kind::Memory, got, size as u64);
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(to, got) }
}

/// A copy whose ends on the host may lie in memory of the process that the driver does not know.
fn copy(
    fake: &mut Fake,
    (from, to): (u64, u64),
    size: usize,
    direction: Direction,
    queue: *mut c_void,
) -> Result<(), Code> {
    let (stream, size) = (stream(queue), size as u64);
    let (mut from, mut to) = (from, to);
    let on_host = match direction {
        Direction::HostToDevice => Some(&mut from),
        Direction::DeviceToHost => Some(&mut to),
        _ => None,
    };
    if let Some(end) = on_host {
        match fake.host.simulated(*end) {
            Some(simulated) => *end = simulated,
            None => {
                let done = fake.machine.transfer(stream, size, direction);
                return done.map_err(|error| fake.refused(&error));
            }
        }
    }
    fake.call(Call::Copy { from, to, size, direction, stream }).map(drop)
}

/// The beginning of `CUmemAllocationProp`.
#[repr(C)]
pub struct Properties {
    _kind: c_int,
    _handle_types: c_int,
    location: Location,
}

exports! { enter;
    cuMemGetAllocationGranularity(to: *mut usize, properties: *const Properties, _option: c_uint) |fake| {
        if properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and read only at its beginning, as CUDA's struct has it
        let device = unsafe { (&raw const (*properties).location.id).read() };
        let about = usize::try_from(device).ok().and_then(|at| fake.settings.devices.get(at));
        let granule = about.ok_or(Code::INVALID_DEVICE)?.options.granule as usize;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, granule) }
    };
    cuDeviceGetDefaultMemPool(to: *mut *mut c_void, _device: c_int) |_fake| {
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, std::ptr::without_provenance_mut(DEFAULT_POOL.0 as usize + 1)) }
    };
}

exports! { enter_device;
    cuMemAlloc_v2(to: *mut u64, size: usize) |fake| {
        let got = address(fake.call(Call::Malloc { size: size as u64 })?)?;
        fake.made(Kind::Memory, got, size as u64);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, got) }
    };
    cuMemFree_v2(address: u64) |fake| {
        if address == 0 {
            return Ok(());
        }
        if fake.managed.simulated(address).is_some() {
            fake.gone("cuMemFree_v2", Kind::Managed, address)?;
            let Some(address) = fake.managed.remove(address) else { return Err(Code::UNKNOWN) };
            return fake.call(Call::Free { address }).map(drop);
        }
        fake.gone("cuMemFree_v2", Kind::Memory, address)?;
        fake.call(Call::Free { address }).map(drop)
    };
    cuMemAllocHost_v2(to: *mut *mut c_void, size: usize) |fake| {
        let simulated = address(fake.call(Call::MallocHost { size: size as u64, pinned: true })?)?;
        let Some(start) = fake.host.add(simulated, size as u64) else {
            fake.call(Call::FreeHost { address: simulated })?;
            return Err(Code::OUT_OF_MEMORY);
        };
        fake.made(Kind::Host, start.addr() as u64, size as u64);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, start) }
    };
    cuMemFreeHost(start: *mut c_void) |fake| {
        fake.gone("cuMemFreeHost", Kind::Host, start.addr() as u64)?;
        let Some(address) = fake.host.remove(start.addr() as u64) else {
            return Err(Code::UNKNOWN);
        };
        fake.call(Call::FreeHost { address }).map(drop)
    };
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, size: usize, queue: *mut c_void) |fake| {
        copy(fake, (from.addr() as u64, to), size, Direction::HostToDevice, queue)
    };
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, size: usize, queue: *mut c_void) |fake| {
        copy(fake, (from, to.addr() as u64), size, Direction::DeviceToHost, queue)
    };
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, queue: *mut c_void) |fake| {
        copy(fake, (from, to), size, Direction::DeviceToDevice, queue)
    };
    cuMemPoolCreate(to: *mut *mut c_void, properties: *const c_void) |fake| {
        if properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let Answer::Pool(pool) = fake.call(Call::PoolCreate)? else { return Err(Code::UNKNOWN) };
        let handle = pool.0 as usize + 1;
        fake.made(Kind::Pool, handle as u64, 0);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, std::ptr::without_provenance_mut(handle)) }
    };
    cuMemPoolDestroy(handle: *mut c_void) |fake| {
        fake.gone("cuMemPoolDestroy", Kind::Pool, handle.addr() as u64)?;
        let pool = pool(fake, handle)?;
        fake.call(Call::PoolDestroy { pool }).map(drop)
    };
    cuMemPoolSetAttribute(handle: *mut c_void, number: c_uint, value: *mut c_void) |fake| {
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let (pool, attribute) = (pool(fake, handle)?, attribute(number)?);
        let value = if number <= LAST_INT {
            // SAFETY: not null, and of this attribute's width, as CUDA requires
            u64::from(unsafe { value.cast::<c_int>().read() }.unsigned_abs())
        } else {
            // SAFETY: not null, and of this attribute's width, as CUDA requires
            unsafe { value.cast::<u64>().read() }
        };
        fake.call(Call::PoolSet { pool, attribute, value }).map(drop)
    };
    cuMemPoolGetAttribute(handle: *mut c_void, number: c_uint, value: *mut c_void) |fake| {
        let (pool, attribute) = (pool(fake, handle)?, attribute(number)?);
        let Answer::Value(got) = fake.call(Call::PoolGet { pool, attribute })? else {
            return Err(Code::UNKNOWN);
        };
        if number <= LAST_INT {
            // SAFETY: the caller's pointer, of this attribute's width, as CUDA requires
            return unsafe { put(value.cast(), got as c_int) };
        }
        // SAFETY: the caller's pointer, of this attribute's width, as CUDA requires
        unsafe { put(value.cast(), got) }
    };
    cuMemPoolTrimTo(handle: *mut c_void, keep: usize) |fake| {
        let pool = pool(fake, handle)?;
        fake.call(Call::PoolTrim { pool, keep: keep as u64 }).map(drop)
    };
    cuMemAllocFromPoolAsync(to: *mut u64, size: usize, handle: *mut c_void, queue: *mut c_void) |fake| {
        let pool = pool(fake, handle)?;
        malloc_from(fake, to, size, pool, queue)
    };
    cuMemAllocAsync(to: *mut u64, size: usize, queue: *mut c_void) |fake| {
        malloc_from(fake, to, size, DEFAULT_POOL, queue)
    };
    cuMemFreeAsync(address: u64, queue: *mut c_void) |fake| {
        fake.gone("cuMemFreeAsync", Kind::Memory, address)?;
        fake.call(Call::FreeAsync { address, stream: stream(queue) }).map(drop)
    };
    cuMemAddressReserve(to: *mut u64, size: usize, _alignment: usize, _fixed: u64, _flags: c_ulonglong) |fake| {
        let got = address(fake.call(Call::Reserve { size: size as u64 })?)?;
        fake.made(Kind::Reserved, got, size as u64);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, got) }
    };
    cuMemAddressFree(address: u64, size: usize) |fake| {
        let bytes = fake.gone("cuMemAddressFree", Kind::Reserved, address)?;
        if bytes != size as u64 {
            return Err(fake.misused(format!("cuMemAddressFree: found size {size}, expected {bytes}")));
        }
        fake.call(Call::Unreserve { address }).map(drop)
    };
    cuMemCreate(to: *mut c_ulonglong, size: usize, properties: *const c_void, _flags: c_ulonglong) |fake| {
        if properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let Answer::Handle(handle) = fake.call(Call::Create { size: size as u64 })? else {
            return Err(Code::UNKNOWN);
        };
        let handle = u64::from(handle.0) + 1;
        fake.made(Kind::Physical, handle, size as u64);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, handle) }
    };
    cuMemRelease(handle: c_ulonglong) |fake| {
        fake.gone("cuMemRelease", Kind::Physical, handle)?;
        let handle = physical(fake, handle)?;
        fake.call(Call::Release { handle }).map(drop)
    };
    cuMemMap(address: u64, _size: usize, offset: usize, handle: c_ulonglong, _flags: c_ulonglong) |fake| {
        if offset != 0 {
            return Err(fake.misused(format!("cuMemMap: found offset {offset}, expected 0")));
        }
        let handle = physical(fake, handle)?;
        fake.call(Call::Map { address, handle }).map(drop)
    };
    cuMemUnmap(address: u64, size: usize) |fake| {
        fake.call(Call::Unmap { address, size: size as u64 }).map(drop)
    };
    cuMemSetAccess(address: u64, size: usize, description: *const c_void, count: usize) |fake| {
        if description.is_null() || count != 1 {
            return Err(Code::INVALID_VALUE);
        }
        fake.call(Call::SetAccess { address, size: size as u64 }).map(drop)
    };
    cuMemAllocManaged(to: *mut u64, size: usize, _flags: c_uint) |fake| {
        let simulated = address(fake.call(Call::MallocManaged { size: size as u64 })?)?;
        let Some(start) = fake.managed.add(simulated, size as u64) else {
            fake.call(Call::Free { address: simulated })?;
            return Err(Code::OUT_OF_MEMORY);
        };
        fake.made(Kind::Managed, start.addr() as u64, size as u64);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, start.addr() as u64) }
    };
    cuMemPrefetchAsync_v2(address: u64, size: usize, location: Location, _flags: c_uint, queue: *mut c_void) |fake| {
        let address = fake.managed.simulated(address).unwrap_or(address);
        let (size, to, stream) = (size as u64, location.place(), stream(queue));
        fake.call(Call::Prefetch { address, size, to, stream }).map(drop)
    };
    cuMemAdvise_v2(address: u64, size: usize, advice: c_uint, location: Location) |fake| {
        let address = fake.managed.simulated(address).unwrap_or(address);
        let place = location.place();
        let advice = match advice {
            1 => Advice::ReadMostly(true),
            2 => Advice::ReadMostly(false),
            3 => Advice::Preferred(Some(place)),
            4 => Advice::Preferred(None),
            5 => Advice::AccessedBy(place, true),
            6 => Advice::AccessedBy(place, false),
            _ => return Err(Code::INVALID_VALUE),
        };
        fake.call(Call::Advise { address, size: size as u64, advice }).map(drop)
    };
}
