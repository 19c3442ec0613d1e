//! Streams and events.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::same;

/// A stream's or an event's handle.
pub type Handle = *mut c_void;

/// A stream as the driver's stand-in knows it (rule `streams`).
pub(crate) fn plain(stream: Handle) -> Handle {
    if matches!(stream.addr(), 1 | 2) { std::ptr::null_mut() } else { stream }
}

same! {
    cudaStreamCreate(to: *mut Handle) = cuStreamCreate(a: *mut Handle = to, b: c_uint = 0);
    cudaStreamCreateWithFlags(to: *mut Handle, flags: c_uint) =
        cuStreamCreate(a: *mut Handle = to, b: c_uint = flags);
    cudaStreamCreateWithPriority(to: *mut Handle, flags: c_uint, _priority: c_int) =
        cuStreamCreate(a: *mut Handle = to, b: c_uint = flags);
    cudaStreamDestroy(stream: Handle) = cuStreamDestroy_v2(a: Handle = stream);
    cudaStreamSynchronize(stream: Handle) = cuStreamSynchronize(a: Handle = plain(stream));
    cudaStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) =
        cuStreamWaitEvent(a: Handle = plain(stream), b: Handle = event, c: c_uint = flags);
    cudaStreamIsCapturing(stream: Handle, status: *mut c_uint) =
        cuStreamIsCapturing(a: Handle = plain(stream), b: *mut c_uint = status);
    cudaEventCreate(to: *mut Handle) = cuEventCreate(a: *mut Handle = to, b: c_uint = 0);
    cudaEventCreateWithFlags(to: *mut Handle, flags: c_uint) =
        cuEventCreate(a: *mut Handle = to, b: c_uint = flags);
    cudaEventRecord(event: Handle, stream: Handle) =
        cuEventRecord(a: Handle = event, b: Handle = plain(stream));
    cudaEventQuery(event: Handle) = cuEventQuery(a: Handle = event);
    cudaEventSynchronize(event: Handle) = cuEventSynchronize(a: Handle = event);
    cudaEventDestroy(event: Handle) = cuEventDestroy_v2(a: Handle = event);
    cudaEventElapsedTime(ms: *mut f32, from: Handle, to: Handle) =
        cuEventElapsedTime_v2(a: *mut f32 = ms, b: Handle = from, c: Handle = to);
}
