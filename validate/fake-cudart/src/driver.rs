//! The driver's library, the context, and the last error.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

pub(crate) const SUCCESS: c_uint = 0;
pub(crate) const INVALID_VALUE: c_uint = 1;
/// `cudaErrorInsufficientDriver`: no driver, or one without a function that is needed.
const INSUFFICIENT_DRIVER: c_uint = 35;
const INVALID_DEVICE: c_uint = 101;

static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
/// By device: its primary context, as a number; 0: not made yet.
static CONTEXTS: Mutex<[usize; DEVICES]> = Mutex::new([0; DEVICES]);
const DEVICES: usize = 16;

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    static LAST: Cell<c_uint> = const { Cell::new(SUCCESS) };
}

/// The address of a function of the driver.
pub(crate) fn find(name: &'static str) -> Option<usize> {
    let open = || {
        // SAFETY: the library of a driver, whose loading runs nothing of ours; it stays loaded to the end
        unsafe { Library::new("libcuda.so.1") }.ok()
    };
    let library = LIBRARY.get_or_init(open).as_ref()?;
    // SAFETY: only the address is taken; who calls it knows the function's shape
    let found = unsafe { library.get::<*const c_void>(name.as_bytes()) };
    found.ok().map(|symbol| symbol.addr())
}

/// A function of the driver, with its shape.
macro_rules! driver {
    ($name:ident($($ty:ty),*)) => {{
        type Shape = unsafe extern "C" fn($($ty),*) -> std::ffi::c_uint;
        static FOUND: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        let found = *FOUND.get_or_init(|| $crate::driver::find(stringify!($name)));
        // SAFETY: the driver's function of this name has this shape, by CUDA's definition
        found.map(|at| unsafe {
            std::mem::transmute::<*const std::ffi::c_void, Shape>(std::ptr::with_exposed_provenance(at))
        }).ok_or($crate::driver::MISSING)
    }};
}
pub(crate) use driver;

pub(crate) const MISSING: c_uint = INSUFFICIENT_DRIVER;

/// A driver's answer as a result.
pub(crate) fn check(code: c_uint) -> Result<(), c_uint> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// The thread's device (rule `device`).
pub(crate) fn device() -> c_int {
    DEVICE.get()
}

/// Changes it.
pub(crate) fn set_device(device: c_int) -> Result<(), c_uint> {
    let mut count = 0;
    let ask = driver!(cuDeviceGetCount(*mut c_int))?;
    // SAFETY: one number is written to a place of ours
    check(unsafe { ask(&raw mut count) })?;
    if !(0..count.min(DEVICES as c_int)).contains(&device) {
        return Err(INVALID_DEVICE);
    }
    DEVICE.set(device);
    Ok(())
}

/// Loads the driver, once.
fn begin() -> Result<(), c_uint> {
    static BEGUN: OnceLock<c_uint> = OnceLock::new();
    let init = || match driver!(cuInit(c_uint)) {
        // SAFETY: takes a number
        Ok(init) => unsafe { init(0) },
        Err(code) => code,
    };
    check(*BEGUN.get_or_init(init))
}

/// Makes the primary context of the thread's device current (rule `lazy`).
fn enter_device() -> Result<(), c_uint> {
    let at = usize::try_from(device()).map_err(|_| INVALID_DEVICE)?;
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = contexts.get_mut(at).ok_or(INVALID_DEVICE)?;
    if *known == 0 {
        let mut context: *mut c_void = std::ptr::null_mut();
        let retain = driver!(cuDevicePrimaryCtxRetain(*mut *mut c_void, c_int))?;
        // SAFETY: one pointer is written to a place of ours
        check(unsafe { retain(&raw mut context, device()) })?;
        *known = context.expose_provenance();
    }
    let set = driver!(cuCtxSetCurrent(*mut c_void))?;
    // SAFETY: the context was retained and is never released
    check(unsafe { set(std::ptr::with_exposed_provenance_mut(*known)) })
}

/// A function that needs no context.
pub(crate) fn enter_bare(act: impl FnOnce() -> Result<(), c_uint>) -> c_uint {
    remember(begin().and_then(|()| act()))
}

/// A function that means the thread's device.
pub(crate) fn enter(act: impl FnOnce() -> Result<(), c_uint>) -> c_uint {
    remember(begin().and_then(|()| enter_device()).and_then(|()| act()))
}

/// Rule `last`.
fn remember(result: Result<(), c_uint>) -> c_uint {
    let code = result.err().unwrap_or(SUCCESS);
    if code != SUCCESS {
        LAST.set(code);
    }
    code
}

/// The thread's last error; `forget`: from now on there is none.
pub(crate) fn last(forget: bool) -> c_uint {
    if forget { LAST.replace(SUCCESS) } else { LAST.get() }
}

/// Exports functions of the runtime. Each body is a closure that answers with a code.
macro_rules! exports {
    ($enter:path; $($name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As CUDA's: pointers are valid for what is written or read through them, or null where CUDA takes null.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_uint {
                $enter(|| $body)
            }
        )*
    };
}
pub(crate) use exports;

/// Exports functions of the runtime that are one call of the driver with these arguments.
macro_rules! same {
    ($($name:ident($($arg:ident: $ty:ty),*) = $driver:ident($($as:ident: $of:ty = $value:expr),*);)*) => {
        $crate::driver::exports! { $crate::driver::enter;
            $($name($($arg: $ty),*) {
                let call = $crate::driver::driver!($driver($($of),*))?;
                $(let $as: $of = $value;)*
                // SAFETY: the driver's function checks what it is given, and what is written goes through the caller's pointers, as CUDA requires
                $crate::driver::check(unsafe { call($($as),*) })
            })*
        }
    };
}
pub(crate) use same;

/// Writes `value` to `to`.
///
/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), c_uint> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, so valid by this function's contract
    unsafe { to.write(value) };
    Ok(())
}
