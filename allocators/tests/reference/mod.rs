//! A slow and obvious model of PyTorch's CUDA caching allocator, versions 2.15 and 2.9, with its own fake device.
//!
//! It is the witness for random differential tests: it shares no code with the strategy `torch.caching`, keeps every block in
//! one map by address, and finds everything by scanning. Rules are named by their number in `golden/pytorch/RULES.md`.
//!
//! | file | rules |
//! |---|---|
//! | `settings`, `tokens` | options (30–32), request and segment sizes (1–4) |
//! | `search` | order of free blocks, search, split test (5–7, 21, 24) |
//! | `request` | a request from start to end (8–10, 13, 25) |
//! | `release` | oversize release, full release, garbage collection (11, 12, 14) |
//! | `free` | free, merge, streams and events (15–17) |
//! | `expandable` | expandable segments (18–23) |
//! | `private`, `freeable` | private pools and captures (27–29) |
//! | `table` | what is where |
//! | `subject` | the seam to the golden comparison, the only file that knows of it |
//!
//! Where the real allocator breaks its own books, the model says so and stops: the oversize release of a part of a segment, and
//! expandable segments in private pools, whose count of segments can go wrong.
//!
//! Left out: several devices, threads, peer access, checkpoints of private pools, `backend:cudaMallocAsync`.
#![allow(dead_code, reason = "shared by several test programs, each of which uses a part")]

mod device;
mod expandable;
mod free;
mod freeable;
mod private;
mod release;
mod request;
mod search;
mod settings;
mod stats;
mod subject;
mod table;
mod tokens;

use device::{Device, Event};
use freeable::Freeable;
use settings::Settings;
use stats::Stats;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which release of PyTorch is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V2_9,
    V2_15,
}

impl Version {
    /// From a version text such as `2.15.0+cu132`.
    pub(crate) fn parse(text: &str) -> Result<Version, String> {
        match text.split('.').collect::<Vec<_>>()[..] {
            ["2", "9", ..] => Ok(Version::V2_9),
            ["2", "15", ..] => Ok(Version::V2_15),
            _ => Err(format!("expected torch 2.9 or 2.15, found {text}")),
        }
    }
}

/// One of the pools: the default pair, or the pair of a private pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PoolKey {
    /// The private pool, 0 for none.
    owner: u64,
    small: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Allocated,
    /// Freed, but still waiting for an event, or for the end of a capture.
    Pending,
    Free,
    /// A piece of an expandable range with no memory behind it.
    Unmapped,
}

#[derive(Clone, Debug)]
struct Block {
    size: u64,
    stream: u64,
    pool: PoolKey,
    /// Registration of the segment: neighbours are the nearest blocks in address order with the same one.
    segment: u64,
    expandable: bool,
    state: State,
    requested: u64,
    /// Streams of `record_stream`, until their events are recorded.
    uses: BTreeSet<u64>,
    /// Those recorded during a capture.
    uses_in_capture: BTreeSet<u64>,
    events_open: usize,
    /// Searches in the pool when the block was put there.
    searches_base: u64,
}

/// A cudaMalloc segment or an expandable range.
#[derive(Clone, Debug)]
struct Segment {
    start: u64,
    size: u64,
    stream: u64,
    page: u64,
    /// Handle of each mapped page of an expandable range, by page number.
    handles: BTreeMap<u64, usize>,
}

/// A private pool.
#[derive(Clone, Copy, Debug)]
struct Private {
    uses: u64,
    segments: i64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    At(u64),
    OutOfMemory,
}

/// The model. Ops go in as method calls, buffers are named by id.
#[derive(Debug)]
pub(crate) struct Reference {
    version: Version,
    settings: Settings,
    device: Device,
    stats: Stats,
    max_split_size_at_start: u64,
    /// Every block, mapped or not, by address.
    blocks: BTreeMap<u64, Block>,
    /// By registration.
    segments: BTreeMap<u64, Segment>,
    registrations: u64,
    /// Bytes held from the device.
    reserved: u64,
    /// Most bytes to hold, if a memory fraction is set.
    limit: Option<u64>,
    /// Searches in each pool, counted while garbage collection is on.
    searches: BTreeMap<PoolKey, u64>,
    /// Events that are outstanding, by stream, each with the block that waits for it.
    events: BTreeMap<u64, VecDeque<(Event, u64)>>,
    /// Blocks freed during a capture, whose events are not recorded yet.
    deferred: Vec<u64>,
    private: BTreeMap<u64, Private>,
    freeable: Freeable,
    /// (private pool, stream) of each `pool_begin` under way, oldest first.
    routes: Vec<(u64, u64)>,
    captures_told: u64,
    capturing: BTreeSet<u64>,
    current_stream: u64,
    /// Why the real allocator's behaviour is not defined from here on.
    broken: Option<String>,
    /// Buffers by id; `None` for a null pointer.
    live: BTreeMap<u64, Option<u64>>,
}

impl Reference {
    pub(crate) fn new(version: Version, settings: &str, capacity: u64) -> Result<Self, String> {
        let mut parsed = Settings::new(version);
        parsed.apply(settings)?;
        let fraction = parsed.fraction;
        let mut made = Reference {
            version,
            max_split_size_at_start: parsed.max_split_size,
            settings: parsed,
            device: Device::new(capacity),
            stats: Stats::default(),
            blocks: BTreeMap::new(),
            segments: BTreeMap::new(),
            registrations: 0,
            reserved: 0,
            limit: None,
            searches: BTreeMap::new(),
            events: BTreeMap::new(),
            deferred: Vec::new(),
            private: BTreeMap::new(),
            freeable: Freeable::default(),
            routes: Vec::new(),
            captures_told: 0,
            capturing: BTreeSet::new(),
            current_stream: 0,
            broken: None,
            live: BTreeMap::new(),
        };
        if let Some(fraction) = fraction {
            made.set_memory_fraction(fraction)?;
        }
        Ok(made)
    }

    /// Rule 10: in 2.15 a fraction of 1 means no limit at all. The limit is rounded to the nearest byte there, and down in 2.9.
    fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), String> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(format!("memory fraction: expected 0 to 1, found {fraction}"));
        }
        let limit = fraction * self.device.capacity as f64;
        self.limit = match self.version {
            Version::V2_15 if fraction == 1.0 => None,
            Version::V2_15 => Some(limit.round() as u64),
            Version::V2_9 => Some(limit as u64),
        };
        Ok(())
    }

    fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.gc_threshold > 0.0
    }

    fn block(&self, at: u64) -> &Block {
        self.blocks.get(&at).expect("a block starts here")
    }

    fn block_mut(&mut self, at: u64) -> &mut Block {
        self.blocks.get_mut(&at).expect("a block starts here")
    }

    fn previous(&self, at: u64) -> Option<u64> {
        let segment = self.block(at).segment;
        self.blocks
            .range(..at)
            .next_back()
            .filter(|(_, other)| other.segment == segment)
            .map(|(at, _)| *at)
    }

    fn next(&self, at: u64) -> Option<u64> {
        let segment = self.block(at).segment;
        self.blocks
            .range(at + 1..)
            .next()
            .filter(|(_, other)| other.segment == segment)
            .map(|(at, _)| *at)
    }

    /// Part of a segment that has other blocks, mapped or not.
    fn is_split(&self, at: u64) -> bool {
        self.previous(at).is_some() || self.next(at).is_some()
    }

    /// Makes a block free: it gets age 0.
    fn put_in_pool(&mut self, at: u64) {
        let base = self.searches.get(&self.block(at).pool).copied().unwrap_or(0);
        let block = self.block_mut(at);
        block.state = State::Free;
        block.searches_base = base;
    }

    /// Cuts a block in two; the rest begins at the returned address and is like the block in all but place and size.
    fn cut(&mut self, at: u64, size: u64) -> u64 {
        let block = self.block_mut(at);
        let mut rest = block.clone();
        rest.size -= size;
        block.size = size;
        self.blocks.insert(at + size, rest);
        at + size
    }
}
