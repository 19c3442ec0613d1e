//! From a PyTorch memory history to a workload.
//!
//! A history of one device is a list of entries and the segments held after the last of them. It usually begins in the middle of a
//! program, so the state before the first entry is found by walking backwards; see `start`. Going forward, each request and each free is an
//! op; what the recorded allocator did with the driver in between (`segment_alloc`, `segment_free`, `segment_map`, `segment_unmap`) is kept
//! beside the op as its [`Driven`] window, for those who check a strategy against it.
//!
//! | entry | becomes |
//! |---|---|
//! | `alloc` | a request; its address is the recorded answer |
//! | `free_requested`, `free_completed` right after it | a free |
//! | `free_requested`, `free_completed` later | a deferred free, and its completion |
//! | `free_completed` of a block that was allocated in the window and never requested to be freed | a free |
//! | `oom` | a request that failed |
//! | a run of `segment_free`/`segment_unmap` that no failing request explains | one `empty_cache` before it |
//!
//! A failing request explains such a run if the next op is a request that got new memory after it (or failed), and that memory would have
//! taken the device above the most that the recording ever held: below that, the device had room, so nothing failed.
//!
//! Source: format and rules as seen in recordings of PyTorch 2.0 to 2.15; `torch/csrc/cuda/memory_snapshot.cpp`.

mod route;
mod source;
mod start;
mod steps;

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::Layout;
use vramlab_sim::units::{PoolId, StreamId};

pub use route::{Routes, Turn};
pub use source::RecordingSource;
pub use start::{Handles, Rules, StartBlock};
pub use steps::{RecordedStep, Steps};

/// What an entry says. Names as in PyTorch's own history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    Snapshot,
    Oom,
    /// Anything else: skipped.
    Other,
}

/// One entry of a device's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Where; 0 for `oom` and `snapshot`. For `oom`: free bytes of the device, if the file says.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Stream handle, as recorded.
    pub stream: u64,
    /// Time in µs; 0 where the file has none.
    pub time_us: u64,
    /// Stack or label, kept by the snapshot; 0 is none.
    pub site: u32,
    /// Private pool of the entry; (0, 0) is the default.
    pub pool: (u64, u64),
}

/// A device's history by index.
pub trait Entries: Send + Sync {
    /// How many entries.
    fn len(&self) -> usize;
    /// One of them.
    fn entry(&self, index: usize) -> Entry;
    /// None at all?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The text of a site.
    fn site(&self, _site: u32) -> String {
        String::new()
    }
}

/// A driver event between two ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driven {
    /// `SegmentAlloc`, `SegmentFree`, `SegmentMap` or `SegmentUnmap`.
    pub action: Action,
    /// Where.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Stream handle.
    pub stream: u64,
}

/// Why a history cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotVerifiable(pub String);

/// One device's history, ready to be walked any number of times.
pub struct Recording<E> {
    pub(crate) entries: E,
    /// Blocks that were live before the first entry, by address.
    pub(crate) start: Vec<StartBlock>,
    /// Segments before the first entry, with those blocks in them.
    pub(crate) layout: Layout,
    /// Stream handles, in numeric order; the n-th is stream n (the default stream 0 is always first).
    pub(crate) streams: Vec<u64>,
    /// Private pools in order, after the default one; the n-th is pool n.
    pub(crate) pools: Vec<(u64, u64)>,
    /// For each `free_requested`, whether its completion comes later than right after it; for each `free_completed`, whether it was requested.
    pub(crate) deferred: Vec<bool>,
    /// Most bytes that were reserved at any time.
    pub(crate) peak_reserved: u64,
    pub(crate) start_reserved: u64,
    pub(crate) gaps: u64,
    /// What keeps it from being checked, if anything does.
    pub(crate) trouble: Option<NotVerifiable>,
}

impl<E: Entries> Recording<E> {
    /// Most bytes reserved at any time, as the segment events say.
    pub fn peak_reserved(&self) -> u64 {
        self.peak_reserved
    }

    /// The state before the first entry.
    pub fn start_layout(&self) -> &Layout {
        &self.layout
    }

    /// Blocks that were live before the first entry.
    pub fn start_blocks(&self) -> &[StartBlock] {
        &self.start
    }

    /// Says who asked for blocks that were live before the first entry and are there after the last, by address.
    pub(crate) fn name_start(&mut self, site_of: impl Fn(u64) -> u32) {
        let mut sites: FxHashMap<u64, u32> = FxHashMap::default();
        for block in &self.start {
            let site = site_of(block.addr);
            if site != 0 {
                sites.insert(block.addr, site);
            }
        }
        for index in 0..if sites.is_empty() { 0 } else { self.entries.len() } {
            let entry = self.entries.entry(index);
            // what lies there later is another block
            if matches!(entry.action, Action::Alloc | Action::FreeCompleted) {
                sites.remove(&entry.addr);
            }
        }
        for block in &mut self.start {
            block.site = sites.get(&block.addr).copied().unwrap_or(0);
        }
    }

    /// Frees of blocks that neither the window nor the state before it explains.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Why it cannot be checked, if so.
    pub fn trouble(&self) -> Option<&NotVerifiable> {
        self.trouble.as_ref()
    }

    /// The entries.
    pub fn entries(&self) -> &E {
        &self.entries
    }

    /// The stream number of a handle.
    pub fn stream(&self, handle: u64) -> StreamId {
        StreamId(self.streams.binary_search(&handle).unwrap_or(0) as u32)
    }

    /// The number of a private pool; the default pool (0, 0) is none.
    pub fn pool(&self, handle: (u64, u64)) -> Option<PoolId> {
        let number = self.pools.binary_search(&handle).ok().filter(|number| *number > 0)?;
        Some(PoolId(number as u32))
    }
}

#[cfg(test)]
mod tests;
