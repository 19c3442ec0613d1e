//! Memory of the device, of its pools, and of the host; copies.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::{INVALID_VALUE, check, driver, enter, exports, put, same};
use crate::order::{Handle, plain};

/// `cudaFree(0)` succeeds; so do asks for 0 bytes, which give a null pointer.
const NOTHING: Result<(), c_uint> = Ok(());

/// An address as a number.
fn address(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}

exports! { enter;
    cudaMalloc(to: *mut u64, size: usize) {
        if size == 0 {
            // SAFETY: the caller's pointer, as CUDA requires
            return unsafe { put(to, 0) };
        }
        let call = driver!(cuMemAlloc_v2(*mut u64, usize))?;
        // SAFETY: the caller's pointer, as CUDA requires
        check(unsafe { call(to, size) })
    }
    cudaFree(pointer: *mut c_void) {
        if pointer.is_null() {
            return NOTHING;
        }
        let call = driver!(cuMemFree_v2(u64))?;
        // SAFETY: the driver checks the address
        check(unsafe { call(address(pointer)) })
    }
    cudaMallocAsync(to: *mut u64, size: usize, stream: Handle) {
        if size == 0 {
            // SAFETY: the caller's pointer, as CUDA requires
            return unsafe { put(to, 0) };
        }
        let call = driver!(cuMemAllocAsync(*mut u64, usize, Handle))?;
        // SAFETY: the caller's pointer, as CUDA requires; the driver checks the stream
        check(unsafe { call(to, size, plain(stream)) })
    }
    cudaFreeAsync(pointer: *mut c_void, stream: Handle) {
        if pointer.is_null() {
            return NOTHING;
        }
        let call = driver!(cuMemFreeAsync(u64, Handle))?;
        // SAFETY: the driver checks address and stream
        check(unsafe { call(address(pointer), plain(stream)) })
    }
    cudaDeviceGetDefaultMemPool(to: *mut Handle, of: c_int) {
        let call = driver!(cuDeviceGetDefaultMemPool(*mut Handle, c_int))?;
        // SAFETY: the caller's pointer, as CUDA requires
        check(unsafe { call(to, of) })
    }
    cudaMemcpyAsync(to: *mut c_void, from: *mut c_void, size: usize, kind: c_uint, stream: Handle) {
        copy(to, from, size, kind, stream)
    }
    cudaMemcpy(to: *mut c_void, from: *mut c_void, size: usize, kind: c_uint) {
        copy(to, from, size, kind, std::ptr::null_mut())?;
        let wait = driver!(cuStreamSynchronize(Handle))?;
        // SAFETY: the null stream is always there
        check(unsafe { wait(std::ptr::null_mut()) })
    }
}

/// Rule `copies`.
fn copy(
    to: *mut c_void,
    from: *mut c_void,
    size: usize,
    kind: c_uint,
    stream: Handle,
) -> Result<(), c_uint> {
    let stream = plain(stream);
    let code = match kind {
        0 => return Err(INVALID_VALUE),
        1 => {
            let call = driver!(cuMemcpyHtoDAsync_v2(u64, *mut c_void, usize, Handle))?;
            // SAFETY: the caller's pointers, as CUDA requires; the driver checks the device's
            unsafe { call(address(to), from, size, stream) }
        }
        2 => {
            let call = driver!(cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, Handle))?;
            // SAFETY: as above
            unsafe { call(to, address(from), size, stream) }
        }
        _ => {
            let call = driver!(cuMemcpyDtoDAsync_v2(u64, u64, usize, Handle))?;
            // SAFETY: the driver checks both ends
            unsafe { call(address(to), address(from), size, stream) }
        }
    };
    check(code)
}

same! {
    cudaMallocManaged(to: *mut u64, size: usize, flags: c_uint) =
        cuMemAllocManaged(a: *mut u64 = to, b: usize = size, c: c_uint = flags);
    cudaMallocHost(to: *mut *mut c_void, size: usize) =
        cuMemAllocHost_v2(a: *mut *mut c_void = to, b: usize = size);
    cudaHostAlloc(to: *mut *mut c_void, size: usize, _flags: c_uint) =
        cuMemAllocHost_v2(a: *mut *mut c_void = to, b: usize = size);
    cudaFreeHost(pointer: *mut c_void) = cuMemFreeHost(a: *mut c_void = pointer);
    cudaMallocFromPoolAsync(to: *mut u64, size: usize, pool: Handle, stream: Handle) =
        cuMemAllocFromPoolAsync(a: *mut u64 = to, b: usize = size, c: Handle = pool, d: Handle = plain(stream));
    cudaMemPoolTrimTo(pool: Handle, keep: usize) = cuMemPoolTrimTo(a: Handle = pool, b: usize = keep);
    cudaMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void) =
        cuMemPoolSetAttribute(a: Handle = pool, b: c_uint = attribute, c: *mut c_void = value);
    cudaMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void) =
        cuMemPoolGetAttribute(a: Handle = pool, b: c_uint = attribute, c: *mut c_void = value);
}
