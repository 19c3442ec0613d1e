//! `tensorflow.bfc`: TensorFlow's best-fit allocator with coalescing.
//!
//! As in `tsl/framework/bfc_allocator.cc` of google/tsl before it moved into openxla/xla (parent of 326816223e64), June 2024, and
//! equal to its recordings in every field. Defaults are those of `gpu_bfc_allocator.cc` and `gpu_device.cc` in
//! `tensorflow/core/common_runtime/gpu` (TensorFlow 2.17). Cases are in `tests/golden/bfc`.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `round`, `null` | sizes are rounded up to 256 B; a request for 0 bytes gets a null placement | bf02 |
//! | `best_fit` | the smallest free chunk that is large enough; of equal ones the lowest | bf06, bf07 |
//! | `low_end`, `split` | the low end is handed out; the rest is split off if the chunk has twice the request, or the rest 128 MiB or more | bf03, bf04, bf06 |
//! | `fragmentation_fraction` | above 0: that part of the limit, truncated, in place of the 128 MiB | bf05 |
//! | `limit` | a request above what the limit leaves beside the regions is refused first | bf10, bf13 |
//! | `growth` | the first region is min(limit, 2 MiB); the next size is doubled while it is below the request, or else once the region is made | bf01 |
//! | `no_growth` | the next size begins at the limit | bf15 |
//! | `backpedal` | where the device refuses, 0.9 of the size in single precision, and so on | bf11 |
//! | `regions` | chunks of two regions are never joined, but with `coalesce_regions` a region that begins where another ends continues it | bf08, bf09 |
//! | `garbage_collection` | when a request fails and would fit beside the regions that have a live chunk, all others go back, and one region is asked for; the next size stays | bf12 to bf14 |
//! | `timestamps` | a freed chunk keeps the time of its free, is not joined until the safe frontier is above it, and may serve any request that does not ask for earlier frees; a failing request joins waiting chunks one by one | bf16 |
//! | `retry` | TensorFlow then waits up to 10 s for other threads' frees; here, for deferred ones | `AllocatorRetry` |
//!
//! With `timestamped_allocator`, `safe_frontier` and `freed_by_count` (of the next request) are set while running; in TensorFlow a tracker of kernels does so.
//!
//! Not modelled: the 21 bins (they change no answer); the alignment above 256 B and the two-ended regions of newer versions. One thing is theirs: a size that 0.9
//! does not make smaller loses 256 B (the recorded version tries it for ever). A device with more than 1 TiB has a limit of 1 TiB.

use vramlab_sim::allocator::{AllocError, Notice, Reply, Usage};
use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::units::{Bytes, StreamId};

use super::limit::Limit;
use super::options::{self, Settings};
use super::timestamps::Timestamps;
use crate::options::Options;
use crate::parts::bfc::arena::{Arena, Book, Booked};
use crate::parts::bfc::chunks::{Always, Chunks, Idle};
use crate::parts::bfc::growth;
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Pieces;
use crate::parts::size_order::SizeOrder;
use crate::registry::{Made, Status, Strategy};

/// First region where regions grow.
const FIRST_REGION: u64 = Bytes::mib(2).0;
/// A rest of this is always split off.
const DEAD: u64 = Bytes::mib(128).0;

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "tensorflow.bfc",
    new,
    Status::Exact("TensorFlow's BFC allocator (tsl, June 2024)"),
    options::BFC,
    "best fit with coalescing: one region of the whole limit, or regions that double",
)
.inert(options::inert);

fn new(options: &Options) -> Made {
    Ok(Box::new(Booked::shell(Bfc::new(Settings::bfc(STRATEGY.name, options)?))))
}

/// The rules.
pub(super) struct Bfc {
    settings: Settings,
    /// Known since the first request.
    limit: Option<u64>,
    /// Bytes of the next region.
    next_region: u64,
    chunks: Chunks,
    free: SizeOrder,
    times: Option<Timestamps>,
}

impl Bfc {
    pub(super) fn new(settings: Settings) -> Self {
        let mut new = Self {
            settings,
            limit: None,
            next_region: 0,
            chunks: Chunks::new(DEAD),
            free: SizeOrder::new(),
            times: settings.timestamped.then(Timestamps::default),
        };
        if let Limit::Bytes(limit) = settings.limit {
            new.begin(limit);
        }
        new
    }

    fn limit(&mut self, driver: &mut dyn Driver) -> Result<u64, DriverError> {
        match self.limit {
            Some(limit) => Ok(limit),
            None => Ok(self.begin(self.settings.limit.bytes(driver)?)),
        }
    }

    /// The limit is known, and what follows from it.
    fn begin(&mut self, limit: u64) -> u64 {
        let first = if self.settings.allow_growth { limit.min(FIRST_REGION) } else { limit };
        self.next_region = first.next_multiple_of(256);
        if self.settings.fragmentation_fraction > 0.0 {
            self.chunks.set_dead((self.settings.fragmentation_fraction * limit as f64) as u64);
        }
        self.limit = Some(limit);
        limit
    }

    /// A free chunk, cut to size (rules `best_fit`, `split`).
    #[inline]
    fn find(&mut self, units: u32, uses: &mut LastUses) -> Option<u32> {
        let mut found = self.free.smallest_from(&self.chunks.pieces, units)?;
        if let Some(times) = &self.times {
            while !times.allows(found) {
                found = self.free.next(&self.chunks.pieces, found)?;
            }
        }
        let rest = self.chunks.cut(&mut self.free, found, units, uses);
        if let (Some(times), Some(rest)) = (&mut self.times, rest) {
            times.split(found, rest);
        }
        Some(found)
    }

    /// A region for a request of `bytes` (rules `limit`, `growth`, `backpedal`, `regions`).
    fn extend(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        bytes: u64,
        uses: &mut LastUses,
    ) -> Result<bool, DriverError> {
        let available = growth::available(self.limit(driver)?, book.reserved);
        if bytes > available {
            return Ok(false);
        }
        let doubled = growth::cover(&mut self.next_region, bytes);
        let size = self.next_region.min(available);
        let Some(segment) = growth::obtain(driver, book, size, bytes)? else { return Ok(false) };
        if !doubled {
            self.next_region = growth::double(self.next_region);
        }
        let slot = if self.settings.coalesce_regions {
            self.chunks.add_or_extend(segment)
        } else {
            self.chunks.add(segment)
        };
        uses.fresh(slot);
        self.settle_new(slot, uses);
        Ok(true)
    }

    /// A chunk of memory that nobody has used.
    fn settle_new(&mut self, slot: u32, uses: &mut LastUses) {
        match &mut self.times {
            None => {
                self.chunks.settle(&mut self.free, slot, &mut Always, uses);
            }
            Some(times) => times.settle(&mut self.chunks, &mut self.free, slot, uses),
        }
    }

    /// Returns all regions without a live chunk, if that could help a request of `bytes` (rule `garbage_collection`).
    fn collect(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        bytes: u64,
        uses: &mut LastUses,
    ) -> Result<bool, DriverError> {
        if !self.settings.garbage_collection {
            return Ok(false);
        }
        let idle = self.chunks.idle();
        let freed: u64 = idle.iter().map(Idle::size).sum();
        let held_by_others = book.reserved - freed;
        if freed == 0 || bytes > self.limit(driver)?.saturating_sub(held_by_others) {
            return Ok(false);
        }
        for Idle { head, mallocs } in idle {
            let (given, answer) = book.give_back(driver, &mallocs, uses);
            let free = &mut self.free;
            let out = |pieces: &mut Pieces, slot| {
                let piece = *pieces.get(slot);
                free.remove(pieces, slot, piece.units, piece.address());
            };
            if given > 0
                && let Some(rest) = self.chunks.gave_back(head, given, uses, out)
            {
                self.settle_new(rest, uses);
            }
            answer?;
        }
        Ok(true)
    }

    /// After the first search failed.
    #[cold]
    fn miss(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        units: u32,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let bytes = self.chunks.pieces.bytes(units);
        if self.extend(driver, book, bytes, uses)?
            && let Some(found) = self.find(units, uses)
        {
            return Ok(Some(found));
        }
        if let Some(times) = &mut self.times
            && times.freed_by == 0
            && times.are_waiting()
            && times.merge_until(&mut self.chunks, &mut self.free, units, uses)
            && let Some(found) = self.find(units, uses)
        {
            return Ok(Some(found));
        }
        if self.collect(driver, book, bytes, uses)? && self.extend(driver, book, bytes, uses)? {
            return Ok(self.find(units, uses));
        }
        Ok(None)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<Reply, AllocError> {
        let Some(times) = &mut self.times else { return Ok(Reply::Unsupported) };
        let number = value.parse();
        let number = number.map_err(|_| {
            AllocError::BadSetting(format!("{key}={value}: expected a count of frees").into())
        });
        match key {
            "safe_frontier" => times.safe_frontier = times.safe_frontier.max(number?),
            "freed_by_count" => times.freed_by = number?,
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }
}

impl Arena for Bfc {
    const POOL: &'static str = "bfc";

    #[inline]
    fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    #[inline]
    fn chunks_mut(&mut self) -> &mut Chunks {
        &mut self.chunks
    }

    #[inline]
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        units: u32,
        _stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        if let Some(times) = &mut self.times {
            times.merge_safe(&mut self.chunks, &mut self.free, uses);
        }
        let taken = match self.find(units, uses) {
            Some(found) => Some(found),
            None => self.miss(driver, book, units, uses)?,
        };
        if let Some(times) = &mut self.times {
            times.freed_by = 0;
        }
        Ok(taken)
    }

    #[inline]
    fn give(&mut self, slot: u32, uses: &mut LastUses) {
        match &mut self.times {
            None => {
                self.chunks.settle(&mut self.free, slot, &mut Always, uses);
            }
            Some(times) => {
                times.freed(slot);
                self.free.insert(&mut self.chunks.pieces, slot);
            }
        }
    }

    fn limit(&self) -> Option<u64> {
        self.limit
    }

    fn largest_free(&self) -> u32 {
        let pieces = &self.chunks.pieces;
        self.free.largest(pieces).map_or(0, |slot| pieces.get(slot).units)
    }

    fn notice(
        &mut self,
        _driver: &mut dyn Driver,
        _book: &mut Book,
        notice: Notice<'_>,
        _uses: &mut LastUses,
    ) -> Result<Reply, AllocError> {
        match notice {
            Notice::Set { key, value } => self.set(key, value),
            Notice::Mark { .. } => Ok(Reply::Done),
            _ => Ok(Reply::Unsupported),
        }
    }

    fn counters(&self, book: &Book, usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        vec![
            ("num_allocs", book.allocs),
            ("bytes_in_use", usage.active),
            ("peak_bytes_in_use", book.peak_active),
            ("largest_alloc_size", book.largest),
            ("bytes_limit", self.limit.unwrap_or(0)),
            ("pool_bytes", usage.reserved),
            ("peak_pool_bytes", book.peak_reserved),
            ("largest_free_block_bytes", self.chunks.pieces.bytes(self.largest_free())),
            ("curr_region_allocation_bytes", self.next_region),
            ("stream_waits", uses.waits()),
        ]
    }
}
