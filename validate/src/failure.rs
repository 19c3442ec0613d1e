//! How a command fails: a message for a person in trouble, and an exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | compared and found different |
//! | 2 | usage |
//! | 3 | bad input |
//! | 4 | stopped, or a run that driver or strategy ended |
//! | 6 | no CUDA driver, or no device that it can use |
//! | 7 | cannot write |

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crate::probe::Trouble;

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Done = 0,
    Different = 1,
    Usage = 2,
    BadInput = 3,
    Partial = 4,
    NoDevice = 6,
    CannotWrite = 7,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        (code as u8).into()
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn input(message: impl fmt::Display) -> Self {
        Self::new(Code::BadInput, message)
    }

    pub(crate) fn write(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("cannot write {}: {error}; choose another place", path.display());
        Self::new(Code::CannotWrite, message)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self::new(Code::NoDevice, trouble)
    }
}

/// What a command gives.
pub(crate) type Outcome = Result<Code, Failure>;
