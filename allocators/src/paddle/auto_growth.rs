//! `paddle.auto_growth`: chunks from the driver as large as the requests that miss, best fit among all free pieces.
//!
//! Equal to recordings of PaddlePaddle's own code (15888d1, 21 May 2024); the rules marked "newer" are of the development branch of 2025
//! (`paddle/phi/core/memory/allocation/auto_growth_best_fit_allocator.cc`, Paddle 2c8abd8), off by default, and not checked against the real one yet.
//!
//! | rule | what it says | source or golden case |
//! |---|---|---|
//! | `round` | a size is rounded up to `alignment_size` (256 B); there is no other step | ag01 |
//! | `best_fit` | the smallest sufficient free piece of all chunks, of equal ones the lowest | ag03, ag04 |
//! | `high_end` | the request takes the high end of the piece, of a fresh chunk too; any rest stays free, however small the request | ag02, ag12 |
//! | `coalesce` | a freed block is joined with both neighbours at once, never across chunks | ag05, ag06 |
//! | `growth` | a request that finds nothing gets a chunk of max(rounded request, chunk size), the chunk size rounded as requests are | ag01, ag07 |
//! | `retry` | where the driver has no room, all idle chunks go back in order of their making, and the driver is asked once more for as much; if that fails too they stay returned | ag10, ag12 |
//! | `free_idle_chunk` | every free returns all idle chunks, a chunk being idle when it is one free piece | ag08 |
//! | `free_when_no_cache_hit` | idle chunks go back before every growth; a growth that fails then is final | ag09, ag11 |
//! | `keep_idle` | with `allow_free_idle_chunk=false` (what Paddle uses for the pool of a graph capture) no chunk is ever returned, and there is no recovery | ag13 |
//! | `release` | `empty_cache` returns all idle chunks; `trim` stops at `keep` bytes | agL10 |
//! | `small_pool` | newer: with a threshold > 0, requests of at most that many rounded bytes have a pool of their own; each pool then grows by its own flag (0: the exact size), and `auto_growth_chunk_size_in_mb` counts for neither | source |
//! | `pre_alloc` | newer: a pool's pre-allocation is one chunk, taken from the driver before the first request is served; a request fails as long as it does not fit. With no threshold the small pool's serves nobody | source |
//! | `warm_up` | an addition: `warm_up=SIZE` is the large pool's pre-allocation for users of older versions, in bytes | - |
//!
//! Alone it is one pool for all streams. Paddle's default wiring on a GPU is `paddle.auto_growth+stream_safe`: one such pool for each stream. What else is around
//! the rules is told in [`super`]. Not modelled: `auto_growth_v2`, and private pools of graph captures.

use vramlab_sim::allocator::{Allocator, Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::chunks::Chunks;
use super::idle::Idle;
use super::limit::limited;
use super::settings::{self, AUTO_GROWTH, Growth, aligned};
use crate::options::{OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::room::malloc;
use crate::parts::shell::{Core, Shell};
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "paddle.auto_growth",
    new,
    Status::Exact("PaddlePaddle 15888d1 (May 2024)"),
    AUTO_GROWTH,
    "chunks of the size that misses, best fit over all; alone: Paddle's default on a GPU is paddle.auto_growth+stream_safe",
)
.inert(settings::auto_growth_inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    let growth = Growth::parse(options)?;
    let limit = growth.limit;
    Ok(limited(Box::new(Shell::new(AutoGrowth::new(growth))), limit))
}

const SMALL: u8 = 0;
const LARGE: u8 = 1;

struct AutoGrowth {
    growth: Growth,
    chunks: Chunks,
    idle: Idle,
    reserved: u64,
    /// Chunks to be taken before the first request is served: pool and bytes.
    warm_up: Vec<(u8, u64)>,
}

impl AutoGrowth {
    fn new(growth: Growth) -> Self {
        let warm_up = [(LARGE, growth.large_pre_alloc), (SMALL, growth.small_pre_alloc)];
        let warm_up = warm_up.into_iter().filter(|(_, size)| *size > 0).collect();
        Self { growth, chunks: Chunks::new(2), idle: Idle::default(), reserved: 0, warm_up }
    }

    /// Asks the driver for a chunk, which is idle then; none if it has no room.
    fn grow(
        &mut self,
        driver: &mut dyn Driver,
        pool: u8,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(address) = malloc(driver, size)? else { return Ok(None) };
        self.reserved += size;
        let slot = self.chunks.add(address, size, pool, uses);
        self.idle.born(slot);
        Ok(Some(slot))
    }

    /// Takes the pre-allocations; false if one finds no room (rule `pre_alloc`).
    #[cold]
    fn warm(&mut self, driver: &mut dyn Driver, uses: &mut LastUses) -> Result<bool, DriverError> {
        while let Some((pool, size)) = self.warm_up.last().copied() {
            if self.grow(driver, pool, size, uses)?.is_none() {
                return Ok(false);
            }
            self.warm_up.pop();
        }
        Ok(true)
    }

    /// No free piece fits (rules `growth`, `retry`, `free_when_no_cache_hit`).
    #[cold]
    fn miss(
        &mut self,
        driver: &mut dyn Driver,
        pool: u8,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let least = if pool == SMALL { self.growth.small_chunk } else { self.growth.large_chunk };
        let chunk = size.max(least);
        if self.growth.free_when_no_cache_hit {
            self.release(driver, 0, uses)?;
            return self.grow(driver, pool, chunk, uses);
        }
        if let Some(slot) = self.grow(driver, pool, chunk, uses)? {
            return Ok(Some(slot));
        }
        self.release(driver, 0, uses)?;
        self.grow(driver, pool, chunk, uses)
    }
}

impl Core for AutoGrowth {
    const RELEASES: bool = true;

    #[inline]
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        _stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(size) = aligned(requested, self.growth.alignment) else { return Ok(None) };
        if !self.warm_up.is_empty() && !self.warm(driver, uses)? {
            return Ok(None);
        }
        let pool = if size <= self.growth.small_max { SMALL } else { LARGE };
        let found = match self.chunks.find(pool, size) {
            None => self.miss(driver, pool, size, uses)?,
            found => found,
        };
        let Some(slot) = found else { return Ok(None) };
        if self.chunks.get(slot).is_whole() {
            self.idle.remove(slot);
        }
        Ok(Some(self.chunks.take_high(slot, size, requested, uses)))
    }

    #[inline]
    fn give(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        let joined = self.chunks.give(slot, uses);
        if self.chunks.get(joined).is_whole() {
            self.idle.insert(joined);
        }
        if self.growth.free_idle_chunk { self.release(driver, 0, uses) } else { Ok(()) }
    }

    fn release(
        &mut self,
        driver: &mut dyn Driver,
        keep: u64,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        if !self.growth.allow_free_idle_chunk {
            return Ok(());
        }
        for slot in self.idle.oldest_first() {
            if self.reserved <= keep {
                break;
            }
            let chunk = *self.chunks.get(slot);
            driver.free(chunk.address)?;
            uses.device_waited();
            self.reserved -= chunk.size;
            self.idle.remove(slot);
            self.chunks.remove(slot, uses);
        }
        Ok(())
    }

    #[inline]
    fn find(&self, block: Block) -> Option<u32> {
        self.chunks.live(block)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        self.chunks.placement(slot)
    }

    fn largest_free(&mut self) -> u64 {
        self.chunks.largest()
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.chunks.walk(&["small", "large"], false)
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn rounded(&self, size: u64) -> Option<u64> {
        aligned(size, self.growth.alignment)
    }

    fn counters(&self, _usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        self.chunks.counters(uses)
    }
}
