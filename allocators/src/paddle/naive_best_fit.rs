//! `paddle.naive_best_fit`: a share of the device at once, best fit inside (its file is called buddy allocator, but no size is a power of two).
//!
//! Equal to recordings of PaddlePaddle's own code (15888d1, 21 May 2024), which was the default before `auto_growth`.
//!
//! | rule | what it says | source or golden case |
//! |---|---|---|
//! | `round` | a block is (request + 64) rounded up to 256 B; the address handed out is 64 B inside it | nb01 |
//! | `best_fit` | the smallest sufficient free piece, of equal ones the lowest; the request takes its LOW end | nb04 |
//! | `split` | a rest of at most 64 B stays with the block | nb06 |
//! | `coalesce` | a freed block is joined with both neighbours at once, never across chunks | nb01, nb03 |
//! | `available` | free memory of the device minus trunc(0.05 x free) in single precision; less than 256 B count as none | nb01, `gpu_info.cc` |
//! | `chunk` | the MiB of the flag if it is set, else trunc(available x fraction); out of memory if nothing is available, or less than the flag says | nb01, nb03 |
//! | `first_chunk` | while nothing is held and in use, by `initial_gpu_memory_in_mb`, so again after everything was released; a larger request gets a chunk of its block | nb03, nb07 |
//! | `later_chunks` | by `reallocate_gpu_memory_in_mb`: set, it is evaluated once and kept; by the fraction, it is that of what is available now, and shrinks | nb03, nb05 |
//! | `huge` | a block above max_chunk, the larger of both chunk sizes when the allocator begins, goes straight to the driver and straight back, outside of the counters | nb02 |
//! | `no_recovery` | a growth that fails is out of memory; idle chunks go back at `empty_cache` and `trim` only, in order of (size, address) | nb05, nb07 |
//! | `counters` | total_used and total_free move by the rounded request when it is served, but by the block when it is freed: they drift where a rest was not split off, and may wrap. They decide what counts as the first chunk | `buddy_allocator.cc` |
//!
//! The simulated allocator begins with its first request. The default fraction is the single-precision 0.92 as a double, the given one is a double.
//! Bytes: a placement has the block less its 64 B header. What else is around the rules is told in [`super`]. Not modelled: a
//! released chunk stays in the real one's list of chunks, so that a free piece of the same place and size inside a later chunk is taken for one.

use vramlab_sim::allocator::{Allocator, Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::chunks::Chunks;
use super::flags::{self, with_flags};
use super::limit::limited;
use super::settings::{self, BUDDY, aligned};
use crate::options::{OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::room::malloc;
use crate::parts::shell::{Core, Shell};
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "paddle.naive_best_fit",
    new,
    Status::Exact("PaddlePaddle 15888d1 (May 2024)"),
    BUDDY,
    "a share of the device as one chunk, best fit inside",
)
.aligned_to(HEADER)
.inert(inert);

/// Blocks are multiples of this.
const UNIT: u64 = 256;
/// Bytes at the beginning of a block.
const HEADER: u64 = 64;
/// Share of the free memory that is never taken, in the precision in which it is used.
const RESERVED_SHARE: f32 = 0.05;
/// Default share of the rest for a chunk, in the precision in which it is written down.
const FRACTION: f32 = 0.92;
const POOL: u8 = 0;

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    let options = with_flags(STRATEGY.name, options, BUDDY)?;
    let fraction = settings::share(&options, "fraction_of_gpu_memory_to_use", f64::from(FRACTION))?;
    let buddy = Buddy {
        fraction,
        initial: settings::mib(&options, "initial_gpu_memory_in_mb")?,
        reallocate: settings::mib(&options, "reallocate_gpu_memory_in_mb")?,
        max_chunk: None,
        kept: 0,
        chunks: Chunks::new(1),
        reserved: 0,
        huge: rustc_hash::FxHashSet::default(),
        total_used: 0,
        total_free: 0,
    };
    let limit = settings::mib(&options, "gpu_memory_limit_mb")?;
    Ok(limited(Box::new(Shell::new(buddy)), limit))
}

fn inert(given: &Options) -> Vec<String> {
    let mut notes = flags::inert(given, BUDDY);
    let Ok(options) = with_flags(STRATEGY.name, given, BUDDY) else { return notes };
    let set = |name: &str| settings::mib(&options, name).is_ok_and(|size| size > 0);
    let fraction = options.get("fraction_of_gpu_memory_to_use");
    if let Some(fraction) =
        fraction.filter(|_| set("initial_gpu_memory_in_mb") && set("reallocate_gpu_memory_in_mb"))
    {
        notes.push(format!("fraction_of_gpu_memory_to_use={fraction} has no effect: both chunk sizes are given in MiB"));
    }
    notes
}

struct Buddy {
    fraction: f64,
    /// Bytes by the flags; 0: by the fraction.
    initial: u64,
    reallocate: u64,
    /// Largest block that comes out of a chunk; known from the first request on.
    max_chunk: Option<u64>,
    /// The size of later chunks, once it was evaluated (rule `later_chunks`).
    kept: u64,
    chunks: Chunks,
    reserved: u64,
    /// Slots of blocks that are chunks of their own. Looked up, never walked.
    huge: rustc_hash::FxHashSet<u32>,
    total_used: u64,
    total_free: u64,
}

/// Rule `round`.
fn rounded(requested: u64) -> Option<u64> {
    aligned(requested.checked_add(HEADER)?, UNIT)
}

impl Buddy {
    /// Size of a chunk by a flag; none if it is not there (rules `available`, `chunk`).
    fn chunk(&self, driver: &mut dyn Driver, by_flag: u64) -> Result<Option<u64>, DriverError> {
        let free = driver.mem_info()?.0;
        let available = free - ((RESERVED_SHARE * free as f32) as u64).min(free);
        if available < UNIT {
            return Ok(None);
        }
        let by_fraction = (available as f64 * self.fraction) as u64;
        let size = if by_flag > 0 { by_flag } else { by_fraction };
        Ok(Some(size).filter(|size| *size <= available))
    }

    /// The larger of both chunk sizes, evaluated at the first call that can.
    fn max_chunk(&mut self, driver: &mut dyn Driver) -> Result<Option<u64>, DriverError> {
        if self.max_chunk.is_none() {
            let sizes = (self.chunk(driver, self.initial)?, self.chunk(driver, self.reallocate)?);
            self.max_chunk = sizes.0.zip(sizes.1).map(|(first, later)| first.max(later));
        }
        Ok(self.max_chunk)
    }

    /// A new chunk for a block of `size` bytes, as a free piece.
    #[cold]
    fn grow(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let chunk = if self.total_used == 0 && self.total_free == 0 {
            self.chunk(driver, self.initial)?
        } else if self.kept == 0 || self.reallocate == 0 {
            let later = self.chunk(driver, self.reallocate)?;
            self.kept = later.unwrap_or(self.kept);
            later
        } else {
            Some(self.kept)
        };
        let Some(chunk) = chunk.map(|chunk| chunk.max(size)) else { return Ok(None) };
        let Some(address) = self.malloc(driver, chunk)? else { return Ok(None) };
        self.total_free = self.total_free.wrapping_add(chunk);
        Ok(Some(self.chunks.add(address, chunk, POOL, uses)))
    }

    fn malloc(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Option<u64>, DriverError> {
        let address = malloc(driver, size)?;
        self.reserved += address.map_or(0, |_| size);
        Ok(address)
    }

    #[cold]
    fn take_huge(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        requested: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(address) = self.malloc(driver, size)? else { return Ok(None) };
        let slot = self.chunks.add_used(address, size, requested, uses);
        self.huge.insert(slot);
        Ok(Some(slot))
    }

    fn return_chunk(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<u64, DriverError> {
        let chunk = *self.chunks.get(slot);
        driver.free(chunk.address)?;
        uses.device_waited();
        self.reserved -= chunk.size;
        Ok(chunk.size)
    }
}

impl Core for Buddy {
    const RELEASES: bool = true;

    #[inline]
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        _stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(size) = rounded(requested) else { return Ok(None) };
        let Some(max_chunk) = self.max_chunk(driver)? else { return Ok(None) };
        if size > max_chunk {
            return self.take_huge(driver, size, requested, uses);
        }
        let found = match self.chunks.find(POOL, size) {
            None => self.grow(driver, size, uses)?,
            found => found,
        };
        let Some(slot) = found else { return Ok(None) };
        self.total_used = self.total_used.wrapping_add(size);
        self.total_free = self.total_free.wrapping_sub(size);
        if self.chunks.get(slot).size - size <= HEADER {
            self.chunks.take(slot, requested);
        } else {
            self.chunks.take_low(slot, size, requested, uses);
        }
        Ok(Some(slot))
    }

    #[inline]
    fn give(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        if !self.huge.is_empty() && self.huge.contains(&slot) {
            self.return_chunk(driver, slot, uses)?;
            self.huge.remove(&slot);
            self.chunks.remove_used(slot, uses);
            return Ok(());
        }
        let size = self.chunks.get(slot).size;
        self.total_used = self.total_used.wrapping_sub(size);
        self.total_free = self.total_free.wrapping_add(size);
        self.chunks.give(slot, uses);
        Ok(())
    }

    fn release(
        &mut self,
        driver: &mut dyn Driver,
        keep: u64,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        for slot in self.chunks.whole_free() {
            if self.reserved <= keep {
                break;
            }
            let size = self.return_chunk(driver, slot, uses)?;
            self.total_free = self.total_free.wrapping_sub(size);
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
        let Placement { block, address, size } = self.chunks.placement(slot);
        Placement { block, address: address + HEADER, size: size - HEADER }
    }

    #[inline]
    fn size(&self, slot: u32) -> u64 {
        self.chunks.get(slot).size
    }

    fn largest_free(&mut self) -> u64 {
        self.chunks.largest()
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.chunks.walk(&["buddy"], false)
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn rounded(&self, size: u64) -> Option<u64> {
        rounded(size)
    }

    fn counters(&self, _usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        let mut list = self.chunks.counters(uses);
        list.push(("total_used", self.total_used));
        list.push(("total_free", self.total_free));
        list.push(("max_chunk", self.max_chunk.unwrap_or(0)));
        list
    }
}
