//! How a command fails: a message for a person in trouble, and an exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done (an OOM in the simulated run is a result) |
//! | 1 | compared and found different |
//! | 2 | usage |
//! | 3 | bad input (file, line or byte, what was expected) |
//! | 4 | partial results: some inputs were bad, or driver or strategy ended a run |
//! | 5 | an OOM, with `--fail-on-oom` |
//! | 6 | no CUDA device |
//! | 7 | cannot write |

use std::fmt;
use std::process::ExitCode;

/// Exit codes of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Code {
    Done = 0,
    Different = 1,
    Usage = 2,
    BadInput = 3,
    Partial = 4,
    Oom = 5,
    NoDevice = 6,
    CannotWrite = 7,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// How to exit.
    pub code: Code,
    /// What happened, the numbers, what to do.
    pub message: String,
}

impl Failure {
    /// The command line makes no sense.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { code: Code::Usage, message: message.to_string() }
    }

    /// The input is bad.
    pub fn input(message: impl fmt::Display) -> Self {
        Self { code: Code::BadInput, message: message.to_string() }
    }

    /// The output cannot be written.
    pub fn write(path: &std::path::Path, error: &std::io::Error) -> Self {
        let message = format!("cannot write {}: {error}; choose another place", path.display());
        Self { code: Code::CannotWrite, message }
    }

    /// The place can be chosen with this option.
    pub fn with_option(mut self, option: &str) -> Self {
        if self.code == Code::CannotWrite {
            self.message += &format!(" with {option}");
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// What a command gives.
pub type Outcome = Result<Code, Failure>;
