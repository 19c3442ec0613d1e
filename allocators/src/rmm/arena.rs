//! `rmm.arena`: RMM's `arena_memory_resource`, one device block for life, lent to streams by superblocks.
//!
//! | rule | what it says | source, case |
//! |---|---|---|
//! | `one_block` | one device block of `arena_size`, rounded down to 256, by default half of the free device memory; below 1 MiB an argument error; it never grows. Making it waits for the default stream | `global_arena`; ra07, ra08 |
//! | `round` | sizes round up to 256 B; 0 is a null pointer | `allocate` |
//! | `small` | up to 1 MiB the stream's own arena serves: its lowest free block that fits | `arena::get_block`; ra01 |
//! | `acquire` | else the superblock of the lowest fitting free block of the global arena goes to the stream: if it is wholly free and leaves at least 1 MiB, exactly max(1 MiB, request) from its low end, else all of it | `global_arena::first_fit`; ra01, ra03 |
//! | `large` | above 1 MiB the global arena serves; the superblock is split in the same way but stays there, so that small blocks may come to lie beside a large one | `global_arena::allocate_sync`; ra02, ra03 |
//! | `free_large` | a free above 1 MiB waits for its stream first | `global_arena::deallocate`; ra02 |
//! | `free_elsewhere` | a block that is not in the freeing stream's own arena: the stream is waited for (a large block whose superblock moved: for the second time), and the block goes back to whichever superblock holds it | `deallocate_from_other_arena`; ra03, ra04 |
//! | `kept` | a superblock that becomes wholly free stays with its stream; one of the global arena joins neighbours that are wholly free | `deallocate_from_superblock_sync`, `coalesce`; ra02, ra09 |
//! | `defragment` | no room: the device is waited for, all superblocks of all streams go to the global arena, also those in use, and the request is tried once more. They stay there if it fails | `defragment`, `clean`; ra05, ra06, ra09 |
//! | `resource` | frees without a stream, recorded streams, deferred frees: the table of `resource` in [`crate::parts`] | - |
//!
//! Source: `cpp/src/mr/detail/arena_memory_resource_impl.cpp` and `cpp/include/rmm/mr/detail/arena.hpp`, rapidsai/rmm 5d50a37b; equal to its recordings in
//! `golden/rmm`. Left out: arenas of threads (per-thread default streams), size classes (a build option), the log on failure.

use vramlab_sim::allocator::{AllocError, Allocator, Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{Bytes, StreamId};

use super::ALIGNMENT;
use super::coalescing::DEFAULT_STREAM;
use super::settings::{rounded, size};
use super::superblocks::{GLOBAL, SUPERBLOCK_MIN, Superblocks};
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::resource::{Front, Resource};
use crate::parts::room::{malloc, out_of_memory};
use crate::parts::stream_numbers::StreamNumbers;
use crate::registry::{Status, Strategy};

const ARENA_SIZE: OptionDoc = OptionDoc {
    name: "arena_size",
    default: "None",
    help: "bytes of the arena, at least 1MiB; None: half of the free device memory",
};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "rmm.arena",
    new,
    Status::Exact("RMM 26.06"),
    &[ARENA_SIZE],
    "one device block, lent to streams by superblocks of 1 MiB and more; waits for streams",
)
.locks_by_stream();

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(Front::new(resource(options)?)))
}

pub(super) fn resource(options: &Options) -> Result<Arena, OptionError> {
    options.check(STRATEGY.name, STRATEGY.options)?;
    let size = size(options, &ARENA_SIZE)?;
    if let Some(size) = size {
        usable(size)
            .map_err(|what| OptionError(format!("option {}={size}: {what}", ARENA_SIZE.name)))?;
    }
    Ok(Arena { size, ..Arena::default() })
}

/// Bytes of an arena of this size (rule `one_block`).
fn usable(size: u64) -> Result<u64, String> {
    let size = size / ALIGNMENT * ALIGNMENT;
    if size < SUPERBLOCK_MIN {
        return Err(format!(
            "Arena size smaller than minimum superblock size. (found {}, expected 1 MiB or more)",
            Bytes(size)
        ));
    }
    Ok(size)
}

/// An arena.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// As asked for.
    size: Option<u64>,
    superblocks: Superblocks,
    numbers: StreamNumbers,
    /// By number; the owner of a stream's superblocks is its number and 1.
    streams: Vec<StreamId>,
    allocated: u64,
    reserved: u64,
    stream_syncs: u64,
    device_syncs: u64,
}

impl Arena {
    /// The owner of a stream's superblocks.
    #[inline]
    fn owner(&mut self, stream: StreamId) -> u32 {
        if let Some(number) = self.numbers.get(stream) {
            return number + 1;
        }
        self.numbers.add(stream);
        self.streams.push(stream);
        self.superblocks.add_owner()
    }

    fn wait_for(&mut self, driver: &mut dyn Driver, stream: StreamId) -> Result<(), DriverError> {
        driver.stream_synchronize(stream)?;
        self.stream_syncs += 1;
        Ok(())
    }

    /// Takes the free block that serves a request (rules `small`, `acquire`, `large`).
    #[inline]
    fn take(&mut self, owner: u32, size: u64) -> Option<u32> {
        if size > SUPERBLOCK_MIN {
            return self.superblocks.take_global(size);
        }
        let own = self.superblocks.take_own(owner, size);
        own.or_else(|| self.superblocks.acquire(owner, size))
    }

    /// Rule `defragment`.
    #[cold]
    fn defragment(
        &mut self,
        driver: &mut dyn Driver,
        owner: u32,
        size: u64,
    ) -> Result<u32, AllocError> {
        driver.device_synchronize()?;
        self.device_syncs += 1;
        self.superblocks.collect();
        match self.take(owner, size) {
            Some(slot) => Ok(slot),
            None => {
                let (usage, largest) = (self.usage(), self.superblocks.largest());
                Err(out_of_memory(driver, size, usage, largest, Some(self.reserved)))
            }
        }
    }
}

impl Resource for Arena {
    fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let size = match self.size {
            Some(size) => size,
            None => driver.mem_info()?.0 / 2,
        };
        let size = usable(size).map_err(|what| AllocError::BadSetting(what.into()))?;
        let Some(address) = malloc(driver, size)? else {
            return Err(out_of_memory(driver, size, self.usage(), 0, None));
        };
        if let Err(error) = self.wait_for(driver, DEFAULT_STREAM) {
            driver.free(address)?;
            return Err(error.into());
        }
        self.superblocks.fill(address, size);
        self.reserved = size;
        Ok(())
    }

    #[inline]
    fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        let (size, owner) = (rounded(requested)?, self.owner(stream));
        let slot = match self.take(owner, size) {
            Some(slot) => slot,
            None => self.defragment(driver, owner, size)?,
        };
        let block = self.superblocks.hand_out(slot, requested, stream);
        self.allocated += size;
        Ok(Placement { block, address: self.superblocks.pieces().get(slot).address, size })
    }

    #[inline]
    fn find(&self, block: Block) -> Option<(u32, StreamId)> {
        let pieces = self.superblocks.pieces();
        pieces.find(block).map(|slot| (slot, pieces.get(slot).stream))
    }

    fn deallocate(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let size = self.superblocks.pieces().get(slot).size;
        let (own, holder) = (self.owner(stream), self.superblocks.owner(slot));
        let large = size > SUPERBLOCK_MIN;
        if large {
            self.wait_for(driver, stream)?;
        }
        if holder != own && !(large && holder == GLOBAL) {
            self.wait_for(driver, stream)?;
        }
        self.superblocks.give(slot);
        self.allocated -= size;
        Ok(())
    }

    /// The arena's size, what its log on failure counts, and its waits.
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let (global, streams) = self.superblocks.count();
        vec![
            ("arena_size", self.reserved),
            ("global_superblocks", global),
            ("stream_superblocks", streams),
            ("free_blocks", self.superblocks.pieces().free().count() as u64),
            ("max_free", self.superblocks.largest()),
            ("stream_synchronizes", self.stream_syncs),
            ("device_synchronizes", self.device_syncs),
        ]
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.superblocks.walk(&self.streams)
    }

    #[inline]
    fn usage(&self) -> Usage {
        Usage { allocated: self.allocated, active: self.allocated, reserved: self.reserved }
    }
}
