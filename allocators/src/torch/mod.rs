//! `torch.caching`: PyTorch's CUDA caching allocator, exactly.
//!
//! ```text
//!  request ─round─▶ pool, stream ─search─▶ best fit ───────────────────────────────▶ split? ─▶ block
//!                                   │ none                                            ▲
//!                                   └▶ collect ─▶ attempt ─▶ release ─▶ attempt ─▶ … ─┘      (`obtain`, `release`, `expandable`)
//!  free ─▶ used on other streams? ─▶ events ─▶ … completed ─▶ join with free neighbours ─▶ pool
//! ```
//!
//! Models `c10/cuda/CUDACachingAllocator.cpp` of PyTorch 2.15.0 (the default), of 2.9.1 (`version=2.9`), and `THCCachingAllocator.cpp` of
//! 0.4.1 (`version=legacy`). The first two are held to recordings of the compiled libraries, call by call and number by number: the
//! golden cases of `tests/golden/pytorch` are named in the tables, and RULES is the numbered list beside them.
//!
//! | rule | what it says | shown by | file |
//! |---|---|---|---|
//! | 1 round512 | multiples of 512 B; size 0 gets a null pointer and has no effect | `round512`, `zero_size` | `rounding` |
//! | 2, 3 divisions | up to N steps between powers of two, one N or one per class; the pool goes by the rounded size | `roundup_pow2*` | `rounding`, `conf` |
//! | 4 segments | 2 MiB for up to 1 MiB, 20 MiB below 10 MiB, else multiples of 2 MiB | `segment_tiers`, `large_segment_*` | `rounding` |
//! | 5 best fit | by stream, size, age of the segment, address; 2.9 without the age | `best_fit`, `tie_by_*` | `obtain`, `pieces` |
//! | 6 oversize | with a split limit, blocks above it are for requests above it, within max_non_split_rounding | `max_split*` | `obtain` |
//! | 7 split | small pool from 512 B of rest on, large pool above 1 MiB of rest and below the split limit; any block from 512 B on while expandable segments are on | `split_*`, `carve_20m`, `xp_split` | `place` |
//! | 8 attempts | collect, ask, release oversize and ask, release all and ask: the last is a retry, its failure an oom | `oom_*` | `obtain` |
//! | 9, 13 order | memory fraction, then rejection, then the device | `memory_fraction`, `throw_*` | `obtain` |
//! | 10 fraction | 1.0 is no limit; in 2.9 it is one | `gc_fraction_one`, `config_fraction` | `control` |
//! | 11 oversize release | one that is large enough, or from the largest downwards | `max_split_release*`, `xp_combined` | `release` |
//! | 12 full release | waits for events, then whole segments: large, small, private | `empty_cache*`, `oom_fragmented` | `release` |
//! | 14 collection | whole segments at least as old as the average, above a share of the limit | `gc_*` | `release` |
//! | 15 merge | with the previous, then the next block, if free and not waiting | `coalesce*` | `place` |
//! | 16, 17 streams | events at free, noticed at the next request, per stream in order; blocks keep their stream | `record_stream_*`, `stream_isolation` | `events`, `recorded` |
//! | 18–20 growth | ranges of 9/8 of the device, mapped page by page where there is room | `xp_grow`, `xp_oom`, `xp_reserve_*` | `expandable` |
//! | 21 growable last | the size of a block includes the unmapped piece behind it | `xp_best_fit` | `obtain` |
//! | 22 shrinking | whole pages inside free blocks are unmapped | `xp_unmap` | `expandable` |
//! | 24 toggled | expandable blocks are skipped while they are switched off | `xp_toggle` | `obtain` |
//! | 23, 25, 26 statistics | every counter as PyTorch counts it | all, `reset_stats` | `stats`, `levels` |
//! | 27, 28 private pools | use counts; who gets which request; what goes back, in which order | `private_*` | `pools`, `freeable` |
//! | 29 captures | hold back events and releases | `capture_*` | `captures`, `events` |
//! | 30 while running | what falls back, what stays | `conf_reset` | `settings`, `control` |
//! | 31, 32 refusals | per version, in its own words | | `conf` |
//! | legacy | 128 KiB steps, 1 MiB segments, one queue of events, nothing waited for | | `rounding`, `events`, `release` |
//! | state | what is where, and starting from it | every block table | `layout` |
//!
//! Found beside RULES, by random traces against the compiled libraries: the limit of a fraction is rounded to the nearest byte (2.15); rejection goes by
//! the fraction option as named last; of several pools begun for a stream the newest counts (2.9: the oldest); pools go back in the order of a
//! hash table; max_non_split_rounding stays in 2.9; the oversize release works with expandable segments on too, on other blocks.
//!
//! Departures, each where its file says so: sizes never wrap (`rounding`), a refused settings text changes nothing (`settings`), pieces
//! end below 2 TiB (`pieces`), parts of segments are not released (`release`), `research_pool_after_sync` (`obtain`), frees with unseen completion (`events`).
//! Left out: several devices in one instance, threads, IPC, peer access, `MemPool` with an own allocator, checkpoints of private pools,
//! `graph_capture_record_stream_reuse`, reserve classes. `backend:cudaMallocAsync` is another allocator, in `async_backend`. A free says nothing about a stream, as in PyTorch.

mod async_backend;
mod captures;
mod conf;
mod control;
mod events;
mod expandable;
mod freeable;
mod inert;
mod layout;
mod levels;
mod obtain;
mod piece;
mod pieces;
pub mod pinned;
mod place;
mod pools;
mod recorded;
mod release;
mod rounding;
mod settings;
mod sizes;
mod statistics;
mod stats;
mod view;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use crate::options::{OptionError, Options};
use crate::parts::free_set::{NONE, SIZE_MAX};
use crate::registry::{Made, Status, Strategy};

use async_backend::AsyncBackend;
use captures::{Captures, PoolChange};
use events::Events;
use expandable::Range;
use pieces::{Pieces, RANGE_SIZE_MAX, State, UNIT, WALL};
use pools::Pools;
use rounding::Rounding;
use settings::{Backend, Settings};
use stats::Tally;

pub use rounding::rounded;
pub use settings::Version;
pub use sizes::Sizes;
pub use statistics::{Stat, StatByPool, Statistics};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "torch.caching",
    make,
    Status::Exact("PyTorch 2.15 and 2.9.1"),
    settings::OPTIONS,
    "PyTorch's CUDA caching allocator (version=2.15, 2.9 or legacy)",
)
.inert(inert::inert)
.shares(in_the_drivers_pool);

fn in_the_drivers_pool(options: &Options) -> bool {
    let settings = Settings::from_options(options);
    settings.is_ok_and(|settings| settings.backend == Backend::CudaMallocAsync)
}

/// The allocator that the settings choose.
fn make(options: &Options) -> Made {
    let settings = Settings::from_options(options)?;
    Ok(match settings.backend {
        Backend::Native => Box::new(Caching::with(settings)),
        Backend::CudaMallocAsync => Box::new(AsyncBackend::new(settings)),
    })
}

/// The token of a null placement, which a request of size 0 gets.
const NULL: Block = Block(u64::MAX);
/// A rest of a small block, or of any block while expandable segments are on, is worth a block of its own from here on: 512 B (RULES 7).
const SMALL_REST_MIN: u32 = 1;
/// A rest of a large block must be more than 1 MiB (RULES 7).
const LARGE_REST_MIN: u32 = (rounding::SMALL_SIZE_MAX / UNIT) as u32 + 1;

/// Bytes in units; what no piece has becomes [`SIZE_MAX`], which none has either.
fn units_of(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT).unwrap_or(SIZE_MAX).min(SIZE_MAX)
}

/// What a request needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    set: u32,
    kind: usize,
    units: u32,
    /// Rounded.
    bytes: u64,
    /// What is asked of the device for it.
    segment: u64,
}

/// The allocator of one device.
#[derive(Clone, Debug)]
pub struct Caching {
    settings: Settings,
    rounding: Rounding,
    /// `max_split_size` in units; [`SIZE_MAX`], which no piece has: no limit.
    split_limit: u32,
    /// Least rest to split off, and limit of requests that are split, by kind.
    rest_min: [u32; 2],
    split_below: [u32; 2],
    /// Something is to be done before the next search.
    chores: bool,
    /// Searches are not plain: collection is on, or there are expandable segments.
    watch: bool,
    pieces: Pieces,
    pools: Pools,
    tally: Tally,
    events: Events,
    captures: Captures,
    ranges: Vec<Range>,
    ranges_vacant: Vec<u32>,
    /// Searches of the pool when a free piece was put there, by piece; kept once collection was on.
    births: Vec<u64>,
    has_births: bool,
    /// Bytes that may be reserved.
    limit: Option<u64>,
    /// A fraction to set once the device can be asked for its size.
    fraction_due: Option<f64>,
    total: Option<u64>,
    /// As the statistics show it, which never changes.
    max_split_at_start: Option<u64>,
}

impl Caching {
    /// Default options of 2.15.
    pub fn new() -> Self {
        Self::with(Settings::new(Version::V2_15))
    }

    /// From the options of a spec; see the book, or `vramlab list strategies`.
    ///
    /// # Errors
    /// An unknown option, or a value that PyTorch refuses, in its own words.
    pub fn from_options(options: &Options) -> Result<Self, OptionError> {
        Settings::from_options(options).map(Self::with)
    }

    fn with(settings: Settings) -> Self {
        let by_address = settings.version != Version::V2_15;
        let fraction = settings.fraction;
        let mut caching = Self {
            rounding: Rounding::new(&settings),
            split_limit: 0,
            rest_min: [0; 2],
            split_below: [0; 2],
            chores: false,
            watch: false,
            pieces: Pieces::new(by_address),
            pools: Pools::new(settings.version == Version::V2_15),
            tally: Tally::default(),
            events: Events::default(),
            captures: Captures::default(),
            ranges: Vec::new(),
            ranges_vacant: Vec::new(),
            births: Vec::new(),
            has_births: false,
            limit: None,
            fraction_due: (fraction < 1.0).then_some(fraction),
            total: None,
            max_split_at_start: settings.max_split,
            settings,
        };
        caching.derive();
        caching
    }

    /// Statistics as PyTorch shows them.
    pub fn statistics(&self) -> Statistics {
        self.tally.statistics(self.max_split_at_start)
    }

    /// What is where, as [`Notice::Walk`] tells it.
    pub fn layout(&self) -> Layout {
        self.walk()
    }

    /// What is due before a search.
    #[inline(never)]
    fn do_chores(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if let Some(fraction) = self.fraction_due {
            self.set_fraction(driver, fraction)?;
            self.fraction_due = None;
            self.update_chores();
        }
        self.process_events(driver)
    }

    /// The piece in use that a token names.
    fn in_use(&self, block: Block) -> Result<u32, AllocError> {
        let piece = u32::try_from(block.0).ok().filter(|piece| *piece < self.pieces.slots());
        piece
            .filter(|&piece| matches!(self.pieces.state(piece), State::Used | State::Shared))
            .ok_or(AllocError::UnknownBlock(block))
    }

    /// A free that is not the plain one.
    #[inline(never)]
    fn free_otherwise(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        if block == NULL {
            return Ok(());
        }
        let piece = self.in_use(block)?;
        self.free_shared(driver, piece)
    }

    fn need(&mut self, stream: StreamId, bytes: u64) -> Option<Need> {
        let kind = Rounding::kind(bytes);
        let segment = self.rounding.segment(bytes)?;
        let set = self.pools.set_for(stream, kind);
        let units = units_of(bytes);
        Some(Need { set, kind, units, bytes, segment })
    }

    #[cold]
    fn alloc_huge(&mut self, driver: &mut dyn Driver, request: &Request) -> AllocError {
        let Some(rounded) = self.rounding.round(request.size) else {
            let why = "rounding it up to whole blocks passes 2^64";
            return AllocError::InvalidSize { asked: request.size, why };
        };
        match self.need(request.stream, rounded) {
            Some(need) => self.refuse_huge(driver, need, request.size),
            None => self.refuse_unasked(driver, rounded),
        }
    }
}

impl Default for Caching {
    fn default() -> Self {
        Self::new()
    }
}

impl Allocator for Caching {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(Placement { block: NULL, address: 0, size: 0 });
        }
        if self.chores {
            self.do_chores(driver)?;
        }
        let bytes = match self.rounding.round(request.size) {
            Some(bytes) if bytes < RANGE_SIZE_MAX => bytes,
            _ => return Err(self.alloc_huge(driver, request)),
        };
        let (kind, units) = (Rounding::kind(bytes), (bytes / UNIT) as u32);
        let set = self.pools.set_for(request.stream, kind);
        let mut found = self.candidate(set, units);
        if found == NONE {
            found = match self.need(request.stream, bytes) {
                Some(need) => self.obtain(driver, &need)?,
                None => return Err(self.alloc_huge(driver, request)),
            };
            // A new piece is in no set.
            return Ok(self.hand_out::<false>(set, kind, found, units, request.size));
        }
        Ok(self.hand_out::<true>(set, kind, found, units, request.size))
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if !self.free_plain(block) {
            return self.free_otherwise(driver, block);
        }
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block: NULL, .. }
            | Notice::FreeDeferred { block: NULL }
            | Notice::Completed { block: NULL } => {}
            Notice::RecordStream { block, stream } => {
                let piece = self.in_use(block)?;
                self.record_stream(piece, stream);
            }
            Notice::FreeDeferred { block } => {
                let piece = self.in_use(block)?;
                self.free_unseen(piece);
            }
            Notice::Completed { block } => {
                let piece =
                    u32::try_from(block.0).ok().filter(|piece| *piece < self.pieces.slots());
                self.complete_unseen(piece.unwrap_or(WALL));
            }
            Notice::EmptyCache => self.release_all(driver)?,
            Notice::PoolBegin { pool, stream } => {
                return self.pool_notice(PoolChange::Begin(pool, stream));
            }
            Notice::PoolEnd { pool } => return self.pool_notice(PoolChange::End(pool)),
            Notice::PoolRelease { pool } => return self.pool_notice(PoolChange::Release(pool)),
            Notice::CaptureBegin { stream } => return Ok(self.capture_begin(stream)),
            Notice::CaptureEnd { stream } => return Ok(self.capture_end(stream)),
            Notice::Set { key, value } => return self.set(driver, key, value),
            Notice::Mark { .. } => {}
            Notice::ResetPeak => self.tally.reset_peak(),
            Notice::ResetAccumulated => self.tally.reset_accumulated(),
            Notice::Counters => return Ok(Reply::Counters(self.statistics().counters())),
            Notice::Walk => return Ok(Reply::Layout(self.walk())),
            Notice::Adopt(layout) => return Ok(Reply::Adopted(self.adopt(driver, layout)?)),
            Notice::Resize { .. } | Notice::Trim { .. } => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        Usage {
            allocated: self.tally.allocated(),
            active: self.tally.active(),
            reserved: self.tally.reserved(),
        }
    }
}

#[cfg(test)]
mod tests;
