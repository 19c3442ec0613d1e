//! `rmm.binning`: RMM's `binning_memory_resource`, bins of fixed-size blocks over a pool.
//!
//! | rule | what it says | source, case |
//! |---|---|---|
//! | `bins` | one bin for each power of two from `min_size_exponent` to `max_size_exponent`, its blocks rounded up to 256 B; sizes that round to the same one share a bin; without exponents there is none | constructor, `add_bin`; rb01 |
//! | `preallocate` | every bin takes 128 blocks from the pool when it is made, on the default stream, the smallest bin first | rb01 |
//! | `choice` | the smallest bin whose blocks hold the raw size; the pool serves what is larger than the largest bin | `get_resource_ref`; rb01 |
//! | `queue` | a freed block goes to the back of its bin's list, the front is handed out | rb02 |
//! | `batch` | an empty bin takes 128 more as one block of the pool, in address order; nothing goes back | rb03 |
//! | `streams` | each bin has its own lists, events and waits, as the pool has: the table of `streams` beside this file | rb04 |
//! | `pool` | all else is the pool's: [`super::pool`] | - |
//!
//! Source: `cpp/src/mr/detail/binning_memory_resource_impl.cpp`, rapidsai/rmm 5d50a37b; equal to its recordings in `golden/rmm`.
//! Left out: `add_bin` while running, and bins over other resources.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, LayoutBlock, LayoutSegment, Placement, Usage,
};
use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::units::StreamId;

use super::ALIGNMENT;
use super::blocks::Bins;
use super::coalescing::{DEFAULT_STREAM, Pool};
use super::settings::{self, PoolSettings, given};
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::resource::{Front, Resource};
use crate::registry::{Status, Strategy};

const MIN: OptionDoc = OptionDoc {
    name: "min_size_exponent",
    default: "None",
    help: "blocks of the smallest bin have 2^this bytes, rounded up to 256: 0 to 30; None: no bins",
};
const MAX: OptionDoc = OptionDoc {
    name: "max_size_exponent",
    default: "None",
    help: "blocks of the largest bin have 2^this bytes: 0 to 30; None: no bins",
};
const OPTIONS: [OptionDoc; 6] = {
    let [initial, maximum, reclaim, version] = PoolSettings::OPTIONS;
    [MIN, MAX, initial, maximum, reclaim, version]
};

/// Blocks that a bin takes at a time (`default_blocks_to_preallocate`).
const BATCH: u64 = 128;
/// Marks tokens and slots of bins; the others are the pool's.
const IN_BIN: u32 = 1 << 31;

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "rmm.binning",
    new,
    Status::Exact("RMM 26.06"),
    &OPTIONS,
    "bins of fixed-size blocks over rmm.pool; none unless both exponents are given",
)
.inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(Front::new(resource(options)?)))
}

/// One exponent without the other makes no bins.
fn inert(options: &Options) -> Vec<String> {
    let mut said = settings::inert(options);
    for (doc, other) in [(&MIN, &MAX), (&MAX, &MIN)] {
        if let (Some(text), None) = (given(options, doc), given(options, other)) {
            said.push(format!("{}={text} has no effect: {} is not given", doc.name, other.name));
        }
    }
    said
}

pub(super) fn resource(options: &Options) -> Result<Binning, OptionError> {
    options.check(STRATEGY.name, STRATEGY.options)?;
    let settings = PoolSettings::parse(options)?;
    let sizes = match (exponent(options, &MIN)?, exponent(options, &MAX)?) {
        (Some(min), Some(max)) => sizes(min, max),
        _ => Vec::new(),
    };
    Ok(Binning::new(settings, sizes))
}

fn exponent(options: &Options, doc: &OptionDoc) -> Result<Option<u32>, OptionError> {
    // Python's default
    let Some(text) = given(options, doc).filter(|text| *text != "-1") else { return Ok(None) };
    let exponent = text.parse().ok().filter(|exponent| *exponent <= 30);
    let refused =
        || OptionError(format!("option {}={text}: expected a number from 0 to 30", doc.name));
    exponent.map(Some).ok_or_else(refused)
}

/// Block sizes of the bins, rising (rule `bins`).
fn sizes(min: u32, max: u32) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        (min..=max).map(|exponent| (1_u64 << exponent).next_multiple_of(ALIGNMENT)).collect();
    sizes.dedup();
    sizes
}

/// Bins over a pool.
#[derive(Debug)]
pub(super) struct Binning {
    settings: PoolSettings,
    sizes: Vec<u64>,
    pool: Pool,
    bins: Bins,
    /// Bytes in use, in bins and straight from the pool.
    allocated: u64,
}

impl Binning {
    fn new(settings: PoolSettings, sizes: Vec<u64>) -> Self {
        let (pool, bins) = (Pool::new(settings), Bins::default());
        Self { settings, sizes, pool, bins, allocated: 0 }
    }

    fn fill_bins(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        for size in &self.sizes {
            let bin = self.bins.add_bin(*size, BATCH, self.settings.record_merged);
            let pool = &mut self.pool;
            self.bins.preallocate(driver, bin, |driver, size| {
                batch(pool, driver, size, DEFAULT_STREAM)
            })?;
        }
        Ok(())
    }
}

/// Takes a batch from the pool.
fn batch(
    pool: &mut Pool,
    driver: &mut dyn Driver,
    size: u64,
    stream: StreamId,
) -> Result<u64, AllocError> {
    let placement = pool.allocate(driver, size, stream)?;
    pool.keep(placement.block);
    Ok(placement.address)
}

impl Resource for Binning {
    fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        self.pool.construct(driver)?;
        if let Err(error) = self.fill_bins(driver) {
            self.pool.release(driver)?;
            self.bins = Bins::default();
            return Err(error);
        }
        Ok(())
    }

    #[inline]
    fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        let placement = match self.bins.bin_for(requested) {
            Some(bin) => {
                let pool = &mut self.pool;
                let refill = |driver: &mut dyn Driver, size| batch(pool, driver, size, stream);
                let (block, address) =
                    self.bins.allocate(driver, bin, requested, stream, refill)?;
                let block = Block(block.0 | u64::from(IN_BIN));
                Placement { block, address, size: self.bins.size(bin) }
            }
            None => self.pool.allocate(driver, requested, stream)?,
        };
        self.allocated += placement.size;
        Ok(placement)
    }

    #[inline]
    fn find(&self, block: Block) -> Option<(u32, StreamId)> {
        if block.0 as u32 & IN_BIN == 0 {
            return self.pool.find(block);
        }
        let (slot, stream) = self.bins.find(Block(block.0 & !u64::from(IN_BIN)))?;
        Some((slot | IN_BIN, stream))
    }

    #[inline]
    fn deallocate(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let size = if slot & IN_BIN == 0 {
            let size = self.pool.pieces().get(slot).size;
            self.pool.deallocate(driver, slot, stream)?;
            size
        } else {
            self.bins.give(driver, slot & !IN_BIN, stream)?
        };
        self.allocated -= size;
        Ok(())
    }

    /// The pool's, and those of all bins.
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut counters = self.pool.counters();
        counters.extend([
            ("bin_free_blocks", self.bins.free()),
            ("bin_free_lists", self.bins.lists()),
            ("bin_stream_waits", self.bins.waits()),
        ]);
        counters
    }

    /// The pool's segments, with the blocks of bins in place of the batches.
    fn walk(&self) -> Vec<LayoutSegment> {
        let in_bins = self.bins.layout();
        let inside = |block: &LayoutBlock| {
            let from = in_bins.partition_point(|b| b.address < block.address);
            let to = in_bins.partition_point(|b| b.address < block.address + block.size);
            if from == to { vec![*block] } else { in_bins[from..to].to_vec() }
        };
        let mut segments = self.pool.walk();
        for segment in &mut segments {
            segment.blocks = segment.blocks.iter().flat_map(inside).collect();
        }
        segments
    }

    #[inline]
    fn usage(&self) -> Usage {
        let reserved = self.pool.usage().reserved;
        Usage { allocated: self.allocated, active: self.allocated, reserved }
    }
}
