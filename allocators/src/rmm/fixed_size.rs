//! `rmm.fixed_size`: RMM's `fixed_size_memory_resource` over plain device memory. Not checked against the real one by itself yet; as the bins of
//! `rmm.binning` it is equal to recordings.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `one_size` | every block has `block_size` bytes, rounded up to 256; a larger request is out of memory, and the device is not asked | `get_maximum_allocation_size`, `allocate` |
//! | `preallocate` | when it is made it takes `blocks_to_preallocate` blocks as one device allocation, on the default stream | constructor |
//! | `queue` | a freed block goes to the back of its stream's list, the front is handed out | `fixed_size_free_list` |
//! | `batch` | when no list has a block, another batch of that many is taken as one device allocation and put into the own list in address order | `expand_pool`, `blocks_from_upstream` |
//! | `no_return` | nothing goes back before the resource ends | `release` |
//! | `streams` | lists of other streams are taken from and merged as in the pool: the table of `streams` beside this file | `stream_ordered_memory_resource` |
//! | `resource` | frees without a stream, recorded streams, deferred frees: the table of `resource` in [`crate::parts`] | - |
//!
//! Source: `cpp/src/mr/detail/fixed_size_memory_resource_impl.cpp` and `cpp/include/rmm/mr/detail/fixed_size_free_list.hpp`, rapidsai/rmm 5d50a37b.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, LayoutSegment, OutOfMemory, Placement, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{Bytes, StreamId};

use super::ALIGNMENT;
use super::blocks::Bins;
use super::coalescing::DEFAULT_STREAM;
use super::settings::{VERSION, record_merged, rounded, size};
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::resource::{Front, Resource};
use crate::parts::room::{malloc, out_of_memory};
use crate::registry::{Status, Strategy};

const DEFAULT_BLOCK_SIZE: u64 = Bytes::mib(1).0;
const BLOCK_SIZE: OptionDoc = OptionDoc {
    name: "block_size",
    default: "1MiB",
    help: "bytes of every block, and of the largest request that is served; rounded up to 256",
};
const PREALLOCATE: OptionDoc = OptionDoc {
    name: "blocks_to_preallocate",
    default: "128",
    help: "blocks taken when it is made, and each time that all are in use",
};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "rmm.fixed_size",
    new,
    Status::Rules("RMM 26.06"),
    &[BLOCK_SIZE, PREALLOCATE, VERSION],
    "blocks of one size in queues; serves nothing larger",
)
.up_to(DEFAULT_BLOCK_SIZE);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(Front::new(resource(options)?)))
}

pub(super) fn resource(options: &Options) -> Result<FixedSize, OptionError> {
    options.check(STRATEGY.name, STRATEGY.options)?;
    let block_size = size(options, &BLOCK_SIZE)?.unwrap_or(DEFAULT_BLOCK_SIZE);
    let batch = options.parse(PREALLOCATE.name, "a number of blocks from 1 to 2^31", 128_u64)?;
    let block_size = block_size.checked_next_multiple_of(ALIGNMENT).filter(|size| *size > 0);
    let fits = |size: &u64| (1..=1 << 31).contains(&batch) && size.checked_mul(batch).is_some();
    let Some(block_size) = block_size.filter(fits) else {
        return Err(OptionError(format!(
            "expected block_size from 1 B and blocks_to_preallocate from 1 to 2^31, together below 2^64 bytes; found {:?} and {batch}",
            options.get(BLOCK_SIZE.name).unwrap_or(BLOCK_SIZE.default)
        )));
    };
    let mut bins = Bins::default();
    bins.add_bin(block_size, batch, record_merged(options)?);
    Ok(FixedSize { bins, chunks: Vec::new(), allocated: 0 })
}

/// The one bin.
const BIN: u32 = 0;

/// Blocks of one size.
#[derive(Debug)]
pub(super) struct FixedSize {
    bins: Bins,
    /// Where each batch begins, in the order in which they were taken.
    chunks: Vec<u64>,
    allocated: u64,
}

impl FixedSize {
    fn too_large(&self, driver: &mut dyn Driver, asked: u64) -> Result<OutOfMemory, DriverError> {
        let Usage { active, reserved, .. } = self.usage();
        let (block, free) = (self.bins.size(BIN), self.bins.free() > 0);
        Ok(OutOfMemory {
            asked,
            device_free: driver.mem_info()?.0,
            reserved,
            active,
            largest_free: if free { block } else { 0 },
            limit: Some(block),
        })
    }
}

/// Takes a batch from the device.
fn batch(
    driver: &mut dyn Driver,
    size: u64,
    usage: Usage,
    chunks: &mut Vec<u64>,
) -> Result<u64, AllocError> {
    match malloc(driver, size)? {
        Some(address) => {
            chunks.push(address);
            Ok(address)
        }
        None => Err(out_of_memory(driver, size, usage, 0, None)),
    }
}

impl Resource for FixedSize {
    fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let (usage, chunks) = (self.usage(), &mut self.chunks);
        self.bins.preallocate(driver, BIN, |driver, size| batch(driver, size, usage, chunks))
    }

    #[inline]
    fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        let (asked, size) = (rounded(requested)?, self.bins.size(BIN));
        if asked > size {
            return Err(self.too_large(driver, asked)?.into());
        }
        let (usage, chunks) = (self.usage(), &mut self.chunks);
        let refill = |driver: &mut dyn Driver, size| batch(driver, size, usage, chunks);
        let (block, address) = self.bins.allocate(driver, BIN, requested, stream, refill)?;
        self.allocated += size;
        Ok(Placement { block, address, size })
    }

    #[inline]
    fn find(&self, block: Block) -> Option<(u32, StreamId)> {
        self.bins.find(block)
    }

    #[inline]
    fn deallocate(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        self.allocated -= self.bins.give(driver, slot, stream)?;
        Ok(())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("upstream_blocks", self.chunks.len() as u64),
            ("free_lists", self.bins.lists()),
            ("free_blocks", self.bins.free()),
            ("stream_waits", self.bins.waits()),
        ]
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        let (all, batch) = (self.bins.layout(), self.bins.batch_size(BIN));
        let mut chunks = self.chunks.clone();
        chunks.sort_unstable();
        let segment = |address: u64| {
            let from = all.partition_point(|block| block.address < address);
            let to = all.partition_point(|block| block.address < address + batch);
            LayoutSegment {
                address,
                size: batch,
                stream: DEFAULT_STREAM,
                pool: "fixed_size",
                blocks: all[from..to].to_vec(),
                ..LayoutSegment::default()
            }
        };
        chunks.into_iter().map(segment).collect()
    }

    #[inline]
    fn usage(&self) -> Usage {
        let reserved = self.chunks.len() as u64 * self.bins.batch_size(BIN);
        Usage { allocated: self.allocated, active: self.allocated, reserved }
    }
}
