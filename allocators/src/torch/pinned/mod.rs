//! `torch.pinned_host`: PyTorch's cache of pinned host memory, which feeds copies to and from a device.
//!
//! ```text
//!  request ─round up to 2^n─▶ newest free block of 2^n ──────────────▶ block
//!                                     │ none                             ▲
//!                                     └▶ reserve segment ─▶ cudaHostAlloc ┘
//!  free ─▶ used on streams? ─▶ an event on each ─▶ … all complete, noticed by a request ─▶ free block of 2^n
//! ```
//!
//! Built from the source of 2.15; not checked against the real one yet.
//!
//! | rule | what it says |
//! |---|---|
//! | `power_of_two` | sizes are rounded up to a power of two, from 1 B on; size 0 gets a null pointer. Departure: above 2^63 a size is invalid, where PyTorch's rounding wraps |
//! | `round_threshold` | above `pinned_max_round_threshold_mb`, or above `pinned_max_cached_size_mb`, a size stays as it is |
//! | `own_list` | free blocks lie in a list for each power of two, and serve sizes of that list only; the one freed last goes first. Blocks are never split or joined |
//! | `large_enough` | where sizes are not rounded, blocks of one list differ: the one freed last of those that are large enough |
//! | `recorded_streams` | at the free an event is recorded on each stream that was recorded for the block, and the block waits for all of them |
//! | `noticed` | a request looks at the events first, oldest first, up to the first that is not complete |
//! | `background` | with `pinned_use_background_threads` another thread does, from the first request on that found no free block: here, at the end of each call |
//! | `cached_size` | a block above `pinned_max_cached_size_mb` goes back as soon as nothing uses it |
//! | `empty_cache` | looks at the events, then gives all free blocks back, small ones first |
//! | `no_retry` | a request that the host refuses fails, whatever lies in the cache |
//! | `reserve_segment` | `pinned_reserve_segment_size_mb` is taken once, at the first block; blocks are cut from it in steps of 4 KiB while it lasts, and never given back: what an emptied cache drops of it is lost |
//! | `private_pools` | requests of a stream that is routed to a private pool use that pool's lists only; a pool without uses is emptied with the cache |
//! | `captured` | a block made during a capture and recorded for a stream is never used again, since nothing tells when a graph is done with it |
//! | `statistics` | the names and meanings of `torch.cuda.host_memory_stats`: allocations and allocated bytes count what the cache owns, active ones what is handed out or waits |
//!
//! Source: `aten/src/ATen/core/CachingHostAllocator.h`, `aten/src/ATen/cuda/CachingHostAllocator.cpp`, `c10/cuda/CUDAAllocatorConfig.h` of 2026,
//! and pytorch/pytorch#171662 and #192722 for the two thresholds and `large_enough`. How memory is pinned (`pinned_use_cuda_host_register`,
//! `pinned_num_register_threads`) and errors of a free (`pinned_free_catch_all`) change nothing here. Left out: several threads, their locks.

mod blocks;
mod cache;
mod routes;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::machine::Memory;
use vramlab_sim::units::StreamId;

use super::settings::{MIB, Settings, Version, option};
use crate::options::{OptionDoc, Options};
use crate::registry::{Status, Strategy};
use cache::Cache;

const NAME: &str = "torch.pinned_host";

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    NAME,
    |options| Ok(Box::new(Cache::new(settings(options)?))),
    Status::Rules("PyTorch 2.15"),
    OPTIONS,
    "PyTorch's cache of pinned host memory: powers of two, events of recorded streams",
)
.memory(Memory::Host)
.inert(inert);

const OPTIONS: &[OptionDoc] = &[
    option("conf", "", "PyTorch's settings text, verbatim, as in PYTORCH_CUDA_ALLOC_CONF"),
    option("pinned_max_round_threshold_mb", "none", "larger requests are not rounded up (MiB)"),
    option(
        "pinned_max_cached_size_mb",
        "none",
        "larger blocks are not rounded up and not kept (MiB)",
    ),
    option(
        "pinned_reserve_segment_size_mb",
        "none",
        "a segment taken at first, from which blocks are cut while it lasts (MiB)",
    ),
    option(
        "pinned_use_background_threads",
        "false",
        "another thread looks at events (true or false)",
    ),
    option(
        "pinned_use_cuda_host_register",
        "false",
        "pin by cudaHostRegister, not by cudaHostAlloc (true or false)",
    ),
    option(
        "pinned_num_register_threads",
        "1",
        "threads that touch pages before they are registered: a power of two up to 128",
    ),
    option("pinned_free_catch_all", "false", "swallow errors of a free (true or false)"),
];

fn settings(options: &Options) -> Result<Settings, crate::OptionError> {
    options.check(NAME, OPTIONS)?;
    Settings::of(NAME, Version::V2_15, options, &[])
}

/// Settings that can have no effect as given.
fn inert(options: &Options) -> Vec<String> {
    let Ok(settings) = settings(options) else { return Vec::new() };
    let pinned = settings.pinned;
    let mut found = Vec::new();
    if pinned.register {
        found.push("pinned_use_cuda_host_register changes how memory is pinned, and how fast, which is not modelled: what is placed where stays".into());
    }
    if pinned.register_threads > 1 {
        let why =
            if pinned.register { "is not modelled" } else { "needs pinned_use_cuda_host_register" };
        found.push(format!("pinned_num_register_threads has no effect: it {why}"));
    }
    if pinned.catch_all {
        found.push(
            "pinned_free_catch_all is about errors of a free, of which there are none here".into(),
        );
    }
    if pinned.round_max != u64::MAX && pinned.round_max >= pinned.cached_max {
        found.push(format!(
            "pinned_max_round_threshold_mb of {} does nothing beside a smaller pinned_max_cached_size_mb: what is not kept is not rounded either",
            pinned.round_max / MIB
        ));
    }
    found
}

impl Allocator for Cache {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let placement = self.place(driver, request)?;
        self.work_in_background(driver)?;
        Ok(placement)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.take_back(driver, block)?;
        self.work_in_background(driver)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, stream } => self.record(block, stream)?,
            Notice::EmptyCache => self.empty(driver)?,
            Notice::PoolBegin { pool, stream } => self.routes.begin(pool, stream)?,
            Notice::PoolEnd { pool } => self.routes.end(pool)?,
            Notice::PoolRelease { pool } => self.routes.release(pool)?,
            Notice::CaptureBegin { stream } => self.routes.capture_begin(stream),
            Notice::CaptureEnd { stream } => self.routes.capture_end(stream),
            Notice::Set { key: "conf", value } => self.set(value)?,
            Notice::ResetPeak => self.statistics.reset_peak(),
            Notice::ResetAccumulated => self.statistics.reset_accumulated(),
            Notice::Counters => return Ok(Reply::Counters(self.statistics.counters())),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            Notice::Mark { .. } => {}
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.usage
    }
}

#[cfg(test)]
mod tests;
