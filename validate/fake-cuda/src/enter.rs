//! How each function comes in: one lock, the current device, faults on cue, the price of the call.

use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vramlab_sim::driver::DriverError;

use crate::fake::Fake;

/// A result code of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_uint);

impl Code {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const UNKNOWN: Self = Self(999);
}

impl From<&DriverError> for Code {
    fn from(error: &DriverError) -> Self {
        match error {
            DriverError::OutOfMemory { .. } => Self::OUT_OF_MEMORY,
            DriverError::NotSupported { .. } => Self::NOT_SUPPORTED,
            DriverError::InvalidValue { .. } => Self::INVALID_VALUE,
            // the one that the simulated machine has
            DriverError::Failed { .. } => Self::NOT_READY,
        }
    }
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);

thread_local! {
    /// The device of the current context.
    static CURRENT: Cell<Option<u16>> = const { Cell::new(None) };
    /// Which calls would end a capture: 0 any thread's, as a driver begins, 1 its own, 2 none.
    static CAPTURE_MODE: Cell<c_uint> = const { Cell::new(0) };
}

/// Gives the thread a capture mode: the former one.
pub(crate) fn exchange_mode(mode: c_uint) -> c_uint {
    CAPTURE_MODE.replace(mode)
}

pub(crate) fn current() -> Option<u16> {
    CURRENT.get()
}

pub(crate) fn set_current(device: Option<u16>) {
    CURRENT.set(device);
}

pub(crate) fn lock() -> MutexGuard<'static, Option<Fake>> {
    FAKE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(result: Result<(), Code>) -> c_uint {
    result.map_or_else(|code| code.0, |()| 0)
}

/// A function that needs no context.
pub(crate) fn enter(
    function: &'static str,
    act: impl FnOnce(&mut Fake) -> Result<(), Code>,
) -> c_uint {
    let mut lock = lock();
    let Some(fake) = lock.as_mut() else { return Code::NOT_INITIALIZED.0 };
    answer(fake.settings.faults.called(function).and_then(|()| act(fake)))
}

/// A function that means the device of the current context, and takes time.
pub(crate) fn enter_device(
    function: &'static str,
    act: impl FnOnce(&mut Fake) -> Result<(), Code>,
) -> c_uint {
    enter(function, |fake| {
        let device = current().ok_or(Code::INVALID_CONTEXT)?;
        fake.select(device)?;
        let start = fake.begins();
        let done = act(fake);
        fake.ends(function, start);
        done
    })
}

/// Writes `value` to `to`.
///
/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid by this function's contract
    unsafe { to.write(value) };
    Ok(())
}

/// Exports functions of CUDA. Each body is a closure over the fake, which answers with a code.
macro_rules! exports {
    ($enter:path; $($name:ident($($arg:ident: $ty:ty),*) $body:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As CUDA's: pointers are valid for what is written or read through them, or null where CUDA takes null.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_uint {
                $enter(stringify!($name), $body)
            }
        )*
    };
}
pub(crate) use exports;
