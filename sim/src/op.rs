//! The ops: the one language between workloads and everything else.
//!
//! An [`Op`] is 24 bytes and holds no text: names and lists of uses stay with the [`crate::source::Source`] that yields it. The text form
//! is described in [`crate::trace`]. Sizes are bytes, times nanoseconds.

use crate::machine::Direction;
use crate::units::{BufferId, DeviceId, EventId, PoolId, SequenceId, StreamId};

/// A number for a site or a name, kept by the source; 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// One op. The machine's current device is the one meant; [`Op::Device`] changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are described by the op's line
pub enum Op {
    /// Ask for `size` bytes for use on `stream`. An id is live at most once at a time.
    Alloc { id: BufferId, stream: StreamId, site: NameId, size: u64 },
    /// The host drops the buffer; with a stream, ordered in it.
    Free { id: BufferId, stream: Option<StreamId> },
    /// The host drops the buffer, but unseen device work still uses it until `FreeCompleted`.
    FreeDeferred { id: BufferId },
    /// A deferred free ended here.
    FreeCompleted { id: BufferId },
    /// Grow or shrink, in place or by moving.
    Realloc { id: BufferId, size: u64 },
    /// The buffer is also used on `stream`.
    RecordStream { id: BufferId, stream: StreamId },
    /// Queue `duration` ns of work; the buffers it uses are [`crate::source::Source::uses`].
    Work { stream: StreamId, duration: u64 },
    /// Queue a transfer.
    Copy { stream: StreamId, direction: Direction, bytes: u64 },
    /// Access `bytes` (0: all from the offset on) of a buffer, from the place that [`crate::source::Source::touch`] gives.
    Touch { id: BufferId },
    /// Record an event on a stream (the workload's own number).
    Event { event: EventId, stream: StreamId },
    /// Make a stream wait for an event.
    Wait { event: EventId, stream: StreamId },
    /// The host waits for a stream, or for the device.
    Sync { stream: Option<StreamId> },
    /// Give unused cached memory back.
    EmptyCache,
    /// Give unused memory above `keep` bytes back.
    Trim { keep: u64 },
    /// Requests of `stream` go to a private pool.
    PoolBegin { pool: PoolId, stream: StreamId },
    /// Routing to the pool ends.
    PoolEnd { pool: PoolId },
    /// One use of the pool less.
    PoolRelease { pool: PoolId },
    /// A graph capture begins.
    CaptureBegin { stream: StreamId },
    /// A graph capture ends.
    CaptureEnd { stream: StreamId },
    /// A new sequence of a cache; what it asks for is [`crate::source::Source::kv`].
    KvNew { seq: SequenceId },
    /// Further tokens of a sequence; how many and which is [`crate::source::Source::kv`].
    KvMore { seq: SequenceId },
    /// A new sequence with the tokens of a live one.
    KvFork { seq: SequenceId, from: SequenceId },
    /// A sequence ends.
    KvFree { seq: SequenceId },
    /// A setting changes; key and value are [`crate::source::Source::text`] of the two names.
    Set { key: NameId, value: NameId },
    /// A served request arrives.
    Request { req: u64 },
    /// A served request is answered.
    Response { req: u64 },
    /// Step or phase boundary.
    Mark { name: NameId },
    /// Later ops mean this device.
    Device { device: DeviceId },
    /// Later ops are issued by this host thread.
    Thread { thread: u32 },
}

const _: () =
    assert!(size_of::<Op>() <= 24, "an op is walked by the million: it stays within 24 bytes");

impl Op {
    /// Does nothing itself, but says what later ops mean? Such an op has no number.
    pub const fn is_setting(&self) -> bool {
        matches!(self, Op::Device { .. } | Op::Thread { .. })
    }

    /// The op's name in the text form.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Alloc { .. } => "alloc",
            Op::Free { .. } | Op::FreeDeferred { .. } => "free",
            Op::FreeCompleted { .. } => "free_completed",
            Op::Realloc { .. } => "realloc",
            Op::RecordStream { .. } => "record_stream",
            Op::Work { .. } => "work",
            Op::Copy { .. } => "copy",
            Op::Touch { .. } => "touch",
            Op::Event { .. } => "event",
            Op::Wait { .. } => "wait",
            Op::Sync { .. } => "sync",
            Op::EmptyCache => "empty_cache",
            Op::Trim { .. } => "trim",
            Op::PoolBegin { .. } => "pool_begin",
            Op::PoolEnd { .. } => "pool_end",
            Op::PoolRelease { .. } => "pool_release",
            Op::CaptureBegin { .. } => "capture_begin",
            Op::CaptureEnd { .. } => "capture_end",
            Op::KvNew { .. } => "kv_new",
            Op::KvMore { .. } => "kv_more",
            Op::KvFork { .. } => "kv_fork",
            Op::KvFree { .. } => "kv_free",
            Op::Set { .. } => "set",
            Op::Request { .. } => "request",
            Op::Response { .. } => "response",
            Op::Mark { .. } => "mark",
            Op::Device { .. } => "device",
            Op::Thread { .. } => "thread",
        }
    }
}

/// A buffer that a piece of work uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferUse {
    /// Which.
    pub id: BufferId,
    /// Written, not only read.
    pub write: bool,
}

/// What a `touch` reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchRange {
    /// Bytes from the buffer's beginning.
    pub offset: u64,
    /// Bytes; 0 means to the buffer's end.
    pub bytes: u64,
    /// Written, not only read.
    pub write: bool,
    /// By the host, not by the device.
    pub by_host: bool,
    /// The stream in whose order a device does it.
    pub stream: StreamId,
}
