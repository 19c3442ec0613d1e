//! A stand-in for `libcuda.so.1`: the functions that `vramlab-validate probe` calls, with CUDA's names and shapes, answering from
//! a small table. It touches no GPU. Tests copy the built file as `libcuda.so.1` into a folder on `LD_LIBRARY_PATH`.
//!
//! `VRAMLAB_FAKE_CUDA` chooses what it plays:
//!
//! | value | plays |
//! |---|---|
//! | unset | two devices: the first can do everything, the second has no pools, no VMM and no managed memory |
//! | `no_device` | a driver without a device: `cuInit` gives `CUDA_ERROR_NO_DEVICE` |
//! | `no_context` | devices on which no context can be made: `CUDA_ERROR_OUT_OF_MEMORY` |
//!
//! `unsafe` here: writing through the pointers that the caller gives, as CUDA's own contract says (valid, or null where refused).

use std::ffi::{c_char, c_int, c_uint, c_void};

const SUCCESS: c_uint = 0;
const INVALID_VALUE: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const NO_DEVICE: c_uint = 100;
const INVALID_DEVICE: c_uint = 101;

struct Device {
    /// Ends with a zero byte.
    name: &'static [u8],
    /// Bytes.
    total: usize,
    /// Bytes.
    free: usize,
    /// Compute capability, major and minor.
    compute: (c_int, c_int),
    /// Pools, VMM, managed memory, and managed memory used by both sides at once.
    able: bool,
}

const DEVICES: [Device; 2] = [
    Device { name: b"Fake GPU A\0", total: 80 << 30, free: 79 << 30, compute: (9, 0), able: true },
    Device { name: b"Fake GPU B\0", total: 12 << 30, free: 3 << 29, compute: (5, 2), able: false },
];

fn plays(part: &str) -> bool {
    std::env::var_os("VRAMLAB_FAKE_CUDA").is_some_and(|v| v == part)
}

/// Writes `value` to `to`.
///
/// # Safety
/// `to` is null or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) -> c_uint {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null, so valid by this function's contract
    unsafe { to.write(value) };
    SUCCESS
}

fn device(number: c_int) -> Option<&'static Device> {
    DEVICES.get(usize::try_from(number).ok()?)
}

/// `cuInit`.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    if plays("no_device") { NO_DEVICE } else { SUCCESS }
}

/// `cuDriverGetVersion`: 13.0.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(version, 13_000) }
}

/// `cuDeviceGetCount`.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(count, DEVICES.len() as c_int) }
}

/// `cuDeviceGet`: a device's handle is its number.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(handle: *mut c_int, number: c_int) -> c_uint {
    if device(number).is_none() {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(handle, number) }
}

/// `cuDeviceGetName`.
///
/// # Safety
/// As CUDA's: `name` is valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, size: c_int, handle: c_int) -> c_uint {
    let Some(device) = device(handle) else { return INVALID_DEVICE };
    if name.is_null() || usize::try_from(size).is_ok_and(|size| size < device.name.len()) {
        return INVALID_VALUE;
    }
    // SAFETY: `name` has room for `size` bytes, which is at least the length of the name
    unsafe { name.cast::<u8>().copy_from_nonoverlapping(device.name.as_ptr(), device.name.len()) };
    SUCCESS
}

/// `cuDeviceTotalMem_v2`.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, handle: c_int) -> c_uint {
    let Some(device) = device(handle) else { return INVALID_DEVICE };
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(bytes, device.total) }
}

/// `cuDeviceGetAttribute`, for the attributes that the probe asks.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    handle: c_int,
) -> c_uint {
    let Some(device) = device(handle) else { return INVALID_DEVICE };
    let answer = match attribute {
        75 => device.compute.0,
        76 => device.compute.1,
        // managed, concurrent managed, VMM
        83 | 89 | 102 => c_int::from(device.able),
        // an old driver does not know of pools
        115 if device.able => 1,
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(value, answer) }
}

/// `cuMemGetAllocationGranularity`: 2 MiB.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    properties: *const c_void,
    _option: c_uint,
) -> c_uint {
    if properties.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's pointer, as CUDA requires
    unsafe { put(granularity, 2 << 20) }
}

thread_local! {
    /// The device of the current context.
    static CURRENT: std::cell::Cell<Option<c_int>> = const { std::cell::Cell::new(None) };
}

/// `cuDevicePrimaryCtxRetain`: a context is the device's handle plus 1, as a pointer.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    handle: c_int,
) -> c_uint {
    if plays("no_context") {
        return OUT_OF_MEMORY;
    }
    match usize::try_from(handle) {
        Ok(number) if number < DEVICES.len() => {
            // SAFETY: the caller's pointer, as CUDA requires
            unsafe { put(context, std::ptr::without_provenance_mut(number + 1)) }
        }
        _ => INVALID_DEVICE,
    }
}

/// `cuDevicePrimaryCtxRelease_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(handle: c_int) -> c_uint {
    if device(handle).is_some() { SUCCESS } else { INVALID_DEVICE }
}

/// `cuCtxSetCurrent`.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_uint {
    CURRENT.set(context.addr().checked_sub(1).map(|number| number as c_int));
    SUCCESS
}

/// `cuMemGetInfo_v2`.
///
/// # Safety
/// As CUDA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    // CUDA_ERROR_INVALID_CONTEXT
    let Some(device) = CURRENT.get().and_then(device) else { return 201 };
    // SAFETY: the caller's pointers, as CUDA requires
    unsafe { put(free, device.free).max(put(total, device.total)) }
}
