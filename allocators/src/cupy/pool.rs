//! `cupy.pool`: CuPy's `MemoryPool` (of one device), best fit in a pool of exact device allocations for each stream. Not checked against the real one yet:
//! there are no recordings.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `round` | sizes round up to 512 B; 0 takes nothing | `_round_size` |
//! | `exact_growth` | a growth asks the device for exactly the rounded size: no steps, no small and large pools | `_malloc` |
//! | `best_fit` | the smallest free chunk of the stream that is large enough; its LOW end is handed out, the rest stays free | `_Arena.get_chunk` |
//! | `no_threshold` | any rest is split off, also 512 B off 64 MiB | `_Chunk.split` |
//! | `ties` | of chunks of one size CuPy takes the one whose Python object has the lowest address, which no rule predicts; here it is the lowest chunk | `_Arena.index` |
//! | `coalesce` | a freed chunk joins its free neighbours at once, only inside one device allocation | `_Arena.try_merge_chunk` |
//! | `own_stream` | a free chunk serves only the stream that it was allocated on, whichever is current at the free; the pool makes no events | `SingleDeviceMemoryPool.free` |
//! | `free_all_blocks` | an emptied cache gives back the chunks that are whole device allocations, of all streams; one with a live part stays | `_Arena.free_all` |
//! | `retry` | the device refuses: whole free chunks go back and it is asked again, and so once more; then out of memory, and they stay given back | `_try_malloc` |
//! | `limit` | bytes held + rounded size may reach the limit, not pass it; cached bytes count; 0: no limit | `_try_block_total_bytes` |
//! | `limit_reclaims` | past the limit, whole free chunks go back and the growth is made if it then fits; else it is refused, they stay given back, and the device is not asked. Before 12.2 it was refused at once: `reclaim_on_limit=false` | `_try_malloc`; cupy/cupy#7679 |
//! | `limit_too_small` | a size above the limit itself is refused at once, and nothing goes back | `_try_block_total_bytes` |
//! | `lowered_limit` | a limit below the bytes held gives nothing back, and cached chunks still serve | `set_limit` |
//! | `fraction` | N% is that part of the device's memory, in whole bytes; 0% is no limit | `set_limit`, `_parse_limit_string` |
//! | `environment` | `CUPY_GPU_MEMORY_LIMIT` is bytes, or a percentage | `_parse_limit_string` |
//! | `past_2_64` | a size that rounds past 2^64 is refused; CuPy's own rounding wraps to 0 there | `_round_size` |
//! | `resource` | recorded streams, deferred frees: the table of `resource` in [`crate::parts`]. A free that names another stream counts as a recorded one: its user makes the chunk's stream wait | - |
//!
//! Source: `cupy/cuda/memory.pyx`, cupy/cupy v14.2.0. Left out: the garbage collection between the tries, managed memory, memory hooks, other devices.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, LayoutSegment, Notice, OutOfMemory, Placement, Reply, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::limit::Limit;
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::free_lists::FreeLists;
use crate::parts::owned_pieces::OwnedPiece;
use crate::parts::resource::{Front, Resource};
use crate::parts::stream_numbers::StreamNumbers;
use crate::registry::{Status, Strategy};

/// `ALLOCATION_UNIT_SIZE`.
const UNIT: u64 = 512;
/// Times that a growth asks the device (rule `retry`).
const TRIES: u32 = 3;

const RECLAIM: OptionDoc = OptionDoc {
    name: "reclaim_on_limit",
    default: "true",
    help: "give whole free chunks back before the limit refuses; false: as before 12.2",
};
const OPTIONS: &[OptionDoc] = &[Limit::OPTION, Limit::ENVIRONMENT, RECLAIM];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "cupy.pool",
    new,
    Status::Rules("CuPy 14.2.0"),
    OPTIONS,
    "best fit in exact device allocations, a pool for each stream, with a limit",
)
.inert(inert);

/// `limit` goes before the environment.
fn inert(options: &Options) -> Vec<String> {
    let (limit, environment) = (Limit::OPTION.name, Limit::ENVIRONMENT.name);
    match (options.get(limit), options.get(environment)) {
        (Some(_), Some(text)) => {
            vec![format!("{environment}={text} has no effect: {limit} is given")]
        }
        _ => Vec::new(),
    }
}

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check(STRATEGY.name, STRATEGY.options)?;
    let reclaim = options.switch(&RECLAIM)?;
    let pool = Pool { limit: Limit::parse(options)?, reclaim, ..Pool::default() };
    Ok(Box::new(Front::new(pool)))
}

/// A pool of one device.
#[derive(Debug, Default)]
struct Pool {
    limit: Limit,
    /// The limit in bytes, once the device is known; 0: none.
    limit_bytes: u64,
    reclaim: bool,
    lists: FreeLists,
    numbers: StreamNumbers,
    /// By number.
    streams: Vec<StreamId>,
    used: u64,
    total: u64,
    /// Free chunks that are whole device allocations.
    whole: u64,
    /// Device allocations.
    made: u64,
    returned: u64,
}

/// What the limit says of a growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fits,
    Passes,
    /// Larger than the limit itself.
    TooLarge,
}

impl Pool {
    /// The free list of a stream: lists are opened in the order of streams, and none is ever closed, so both have the same number.
    #[inline]
    fn list(&mut self, stream: StreamId) -> u32 {
        if let Some(number) = self.numbers.get(stream) {
            return number;
        }
        self.streams.push(stream);
        self.lists.open();
        self.numbers.add(stream)
    }

    fn verdict(&self, size: u64) -> Verdict {
        let limit = if self.limit_bytes == 0 { u64::MAX } else { self.limit_bytes };
        match limit.checked_sub(size) {
            None => Verdict::TooLarge,
            Some(room) if self.total <= room => Verdict::Fits,
            Some(_) => Verdict::Passes,
        }
    }

    /// Gives back all chunks that are whole device allocations.
    fn free_all_blocks(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        let lists = if self.whole == 0 { 0 } else { self.streams.len() as u32 };
        for list in 0..lists {
            for slot in self.lists.in_order(list) {
                let piece = *self.lists.pieces.get(slot);
                if piece.is_whole() {
                    driver.free(piece.address)?;
                    self.lists.pull(slot);
                    self.lists.pieces.remove(slot);
                    self.whole -= 1;
                    self.total -= piece.size;
                    self.returned += 1;
                }
            }
        }
        Ok(())
    }

    /// A new chunk in a list, or why there is none (rules `limit` to `limit_too_small`, `retry`).
    #[cold]
    fn grow(&mut self, driver: &mut dyn Driver, list: u32, size: u64) -> Result<u32, AllocError> {
        let mut verdict = self.verdict(size);
        if verdict == Verdict::Passes && self.reclaim {
            self.free_all_blocks(driver)?;
            verdict = self.verdict(size);
        }
        if verdict != Verdict::Fits {
            let limit = Some(self.limit_bytes);
            return Err(self.refuse(driver.mem_info()?.0, size, limit));
        }
        let mut tries = 1;
        loop {
            match driver.malloc(size) {
                Ok(address) => {
                    self.total += size;
                    self.made += 1;
                    self.whole += 1;
                    return Ok(self.lists.add(list, address, size));
                }
                Err(DriverError::OutOfMemory { free, .. }) if tries == TRIES => {
                    return Err(self.refuse(free, size, None));
                }
                Err(DriverError::OutOfMemory { .. }) => self.free_all_blocks(driver)?,
                Err(error) => return Err(error.into()),
            }
            tries += 1;
        }
    }

    fn refuse(&mut self, device_free: u64, asked: u64, limit: Option<u64>) -> AllocError {
        let Usage { active, reserved, .. } = self.usage();
        let lists = 0..self.streams.len() as u32;
        let largest_free = lists.map(|list| self.lists.largest(list)).max().unwrap_or_default();
        OutOfMemory { asked, device_free, reserved, active, largest_free, limit }.into()
    }
}

impl Resource for Pool {
    fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        self.limit_bytes = self.limit.bytes(driver)?;
        Ok(())
    }

    #[inline]
    fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        let why = "rounded up to 512 it passes 2^64";
        let size = requested.checked_next_multiple_of(UNIT);
        let size = size.ok_or(AllocError::InvalidSize { asked: requested, why })?;
        let list = self.list(stream);
        let slot = match self.lists.find(list, size) {
            Some(slot) => slot,
            None => self.grow(driver, list, size)?,
        };
        self.whole -= u64::from(self.lists.pieces.get(slot).is_whole());
        let block = self.lists.cut(slot, size, requested, stream);
        self.used += size;
        Ok(Placement { block, address: self.lists.pieces.get(slot).address, size })
    }

    #[inline]
    fn find(&self, block: Block) -> Option<(u32, StreamId)> {
        let slot = self.lists.pieces.find(block)?;
        Some((slot, self.lists.pieces.get(slot).stream))
    }

    #[inline]
    fn deallocate(
        &mut self,
        _driver: &mut dyn Driver,
        slot: u32,
        _stream: StreamId,
    ) -> Result<(), DriverError> {
        let OwnedPiece { size, owner, .. } = *self.lists.pieces.get(slot);
        let joined = self.lists.give(owner, slot);
        self.whole += u64::from(self.lists.pieces.get(joined).is_whole());
        self.used -= size;
        Ok(())
    }

    /// Rule `own_stream`.
    #[inline]
    fn reused_on(&self, _freed_on: StreamId, allocated_on: StreamId) -> StreamId {
        allocated_on
    }

    fn other(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::EmptyCache => self.free_all_blocks(driver)?,
            Notice::Set { key: "limit", value } => {
                let refused = |what: String| AllocError::BadSetting(what.into());
                self.limit = Limit::read(value).map_err(refused)?;
                self.limit_bytes = self.limit.bytes(driver)?;
            }
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    /// By the names of `MemoryPool`'s methods, and the device allocations made and given back.
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let lists = 0..self.streams.len() as u32;
        let free: usize = lists.map(|list| self.lists.count(list)).sum();
        vec![
            ("used_bytes", self.used),
            ("free_bytes", self.total - self.used),
            ("total_bytes", self.total),
            ("n_free_blocks", free as u64),
            ("get_limit", self.limit_bytes),
            ("mallocs", self.made),
            ("frees", self.returned),
        ]
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.lists.pieces.walk(|list| ("pool", self.streams[list as usize]))
    }

    #[inline]
    fn usage(&self) -> Usage {
        Usage { allocated: self.used, active: self.used, reserved: self.total }
    }
}
