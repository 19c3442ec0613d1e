//! Devices, versions, errors.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::driver::{
    check, device, driver, enter, enter_bare, exports, last, put, same, set_device,
};

/// CUDA 13.0, as `cudaRuntimeGetVersion` gives it.
const VERSION: c_int = 13_000;

exports! { enter_bare;
    cudaGetDeviceCount(count: *mut c_int) {
        let call = driver!(cuDeviceGetCount(*mut c_int))?;
        // SAFETY: the caller's pointer, as CUDA requires
        check(unsafe { call(count) })
    }
    cudaDriverGetVersion(version: *mut c_int) {
        let call = driver!(cuDriverGetVersion(*mut c_int))?;
        // SAFETY: the caller's pointer, as CUDA requires
        check(unsafe { call(version) })
    }
    cudaRuntimeGetVersion(version: *mut c_int) {
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(version, VERSION) }
    }
    cudaGetDevice(to: *mut c_int) {
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, device()) }
    }
    cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, of: c_int) {
        let call = driver!(cuDeviceGetAttribute(*mut c_int, c_uint, c_int))?;
        // SAFETY: the caller's pointer, as CUDA requires; the driver checks the rest
        check(unsafe { call(value, attribute, of) })
    }
}

exports! { enter;
    cudaSetDevice(to: c_int) { set_device(to) }
}

same! {
    cudaDeviceSynchronize() = cuCtxSynchronize();
    cudaMemGetInfo(free: *mut usize, total: *mut usize) =
        cuMemGetInfo_v2(a: *mut usize = free, b: *mut usize = total);
}

/// `cudaGetLastError`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> c_uint {
    last(true)
}

/// `cudaPeekAtLastError`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> c_uint {
    last(false)
}

/// Number, name and words of the errors that the stand-ins give.
const ERRORS: [(c_uint, &CStr, &CStr); 13] = [
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (35, c"cudaErrorInsufficientDriver", c"no driver, or one that lacks a function"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered"),
    (801, c"cudaErrorNotSupported", c"operation not supported"),
    (999, c"cudaErrorUnknown", c"unknown error"),
];

fn error(code: c_uint) -> Option<&'static (c_uint, &'static CStr, &'static CStr)> {
    ERRORS.iter().find(|(known, ..)| *known == code)
}

/// `cudaGetErrorName`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: c_uint) -> *const c_char {
    error(code).map_or(c"unrecognized error code", |(_, name, _)| *name).as_ptr()
}

/// `cudaGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: c_uint) -> *const c_char {
    error(code).map_or(c"unrecognized error code", |(.., words)| *words).as_ptr()
}
