//! What only the engine may ask of a device: time, work, and bytes held.
//!
//! Stream queues and the host clock live here, below the seam, since event queries, the wait of a free and in-driver pools need streams to
//! make progress. One machine holds all devices. A launch returns no times: a real GPU has none to give.

use crate::driver::{Address, CALL_KINDS, CALL_NAMES, Driver, DriverError};
use crate::units::{DeviceId, Nanos, StreamId};

/// Bytes held from a device by this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Malloc sizes, created handles, and what stream-ordered pools hold.
    pub reserved: u64,
    /// Highest value of `reserved`.
    pub peak_reserved: u64,
    /// What the device counts as taken: context and granule rounding included, other processes not.
    pub device_used: u64,
    /// Highest value of `device_used`.
    pub peak_device_used: u64,
    /// Bytes of host memory, pinned or pageable.
    pub host: u64,
    /// Highest value of `host`.
    pub peak_host: u64,
    /// Bytes of managed memory, wherever its pages are.
    pub managed: u64,
    /// Highest value of `managed`.
    pub peak_managed: u64,
}

/// The memory that a strategy manages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// The device's.
    #[default]
    Device,
    /// The host's.
    Host,
    /// Managed memory, whose pages move between host and device.
    Managed,
}

impl Held {
    /// Bytes held of this memory, now and at most.
    pub const fn of(&self, memory: Memory) -> (u64, u64) {
        match memory {
            Memory::Device => (self.reserved, self.peak_reserved),
            Memory::Host => (self.host, self.peak_host),
            Memory::Managed => (self.managed, self.peak_managed),
        }
    }
}

/// Which driver range an address lies in, named so that two runs can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// How the range was made.
    pub kind: RangeKind,
    /// It was the n-th successful one of its kind, from 0.
    pub ordinal: u32,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// How a range of addresses was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeKind {
    /// `cudaMalloc`.
    Malloc,
    /// `cuMemAddressReserve`.
    Reserved,
    /// A stream-ordered pool.
    Pool,
    /// Managed memory.
    Managed,
    /// Host memory.
    Host,
}

impl RangeKind {
    /// One letter for labels: `m0`, `r1`, `p2`, `u3`, `h4`.
    pub const fn letter(self) -> char {
        match self {
            Self::Malloc => 'm',
            Self::Reserved => 'r',
            Self::Pool => 'p',
            Self::Managed => 'u',
            Self::Host => 'h',
        }
    }
}

/// Which physical bytes an address means: stitched ranges give one page two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical {
    /// A number of the physical allocation, unique over the run.
    pub handle: u64,
    /// Bytes from its beginning.
    pub offset: u64,
    /// Bytes from here on that lie in the same physical allocation at consecutive addresses.
    pub run: u64,
}

/// Direction of a transfer; one FIFO copy engine each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Within the device.
    DeviceToDevice,
    /// To another device.
    PeerToPeer,
    /// To or from a disk.
    Disk,
}

/// A point in a stream's queue, for happens-before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The stream.
    pub stream: StreamId,
    /// How many pieces of work it had been given on the machine's own count.
    pub epoch: u64,
}

/// How often each call was made, by [`crate::driver::Call::kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCounts(pub [u64; CALL_KINDS]);

impl Default for CallCounts {
    fn default() -> Self {
        Self([0; CALL_KINDS])
    }
}

impl CallCounts {
    /// The calls that were made, with CUDA's names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        CALL_NAMES.iter().copied().zip(self.0).filter(|(_, n)| *n > 0)
    }

    /// How often the call of this name was made.
    pub fn get(&self, name: &str) -> u64 {
        CALL_NAMES.iter().position(|n| *n == name).map_or(0, |i| self.0[i])
    }
}

/// What the driver did below its calls, on all devices since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverWork {
    /// How often a stream-ordered pool took memory from its device.
    pub pool_growths: u64,
    /// How often one gave such memory back.
    pub pool_releases: u64,
    /// What became of managed memory.
    pub managed: ManagedWork,
}

/// What became of managed memory: faults, and bytes that moved because of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedWork {
    /// Pages that a device touched and that were not there.
    pub faults: u64,
    /// Batches in which they were served.
    pub fault_batches: u64,
    /// Pages that the host touched and that were not there.
    pub host_faults: u64,
    /// Bytes copied to devices, on faults and by prefetch.
    pub bytes_to_device: u64,
    /// Bytes copied to the host, on faults, by prefetch and by eviction.
    pub bytes_to_host: u64,
    /// Of both, those that a prefetch copied.
    pub bytes_prefetched: u64,
    /// Bytes that devices used where they were, on the host.
    pub bytes_remote: u64,
    /// Blocks that had to leave a device.
    pub evicted_blocks: u64,
    /// Bytes of pages in them.
    pub bytes_evicted: u64,
    /// Bytes of pages that came back after an eviction: thrash.
    pub bytes_refaulted: u64,
}

impl ManagedWork {
    /// Each count with its name.
    pub const fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("faults", self.faults),
            ("fault_batches", self.fault_batches),
            ("host_faults", self.host_faults),
            ("bytes_to_device", self.bytes_to_device),
            ("bytes_to_host", self.bytes_to_host),
            ("bytes_prefetched", self.bytes_prefetched),
            ("bytes_remote", self.bytes_remote),
            ("evicted_blocks", self.evicted_blocks),
            ("bytes_evicted", self.bytes_evicted),
            ("bytes_refaulted", self.bytes_refaulted),
        ]
    }

    /// Adds another device's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.faults += other.faults;
        self.fault_batches += other.fault_batches;
        self.host_faults += other.host_faults;
        self.bytes_to_device += other.bytes_to_device;
        self.bytes_to_host += other.bytes_to_host;
        self.bytes_prefetched += other.bytes_prefetched;
        self.bytes_remote += other.bytes_remote;
        self.evicted_blocks += other.evicted_blocks;
        self.bytes_evicted += other.bytes_evicted;
        self.bytes_refaulted += other.bytes_refaulted;
    }
}

/// A device with its clock and queues.
pub trait Machine: Driver {
    /// Makes `device` the current one.
    ///
    /// # Errors
    /// When there is no such device.
    fn select(&mut self, device: DeviceId) -> Result<(), DriverError>;

    /// From now on the host is this thread, whose clock stands where it left it. All threads exist from time 0; a run begins on thread 0.
    fn thread(&mut self, thread: u32);

    /// The host clock.
    fn now(&self) -> Nanos;

    /// The host does nothing until `time` (no effect if it is past).
    fn wait_until(&mut self, time: Nanos);

    /// The host is busy for `ns` nanoseconds.
    fn spend(&mut self, ns: u64);

    /// Queues work of `duration` ns on a stream.
    ///
    /// # Errors
    /// When the device cannot.
    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError>;

    /// Queues a transfer of `bytes` on a stream.
    ///
    /// # Errors
    /// When the device cannot.
    fn transfer(
        &mut self,
        stream: StreamId,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DriverError>;

    /// Accesses memory by page, by the device (in `stream`) or by the host.
    ///
    /// # Errors
    /// When the range is not accessible from there.
    fn touch(
        &mut self,
        address: Address,
        bytes: u64,
        write: bool,
        by: Toucher,
    ) -> Result<(), DriverError>;

    /// Bytes held from the current device.
    fn held(&self) -> Held;

    /// Which range an address of the current device lies in.
    fn origin(&self, address: Address) -> Option<Origin>;

    /// Which physical bytes an address of the current device means.
    fn physical(&self, address: Address) -> Option<Physical>;

    /// The latest point of a stream's queue; `None` from a machine that does not know.
    fn stamp(&self, stream: StreamId) -> Option<Stamp>;

    /// Is that point ordered before whatever is queued on `stream` next (stream order, events, waits, synchronisation)?
    fn ordered(&self, earlier: Stamp, stream: StreamId) -> bool;

    /// A capture begins or ends on a stream.
    fn capture(&mut self, stream: StreamId, on: bool);

    /// From now on someone else holds `bytes` of the current device.
    fn other_process(&mut self, bytes: u64);

    /// Calls made so far, on all devices.
    fn calls(&self) -> CallCounts;

    /// What the driver did below its calls so far, on all devices; zeros from a machine that does not know.
    fn driver_work(&self) -> DriverWork;
}

/// Who touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toucher {
    /// The device, in this stream's order.
    Device(StreamId),
    /// The host, now.
    Host,
}
