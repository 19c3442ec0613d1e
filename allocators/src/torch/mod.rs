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
//! | rule | what it says | file |
//! |---|---|---|
//! | sizes | rounding, pools, segment sizes (RULES 1–4) | `rounding` |
//! | search | best fit with its ties, oversize rules, growable blocks last (RULES 5, 6, 21, 24) | `obtain` |
//! | `split` | small pool: if 512 B remain; large pool: if the request is below the split limit and **more** than 1 MiB remains; while expandable segments are on: if 512 B remain, whatever the block (RULES 7, `split_small`, `split_large`, `xp_split`) | here |
//! | attempts | order of collecting, asking and releasing, limits, rejections (RULES 8–10, 13) | `obtain` |
//! | release | oversize and full release, garbage collection (RULES 11, 12, 14) | `release` |
//! | `merge` | a block that comes back joins the one before, then the one after, if they are free and wait for nothing (RULES 15, `coalesce*`) | here |
//! | streams | recorded streams, events, waiting blocks (RULES 16, 17) | `events` |
//! | expandable | ranges, pages, growth and shrinking (RULES 18–20, 22, 23) | `expandable` |
//! | statistics | every counter (RULES 23, 25, 26) | `stats` |
//! | private pools | routing, use counts, captures (RULES 27–29) | `pools`, `captures` |
//! | `fraction` | limit = fraction x total, to the nearest byte (RULES 10 says floor; 0.7 x 360 MiB shows it); 1.0 means none. 2.9: rounded down, and 1.0 is a limit of all (RULES 10, `gc_fraction_one`) | here |
//! | settings | what each version knows, refuses and keeps (RULES 30–32) | `settings`, `conf` |
//! | state | what is where, and starting from it | `layout` |
//!
//! Departures, each where its file says so: sizes never wrap (`rounding`), a refused settings text changes nothing (`settings`), pieces
//! end below 2 TiB (`pieces`), `research_pool_after_sync` (`obtain`), frees with unseen completion (`events`).
//! Left out: several devices in one instance, threads, IPC, peer access, `MemPool` with an own allocator, checkpoints of private pools,
//! `backend:cudaMallocAsync`, `graph_capture_record_stream_reuse`, reserve classes. A free says nothing about a stream, as in PyTorch.

mod captures;
mod conf;
mod events;
mod expandable;
mod freeable;
mod inert;
mod layout;
mod obtain;
mod pieces;
mod place;
mod pools;
mod recorded;
mod release;
mod rounding;
mod settings;
mod statistics;
mod stats;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Needs, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::units::StreamId;

use crate::options::{OptionError, Options};
use crate::parts::free_set::{NONE, SIZE_MAX};
use crate::registry::Strategy;

use captures::{Captures, PoolChange};
use events::Events;
use expandable::Range;
use pieces::{Pieces, RANGE_SIZE_MAX, State, UNIT, WALL};
use pools::Pools;
use rounding::Rounding;
use settings::Settings;
use stats::{LARGE, Tally};

pub use rounding::rounded;
pub use settings::Version;
pub use statistics::{Stat, StatByPool, Statistics};

/// The registry line.
pub const CACHING: Strategy = Strategy {
    name: "torch.caching",
    needs: Needs { lookahead: false, accesses: false },
    build: |options| Ok(Box::new(Caching::from_options(options)?)),
    inert: inert::inert,
    options: settings::OPTIONS,
    summary: "PyTorch's CUDA caching allocator (version=2.15, 2.9 or legacy)",
};

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

    /// What follows from the settings.
    fn derive(&mut self) {
        let settings = &self.settings;
        self.rounding = Rounding::new(settings);
        self.split_limit = settings.max_split.map_or(SIZE_MAX, units_of);
        self.rest_min = [SMALL_REST_MIN, LARGE_REST_MIN];
        self.split_below = [SIZE_MAX, self.split_limit];
        if settings.expandable {
            self.rest_min[LARGE] = SMALL_REST_MIN;
            self.split_below[LARGE] = SIZE_MAX;
        }
        self.update_chores();
        self.update_watch();
    }

    fn update_chores(&mut self) {
        self.chores = self.events.is_busy() || self.fraction_due.is_some();
    }

    fn update_watch(&mut self) {
        self.watch = self.is_collecting() || self.ranges.len() > self.ranges_vacant.len();
    }

    /// Is garbage collected? (RULES 14)
    fn is_collecting(&self) -> bool {
        self.settings.gc_threshold > 0.0 && self.limit.is_some()
    }

    fn by_address(&self) -> bool {
        self.settings.version != Version::V2_15
    }

    fn kind_of(&self, piece: u32) -> usize {
        self.pools.set(self.pieces.segment_of(piece).set).kind
    }

    /// Bytes of the device.
    fn total(&mut self, driver: &mut dyn Driver) -> Result<u64, AllocError> {
        match self.total {
            Some(total) => Ok(total),
            None => {
                let (_, total) = driver.mem_info()?;
                self.total = Some(total);
                Ok(total)
            }
        }
    }

    /// Rule `fraction`.
    fn set_fraction(&mut self, driver: &mut dyn Driver, fraction: f64) -> Result<(), AllocError> {
        let total = self.total(driver)?;
        let limit = fraction * total as f64;
        self.limit = match self.settings.version {
            Version::V2_15 if fraction >= 1.0 => None,
            Version::V2_15 => Some(limit.round() as u64),
            Version::V2_9 | Version::Legacy => Some(limit as u64),
        };
        self.update_watch();
        Ok(())
    }

    /// What is due before a search.
    #[inline(never)]
    fn do_chores(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if let Some(fraction) = self.fraction_due.take() {
            self.set_fraction(driver, fraction)?;
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

    fn set(
        &mut self,
        driver: &mut dyn Driver,
        key: &str,
        value: &str,
    ) -> Result<Reply, AllocError> {
        match key {
            "conf" => {
                let refused = |why: String| AllocError::BadSetting(why.into());
                self.settings = self.settings.with_text(value, false).map_err(refused)?;
                self.derive();
                Ok(Reply::Done)
            }
            "memory_fraction" if !self.is_legacy() => {
                let fraction = value.trim().parse().ok().filter(|f| (0.0..=1.0).contains(f));
                let fraction = fraction.ok_or_else(|| {
                    let why = format!("invalid fraction:{value}. Please set within [0, 1].");
                    AllocError::BadSetting(why.into())
                })?;
                self.fraction_due = None;
                self.set_fraction(driver, fraction)?;
                self.update_chores();
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Unsupported),
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

    fn before_work(
        &mut self,
        _driver: &mut dyn Driver,
        _stream: StreamId,
        _uses: &mut [Use],
    ) -> Result<(), AllocError> {
        Ok(())
    }

    fn after_work(
        &mut self,
        _driver: &mut dyn Driver,
        _stream: StreamId,
        _uses: &[Use],
    ) -> Result<(), AllocError> {
        Ok(())
    }

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
