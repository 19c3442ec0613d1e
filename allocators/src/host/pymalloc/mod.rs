//! `host.pymalloc`: CPython's allocator of small objects.
//!
//! As in `Objects/obmalloc.c` of CPython 3.11.7 (and 3.6.15, 3.9.18 by `version`), and equal to recordings of the real interpreters in
//! every field. Cases are in `tests/golden/pymalloc`; `examples/fuzz_pymalloc.rs` asks an installed interpreter.
//!
//! | rule | what it says | case |
//! |---|---|---|
//! | `classes` | 1 to 512 bytes are served, rounded up to 16 | py01 |
//! | `raw` | 0 bytes (as 1) and more than 512 go to the raw allocator: a range of host memory each | py01 |
//! | `geometry` | arenas of 1 MiB in pools of 16 KiB; up to 3.9 of 256 KiB in pools of 4 KiB; a pool has a header of 48 bytes | py01, py13, py14 |
//! | `in_pool` | in a pool the block freed last serves, then unused space upward | py02 |
//! | `class_list` | per class a list of pools with room, of which the first serves; a full pool leaves it, and comes back to its front with a free; a new pool is taken only if the list is empty | py03 |
//! | `pool_reuse` | a pool whose last block is freed goes back to its arena at once; for its last class its free blocks are still in order, for another it is carved anew | py04, py05 |
//! | `free_pools` | an arena gives the pool that came back last, then untouched ones | py06 |
//! | `arena_order` | pools come from the usable arena with the fewest free pools; one that gets more moves behind all with fewer, before those with as many; with its first it goes to the front | py07, py12 |
//! | `arena_release` | a wholly free arena goes back if another usable one stands after it (up to 3.8: always) | py08 |
//! | `misaligned` | an arena that does not begin at a pool's boundary has a pool less | py09 |
//! | `no_arena` | a small request for which there is no arena is raw | py10 |
//! | `realloc` | a block stays where it is if the new size fits and is more than three quarters of it; else a new block is taken, then the old one is freed; a raw block stays raw | py11 |
//!
//! Host memory is pageable (`malloc_host`), and what a raw `realloc` of another size costs is a new range. Streams mean nothing here.

mod arenas;
mod geometry;
mod layout;
mod place;
mod pools;
mod raw;
#[cfg(test)]
mod tests;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::machine::Memory;
use vramlab_sim::units::StreamId;

use crate::options::Options;
use crate::registry::{Made, Status, Strategy};
use arenas::Arenas;
use geometry::{Geometry, HEADER, block_size, class};
use place::{POOLS_MAX, Place};
use pools::Pools;
use raw::{Range, Raw};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "host.pymalloc",
    new,
    Status::Exact("CPython 3.11.7, 3.9.18 and 3.6.15"),
    geometry::OPTIONS,
    "CPython's small objects: arenas, pools, size classes",
)
.memory(Memory::Host);

fn new(options: &Options) -> Made {
    let geometry = Geometry::parse(STRATEGY.name, options)?;
    Ok(Box::new(PyMalloc {
        geometry,
        arenas: Arenas::new(geometry),
        pools: Pools::new(geometry),
        raw: Raw::default(),
        usage: Usage::default(),
        arenas_made: 0,
        arenas_returned: 0,
    }))
}

struct PyMalloc {
    geometry: Geometry,
    arenas: Arenas,
    pools: Pools,
    raw: Raw,
    usage: Usage,
    arenas_made: u64,
    arenas_returned: u64,
}

/// A live block of either kind.
enum Live {
    Small { place: Place, class: u8 },
    Raw(Range),
}

impl PyMalloc {
    /// A range of host memory, or the bytes that the host had free.
    fn malloc(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
    ) -> Result<Result<Address, u64>, DriverError> {
        match driver.malloc_host(size, false) {
            Err(DriverError::OutOfMemory { free, .. }) => Ok(Err(free)),
            answer => {
                let address = answer?;
                self.usage.reserved += size;
                Ok(Ok(address))
            }
        }
    }

    fn give_back(
        &mut self,
        driver: &mut dyn Driver,
        address: Address,
        size: u64,
    ) -> Result<(), DriverError> {
        driver.free_host(address)?;
        self.usage.reserved -= size;
        Ok(())
    }

    fn counted(&mut self, size: u64) {
        self.usage.allocated += size;
        self.usage.active += size;
    }

    fn uncounted(&mut self, size: u64) {
        self.usage.allocated -= size;
        self.usage.active -= size;
    }

    /// A pool with room for a class; `None` if there is no arena to be had (rules `class_list`, `no_arena`).
    fn pool(&mut self, driver: &mut dyn Driver, class: u8) -> Result<Option<u32>, DriverError> {
        if let Some(pool) = self.pools.head(class) {
            return Ok(Some(pool));
        }
        let per_arena = self.geometry.pools();
        if self.arenas.none_usable() {
            if self.arenas.count() >= POOLS_MAX / per_arena {
                return Ok(None);
            }
            let Ok(address) = self.malloc(driver, self.geometry.arena)? else { return Ok(None) };
            self.arenas.add(address);
            self.arenas_made += 1;
        }
        let Some((arena, pool)) = self.arenas.take_pool() else { return Ok(None) };
        let pool = arena * per_arena + pool;
        self.pools.begin(pool, class);
        Ok(Some(pool))
    }

    fn alloc_small(&mut self, pool: u32, class: u8, size: u64) -> Placement {
        let place = self.pools.take(pool, size as u16);
        let size = u64::from(block_size(class));
        self.counted(size);
        Placement { block: place.token(), address: self.address(place, class), size }
    }

    fn address(&self, place: Place, class: u8) -> Address {
        let per_arena = self.geometry.pools();
        let (arena, pool) = (place.pool / per_arena, place.pool % per_arena);
        let pool = self.arenas.get(arena).first + u64::from(pool) * u64::from(self.geometry.pool);
        pool + u64::from(HEADER + u32::from(place.block) * block_size(class))
    }

    /// Rule `raw`.
    fn alloc_raw(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Placement, AllocError> {
        let asked = size.max(1);
        let got = if asked > i64::MAX as u64 { Err(0) } else { self.malloc(driver, asked)? };
        let address = got.map_err(|device_free| {
            let Usage { active, reserved, .. } = self.usage;
            OutOfMemory { asked, device_free, reserved, active, largest_free: 0, limit: None }
        })?;
        self.counted(asked);
        Ok(Placement { block: self.raw.add(address, asked), address, size: asked })
    }

    fn request(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Placement, AllocError> {
        if let Some(class) = class(size)
            && let Some(pool) = self.pool(driver, class)?
        {
            return Ok(self.alloc_small(pool, class, size));
        }
        self.alloc_raw(driver, size)
    }

    fn live(&self, block: Block) -> Result<Live, AllocError> {
        let found = if Raw::owns(block) {
            self.raw.find(block).map(Live::Raw)
        } else {
            let place = Place::of(block);
            self.pools.find(place).map(|class| Live::Small { place, class })
        };
        found.ok_or(AllocError::UnknownBlock(block))
    }

    fn release(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        match self.live(block)? {
            Live::Raw(Range { address, size, .. }) => {
                self.give_back(driver, address, size)?;
                self.raw.remove(block);
                self.uncounted(size);
            }
            Live::Small { place, class } => {
                self.release_small(driver, place)?;
                self.uncounted(block_size(class).into());
            }
        }
        Ok(())
    }

    /// Rules `in_pool`, `class_list`, `pool_reuse`, `arena_release`.
    #[inline]
    fn release_small(&mut self, driver: &mut dyn Driver, place: Place) -> Result<(), DriverError> {
        if !self.pools.is_last(place.pool) {
            self.pools.give(place);
            return Ok(());
        }
        let per_arena = self.geometry.pools();
        let (arena, pool) = (place.pool / per_arena, place.pool % per_arena);
        let leaves = self.arenas.leaves(arena);
        if leaves {
            self.give_back(driver, self.arenas.get(arena).address, self.geometry.arena)?;
            self.arenas_returned += 1;
        }
        self.pools.give(place);
        self.arenas.give_pool(arena, pool);
        if leaves {
            self.arenas.remove(arena);
            self.pools.forget(arena * per_arena..(arena + 1) * per_arena);
        }
        Ok(())
    }

    /// Rule `realloc`.
    fn resize(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        size: u64,
    ) -> Result<Placement, AllocError> {
        match self.live(block)? {
            Live::Small { place, class } => {
                let old = u64::from(block_size(class));
                if size <= old && 4 * size > 3 * old {
                    self.pools.resize(place, size as u16);
                    let address = self.address(place, class);
                    return Ok(Placement { block, address, size: old });
                }
                let new = self.request(driver, size)?;
                self.release(driver, block)?;
                Ok(new)
            }
            Live::Raw(Range { address, size: old, .. }) if old == size.max(1) => {
                Ok(Placement { block, address, size: old })
            }
            Live::Raw(_) => {
                let new = self.alloc_raw(driver, size)?;
                self.release(driver, block)?;
                Ok(new)
            }
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("arenas_allocated_total", self.arenas_made),
            ("arenas_reclaimed", self.arenas_returned),
            ("arenas_allocated_current", self.arenas_made - self.arenas_returned),
            ("pools_in_use", self.pools.in_use),
            ("small_blocks", self.pools.live),
            ("raw_blocks", self.raw.live),
        ]
    }
}

impl Allocator for PyMalloc {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.request(driver, request.size)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.release(driver, block)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::Resize { block, size } => self.resize(driver, block, size).map(Reply::Placed),
            Notice::Mark { .. } => Ok(Reply::Done),
            Notice::Counters => Ok(Reply::Counters(self.counters())),
            Notice::Walk => Ok(Reply::Layout(self.layout())),
            _ => Ok(Reply::Unsupported),
        }
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.usage
    }
}
