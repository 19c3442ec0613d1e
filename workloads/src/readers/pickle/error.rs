//! What can be wrong with a pickle, and where.

use std::fmt;

/// The class of a problem, for programs; the text of [`Error`] is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// An opcode that would import, call or build something, or that asks for an outside object.
    Code,
    /// A byte that is no opcode, or an opcode of a protocol above 5.
    Opcode,
    /// The data ends before the value does.
    Truncated,
    /// A declared length that is negative or larger than what is left.
    Length,
    /// A memo entry that was never stored, or is stored twice.
    Memo,
    /// An opcode that needs more on the stack, or something else there.
    Stack,
    /// Text of a number or string that cannot be read.
    Text,
    /// More memory, depth or length than [`Limits`](super::Limits) allows.
    Limit,
    /// A part of a value that the receiver cannot take.
    Value,
    /// The underlying reader failed.
    Io,
}

/// A pickle that cannot be read: where, what was found, what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    offset: u64,
    problem: Problem,
    found: String,
    expected: String,
}

/// Short form used inside this module.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `offset` in bytes of the (decompressed) pickle.
    #[cold]
    pub fn new(
        offset: u64,
        problem: Problem,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        Error(Box::new(Parts { offset, problem, found: found.into(), expected: expected.into() }))
    }

    /// Byte of the decompressed pickle at which the opcode in question begins.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// The class of the problem.
    pub fn problem(&self) -> Problem {
        self.0.problem
    }

    /// What stands there.
    pub fn found(&self) -> &str {
        &self.0.found
    }

    /// What should stand there.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { offset, found, expected, .. } = &*self.0;
        write!(f, "byte {offset}: found {found}, expected {expected}")
    }
}

impl std::error::Error for Error {}
