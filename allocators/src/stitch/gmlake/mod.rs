//! `stitch.gmlake`: GMLake, PyTorch's caching allocator with free memory stitched together through the virtual memory calls.
//!
//! ```text
//!  request ─round─▶ primitive best fit ─▶ cached stitched block ─▶ new stitch ─▶ new pieces ─▶ release, retry, …
//!
//!  addresses   p0 │████│░░░░░░│██│░░░│     p1 │░░░░│██████│      s2 │░░░░░░│░░░│░░░░│    one range over the free pieces of p0 and p1
//!  pieces          2 MiB each, created one by one, mapped in their own range, and again in a stitched one
//! ```
//!
//! Models `GMLake/src/CUDACachingAllocator.cpp` of antgroup/glake at commit fb24ee8cc7beeb55b9792f2da58e0ee673d8c864, a fork of PyTorch
//! 2.0's. Held to recordings of the real source over a book-keeping device (`tests/golden/gmlake`, cases gm01 to gmL3), op by op: placement,
//! pieces, statistics, device calls. Line numbers in the tables are of that file, with "h" of `GMLake/include/cuda_vmm_allocator.h`.
//!
//! | rules | file |
//! |---|---|
//! | rounding, segment sizes | `sizes` |
//! | options, settings text | `settings`, `conf` |
//! | best fit, splitting, merging of primitive blocks | `primitive` |
//! | stitching, reuse of stitched blocks | `stitching`, `stitched` |
//! | order of attempts, `reAlloc`, release, out of memory | `obtain` |
//! | pieces and ranges | `memory` |
//! | collection of stitched blocks | `collect` |
//! | several streams | `waiting` |
//! | statistics | `view` |
//!
//! The paper (Guo et al., "GMLake", ASPLOS 2024) tells of more general stitching; in this code requests below `fragLimit` are never newly
//! stitched. Left out: graph capture and private pools, the memory fraction and with it `garbage_collection_threshold`, several devices
//! in one instance, `GMLAKE_INFO` logs. Several streams are from the source only: no recording has them.

mod collect;
mod conf;
mod memory;
mod obtain;
mod primitive;
mod settings;
mod sizes;
mod stitched;
mod stitching;
mod view;
mod waiting;

#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use crate::options::Options;
use crate::parts::nulls::Nulls;
use crate::parts::pieces::Pieces;
use crate::parts::size_order::SizeOrder;
use crate::registry::{Made, Status, Strategy};

use memory::Segments;
use obtain::Got;
use primitive::{Mark, Set, Split, units_of};
use settings::Settings;
use sizes::{SMALL_SIZE_MAX, UNIT};
use stitched::Table;
use waiting::Waiting;

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    settings::NAME,
    new,
    Status::Exact("GMLake fb24ee8"),
    settings::OPTIONS,
    "PyTorch's caching allocator with free pieces stitched through virtual memory",
)
.inert(settings::inert);

fn new(options: &Options) -> Made {
    Ok(Box::new(GmLake::new(Settings::from_options(options)?)))
}

/// In the low half of a token: it names a stitched block.
const STITCHED: u32 = 1 << 31;

/// A block of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// By slot.
    Primitive(u32),
    /// By number.
    Stitched(u32),
}

/// What a request needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    set: u32,
    units: u32,
    /// Rounded.
    bytes: u64,
    /// What is asked of the device for it.
    segment: u64,
    requested: u64,
}

/// The allocator of one device.
#[derive(Debug)]
struct GmLake {
    settings: Settings,
    /// `max_split` in units; [`u32::MAX`]: none.
    split_limit: u32,
    pieces: Pieces,
    /// By slot.
    marks: Vec<Mark>,
    sets: Vec<Set>,
    /// Small and large set of each stream.
    by_stream: FxHashMap<StreamId, [u32; 2]>,
    /// Those of the last request.
    last: Option<(StreamId, [u32; 2])>,
    segments: Segments,
    table: Table,
    waiting: Waiting,
    nulls: Nulls,
    /// Bytes of blocks in use.
    allocated: u64,
    /// The same as rounded requests.
    rounded: u64,
    active_units: u64,
    reserved: u64,
    split: Split,
    /// Segments and stitched blocks made, less segments released.
    segments_made: u64,
    /// Bytes of stitched blocks made, less those collected.
    stitched_bytes: u64,
    retries: u64,
    ooms: u64,
}

impl GmLake {
    fn new(settings: Settings) -> Self {
        Self {
            split_limit: settings.max_split.map_or(u32::MAX, units_of),
            settings,
            pieces: Pieces::new(UNIT),
            marks: Vec::new(),
            sets: Vec::new(),
            by_stream: FxHashMap::default(),
            last: None,
            segments: Segments::default(),
            table: Table::default(),
            waiting: Waiting::default(),
            nulls: Nulls::default(),
            allocated: 0,
            rounded: 0,
            active_units: 0,
            reserved: 0,
            split: Split::default(),
            segments_made: 0,
            stitched_bytes: 0,
            retries: 0,
            ooms: 0,
        }
    }

    /// The small or large set of a stream.
    #[inline]
    fn set_for(&mut self, stream: StreamId, is_small: bool) -> u32 {
        let pair = match self.last {
            Some((last, pair)) if last == stream => pair,
            _ => self.switch_to(stream),
        };
        pair[usize::from(!is_small)]
    }

    #[cold]
    fn switch_to(&mut self, stream: StreamId) -> [u32; 2] {
        let sets = &mut self.sets;
        let pair = *self.by_stream.entry(stream).or_insert_with(|| {
            [true, false].map(|is_small| {
                let order = SizeOrder::new();
                sets.push(Set { stream, is_small, order, free_units: 0, free_count: 0 });
                (sets.len() - 1) as u32
            })
        });
        self.last = Some((stream, pair));
        pair
    }

    /// A free primitive block serves a request.
    #[inline]
    fn hand_out(&mut self, slot: u32, need: &Need) -> Placement {
        let slot = self.cut(slot, need.units);
        let generation = self.pieces.take(slot, need.requested);
        self.tell_covers(slot, true);
        let piece = self.pieces.get(slot);
        let (address, size) = (piece.address(), self.pieces.bytes(piece.units));
        self.active_units += u64::from(piece.units);
        self.allocated += size;
        self.rounded += need.bytes;
        Placement { block: Block(u64::from(generation) << 32 | u64::from(slot)), address, size }
    }

    /// A stitched block whose parts are in use serves a request.
    fn hand_out_stitched(&mut self, id: u32, need: &Need) -> Placement {
        self.allocated += need.bytes;
        self.rounded += need.bytes;
        let generation = self.table.hand_out(id);
        let block = Block(u64::from(generation) << 32 | u64::from(id | STITCHED));
        Placement { block, address: self.table.get(id).address, size: need.bytes }
    }

    /// The block in use that a token names.
    #[inline]
    fn live(&self, block: Block) -> Result<Owner, AllocError> {
        let (low, generation) = (block.0 as u32, (block.0 >> 32) as u32);
        let found = if low & STITCHED != 0 {
            self.table.find(low & !STITCHED, generation).map(Owner::Stitched)
        } else {
            let in_use = |slot: &u32| {
                let mark = &self.marks[*slot as usize];
                !mark.waiting && !mark.under
            };
            self.pieces.find(block).filter(in_use).map(Owner::Primitive)
        };
        found.ok_or(AllocError::UnknownBlock(block))
    }

    fn set_of(&self, owner: Owner) -> u32 {
        match owner {
            Owner::Primitive(slot) => self.marks[slot as usize].set,
            Owner::Stitched(id) => self.table.get(id).set,
        }
    }

    /// A block is no longer in use by its owner; the event of a stitched one is recorded.
    fn book_free(&mut self, driver: &mut dyn Driver, owner: Owner) -> Result<(), AllocError> {
        let (bytes, rounded) = match owner {
            Owner::Primitive(slot) => {
                let piece = self.pieces.get(slot);
                let requested = piece.requested();
                let (mapped, divisions) = (self.settings.mapped, &self.settings.divisions);
                let rounded = sizes::round(divisions, mapped, requested)?;
                (self.pieces.bytes(piece.units), rounded)
            }
            Owner::Stitched(id) => {
                let stream = self.sets[self.table.get(id).set as usize].stream;
                let event = self.waiting.event(driver, stream)?;
                self.table.frees += 1;
                let freed = self.table.frees;
                let block = self.table.get_mut(id);
                block.freed = freed;
                self.waiting.idle.extend(block.event.replace(event));
                let parts = block.parts.iter().map(|slot| self.pieces.get(*slot).units);
                let bytes = parts.map(|units| self.pieces.bytes(units)).sum();
                (bytes, bytes)
            }
        };
        self.allocated -= bytes;
        self.rounded -= rounded;
        Ok(())
    }

    fn free_deferred(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let owner = self.live(block)?;
        self.book_free(driver, owner)?;
        self.waiting.take_recorded(owner);
        self.mark_waiting(owner);
        self.waiting.wait_unseen(block, owner);
        Ok(())
    }

    fn record_stream(&mut self, block: Block, stream: StreamId) -> Result<(), AllocError> {
        if self.nulls.is_live(block) {
            return Ok(());
        }
        let owner = self.live(block)?;
        if self.sets[self.set_of(owner) as usize].stream != stream {
            self.waiting.record(owner, stream);
        }
        Ok(())
    }
}

impl Allocator for GmLake {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        if self.waiting.has_events() {
            self.process_events(driver)?;
        }
        let mapped = self.settings.mapped;
        let bytes = sizes::round(&self.settings.divisions, mapped, request.size)?;
        let is_small = bytes <= SMALL_SIZE_MAX;
        let set = self.set_for(request.stream, is_small);
        let (units, segment) = (units_of(bytes), sizes::segment(bytes));
        let need = Need { set, units, bytes, segment, requested: request.size };
        match self.best_fit(set, units) {
            Some(Ok(slot)) => return Ok(self.hand_out(slot, &need)),
            None if mapped && !is_small => {
                if let Some(id) = self.usable(&need) {
                    self.reuse(id, &need);
                    return Ok(self.hand_out_stitched(id, &need));
                }
            }
            _ => {}
        }
        Ok(match self.obtain(driver, &need)? {
            Got::Primitive(slot) => self.hand_out(slot, &need),
            Got::Stitched(id) => self.hand_out_stitched(id, &need),
        })
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let owner = self.live(block)?;
        self.book_free(driver, owner)?;
        let streams = self.waiting.take_recorded(owner);
        if streams.is_empty() {
            self.arrive(owner);
        } else {
            self.mark_waiting(owner);
            self.waiting.wait_for(driver, owner, &streams)?;
        }
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, stream } => self.record_stream(block, stream)?,
            Notice::FreeDeferred { block } => self.free_deferred(driver, block)?,
            Notice::Completed { block } => {
                if let Some(owner) = self.waiting.completed(block) {
                    self.arrive(owner);
                }
            }
            Notice::EmptyCache => {
                self.release_all(driver)?;
                self.collect(driver, 2, 0)?;
            }
            Notice::Mark { .. } => {}
            Notice::Counters => return Ok(Reply::Counters(self.counters())),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        Usage {
            allocated: self.allocated,
            active: self.active_units * UNIT,
            reserved: self.reserved,
        }
    }
}
