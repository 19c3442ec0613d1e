//! All that talks to the CUDA driver, through cudarc, which loads it at run time. With `plugin`, the only `unsafe` of this program.
//!
//! | file | holds |
//! |---|---|
//! | `look` | what driver and devices are here |
//! | `calls` | a safe front for each function of the driver that the machine uses |
//! | `families` | the same for pools, virtual memory and managed memory |
//! | `host` | memory of the host that the device reaches |
//! | `kernels` | the kernels that the machine launches, as text for the driver's compiler |
//! | `clock` | the clock of a stand-in driver that has one |
//!
//! | rule | what it says |
//! |---|---|
//! | `present_first` | no call before the library was found: cudarc panics otherwise |
//! | `symbols_first` | no call before its function was found: cudarc looks each up at its first call and panics if it lacks. What every device needs is looked for at the start, a family's functions when the family is asked for |
//! | `no_error_text` | errors are printed by the name in cudarc's enum: asking the driver for its text is one more call that can fail |
//! | `owned` | what the driver gives (streams, events, pools, handles) is a value that cannot be copied and is consumed where it is given back, so that nothing stale is passed |
//!
//! Left out: result codes that cudarc's enum does not list, from a driver newer than the bindings (13.0).

pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod families;
pub(crate) mod host;
pub(crate) mod kernels;
mod look;

pub(crate) use look::{about, begin, families_of, probe};

use cudarc::driver::sys::{self, CUresult};

/// A call that the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The driver's function.
    pub(crate) call: &'static str,
    code: CUresult,
}

impl Refusal {
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    pub(crate) fn is_invalid_value(&self) -> bool {
        matches!(
            self.code,
            CUresult::CUDA_ERROR_INVALID_VALUE
                | CUresult::CUDA_ERROR_INVALID_HANDLE
                | CUresult::CUDA_ERROR_ALREADY_MAPPED
        )
    }

    pub(crate) fn is_not_supported(&self) -> bool {
        self.code == CUresult::CUDA_ERROR_NOT_SUPPORTED
    }

    /// CUDA's name of the error.
    pub(crate) fn error(&self) -> String {
        format!("{:?}", self.code)
    }
}

fn check(call: &'static str, code: CUresult) -> Result<(), Refusal> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Refusal { call, code }),
    }
}

/// What `ask` writes to the place that it is given.
fn get<T>(
    call: &'static str,
    start: T,
    ask: impl FnOnce(*mut T) -> CUresult,
) -> Result<T, Refusal> {
    let mut value = start;
    check(call, ask(&raw mut value))?;
    Ok(value)
}

/// Does the driver's library have this function?
fn has(symbol: &str) -> bool {
    // SAFETY: the library was found, so this does not panic; the pointer is only looked for, never called or kept
    unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()).is_ok() }
}
