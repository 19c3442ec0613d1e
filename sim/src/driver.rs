//! The seam below a strategy: what the CUDA driver offers, and no more.
//!
//! One entry, [`Driver::call`], so that a meter, a log or a failure on cue is one body each; [`DriverExt`] gives each call its
//! typed front. A family that a device lacks is declared by [`Driver::families`] and answered with [`DriverError::NotSupported`].
//! Sizes and addresses are bytes.

use crate::machine::Direction;
use crate::units::{Bytes, EventId, PoolId, StreamId};

/// A device address in bytes. Address 0 is never given out.
pub type Address = u64;

/// A physical allocation made by [`Call::Create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// The device's default pool, which is there without being made.
pub const DEFAULT_POOL: PoolId = PoolId(0);

/// Attributes of a stream-ordered pool (CUDA driver API, `CUmemPool_attribute`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAttribute {
    /// Bytes the pool keeps at a synchronisation; what is above goes back to the device.
    ReleaseThreshold,
    /// Reuse memory freed on another stream that the asking stream already depends on (0 or 1).
    ReuseFollowEventDependencies,
    /// Reuse memory whose free has already completed (0 or 1).
    ReuseAllowOpportunistic,
    /// Let the driver insert a wait to reuse another stream's memory (0 or 1).
    ReuseAllowInternalDependencies,
    /// Bytes that the pool holds from the device (read only).
    ReservedCurrent,
    /// Highest value of the above (may be set to 0).
    ReservedHigh,
    /// Bytes handed out (read only).
    UsedCurrent,
    /// Highest value of the above (may be set to 0).
    UsedHigh,
}

/// Where managed memory should go or live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The current device.
    Device,
    /// Host memory.
    Host,
}

/// Advice on managed memory (`cuMemAdvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Mostly read: keep copies on both sides.
    ReadMostly(bool),
    /// Preferred location.
    Preferred(Option<Place>),
    /// Keep it mapped for this place.
    AccessedBy(Place, bool),
}

/// One call to the driver, on the machine's current device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are what CUDA's functions of these names take
pub enum Call {
    // classic: cudaMalloc, cudaFree (waits for the device)
    Malloc { size: u64 },
    Free { address: Address },
    // stream-ordered pools
    PoolCreate,
    PoolDestroy { pool: PoolId },
    PoolSet { pool: PoolId, attribute: PoolAttribute, value: u64 },
    PoolGet { pool: PoolId, attribute: PoolAttribute },
    PoolTrim { pool: PoolId, keep: u64 },
    MallocAsync { pool: PoolId, size: u64, stream: StreamId },
    FreeAsync { address: Address, stream: StreamId },
    // virtual memory
    Reserve { size: u64 },
    Unreserve { address: Address },
    Create { size: u64 },
    Map { address: Address, handle: Handle },
    SetAccess { address: Address, size: u64 },
    Unmap { address: Address, size: u64 },
    Release { handle: Handle },
    // managed memory
    MallocManaged { size: u64 },
    Prefetch { address: Address, size: u64, to: Place, stream: StreamId },
    Advise { address: Address, size: u64, advice: Advice },
    // host memory
    MallocHost { size: u64, pinned: bool },
    FreeHost { address: Address },
    // streams and events
    StreamCreate,
    CaptureStatus { stream: StreamId },
    WaitEvent { stream: StreamId, event: EventId },
    StreamSynchronize { stream: StreamId },
    DeviceSynchronize,
    EventCreate,
    EventRecord { event: EventId, stream: StreamId },
    EventQuery { event: EventId },
    EventSynchronize { event: EventId },
    EventDestroy { event: EventId },
    // memory info
    MemInfo,
    // copies, in stream order: within and between device and host memory; between host memory and a file (cuFile), which is the run's own
    Copy { from: Address, to: Address, size: u64, direction: Direction, stream: StreamId },
    FileRead { offset: u64, to: Address, size: u64, stream: StreamId },
    FileWrite { from: Address, offset: u64, size: u64, stream: StreamId },
    // a kernel of the strategy's own, which takes `duration` ns
    Launch { stream: StreamId, duration: u64 },
    // ns from one event to a later one, both complete
    EventElapsed { from: EventId, to: EventId },
}

/// Number of kinds of [`Call`].
pub const CALL_KINDS: usize = 37;

impl Call {
    /// CUDA's name of the function, for logs, counts and messages.
    pub const fn name(&self) -> &'static str {
        CALL_NAMES[self.kind()]
    }

    /// Dense number of the kind, below [`CALL_KINDS`]; indexes [`CALL_NAMES`].
    pub const fn kind(&self) -> usize {
        match self {
            Call::Malloc { .. } => 0,
            Call::Free { .. } => 1,
            Call::PoolCreate => 2,
            Call::PoolDestroy { .. } => 3,
            Call::PoolSet { .. } => 4,
            Call::PoolGet { .. } => 5,
            Call::PoolTrim { .. } => 6,
            Call::MallocAsync { .. } => 7,
            Call::FreeAsync { .. } => 8,
            Call::Reserve { .. } => 9,
            Call::Unreserve { .. } => 10,
            Call::Create { .. } => 11,
            Call::Map { .. } => 12,
            Call::SetAccess { .. } => 13,
            Call::Unmap { .. } => 14,
            Call::Release { .. } => 15,
            Call::MallocManaged { .. } => 16,
            Call::Prefetch { .. } => 17,
            Call::Advise { .. } => 18,
            Call::MallocHost { .. } => 19,
            Call::FreeHost { .. } => 20,
            Call::StreamCreate => 21,
            Call::CaptureStatus { .. } => 22,
            Call::WaitEvent { .. } => 23,
            Call::StreamSynchronize { .. } => 24,
            Call::DeviceSynchronize => 25,
            Call::EventCreate => 26,
            Call::EventRecord { .. } => 27,
            Call::EventQuery { .. } => 28,
            Call::EventSynchronize { .. } => 29,
            Call::EventDestroy { .. } => 30,
            Call::MemInfo => 31,
            Call::Copy { .. } => 32,
            Call::FileRead { .. } => 33,
            Call::FileWrite { .. } => 34,
            Call::Launch { .. } => 35,
            Call::EventElapsed { .. } => 36,
        }
    }
}

/// CUDA's names, indexed by [`Call::kind`].
pub const CALL_NAMES: [&str; CALL_KINDS] = [
    "cudaMalloc",
    "cudaFree",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolGetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMallocAsync",
    "cudaFreeAsync",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cudaMallocManaged",
    "cudaMemPrefetchAsync",
    "cudaMemAdvise",
    "cudaMallocHost",
    "cudaFreeHost",
    "cudaStreamCreate",
    "cudaStreamIsCapturing",
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventCreate",
    "cudaEventRecord",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaEventDestroy",
    "cudaMemGetInfo",
    "cudaMemcpyAsync",
    "cuFileReadAsync",
    "cuFileWriteAsync",
    "cudaLaunchKernel",
    "cudaEventElapsedTime",
];

/// CUDA's names of the calls that give, take or map memory, or make, trim and end a pool of it: what a strategy spares a program. The others
/// ask, wait, order or move bytes, and a workload makes them too.
pub const MEMORY_CALLS: [&str; 17] = [
    "cudaMalloc",
    "cudaFree",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolTrimTo",
    "cudaMallocAsync",
    "cudaFreeAsync",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cudaMallocManaged",
    "cudaMallocHost",
    "cudaFreeHost",
];

/// What a call gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done, there is nothing to say.
    Done,
    /// A new range.
    Address(Address),
    /// A new physical allocation.
    Handle(Handle),
    /// A new pool.
    Pool(PoolId),
    /// A new stream.
    Stream(StreamId),
    /// A new event.
    Event(EventId),
    /// Is the event complete? Is the stream capturing?
    Flag(bool),
    /// An attribute, or ns between events.
    Value(u64),
    /// Memory info: free and total bytes of the device.
    Info {
        /// Bytes that a request could get.
        free: u64,
        /// Bytes of the device.
        total: u64,
    },
}

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The device has no such room. The one error that is an answer; all others end a run.
    #[error("out of device memory: asked {}, {} free", Bytes(*asked), Bytes(*free))]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the device had free.
        free: u64,
    },
    /// This device has no such family of calls.
    #[error("{call} is not supported by this device")]
    NotSupported {
        /// Name of the call.
        call: &'static str,
    },
    /// The call makes no sense: an unknown address, a size of 0, a handle mapped twice…
    #[error("{call}: invalid value: {what}")]
    InvalidValue {
        /// Name of the call.
        call: &'static str,
        /// What was found, and what was expected.
        what: Box<str>,
    },
    /// Anything else that a real driver may say.
    #[error("{call} failed: {what}")]
    Failed {
        /// Name of the call.
        call: &'static str,
        /// The driver's own words.
        what: Box<str>,
    },
}

/// Families of calls that a device may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// Stream-ordered pools.
    pub pools: bool,
    /// Virtual memory: reserve, create, map.
    pub vmm: bool,
    /// Managed memory.
    pub managed: bool,
    /// Host memory.
    pub host: bool,
    /// Stream-ordered reads and writes of a file.
    pub files: bool,
}

impl Families {
    /// Everything.
    pub const ALL: Self = Self { pools: true, vmm: true, managed: true, host: true, files: true };
    /// Malloc and free, copies, streams and events only.
    pub const CLASSIC: Self =
        Self { pools: false, vmm: false, managed: false, host: false, files: false };
}

/// The seam below a strategy.
pub trait Driver: Send {
    /// Does what CUDA's function of that name does, on the current device.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] when there is no room, other kinds when the call itself is wrong. A refused call changes nothing.
    fn call(&mut self, call: Call) -> Result<Answer, DriverError>;

    /// What this device has.
    fn families(&self) -> Families;
}

macro_rules! fronts {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $call:expr, $pattern:pat => $value:expr;)*) => {
        /// A typed front for each call. The errors are those of [`Driver::call`].
        #[allow(clippy::missing_errors_doc)]
        pub trait DriverExt: Driver {
            $(
                $(#[$doc])*
                fn $name(&mut self, $($arg: $ty),*) -> Result<$out, DriverError> {
                    let call = $call;
                    match self.call(call)? {
                        $pattern => Ok($value),
                        #[allow(unreachable_patterns)]
                        other => Err(DriverError::Failed { call: call.name(), what: format!("answered {other:?}").into() }),
                    }
                }
            )*
        }
    };
}

fronts! {
    /// A new range of `size` bytes.
    fn malloc(size: u64) -> Address = Call::Malloc { size }, Answer::Address(a) => a;
    /// Waits for the device, then gives the range back.
    fn free(address: Address) -> () = Call::Free { address }, Answer::Done => ();
    /// A new stream-ordered pool with CUDA's default attributes.
    fn pool_create() -> PoolId = Call::PoolCreate, Answer::Pool(p) => p;
    /// Ends a pool; what it holds goes back once its last range is freed.
    fn pool_destroy(pool: PoolId) -> () = Call::PoolDestroy { pool }, Answer::Done => ();
    /// Sets an attribute.
    fn pool_set(pool: PoolId, attribute: PoolAttribute, value: u64) -> () = Call::PoolSet { pool, attribute, value }, Answer::Done => ();
    /// Reads an attribute.
    fn pool_get(pool: PoolId, attribute: PoolAttribute) -> u64 = Call::PoolGet { pool, attribute }, Answer::Value(v) => v;
    /// Gives unused memory above `keep` bytes back.
    fn pool_trim(pool: PoolId, keep: u64) -> () = Call::PoolTrim { pool, keep }, Answer::Done => ();
    /// A range from a pool, usable in stream order.
    fn malloc_async(pool: PoolId, size: u64, stream: StreamId) -> Address = Call::MallocAsync { pool, size, stream }, Answer::Address(a) => a;
    /// Gives a range back to its pool, in stream order.
    fn free_async(address: Address, stream: StreamId) -> () = Call::FreeAsync { address, stream }, Answer::Done => ();
    /// A new range of addresses without memory.
    fn reserve(size: u64) -> Address = Call::Reserve { size }, Answer::Address(a) => a;
    /// Ends a range of addresses; nothing may be mapped in it.
    fn unreserve(address: Address) -> () = Call::Unreserve { address }, Answer::Done => ();
    /// A new physical allocation; `size` is a multiple of the granule.
    fn create(size: u64) -> Handle = Call::Create { size }, Answer::Handle(h) => h;
    /// Maps a whole physical allocation at `address`.
    fn map(address: Address, handle: Handle) -> () = Call::Map { address, handle }, Answer::Done => ();
    /// Makes a mapped range readable and writable.
    fn set_access(address: Address, size: u64) -> () = Call::SetAccess { address, size }, Answer::Done => ();
    /// Unmaps whole handles within the range.
    fn unmap(address: Address, size: u64) -> () = Call::Unmap { address, size }, Answer::Done => ();
    /// Gives a physical allocation back (its memory once it is mapped nowhere).
    fn release(handle: Handle) -> () = Call::Release { handle }, Answer::Done => ();
    /// A new range of managed memory.
    fn malloc_managed(size: u64) -> Address = Call::MallocManaged { size }, Answer::Address(a) => a;
    /// Moves managed memory, in stream order.
    fn prefetch(address: Address, size: u64, to: Place, stream: StreamId) -> () = Call::Prefetch { address, size, to, stream }, Answer::Done => ();
    /// Gives advice on managed memory.
    fn advise(address: Address, size: u64, advice: Advice) -> () = Call::Advise { address, size, advice }, Answer::Done => ();
    /// Host memory, pinned or pageable.
    fn malloc_host(size: u64, pinned: bool) -> Address = Call::MallocHost { size, pinned }, Answer::Address(a) => a;
    /// Gives host memory back.
    fn free_host(address: Address) -> () = Call::FreeHost { address }, Answer::Done => ();
    /// A new stream.
    fn stream_create() -> StreamId = Call::StreamCreate, Answer::Stream(s) => s;
    /// Is the stream being captured into a graph?
    fn capture_status(stream: StreamId) -> bool = Call::CaptureStatus { stream }, Answer::Flag(f) => f;
    /// Later work of the stream waits for the event.
    fn wait_event(stream: StreamId, event: EventId) -> () = Call::WaitEvent { stream, event }, Answer::Done => ();
    /// The host waits for the stream.
    fn stream_synchronize(stream: StreamId) -> () = Call::StreamSynchronize { stream }, Answer::Done => ();
    /// The host waits for every stream of the device.
    fn device_synchronize() -> () = Call::DeviceSynchronize, Answer::Done => ();
    /// A new event.
    fn event_create() -> EventId = Call::EventCreate, Answer::Event(e) => e;
    /// Marks the present end of the stream's queue.
    fn event_record(event: EventId, stream: StreamId) -> () = Call::EventRecord { event, stream }, Answer::Done => ();
    /// Has the stream passed the mark?
    fn event_query(event: EventId) -> bool = Call::EventQuery { event }, Answer::Flag(f) => f;
    /// The host waits for the mark.
    fn event_synchronize(event: EventId) -> () = Call::EventSynchronize { event }, Answer::Done => ();
    /// Ends an event.
    fn event_destroy(event: EventId) -> () = Call::EventDestroy { event }, Answer::Done => ();
    /// ns from event `from` to event `to`, 0 if that one came first; an error unless both are complete.
    fn event_elapsed(from: EventId, to: EventId) -> u64 = Call::EventElapsed { from, to }, Answer::Value(v) => v;
    /// Queues a copy between two ranges of memory.
    fn copy(from: Address, to: Address, size: u64, direction: Direction, stream: StreamId) -> () = Call::Copy { from, to, size, direction, stream }, Answer::Done => ();
    /// Queues a read from the file into host memory.
    fn file_read(offset: u64, to: Address, size: u64, stream: StreamId) -> () = Call::FileRead { offset, to, size, stream }, Answer::Done => ();
    /// Queues a write of host memory to the file.
    fn file_write(from: Address, offset: u64, size: u64, stream: StreamId) -> () = Call::FileWrite { from, offset, size, stream }, Answer::Done => ();
    /// Queues a kernel that takes `duration` ns.
    fn launch_kernel(stream: StreamId, duration: u64) -> () = Call::Launch { stream, duration }, Answer::Done => ();
    /// Free and total bytes of the device.
    fn mem_info() -> (u64, u64) = Call::MemInfo, Answer::Info { free, total } => (free, total);
}

impl<D: Driver + ?Sized> DriverExt for D {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_memory_are_calls_and_those_that_wait_or_copy_are_not_among_them() {
        assert!(MEMORY_CALLS.iter().all(|name| CALL_NAMES.contains(name)));
        for call in [
            Call::DeviceSynchronize,
            Call::MemInfo,
            Call::EventRecord { event: EventId(0), stream: StreamId(0) },
            Call::PoolGet { pool: DEFAULT_POOL, attribute: PoolAttribute::UsedHigh },
        ] {
            assert!(!MEMORY_CALLS.contains(&call.name()), "{}", call.name());
        }
    }
}
