//! The log of a scripted machine: one row per call, as in the golden `calls.csv`.

use std::fmt;

use crate::driver::Handle;
use crate::machine::RangeKind;
use crate::units::StreamId;

/// What else a logged call was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// A physical handle: `h3`.
    Handle(Handle),
    /// A stream: `s1`.
    Stream(StreamId),
}

/// One call as the device saw it. Prints as a row of the golden `calls.csv`: `call,segment,offset,size,ref,ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedCall {
    /// CUDA's name.
    pub call: &'static str,
    /// It was done.
    pub ok: bool,
    /// The range: how it was made, and as which of its kind. None for a call about none, or one that failed to make it.
    pub segment: Option<(RangeKind, u32)>,
    /// Bytes from the beginning of the range.
    pub offset: u64,
    /// Bytes: asked, or of the whole range for `cudaFree`, or of the handle.
    pub size: u64,
    /// Handle or stream.
    pub reference: Option<Reference>,
}

impl fmt::Display for LoggedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},", self.call)?;
        match self.segment {
            Some((kind, ordinal)) => write!(f, "{}{ordinal},{},", kind.letter(), self.offset)?,
            None => write!(f, ",,")?,
        }
        write!(f, "{},", self.size)?;
        match self.reference {
            Some(Reference::Handle(handle)) => write!(f, "h{},", handle.0)?,
            Some(Reference::Stream(stream)) => write!(f, "s{stream},")?,
            None => write!(f, ",")?,
        }
        write!(f, "{}", u8::from(self.ok))
    }
}

/// Puts each run of consecutive `cudaEventRecord` calls, and of consecutive `cudaEventSynchronize` calls, into stream order (stable), as the
/// golden logs of PyTorch have them.
pub fn sort_event_runs(log: &mut [LoggedCall]) {
    for run in log.chunk_by_mut(|a, b| a.call == b.call) {
        if matches!(run[0].call, "cudaEventRecord" | "cudaEventSynchronize") {
            run.sort_by_key(|call| call.reference);
        }
    }
}
