//! A safe front for each function of the driver that the machine uses. Contexts are the caller's: each call means the current one.
//!
//! Addresses are plain numbers, which the driver checks itself; what else it gives is owned (rule `owned`).

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{self, CUresult};

use super::host::HostRange;
use super::{Refusal, check, get, has};

/// What every device needs; all there since CUDA 10.2, which brought the last of them.
pub(crate) const CLASSIC: &[&str] = &[
    "cuCtxSetCurrent",
    "cuCtxGetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuCtxSynchronize",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];
/// Stream-ordered pools, since CUDA 11.2.
const POOLS: &[&str] = &[
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAttribute",
    "cuMemPoolGetAttribute",
    "cuMemPoolTrimTo",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
];
/// Virtual memory management, since CUDA 10.2.
const VMM: &[&str] = &[
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
];
/// Managed memory; the two that take a location are there since CUDA 12.2.
const MANAGED: &[&str] = &["cuMemAllocManaged", "cuMemPrefetchAsync_v2", "cuMemAdvise_v2"];
/// Time between events, since CUDA 12.8 in this form.
const ELAPSED: &str = "cuEventElapsedTime_v2";

/// The first of these functions that the driver lacks.
pub(crate) fn lacks(symbols: &[&'static str]) -> Option<&'static str> {
    symbols.iter().copied().find(|name| !has(name))
}

pub(crate) fn has_pools() -> bool {
    lacks(POOLS).is_none()
}

pub(crate) fn has_vmm() -> bool {
    lacks(VMM).is_none()
}

pub(crate) fn has_managed() -> bool {
    lacks(MANAGED).is_none()
}

pub(crate) fn has_elapsed() -> bool {
    has(ELAPSED)
}

macro_rules! owned {
    ($($(#[$doc:meta])* $name:ident($raw:ty);)*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $name(pub(super) $raw);

            // SAFETY: a name that the driver gave; its functions may be called from any thread
            unsafe impl Send for $name {}
        )*
    };
}

owned! {
    /// A device's primary context, retained.
    Context(sys::CUcontext);
    /// An event.
    Event(sys::CUevent);
    /// A stream-ordered pool.
    Pool(sys::CUmemoryPool);
}

/// A stream: one of ours, which does not wait for the null stream, or another's.
pub(crate) struct Stream {
    handle: sys::CUstream,
    /// Someone else made it and ends it.
    foreign: bool,
}

// SAFETY: a name that the driver gave; its functions may be called from any thread
unsafe impl Send for Stream {}

/// A physical allocation.
pub(crate) struct Physical {
    pub(super) handle: sys::CUmemGenericAllocationHandle,
    pub(super) size: u64,
}

impl Stream {
    pub(super) fn raw(&self) -> sys::CUstream {
        self.handle
    }

    /// A stream that someone else made and ends; 0 is the null stream.
    pub(crate) fn foreign(handle: usize) -> Self {
        Self { handle: std::ptr::with_exposed_provenance_mut(handle), foreign: true }
    }

    /// As others know it.
    pub(crate) fn handle(&self) -> usize {
        self.handle.expose_provenance()
    }
}

impl Physical {
    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

/// Retains the primary context of a device and makes it current.
pub(crate) fn context(device: c_int) -> Result<Context, Refusal> {
    // SAFETY: the symbol was found at the start; one handle is written
    let handle = get("cuDeviceGet", 0, |to| unsafe { sys::cuDeviceGet(to, device) })?;
    let context = get("cuDevicePrimaryCtxRetain", std::ptr::null_mut(), |to| {
        // SAFETY: the symbol was found, the device comes from cuDeviceGet, and one pointer is written
        unsafe { sys::cuDevicePrimaryCtxRetain(to, handle) }
    })?;
    let context = Context(context);
    make_current(&context)?;
    Ok(context)
}

/// Makes a context the current one of this thread.
pub(crate) fn make_current(context: &Context) -> Result<(), Refusal> {
    // SAFETY: the symbol was found, and a retained context is live
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context.0) })
}

/// The context of this thread, whosever it is, and its capture mode; to be handed back to `put_back`.
pub(crate) struct Before(sys::CUcontext, sys::CUstreamCaptureMode);

/// What is current on this thread, whose capture mode is relaxed from here on: while a stream is captured in another mode, a call that asks for memory
/// would be refused and end the capture.
pub(crate) fn current() -> Result<Before, Refusal> {
    // SAFETY: the symbol was found; one pointer is written
    let got =
        get("cuCtxGetCurrent", std::ptr::null_mut(), |to| unsafe { sys::cuCtxGetCurrent(to) })?;
    let mode = exchange_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    Ok(Before(got, mode))
}

/// Makes it current again.
pub(crate) fn put_back(before: Before) -> Result<(), Refusal> {
    let mode = exchange_mode(before.1);
    // SAFETY: the symbol was found; it was current a moment ago, and its owner waits for this call to return
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(before.0) })?;
    mode.map(drop)
}

/// Gives this thread a capture mode: the former one.
fn exchange_mode(mode: sys::CUstreamCaptureMode) -> Result<sys::CUstreamCaptureMode, Refusal> {
    get("cuThreadExchangeStreamCaptureMode", mode, |to| {
        // SAFETY: the symbol was found; one mode is read and written, and the driver knows no others than the enum
        unsafe { sys::cuThreadExchangeStreamCaptureMode(to) }
    })
}

/// Releases a device's primary context, in which nothing may be left.
pub(crate) fn release(device: c_int, _context: Context) -> Result<(), Refusal> {
    // SAFETY: the symbols were found; a null context makes none current, and the release matches the retain of the context that ends here
    unsafe {
        sys::cuCtxSetCurrent(std::ptr::null_mut());
        let handle = get("cuDeviceGet", 0, |to| sys::cuDeviceGet(to, device))?;
        check("cuDevicePrimaryCtxRelease_v2", sys::cuDevicePrimaryCtxRelease_v2(handle))
    }
}

/// Free and total bytes.
pub(crate) fn mem_info() -> Result<(u64, u64), Refusal> {
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: the symbol was found, and two sizes are written
    check("cuMemGetInfo_v2", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok((free as u64, total as u64))
}

/// Device memory (`cudaMalloc`).
pub(crate) fn malloc(size: u64) -> Result<u64, Refusal> {
    // SAFETY: the symbol was found; one value is written, and the driver checks the rest
    let got = get("cuMemAlloc_v2", 0, |to| unsafe { sys::cuMemAlloc_v2(to, size as usize) })?;
    Ok(got)
}

/// Gives it back; waits for the device (`cudaFree`).
pub(crate) fn free(address: u64) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; the driver checks the rest
    check("cuMemFree_v2", unsafe { sys::cuMemFree_v2(address) })
}

/// Waits for the device.
pub(crate) fn synchronize() -> Result<(), Refusal> {
    // SAFETY: the symbol was found
    check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
}

/// A new stream.
pub(crate) fn stream_create() -> Result<Stream, Refusal> {
    // SAFETY: the symbol was found; one value is written, and the driver checks the rest
    let got = get("cuStreamCreate", std::ptr::null_mut(), |to| unsafe {
        sys::cuStreamCreate(to, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint)
    })?;
    Ok(Stream { handle: got, foreign: false })
}

/// Ends a stream, if it is ours.
pub(crate) fn stream_destroy(stream: Stream) -> Result<(), Refusal> {
    if stream.foreign {
        return Ok(());
    }
    // SAFETY: the symbol was found; the stream's only owner ends here
    check("cuStreamDestroy_v2", unsafe { sys::cuStreamDestroy_v2(stream.handle) })
}

/// Waits for a stream.
pub(crate) fn stream_synchronize(stream: &Stream) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; what is passed is live
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.handle) })
}

/// Later work of the stream waits for the event.
pub(crate) fn stream_wait(stream: &Stream, event: &Event) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; what is passed is live
    check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream.handle, event.0, 0) })
}

/// Is the stream being captured?
pub(crate) fn is_capturing(stream: &Stream) -> Result<bool, Refusal> {
    let idle = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let status = get("cuStreamIsCapturing", idle, |to| {
        // SAFETY: the symbol was found, the stream is live, and one status is written
        unsafe { sys::cuStreamIsCapturing(stream.handle, to) }
    })?;
    Ok(status != idle)
}

/// A new event.
pub(crate) fn event_create() -> Result<Event, Refusal> {
    // SAFETY: the symbol was found; one value is written, and the driver checks the rest
    let got = get("cuEventCreate", std::ptr::null_mut(), |to| unsafe {
        sys::cuEventCreate(to, sys::CUevent_flags::CU_EVENT_DEFAULT as c_uint)
    })?;
    Ok(Event(got))
}

/// Ends an event.
pub(crate) fn event_destroy(event: Event) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; the event's only owner ends here
    check("cuEventDestroy_v2", unsafe { sys::cuEventDestroy_v2(event.0) })
}

/// Marks the present end of the stream's queue.
pub(crate) fn event_record(event: &Event, stream: &Stream) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; what is passed is live
    check("cuEventRecord", unsafe { sys::cuEventRecord(event.0, stream.handle) })
}

/// Waits for an event.
pub(crate) fn event_synchronize(event: &Event) -> Result<(), Refusal> {
    // SAFETY: the symbol was found; what is passed is live
    check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event.0) })
}

/// Has its stream passed the event?
pub(crate) fn event_query(event: &Event) -> Result<bool, Refusal> {
    // SAFETY: the symbol was found; what is passed is live
    match unsafe { sys::cuEventQuery(event.0) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        code => check("cuEventQuery", code).map(|()| true),
    }
}

/// ms from one event to another; `None` unless both are complete.
pub(crate) fn event_elapsed(from: &Event, to: &Event) -> Result<Option<f32>, Refusal> {
    let mut ms = 0_f32;
    // SAFETY: the caller looked for the symbol; the events are live, and one number is written
    match unsafe { sys::cuEventElapsedTime_v2(&raw mut ms, from.0, to.0) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(None),
        code => check(ELAPSED, code).map(|()| Some(ms)),
    }
}

/// One end of a copy on the host: a range and the bytes before it.
pub(crate) type HostEnd<'a> = (&'a HostRange, u64);

/// Queues a copy from the host. `false`: it reaches beyond the range.
pub(crate) fn copy_in(
    to: u64,
    from: HostEnd<'_>,
    size: usize,
    stream: &Stream,
) -> Result<bool, Refusal> {
    let Some(from) = from.0.at(from.1, size) else { return Ok(false) };
    // SAFETY: the symbol was found; the range has so many bytes, and is given back only after the device was waited for
    let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, size, stream.handle) };
    check("cuMemcpyHtoDAsync_v2", code).map(|()| true)
}

/// Queues a copy to the host. `false`: it reaches beyond the range.
pub(crate) fn copy_out(
    to: HostEnd<'_>,
    from: u64,
    size: usize,
    stream: &Stream,
) -> Result<bool, Refusal> {
    let Some(to) = to.0.at(to.1, size) else { return Ok(false) };
    // SAFETY: as for copy_in; nobody else writes there meanwhile but by other queued copies
    let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, size, stream.handle) };
    check("cuMemcpyDtoHAsync_v2", code).map(|()| true)
}

/// Queues a copy within the device.
pub(crate) fn copy_within(to: u64, from: u64, size: usize, stream: &Stream) -> Result<(), Refusal> {
    // SAFETY: the symbol was found, the stream is live, and the driver checks device addresses
    check("cuMemcpyDtoDAsync_v2", unsafe {
        sys::cuMemcpyDtoDAsync_v2(to, from, size, stream.handle)
    })
}
