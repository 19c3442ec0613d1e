//! `paddle.vmm_auto_growth`: one contiguous space of addresses, to whose end physical memory is mapped as it is needed.
//!
//! Equal to recordings of PaddlePaddle's own code (15888d1, 21 May 2024); `FLAGS_use_virtual_memory_auto_growth` chooses it there.
//!
//! | rule | what it says | source or golden case |
//! |---|---|---|
//! | `round` | a size is rounded up to `alignment_size` (256 B) | vm01 |
//! | `best_fit` | the smallest sufficient free piece, of equal ones the lowest; the request takes its high end | vm01, vmL1 |
//! | `split` | a rest of at most the alignment stays with the block, unless the piece is larger than twice the request | vm02 |
//! | `growth` | a request that finds nothing gets (its rounded size + alignment) in whole pages of 2 MiB, so exactly 2 MiB costs 4 MiB, and also where the free tail would have made up for a part; then it is searched for again | vm01, vm03 |
//! | `contiguous` | growths touch: free pieces merge across them, with a free tail too | vm01, vm03 |
//! | `space` | the space is reserved at the beginning, as large as the device in whole pages; a growth that would pass its end is out of memory, before the driver is asked | vm01; `cuda_virtual_mem_allocator.cc` |
//! | `never` | nothing is ever returned: `empty_cache` and `trim` do nothing | vm01 |
//! | `warm_up` | an addition: `warm_up=SIZE` is a growth by that much in whole pages before the first request is served | - |
//!
//! Each growth is one `cuMemCreate` with its map and access calls. What else is around the rules is told in [`super`]. Not modelled: the newer
//! pools by size (`FLAGS_vmm_*`). On a device without virtual memory Paddle falls back to `paddle.auto_growth`; here the driver's refusal ends the run.

use vramlab_sim::allocator::{Allocator, Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::{Bytes, StreamId};

use super::chunks::Chunks;
use super::flags::{self, with_flags};
use super::settings::{self, VMM, aligned};
use crate::options::{OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::shell::{Core, Shell};
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "paddle.vmm_auto_growth",
    new,
    Status::Exact("PaddlePaddle 15888d1 (May 2024)"),
    VMM,
    "one contiguous space that grows by mapped pages and never shrinks",
)
.inert(|options| flags::inert(options, VMM));

/// Physical memory is made in multiples of this.
const PAGE: u64 = Bytes::mib(2).0;
const POOL: u8 = 0;

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    let options = with_flags(STRATEGY.name, options, VMM)?;
    Ok(Box::new(Shell::new(Vmm {
        alignment: settings::alignment(&options)?,
        warm_up: settings::warm_up(&options)?,
        chunks: Chunks::new(1),
        space: None,
        growths: 0,
    })))
}

/// The reserved addresses.
#[derive(Clone, Copy)]
struct Space {
    begin: Address,
    size: u64,
    /// Bytes from the beginning that are mapped.
    mapped: u64,
    /// Slot of the piece with the highest address; means nothing while nothing is mapped.
    tail: u32,
}

struct Vmm {
    alignment: u64,
    /// Bytes; 0 once it is done.
    warm_up: u64,
    chunks: Chunks,
    space: Option<Space>,
    growths: u64,
}

impl Vmm {
    /// The space, which is reserved at the first call (rule `space`).
    fn space(&mut self, driver: &mut dyn Driver) -> Result<Space, DriverError> {
        if let Some(space) = self.space {
            return Ok(space);
        }
        let size = aligned(driver.mem_info()?.1, PAGE).unwrap_or(u64::MAX);
        let space = Space { begin: driver.reserve(size)?, size, mapped: 0, tail: 0 };
        self.space = Some(space);
        Ok(space)
    }

    /// Maps whole pages for `size` bytes behind what is mapped; false if there is no room.
    fn grow(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<bool, DriverError> {
        let Space { begin, size: whole, mapped, tail } = self.space(driver)?;
        let Some(size) = aligned(size, PAGE).filter(|size| *size <= whole - mapped) else {
            return Ok(false);
        };
        if !map(driver, begin + mapped, size)? {
            return Ok(false);
        }
        let tail = match mapped {
            0 => self.chunks.add(begin, size, POOL, uses),
            _ => self.chunks.extend(tail, size, uses),
        };
        self.space = Some(Space { begin, size: whole, mapped: mapped + size, tail });
        self.growths += 1;
        Ok(true)
    }

    #[cold]
    fn miss(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(growth) = size.checked_add(self.alignment) else { return Ok(None) };
        let grown = self.grow(driver, growth, uses)?;
        Ok(if grown { self.chunks.find(POOL, size) } else { None })
    }

    #[inline]
    fn see_tail(&mut self, slot: u32) {
        if let Some(space) = self.space.as_mut().filter(|_| self.chunks.get(slot).is_last()) {
            space.tail = slot;
        }
    }
}

/// Maps new physical memory; false if the device has none.
fn map(driver: &mut dyn Driver, address: Address, size: u64) -> Result<bool, DriverError> {
    let handle = match driver.create(size) {
        Err(DriverError::OutOfMemory { .. }) => return Ok(false),
        handle => handle?,
    };
    if let Err(error) = driver.map(address, handle) {
        driver.release(handle)?;
        return Err(error);
    }
    if let Err(error) = driver.set_access(address, size) {
        driver.unmap(address, size)?;
        driver.release(handle)?;
        return Err(error);
    }
    Ok(true)
}

impl Core for Vmm {
    #[inline]
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        _stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(size) = aligned(requested, self.alignment) else { return Ok(None) };
        if self.warm_up > 0 {
            if !self.grow(driver, self.warm_up, uses)? {
                return Ok(None);
            }
            self.warm_up = 0;
        }
        let found = match self.chunks.find(POOL, size) {
            None => self.miss(driver, size, uses)?,
            found => found,
        };
        let Some(slot) = found else { return Ok(None) };
        let rest = self.chunks.get(slot).size - size;
        if rest <= self.alignment && rest <= size {
            self.chunks.take(slot, requested);
            return Ok(Some(slot));
        }
        let block = self.chunks.take_high(slot, size, requested, uses);
        self.see_tail(block);
        Ok(Some(block))
    }

    #[inline]
    fn give(
        &mut self,
        _driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        let joined = self.chunks.give(slot, uses);
        self.see_tail(joined);
        Ok(())
    }

    #[inline]
    fn find(&self, block: Block) -> Option<u32> {
        self.chunks.live(block)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        self.chunks.placement(slot)
    }

    fn largest_free(&mut self) -> u64 {
        self.chunks.largest()
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.chunks.walk(&["vmm"], true)
    }

    fn reserved(&self) -> u64 {
        self.space.map_or(0, |space| space.mapped)
    }

    fn rounded(&self, size: u64) -> Option<u64> {
        aligned(size, self.alignment)
    }

    fn counters(&self, _usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        let mut list = self.chunks.counters(uses);
        list.push(("growths", self.growths));
        list
    }
}
