//! What driver and devices are here.

use std::ffi::{CStr, c_int};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::calls;
use super::families::granularity;
use super::{Refusal, check, get, has};
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

/// Oldest version that is served, as `cuDriverGetVersion` gives it.
const OLDEST: c_int = 10_020;

/// Looks at the driver and its devices. Makes and drops a context on each; changes nothing else.
///
/// # Errors
/// Without a driver or a device, or when the driver refuses what every driver can answer.
pub(crate) fn probe() -> Result<Probe, Trouble> {
    let (version, count) = begin(&[])?;
    let devices = (0..count).map(device).collect::<Result<_, _>>()?;
    Ok(Probe::new(version, devices))
}

/// Loads and starts the driver, in which these functions must be too: its version, and how many devices there are.
///
/// # Errors
/// Without a driver or a device, when the driver is too old, or refuses what every driver can answer.
pub(crate) fn begin(more: &[&'static str]) -> Result<(c_int, c_int), Trouble> {
    // SAFETY: loads and unloads the driver's library, whose initialisers are made to be run; nothing of it is kept
    if !unsafe { sys::is_culib_present() } {
        return Err(Trouble::NoDriver);
    }
    if let Some(lacks) = calls::lacks(&SYMBOLS).or_else(|| calls::lacks(more)) {
        return Err(Trouble::OldDriver { lacks });
    }
    // SAFETY: the symbol was found; 0 is the only flag value that CUDA allows
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(Trouble::NoDevice),
        code => check("cuInit", code)?,
    }
    // SAFETY: the symbols were found, and each function writes one int to the place given
    let version = get("cuDriverGetVersion", 0, |to| unsafe { sys::cuDriverGetVersion(to) })?;
    if version < OLDEST {
        return Err(Trouble::OldVersion { version });
    }
    // SAFETY: as above
    let count = get("cuDeviceGetCount", 0, |to| unsafe { sys::cuDeviceGetCount(to) })?;
    if count < 1 {
        return Err(Trouble::NoDevice);
    }
    Ok((version, count))
}

/// Name and compute capability of a device; the driver has begun.
pub(crate) fn about(number: c_int) -> Result<(String, (c_int, c_int)), Trouble> {
    // SAFETY: the symbol was found; it writes one handle to the place given
    let handle = get("cuDeviceGet", 0, |to| unsafe { sys::cuDeviceGet(to, number) })?;
    let compute = (
        attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    Ok((name(handle)?, compute))
}

/// Whether a device has pools, virtual memory management, and managed memory that host and device may use at once.
pub(crate) fn families_of(number: c_int) -> Result<(bool, bool, bool), Trouble> {
    // SAFETY: the symbol was found; it writes one handle to the place given
    let handle = get("cuDeviceGet", 0, |to| unsafe { sys::cuDeviceGet(to, number) })?;
    let can = |what| attribute(handle, what).map(|value| value > 0);
    Ok((
        can(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? && calls::has_pools(),
        can(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)?
            && calls::has_vmm(),
        can(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)? && calls::has_managed(),
    ))
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
        Err(refusal) => (None, Some(format!("{}: {}", refusal.call, refusal.error()))),
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
        layout: None,
    })
}

/// An attribute; 0 if the driver is too old to know it.
fn attribute(device: sys::CUdevice, attribute: Attribute) -> Result<c_int, Trouble> {
    let mut value = 0;
    // SAFETY: the symbol was found, the device comes from cuDeviceGet, and one int is written
    match unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) } {
        CUresult::CUDA_ERROR_INVALID_VALUE => Ok(0),
        code => Ok(check("cuDeviceGetAttribute", code).map(|()| value)?),
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
fn free_memory(device: sys::CUdevice) -> Result<u64, Refusal> {
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
