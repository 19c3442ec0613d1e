//! The seam above a strategy.
//!
//! A strategy sees requests, frees, notices and announced uses of work, and a [`Driver`]; no clock (events suffice), no workload, no file. So
//! one strategy file runs unchanged in simulation, on a scripted machine in tests, in the browser, and on a real GPU.
//!
//! [`Allocator`] has no default methods: a wrapper that forgets to forward one must not compile.

use std::fmt;

use crate::driver::{Address, Driver, DriverError};
use crate::units::{Bytes, PoolId, StreamId};

/// A request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes asked for, before any rounding. Any value: 0, 2^63 and near 2^64 are answered as the real system does.
    pub size: u64,
    /// The stream on which the memory may be used at once.
    pub stream: StreamId,
    /// This is the n-th request of the run on this device, from 0. Plans are keyed by it, never by a buffer's id.
    pub ordinal: u64,
}

/// The strategy's own token for what it handed out; means nothing to anyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// What a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Token for the free.
    pub block: Block,
    /// Where it is until work is announced next, and from then on unless work that uses it is told otherwise; 0 for a null placement (size 0).
    pub address: Address,
    /// Bytes set aside, as the strategy rounds and splits; 0 for a null placement.
    pub size: u64,
}

/// A strategy's count of its bytes. `active + free = reserved` at all times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sum of live block sizes.
    pub allocated: u64,
    /// `allocated`, and freed blocks that still wait for a stream.
    pub active: u64,
    /// Bytes that the strategy holds from the device.
    pub reserved: u64,
}

/// Out of memory, with the numbers: an answer, never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for, as rounded for the failing step.
    pub asked: u64,
    /// Bytes that the device had free.
    pub device_free: u64,
    /// Bytes held from the device.
    pub reserved: u64,
    /// Bytes of live and waiting blocks.
    pub active: u64,
    /// Largest free piece that the strategy holds.
    pub largest_free: u64,
    /// The limit that refused it, if it was a limit and not the device.
    pub limit: Option<u64>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of device memory: asked {}, device has {} free; {} reserved, of it {} in use, largest free piece {}",
            Bytes(self.asked),
            Bytes(self.device_free),
            Bytes(self.reserved),
            Bytes(self.active),
            Bytes(self.largest_free)
        )?;
        match self.limit {
            Some(limit) => write!(f, "; the limit is {}", Bytes(limit)),
            None => Ok(()),
        }
    }
}

/// Why a strategy did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// No room. Nothing changed but documented cache release.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// The size makes no sense to the system (rounding would pass 2^64, say). Nothing changed.
    #[error("invalid size: asked {asked} bytes ({why})")]
    InvalidSize {
        /// Bytes asked for.
        asked: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The token is not live.
    #[error("block {} is not live", .0.0)]
    UnknownBlock(Block),
    /// A setting that the real system refuses, in its own words.
    #[error("{0}")]
    BadSetting(Box<str>),
    /// The driver said something other than out of memory: the run ends.
    #[error("{0}")]
    Driver(#[from] DriverError),
}

impl From<OutOfMemory> for AllocError {
    fn from(oom: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(oom))
    }
}

/// A use of a buffer by work, announced before the work is queued and again after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Whose buffer.
    pub block: Block,
    /// Where it is; a strategy that moves buffers rewrites this in `before_work`.
    pub address: Address,
    /// Bytes used.
    pub size: u64,
    /// Written, not only read.
    pub write: bool,
}

/// Everything else that a workload may tell a strategy. One that does not know a notice answers [`Reply::Unsupported`].
#[derive(Clone, Debug, PartialEq)]
pub enum Notice<'a> {
    /// The buffer is also used on `stream`.
    RecordStream {
        /// Whose.
        block: Block,
        /// Where.
        stream: StreamId,
    },
    /// The host drops the buffer, but work that this run cannot see still uses it (a recording's deferred free): it
    /// ends with [`Notice::Completed`], or when the strategy waits for outstanding work, whichever is first.
    FreeDeferred {
        /// Whose.
        block: Block,
    },
    /// The deferred free of this block ended. Of a block that came back already: nothing happens.
    Completed {
        /// Whose.
        block: Block,
    },
    /// Grow or shrink: answered with [`Reply::Placed`], or `Unsupported`.
    Resize {
        /// Whose.
        block: Block,
        /// New size in bytes.
        size: u64,
    },
    /// Give unused cached memory back to the device.
    EmptyCache,
    /// Give unused memory above `keep` bytes back.
    Trim {
        /// Bytes to keep.
        keep: u64,
    },
    /// From now on requests of `stream` go to private pool `pool` (made, or its use count raised).
    PoolBegin {
        /// Which.
        pool: PoolId,
        /// Whose requests.
        stream: StreamId,
    },
    /// Routing to the pool ends.
    PoolEnd {
        /// Which.
        pool: PoolId,
    },
    /// One use less; with none left its memory may go back.
    PoolRelease {
        /// Which.
        pool: PoolId,
    },
    /// A graph capture begins on `stream`, which becomes the current one.
    CaptureBegin {
        /// Where.
        stream: StreamId,
    },
    /// The capture ends.
    CaptureEnd {
        /// Where.
        stream: StreamId,
    },
    /// A setting changes while running. `conf` is the key for a whole settings text.
    Set {
        /// Name.
        key: &'a str,
        /// Text.
        value: &'a str,
    },
    /// A step or phase boundary.
    Mark {
        /// Its name.
        name: &'a str,
    },
    /// Peaks start again from the present values.
    ResetPeak,
    /// Accumulated counts start again from 0.
    ResetAccumulated,
    /// The strategy's own counters: answered with [`Reply::Counters`].
    Counters,
    /// What is where: answered with [`Reply::Layout`].
    Walk,
    /// Start from this state, whose addresses and handles the driver knows already: answered with [`Reply::Adopted`]. Only before the first request.
    Adopt(&'a Layout),
}

/// The answer to a notice.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Done.
    Done,
    /// This strategy does not know the notice; nothing happened.
    Unsupported,
    /// New place of a resized block.
    Placed(Placement),
    /// Named counters, in the strategy's order.
    Counters(Vec<(&'static str, u64)>),
    /// What is where.
    Layout(Layout),
    /// The tokens of the blocks in use in an adopted layout, in its order.
    Adopted(Vec<Block>),
}

/// The state of a piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use.
    Allocated,
    /// Freed, waits for a stream.
    Pending,
    /// Free.
    Free,
}

/// One piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutBlock {
    /// Where it begins.
    pub address: Address,
    /// Its bytes.
    pub size: u64,
    /// Bytes asked for; 0 if free.
    pub requested: u64,
    /// In use, waiting or free.
    pub state: BlockState,
    /// Age in the strategy's own count (0 where it has none).
    pub age: u64,
}

/// A run of device memory that a strategy holds, tiled by blocks in address order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LayoutSegment {
    /// Where it begins.
    pub address: Address,
    /// Its bytes (for an expandable segment: of this run of mapped pages).
    pub size: u64,
    /// The stream that it serves.
    pub stream: StreamId,
    /// The strategy's name of the pool (`small`, `large`…).
    pub pool: &'static str,
    /// Private pool, if it belongs to one.
    pub private_pool: Option<PoolId>,
    /// Pages mapped into a reserved range, not one malloc.
    pub expandable: bool,
    /// Order in which the segments were made; `None` where the strategy keeps none.
    pub registration: Option<u64>,
    /// Its pieces.
    pub blocks: Vec<LayoutBlock>,
}

/// What is where: segments in address order. `walk` and `adopt` share it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// The segments.
    pub segments: Vec<LayoutSegment>,
}

/// A strategy for one device.
pub trait Allocator: Send {
    /// Serves a request.
    ///
    /// # Errors
    /// Out of memory or an invalid size are answers and leave the strategy usable; a driver error ends the run.
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError>;

    /// Takes a block back; the token is used up. With `stream` the free is ordered in that stream.
    ///
    /// # Errors
    /// [`AllocError::UnknownBlock`] for a token that is not live, or a driver error.
    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError>;

    /// Hears everything else.
    ///
    /// # Errors
    /// As the notice says; a notice that is not known is [`Reply::Unsupported`], not an error.
    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError>;

    /// Hears all uses of a piece of work at once before it is queued; may move buffers by rewriting their addresses.
    ///
    /// # Errors
    /// Out of memory when the uses cannot be resident together, or a driver error.
    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError>;

    /// Hears them again after it is queued.
    ///
    /// # Errors
    /// A driver error.
    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError>;

    /// Bytes in use and held, in O(1).
    fn usage(&self) -> Usage;
}

/// The two methods of a strategy that moves no buffer, so that it is all one to it what work uses. Said in one line, and not a default, so
/// that a wrapper that forgets to forward them does not compile.
#[macro_export]
macro_rules! unaware_of_work {
    () => {
        fn before_work(
            &mut self,
            _: &mut dyn $crate::Driver,
            _: $crate::StreamId,
            _: &mut [$crate::Use],
        ) -> Result<(), $crate::AllocError> {
            Ok(())
        }

        fn after_work(
            &mut self,
            _: &mut dyn $crate::Driver,
            _: $crate::StreamId,
            _: &[$crate::Use],
        ) -> Result<(), $crate::AllocError> {
            Ok(())
        }
    };
}

impl<A: Allocator + ?Sized> Allocator for Box<A> {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        (**self).alloc(driver, request)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        (**self).free(driver, block, stream)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        (**self).notice(driver, notice)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        (**self).before_work(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        (**self).after_work(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        (**self).usage()
    }
}
