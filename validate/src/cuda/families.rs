//! Fronts of the families that a device may lack: stream-ordered pools, virtual memory, managed memory.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{
    self, CUmem_advise as Advise, CUmemLocation, CUmemLocationType as LocationType,
    CUmemPool_attribute as Attribute,
};

use super::calls::{Physical, Pool, Stream, free};
use super::host::ManagedRange;
use super::{Refusal, check, get};

fn here(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: LocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// The pool that a device has without being asked.
pub(crate) fn pool_default(device: c_int) -> Result<Pool, Refusal> {
    // SAFETY: the symbols were found; one value is written each time
    let got = unsafe {
        let handle = get("cuDeviceGet", 0, |to| sys::cuDeviceGet(to, device))?;
        get("cuDeviceGetDefaultMemPool", std::ptr::null_mut(), |to| {
            sys::cuDeviceGetDefaultMemPool(to, handle)
        })?
    };
    Ok(Pool(got))
}

/// A new pool of a device's memory.
pub(crate) fn pool_create(device: c_int) -> Result<Pool, Refusal> {
    // SAFETY: a plain C struct of integers, a pointer and enums that list 0, so all zeros is a value; CUDA asks for zeros in what is not set
    let mut wanted: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
    wanted.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = here(device);
    let got = get("cuMemPoolCreate", std::ptr::null_mut(), |to| {
        // SAFETY: the symbol was found; one value is written, and the properties are only read
        unsafe { sys::cuMemPoolCreate(to, &raw const wanted) }
    })?;
    Ok(Pool(got))
}

/// Ends a pool that was made.
pub(crate) fn pool_destroy(pool: Pool) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; the pool's only owner ends here
    check("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(pool.0) })
}

/// Gives memory back above so many bytes.
pub(crate) fn pool_trim(pool: &Pool, keep: u64) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; what is passed is live
    check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(pool.0, keep as usize) })
}

/// Attributes whose value is an int; the others are 64 bits wide.
fn is_int(attribute: Attribute) -> bool {
    matches!(
        attribute,
        Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
    )
}

/// Sets an attribute of a pool.
pub(crate) fn pool_set(pool: &Pool, attribute: Attribute, value: u64) -> Result<(), Refusal> {
    let (mut int, mut wide) = (c_int::try_from(value).unwrap_or(c_int::MAX), value);
    let place: *mut c_void =
        if is_int(attribute) { (&raw mut int).cast() } else { (&raw mut wide).cast() };
    // SAFETY: the symbol was found, the pool is live, and the place has the attribute's width
    check("cuMemPoolSetAttribute", unsafe { sys::cuMemPoolSetAttribute(pool.0, attribute, place) })
}

/// An attribute of a pool.
pub(crate) fn pool_get(pool: &Pool, attribute: Attribute) -> Result<u64, Refusal> {
    let (mut int, mut wide) = (0 as c_int, 0_u64);
    let place: *mut c_void =
        if is_int(attribute) { (&raw mut int).cast() } else { (&raw mut wide).cast() };
    // SAFETY: the symbol was found, the pool is live, and the place has the attribute's width
    check("cuMemPoolGetAttribute", unsafe {
        sys::cuMemPoolGetAttribute(pool.0, attribute, place)
    })?;
    Ok(if is_int(attribute) { int.unsigned_abs().into() } else { wide })
}

/// Memory of a pool, in stream order.
pub(crate) fn malloc_async(pool: &Pool, size: u64, stream: &Stream) -> Result<u64, Refusal> {
    // SAFETY: the symbol was found; pool and stream are live, and one address is written
    let got = get("cuMemAllocFromPoolAsync", 0, |to| unsafe {
        sys::cuMemAllocFromPoolAsync(to, size as usize, pool.0, stream.raw())
    })?;
    Ok(got)
}

/// Gives it back, in stream order.
pub(crate) fn free_async(address: u64, stream: &Stream) -> Result<(), Refusal> {
    // SAFETY: the symbol was found, the stream is live, and the driver checks the address
    check("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(address, stream.raw()) })
}

fn physical_memory(device: c_int) -> sys::CUmemAllocationProp {
    // SAFETY: a plain C struct of integers, a pointer and enums that list 0, so all zeros is a value; CUDA asks for zeros in what is not set
    let mut wanted: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    wanted.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = here(device);
    wanted
}

/// Bytes of the smallest step of physical memory.
pub(crate) fn granularity(device: c_int) -> Result<u64, Refusal> {
    let wanted = physical_memory(device);
    let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let bytes = get("cuMemGetAllocationGranularity", 0_usize, |to| {
        // SAFETY: the caller looked for the symbol; one size is written, and the properties are only read
        unsafe { sys::cuMemGetAllocationGranularity(to, &raw const wanted, least) }
    })?;
    Ok(bytes as u64)
}

/// A range of addresses.
pub(crate) fn reserve(size: u64) -> Result<u64, Refusal> {
    // SAFETY: the symbol was found; one value is written, and the driver checks the rest
    let got = get("cuMemAddressReserve", 0, |to| unsafe {
        sys::cuMemAddressReserve(to, size as usize, 0, 0, 0)
    })?;
    Ok(got)
}

/// Ends a range of addresses of this size.
pub(crate) fn unreserve(address: u64, size: u64) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; the driver checks the rest
    check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(address, size as usize) })
}

/// Physical memory.
pub(crate) fn create(device: c_int, size: u64) -> Result<Physical, Refusal> {
    let wanted = physical_memory(device);
    let handle = get("cuMemCreate", 0, |to| {
        // SAFETY: the symbol was found; one handle is written, and the properties are only read
        unsafe { sys::cuMemCreate(to, size as usize, &raw const wanted, 0) }
    })?;
    Ok(Physical { handle, size })
}

/// Maps all of it.
pub(crate) fn map(address: u64, memory: &Physical) -> Result<(), Refusal> {
    // SAFETY: the symbol was found, the handle is live, and the driver checks the address
    check("cuMemMap", unsafe { sys::cuMemMap(address, memory.size as usize, 0, memory.handle, 0) })
}

/// Makes it readable and writable for a device.
pub(crate) fn set_access(device: c_int, address: u64, size: u64) -> Result<(), Refusal> {
    let access = sys::CUmemAccessDesc {
        location: here(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the symbol was found; the one description is only read, and the driver checks the range
    let code = unsafe { sys::cuMemSetAccess(address, size as usize, &raw const access, 1) };
    check("cuMemSetAccess", code)
}

/// Unmaps whole allocations.
pub(crate) fn unmap(address: u64, size: u64) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; the driver checks the rest
    check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, size as usize) })
}

/// Gives physical memory back, once it is mapped nowhere.
pub(crate) fn release_memory(memory: Physical) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; the handle's only owner ends here
    check("cuMemRelease", unsafe { sys::cuMemRelease(memory.handle) })
}

/// Managed memory.
pub(crate) fn malloc_managed(size: u64) -> Result<ManagedRange, Refusal> {
    let global = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as c_uint;
    let address = get("cuMemAllocManaged", 0, |to| {
        // SAFETY: the symbol was found; one address is written
        unsafe { sys::cuMemAllocManaged(to, size as usize, global) }
    })?;
    Ok(ManagedRange { address, size })
}

/// Gives managed memory back; waits for the device.
pub(crate) fn free_managed(range: ManagedRange) -> Result<(), Refusal> {
    free(range.address)
}

/// Where managed memory is to be: on a device, or the host.
fn place(device: Option<c_int>) -> CUmemLocation {
    match device {
        Some(device) => here(device),
        None => CUmemLocation { type_: LocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 },
    }
}

/// Moves managed memory to a device (`None`: the host), in stream order.
pub(crate) fn prefetch(
    address: u64,
    size: u64,
    device: Option<c_int>,
    stream: &Stream,
) -> Result<(), Refusal> {
    // SAFETY: the symbol was found, the stream is live, and the driver checks the range
    check("cuMemPrefetchAsync_v2", unsafe {
        sys::cuMemPrefetchAsync_v2(address, size as usize, place(device), 0, stream.raw())
    })
}

/// Advice on managed memory.
pub(crate) fn advise(
    address: u64,
    size: u64,
    advice: Advise,
    device: Option<c_int>,
) -> Result<(), Refusal> {
    // SAFETY: the symbol was found, and the driver checks the range
    check("cuMemAdvise_v2", unsafe {
        sys::cuMemAdvise_v2(address, size as usize, advice, place(device))
    })
}
