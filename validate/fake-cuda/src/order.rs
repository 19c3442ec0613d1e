//! Streams and events.

use std::ffi::{c_uint, c_void};

use vramlab_sim::driver::{Answer, Call};
use vramlab_sim::units::EventId;

use crate::enter::{Code, enter_device, exports, put};
use crate::fake::{Fake, Kind, stream};

/// An event's handle is its number plus 1.
fn event(fake: &mut Fake, handle: *mut c_void) -> Result<EventId, Code> {
    let number = handle.addr().checked_sub(1).and_then(|number| u32::try_from(number).ok());
    number.map(EventId).ok_or_else(|| fake.misused("a null event"))
}

/// A stream that was made, or the null stream.
fn known(fake: &mut Fake, function: &str, handle: *mut c_void) -> Result<(), Code> {
    let key = (fake.device(), Kind::Stream, handle.addr() as u64);
    if handle.is_null() || fake.live.contains_key(&key) {
        return Ok(());
    }
    Err(fake.misused(format!("{function}: stream {:#x} is none of this device", handle.addr())))
}

exports! { enter_device;
    cuStreamCreate(to: *mut *mut c_void, _flags: c_uint) |fake| {
        let Answer::Stream(stream) = fake.call(Call::StreamCreate)? else {
            return Err(Code::UNKNOWN);
        };
        fake.made(Kind::Stream, stream.0.into(), 0);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, std::ptr::without_provenance_mut(stream.0 as usize)) }
    };
    cuStreamDestroy_v2(handle: *mut c_void) |fake| {
        fake.gone("cuStreamDestroy_v2", Kind::Stream, handle.addr() as u64).map(drop)
    };
    cuStreamSynchronize(handle: *mut c_void) |fake| {
        known(fake, "cuStreamSynchronize", handle)?;
        fake.call(Call::StreamSynchronize { stream: stream(handle) }).map(drop)
    };
    cuStreamWaitEvent(handle: *mut c_void, of: *mut c_void, _flags: c_uint) |fake| {
        known(fake, "cuStreamWaitEvent", handle)?;
        let event = event(fake, of)?;
        fake.call(Call::WaitEvent { stream: stream(handle), event }).map(drop)
    };
    cuStreamIsCapturing(handle: *mut c_void, status: *mut c_uint) |fake| {
        known(fake, "cuStreamIsCapturing", handle)?;
        let captured = fake.call(Call::CaptureStatus { stream: stream(handle) })?;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(status, c_uint::from(captured == Answer::Flag(true))) }
    };
    cuEventCreate(to: *mut *mut c_void, _flags: c_uint) |fake| {
        let Answer::Event(event) = fake.call(Call::EventCreate)? else { return Err(Code::UNKNOWN) };
        let handle = event.0 as usize + 1;
        fake.made(Kind::Event, handle as u64, 0);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(to, std::ptr::without_provenance_mut(handle)) }
    };
    cuEventDestroy_v2(handle: *mut c_void) |fake| {
        let event = event(fake, handle)?;
        // events are the machine's, whatever device is current
        let number = handle.addr() as u64;
        fake.live.retain(|(_, kind, of), _| *kind != Kind::Event || *of != number);
        fake.call(Call::EventDestroy { event }).map(drop)
    };
    cuEventRecord(of: *mut c_void, handle: *mut c_void) |fake| {
        known(fake, "cuEventRecord", handle)?;
        let event = event(fake, of)?;
        fake.call(Call::EventRecord { event, stream: stream(handle) }).map(drop)
    };
    cuEventQuery(of: *mut c_void) |fake| {
        let event = event(fake, of)?;
        match fake.call(Call::EventQuery { event })? {
            Answer::Flag(true) => Ok(()),
            _ => Err(Code::NOT_READY),
        }
    };
    cuEventSynchronize(of: *mut c_void) |fake| {
        let event = event(fake, of)?;
        fake.call(Call::EventSynchronize { event }).map(drop)
    };
    cuEventElapsedTime_v2(ms: *mut f32, from: *mut c_void, to: *mut c_void) |fake| {
        let (from, to) = (event(fake, from)?, event(fake, to)?);
        let Answer::Value(ns) = fake.call(Call::EventElapsed { from, to })? else {
            return Err(Code::UNKNOWN);
        };
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(ms, (ns as f64 / 1e6) as f32) }
    };
}
