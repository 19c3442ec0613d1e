//! `rmm.pool`: RMM's `pool_memory_resource`, a coalescing best-fit pool that only grows.
//!
//! | rule | what it says | source, case |
//! |---|---|---|
//! | `round` | sizes round up to 256 B; 0 is a null pointer and touches nothing | `allocate`; rp01 |
//! | `best_fit` | in a free list the smallest block that is large enough, of equal ones the lowest; its LOW end is handed out, any rest stays free | `coalescing_free_list::get_block`, `allocate_from_block`; rp06 |
//! | `coalesce` | a freed block joins free neighbours of its list at once, never over the start of a device allocation | `coalescing_free_list::insert`, `is_head`; rp07 |
//! | `streams` | a free list for each stream, and how they lend to each other: the table of `streams` beside this file | rp08 to rp15 |
//! | `growth` | without a maximum the pool grows by max(request, bytes held) | `size_to_grow`; rp02 |
//! | `maximum` | with one it grows by max(request, half of the rest), the rest rounded up to 256 and its half not; a request above the rest fails without asking the device. So chunks may lie off the 256 grid, with tails that serve nobody, and a pool may end up to 255 B above its maximum | `size_to_grow`; rp03, rp04, rp20 |
//! | `halving` | if the device refuses, half as much is tried, but not less than the request | `try_to_expand`; rp05, rp19 |
//! | `initial` | the initial block is one request, not halved, and lies in the default stream's list; above the maximum, or off 256, it is an argument error | `initialize_pool`; rp12, rp16, rp17, rp18 |
//! | `out_of_memory` | leaves the lists merged; no chunk goes back before the pool ends | rp14, rp19 |
//! | `default_initial` | half of the free device memory, rounded down to 256, as Python's `PoolMemoryResource` without a size; C++ must be given one | `_memory_resource.pyx`, `percent_of_free_device_memory` |
//! | `reclaim` | not in 26.08: before the maximum refuses a request, whole free chunks go back, lowest address first, until it would fit | rapidsai/rmm#2470 (26.10), read only, not run |
//! | `resource` | frees without a stream, recorded streams, deferred frees: the table of `resource` in [`crate::parts`] | - |
//!
//! Source: `cpp/src/mr/detail/pool_memory_resource_impl.cpp` and `cpp/include/rmm/mr/detail/coalescing_free_list.hpp`, rapidsai/rmm 5d50a37b (2 July 2026), where
//! they are as in 26.06; equal to its recordings in `golden/rmm`. RMM searches lists one block after the other; here each is a search structure with the
//! same order, so that the answers are the same.
//! Left out: logging, per-thread default streams, the list of tracked allocations.

use vramlab_sim::allocator::{AllocError, Allocator, Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::units::StreamId;

pub(super) use super::coalescing::Pool;
use super::settings::{PoolSettings, inert};
use crate::options::{OptionError, Options};
use crate::parts::resource::{Front, Resource};
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "rmm.pool",
    new,
    Status::Exact("RMM 26.06"),
    &PoolSettings::OPTIONS,
    "best fit in a free list for each stream; grows by doubling, gives nothing back",
)
.inert(inert);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    Ok(Box::new(Front::new(resource(options)?)))
}

pub(super) fn resource(options: &Options) -> Result<Pool, OptionError> {
    options.check(STRATEGY.name, STRATEGY.options)?;
    Ok(Pool::new(PoolSettings::parse(options)?))
}

impl Resource for Pool {
    fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        Self::construct(self, driver)
    }

    #[inline]
    fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        Self::allocate(self, driver, size, stream)
    }

    #[inline]
    fn find(&self, block: Block) -> Option<(u32, StreamId)> {
        let slot = self.pieces().find(block)?;
        Some((slot, self.pieces().get(slot).stream))
    }

    #[inline]
    fn deallocate(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        Self::deallocate(self, driver, slot, stream)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Self::counters(self)
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        Self::walk(self)
    }

    fn usage(&self) -> Usage {
        Self::usage(self)
    }
}
