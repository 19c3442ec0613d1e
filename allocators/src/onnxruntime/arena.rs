//! `onnxruntime.arena`: ONNX Runtime's arena of device memory, derived from TensorFlow's allocator.
//!
//! Rules from `onnxruntime/core/framework/bfc_arena.cc` of microsoft/onnxruntime at 009aae13a310 (defaults: `bfc_arena.h` beside it, and
//! `cuda_execution_provider.cc`); **not checked against the real one yet**. Each rule has a test of its name.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `round`, `null` | sizes are rounded up to 256 B; a request for 0 bytes gets a null placement | `AllocateRawInternal` |
//! | `best_fit` | the smallest free chunk that is large enough; of equal ones the lowest | `FindChunkPtr` |
//! | `split` | the low end is handed out; the rest is split off if the chunk has twice the request, or the rest `max_dead_bytes_per_chunk` or more | `SplitFreeChunkFromBin` |
//! | `next_power_of_two` | the region size begins at min(limit, `initial_chunk_size_bytes`), and is doubled until it covers the request; a region is that, or what the limit leaves; the size is doubled afterwards only if it was not for this request, whether the device gives the region or not | `Extend` |
//! | `extend_max` | that last doubling stops at `max_power_of_two_extend_bytes`, which newer releases have (1 GiB there; none here, as in the release read) | `Extend` in `onnxruntime/test/autoep/library/ep_arena.cc` (newer releases) |
//! | `same_as_requested` | a region is what the request needs | `Extend` |
//! | `limit` | a request above what the limit leaves is refused without asking the device; reserved bytes count | `Extend` |
//! | `backpedal` | where the device refuses, 0.9 of the size in single precision, and so on, while it covers the request and is 8 KiB or more; so `kSameAsRequested` asks once | `Extend` |
//! | `no_release` | a failed growth releases nothing | `AllocateRawInternal` |
//! | `reserve` | while `reserve` is set, requests go straight to the device, unrounded, and straight back | `Reserve` |
//! | `coalesce` | a freed chunk is joined with the next, then the previous free chunk of its stream; regions are never joined | `Coalesce` |
//! | `shrink` | `trim` returns every region without a live chunk, but for the first one with `kNextPowerOfTwo`, and not reserved blocks | `Shrink` |
//! | `shrink_resets` | after it the region size is `initial_growth_chunk_size_bytes`, even if nothing was returned | `Shrink` |
//! | `streams` | a request may have chunks of no stream or of its own; it makes the chunk its stream's, and what is split off stays as it was; new memory has no stream | `FindChunkPtr`, `SplitChunk` |
//! | `release_streams` | when a run ends (`mark`) no chunk has a stream any more, and free neighbours are joined | `ReleaseStreamBuffers` |
//! | `cross_stream` | with `enable_cross_stream_reusing`, the smallest free chunk of another stream serves before the arena grows, whole, after a wait; it stays the other stream's | `FindChunkPtr`, `SecureTheChunk` |
//!
//! `empty_cache` is not answered: the arena has no such call, and keeps its first region. `trim` gives back what `shrink` gives back, whatever is to be kept.
//!
//! Not modelled: that a stream which waited for another may use its chunks until they are used again (the arena is not told of waits; reuse is ordered in any case); that
//! chunks taken from another stream are missing in the real one's own counters; requests of more than 1 TiB, which are refused at once.

use vramlab_sim::allocator::{AllocError, Notice, Reply, Usage};
use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::units::StreamId;

use super::options::{self, Settings};
use super::reserve::Reserving;
use super::streams::Streams;
use crate::options::Options;
use crate::parts::bfc::arena::{Arena, Book, Booked};
use crate::parts::bfc::chunks::{Chunks, Idle};
use crate::parts::bfc::growth;
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Pieces;
use crate::registry::{Made, Status, Strategy};

/// No region smaller than this is asked for once the device has refused a larger one.
const BACKPEDAL_LEAST: u64 = 8 << 10;

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "onnxruntime.arena",
    new,
    Status::Rules("ONNX Runtime at 009aae13a310"),
    options::OPTIONS,
    "best fit with coalescing, regions that double or are what requests need",
)
.inert(options::inert);

fn new(options: &Options) -> Made {
    let settings = Settings::parse(STRATEGY.name, options)?;
    Ok(Box::new(Reserving::new(Booked::shell(OrtArena::new(settings)))))
}

/// The rules.
pub(super) struct OrtArena {
    settings: Settings,
    /// Bytes of the next region.
    next_region: u64,
    chunks: Chunks,
    streams: Streams,
    /// The first region ever made, by its first chunk.
    first: Option<u32>,
    extensions: u64,
    shrinkages: u64,
    /// Blocks that went straight to the device so far.
    pub(super) reserves: u64,
}

impl OrtArena {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            next_region: settings.limit.min(settings.initial_chunk).next_multiple_of(256),
            chunks: Chunks::new(settings.dead),
            streams: Streams::new(settings.stream_aware),
            first: None,
            extensions: 0,
            shrinkages: 0,
            reserves: 0,
        }
    }

    /// Bytes of the region to ask for (rules `next_power_of_two`, `extend_max`, `same_as_requested`).
    fn region(&mut self, bytes: u64, available: u64) -> u64 {
        if !self.settings.next_power_of_two {
            return bytes;
        }
        let doubled = growth::cover(&mut self.next_region, bytes);
        let region = self.next_region.min(available);
        if !doubled {
            let most = self.settings.extend_max.unwrap_or(u64::MAX);
            self.next_region = growth::double(self.next_region).min(most);
        }
        region
    }

    fn extend(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        units: u32,
        uses: &mut LastUses,
    ) -> Result<bool, DriverError> {
        let bytes = self.chunks.pieces.bytes(units);
        let available = growth::available(self.settings.limit, book.reserved);
        if bytes > available {
            return Ok(false);
        }
        let region = self.region(bytes, available);
        let least = bytes.max(BACKPEDAL_LEAST);
        let Some(segment) = growth::obtain(driver, book, region, least)? else { return Ok(false) };
        let slot = self.chunks.add(segment);
        uses.fresh(slot);
        self.streams.add(&mut self.chunks, slot, uses);
        self.first.get_or_insert(slot);
        self.extensions += 1;
        Ok(true)
    }

    /// Rules `shrink`, `shrink_resets`.
    fn shrink(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        for Idle { head, mallocs } in self.chunks.idle() {
            if self.settings.next_power_of_two && self.first == Some(head) {
                continue;
            }
            let (given, answer) = book.give_back(driver, &mallocs, uses);
            answer?; // a region of this arena is one malloc
            let streams = &mut self.streams;
            let out = |pieces: &mut Pieces, slot| streams.forget(pieces, slot);
            self.chunks.gave_back(head, given, uses, out);
            self.extensions -= 1;
            self.shrinkages += 1;
        }
        self.next_region = self.settings.initial_growth;
        Ok(())
    }
}

impl Arena for OrtArena {
    const POOL: &'static str = "arena";

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
        stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        if let Some(slot) = self.streams.take(&mut self.chunks, units, stream, uses) {
            return Ok(Some(slot));
        }
        if self.settings.cross_stream
            && let Some(slot) = self.streams.take_from_another(&mut self.chunks, units, stream)
        {
            return Ok(Some(slot));
        }
        if !self.extend(driver, book, units, uses)? {
            return Ok(None);
        }
        Ok(self.streams.take(&mut self.chunks, units, stream, uses))
    }

    #[inline]
    fn give(&mut self, slot: u32, uses: &mut LastUses) {
        self.streams.give(&mut self.chunks, slot, uses);
    }

    fn limit(&self) -> Option<u64> {
        (self.settings.limit < u64::MAX).then_some(self.settings.limit)
    }

    fn largest_free(&self) -> u32 {
        self.streams.largest(&self.chunks)
    }

    fn notice(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        notice: Notice<'_>,
        uses: &mut LastUses,
    ) -> Result<Reply, AllocError> {
        match notice {
            Notice::Trim { .. } => self.shrink(driver, book, uses)?,
            Notice::Mark { .. } => self.streams.release(&mut self.chunks, uses),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    fn counters(&self, book: &Book, usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        let mut counters = vec![
            ("num_allocs", book.allocs),
            ("num_reserves", self.reserves),
            ("num_arena_extensions", self.extensions),
            ("num_arena_shrinkages", self.shrinkages),
            ("bytes_in_use", usage.active),
            ("total_allocated_bytes", usage.reserved),
            ("max_bytes_in_use", book.peak_active),
            ("max_alloc_size", book.largest),
            ("curr_region_allocation_bytes", self.next_region),
            ("stream_waits", uses.waits()),
        ];
        counters.extend(self.limit().map(|limit| ("bytes_limit", limit)));
        counters
    }
}
