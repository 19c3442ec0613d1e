//! All that talks to the CUDA driver, through cudarc, which loads it at run time. The only `unsafe` of this program.
//!
//! | rule | what it says |
//! |---|---|
//! | `present_first` | no call before the library was found: cudarc panics otherwise |
//! | `symbols_first` | no call before every function in [`SYMBOLS`] was found: cudarc looks each up at its first call and panics if it lacks |
//! | `no_error_text` | errors are printed by the name in cudarc's enum: asking the driver for its text is one more call that can fail |
//!
//! Left out: result codes that cudarc's enum does not list, from a driver newer than the bindings (13.0). Those that a probe
//! can meet have been listed since CUDA 12.

use std::ffi::{CStr, c_int};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use crate::probe::{Device, Probe, Trouble};

/// Every function that [`probe`] calls; all there since CUDA 10.2, which brought the last of them.
const SYMBOLS: [&str; 11] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
];
/// Asked only of devices with virtual memory management, which need it.
const GRANULARITY: &str = "cuMemGetAllocationGranularity";

/// Bytes for a device's name, the closing zero included. CUDA cuts longer ones.
const NAME_SIZE: usize = 256;

/// Looks at the driver and its devices. Makes and drops a context on each; changes nothing else.
///
/// # Errors
/// Without a driver or a device, or when the driver refuses what every driver can answer.
pub(crate) fn probe() -> Result<Probe, Trouble> {
    // SAFETY: loads and unloads the driver's library, whose initialisers are made to be run; nothing of it is kept
    if !unsafe { sys::is_culib_present() } {
        return Err(Trouble::NoDriver);
    }
    if let Some(lacks) = SYMBOLS.into_iter().find(|name| !has(name)) {
        return Err(Trouble::OldDriver { lacks });
    }
    // SAFETY: the symbol was found; 0 is the only flag value that CUDA allows
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(Trouble::NoDevice),
        code => check("cuInit", code)?,
    }
    // SAFETY: the symbols were found, and each function writes one int to the place given
    let version = get("cuDriverGetVersion", 0, |to| unsafe { sys::cuDriverGetVersion(to) })?;
    // SAFETY: as above
    let count = get("cuDeviceGetCount", 0, |to| unsafe { sys::cuDeviceGetCount(to) })?;
    if count < 1 {
        return Err(Trouble::NoDevice);
    }
    let devices = (0..count).map(device).collect::<Result<_, _>>()?;
    Ok(Probe::new(version, devices))
}

fn device(number: c_int) -> Result<Device, Trouble> {
    // SAFETY: the symbol was found; it writes one handle to the place given
    let handle = get("cuDeviceGet", 0, |to| unsafe { sys::cuDeviceGet(to, number) })?;
    let total = get("cuDeviceTotalMem_v2", 0_usize, |to| {
        // SAFETY: the symbol was found, and the handle comes from cuDeviceGet
        unsafe { sys::cuDeviceTotalMem_v2(to, handle) }
    })?;
    let vmm =
        attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? > 0;
    let (free, free_unknown) = match free_memory(handle) {
        Ok(free) => (Some(free), None),
        Err(Trouble::Refused { call, error }) => (None, Some(format!("{call}: {error}"))),
        Err(other) => return Err(other),
    };
    Ok(Device {
        device: number,
        name: name(handle)?,
        compute: format!(
            "{}.{}",
            attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?
        ),
        total: total as u64,
        free,
        free_unknown,
        granularity: if vmm && has(GRANULARITY) { granularity(number).ok() } else { None },
        pools: attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? > 0,
        vmm,
        managed: attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? > 0,
        managed_concurrent: attribute(
            handle,
            Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        )? > 0,
    })
}

/// Does the driver's library have this function?
fn has(symbol: &str) -> bool {
    // SAFETY: the library was found, so this does not panic; the pointer is only looked for, never called or kept
    unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()).is_ok() }
}

fn check(call: &'static str, code: CUresult) -> Result<(), Trouble> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(Trouble::Refused { call, error: format!("{other:?}") }),
    }
}

/// What `ask` writes to the place that it is given.
fn get<T>(
    call: &'static str,
    start: T,
    ask: impl FnOnce(*mut T) -> CUresult,
) -> Result<T, Trouble> {
    let mut value = start;
    check(call, ask(&raw mut value))?;
    Ok(value)
}

/// An attribute; 0 if the driver is too old to know it.
fn attribute(device: sys::CUdevice, attribute: Attribute) -> Result<c_int, Trouble> {
    let mut value = 0;
    // SAFETY: the symbol was found, the device comes from cuDeviceGet, and one int is written
    match unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) } {
        CUresult::CUDA_ERROR_INVALID_VALUE => Ok(0),
        code => check("cuDeviceGetAttribute", code).map(|()| value),
    }
}

fn name(device: sys::CUdevice) -> Result<String, Trouble> {
    let mut name = [0_u8; NAME_SIZE];
    // SAFETY: the symbol was found, the device comes from cuDeviceGet, and at most NAME_SIZE bytes are written
    let code =
        unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), NAME_SIZE as c_int, device) };
    check("cuDeviceGetName", code)?;
    Ok(CStr::from_bytes_until_nul(&name)
        .map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned()))
}

/// Free bytes, which only a context can ask.
fn free_memory(device: sys::CUdevice) -> Result<u64, Trouble> {
    let context = get("cuDevicePrimaryCtxRetain", std::ptr::null_mut(), |to| {
        // SAFETY: the symbol was found, the device comes from cuDeviceGet, and one pointer is written
        unsafe { sys::cuDevicePrimaryCtxRetain(to, device) }
    })?;
    // SAFETY: the symbol was found, and the context was retained above and is released only below
    let free = check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) }).and_then(|()| {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: the symbol was found, a context is current, and two sizes are written
        check("cuMemGetInfo_v2", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(free as u64)
    });
    // SAFETY: a null context makes none current; the release matches the one retain above, and nothing uses the context after it
    unsafe {
        sys::cuCtxSetCurrent(std::ptr::null_mut());
        sys::cuDevicePrimaryCtxRelease_v2(device);
    }
    free
}

/// Bytes of the smallest step of physical memory on device `number`.
fn granularity(number: c_int) -> Result<u64, Trouble> {
    // SAFETY: a plain C struct of integers, a pointer and enums that list 0, so all zeros is a value; CUDA asks for zeros in what is not set
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: number,
    };
    let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let bytes = get("cuMemGetAllocationGranularity", 0_usize, |to| {
        // SAFETY: the caller looked for the symbol; one size is written, and the properties are only read
        unsafe { sys::cuMemGetAllocationGranularity(to, &raw const properties, minimum) }
    })?;
    Ok(bytes as u64)
}
