//! Why a run ended early.

use crate::allocator::AllocError;
use crate::driver::DriverError;
use crate::kv::KvError;
use crate::source::SourceError;
use crate::units::DeviceId;

/// Why a run ended early. The index is that of the op.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The input is bad.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An op on a buffer that is not live.
    #[error(
        "op {op}: {what} of buffer {name}, which is not live; expected a buffer that was allocated and not freed since"
    )]
    NotLive {
        /// Index.
        op: u64,
        /// Name of the op.
        what: &'static str,
        /// The workload's own number.
        name: u64,
    },
    /// An alloc of a buffer that is live.
    #[error("op {op}: alloc of buffer {name}, which is live already")]
    TwiceLive {
        /// Index.
        op: u64,
        /// The workload's own number.
        name: u64,
    },
    /// An op that names a buffer of another device.
    #[error(
        "op {op}: {what} on device {device} of buffer {name}, which is on device {home}; expected the buffer's own device"
    )]
    OtherDevice {
        /// Index.
        op: u64,
        /// Name of the op.
        what: &'static str,
        /// The workload's own number.
        name: u64,
        /// The op's device.
        device: DeviceId,
        /// The buffer's device.
        home: DeviceId,
    },
    /// An op that names a sequence that it cannot mean.
    #[error("op {op}: {what} of sequence {name}, {wrong}")]
    Sequence {
        /// Index.
        op: u64,
        /// Name of the op.
        what: &'static str,
        /// The workload's own number.
        name: u64,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// There is no such device, or no strategy for it.
    #[error("op {op}: device {device} does not exist; this run has {count}")]
    NoDevice {
        /// Index.
        op: u64,
        /// Which.
        device: DeviceId,
        /// How many there are.
        count: usize,
    },
    /// The strategy refused something other than a request.
    #[error("op {op} ({what}): {error}")]
    Strategy {
        /// Index.
        op: u64,
        /// Name of the op.
        what: &'static str,
        /// Its words.
        error: AllocError,
    },
    /// The cache refused something other than a sequence or its tokens.
    #[error("op {op} ({what}): {error}")]
    Cache {
        /// Index.
        op: u64,
        /// Name of the op.
        what: &'static str,
        /// Its words.
        error: KvError,
    },
    /// The device said something other than out of memory.
    #[error("driver_error at op {op} ({what}): {error}")]
    Driver {
        /// Index.
        op: u64,
        /// Name of the op.
        what: &'static str,
        /// Its words.
        error: DriverError,
    },
    /// The source repeats a step that neither moves time nor succeeds.
    #[error("livelock at op {op}: {steps} steps in a row moved no time and got nothing done")]
    Livelock {
        /// Index.
        op: u64,
        /// How many.
        steps: u64,
    },
}
