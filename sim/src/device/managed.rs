//! Managed memory of one device: `cudaMallocManaged`, whose pages move between host and device.
//!
//! ```text
//! range   │ block of 2 MiB      │ block               │ …      evicted as a whole, the one that took memory longest ago first
//!         │▓▓▓▓░░░░▒▒▒▒░░░░░░░░░│                            pages of 64 KiB: on the device, on the host, on both, nowhere yet
//! ```
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `first_touch` | a range has no memory; a page gets it where it is touched first, without a transfer | CUDA programming guide, unified memory; `uvm_va_block.c` |
//! | `page`, `block` | faults are served by pages of 64 KiB within blocks of 2 MiB, on whose boundaries ranges begin | `uvm_perf_prefetch.c` (a fault grows to a big page), `uvm_va_block.h` |
//! | `batch` | a device's faults are served in batches of up to 256, block by block; what a batch and each block in it cost is in the cost table | `uvm_gpu_replayable_faults.c` |
//! | `migrate` | a page that is elsewhere moves to who touches it | `uvm_va_block.c`, rule 12 of `block_select_processor_residency` |
//! | `evict` | where the device has no room, whole blocks go to the host: the one for which memory was taken longest ago first, whatever was touched since | `uvm_pmm_gpu.c` |
//! | `evict_for_others` | mallocs, handles and pools that find no room make managed blocks go too | the same |
//! | `refault` | pages that come back after an eviction are counted: thrash | - |
//! | `preferred_location` | first touch goes there if the toucher can reach it; a device uses pages of preferred host memory over the link; a host cannot reach the device's and moves them | rules 4, 7, 10 |
//! | `accessed_by` | a device's pages on the host are mapped for it at once and after each move, so it neither faults nor moves them; by the host: nothing, over PCIe it cannot | rule 8; `uvm_policy.c` |
//! | `read_mostly` | who reads gets a copy; who writes keeps the only one, without a transfer if it had one | rules 2, 3 |
//! | `unset_read_mostly` | of two copies the preferred location's stays, else the host's | `uvm_policy.c` |
//! | `prefetch` | moves or copies in a stream's order, without faults and whatever is preferred; where there is no room it stops | `uvm_migrate.c` |
//! | `free` | `cudaFree` waits for the device; no data moves | `uvm_va_block_kill` |
//! | `host_room` | managed ranges and host memory together fit into the host, since any page may have to go there | a guess: real ones fail when a page is needed |
//!
//! Sources named `uvm_…` are of NVIDIA/open-gpu-kernel-modules, `kernel-open/nvidia-uvm`, version 580. Which page is where changes when an access
//! is queued, in the order in which the host queues; time passes in the stream. Left out: the density prefetcher, pinning of pages that thrash,
//! access counters, several devices on one range, devices that the host reaches (NVLink to the CPU).

mod block;

use std::collections::BTreeMap;

use self::block::{Block, Change, PAGE, Pages};
use super::address::{AddressPlacement, AddressSpace};
use super::books::Books;
use super::invalid;
use crate::driver::{Address, Advice, DriverError, Place};
use crate::machine::{ManagedWork, Origin, Physical, RangeKind};
use crate::units::round_up;

pub(super) use self::block::BLOCK;

/// Faults that the driver serves at once (rule `batch`; `uvm_perf_fault_batch_count`).
const FAULT_BATCH: u64 = 256;

#[derive(Clone, Debug)]
struct Range {
    asked: u64,
    ordinal: u32,
    physical: u64,
    /// Pages on the device and nowhere else; when it is all of them, a device's access finds nothing to do.
    settled: u64,
    blocks: Vec<Block>,
}

impl Range {
    fn pages(&self) -> u64 {
        self.asked.div_ceil(PAGE)
    }
}

/// What an access or a prefetch took: for the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effort {
    pub(super) faults: u64,
    pub(super) batches: u64,
    /// Blocks served, once for each batch that has faults in them.
    pub(super) served: u64,
    /// Bytes over the link.
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) bytes_remote: u64,
    pub(super) evicted_blocks: u64,
}

/// Fills batches with faults in the order of their addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Batches {
    in_last: u64,
}

impl Batches {
    fn add(&mut self, faults: u64, effort: &mut Effort) {
        let mut rest = faults;
        while rest > 0 {
            effort.batches += u64::from(self.in_last == 0);
            effort.served += 1;
            let fit = rest.min(FAULT_BATCH - self.in_last);
            self.in_last = (self.in_last + fit) % FAULT_BATCH;
            rest -= fit;
        }
        effort.faults += faults;
    }
}

/// The managed ranges of one device.
#[derive(Clone, Debug)]
pub(super) struct Managed {
    space: AddressSpace,
    ranges: BTreeMap<Address, Range>,
    /// Blocks with pages on the device, by when memory was taken for them: the range and the block's number in it.
    lru: BTreeMap<u64, (Address, u32)>,
    stamp: u64,
    made: u32,
    work: ManagedWork,
}

fn bytes(pages: Pages) -> u64 {
    u64::from(pages.count_ones()) * PAGE
}

impl Managed {
    pub(super) fn new(base: Address, limit: Address) -> Self {
        Self {
            space: AddressSpace::new(base, limit, AddressPlacement::FirstFit),
            ranges: BTreeMap::new(),
            lru: BTreeMap::new(),
            stamp: 0,
            made: 0,
            work: ManagedWork::default(),
        }
    }

    pub(super) fn add_work(&self, work: &mut ManagedWork) {
        work.add(&self.work);
    }

    pub(super) fn malloc(
        &mut self,
        books: &mut Books,
        size: u64,
        next_physical: &mut u64,
    ) -> Result<Address, DriverError> {
        if size == 0 {
            return Err(invalid("cudaMallocManaged", "found size 0, expected at least 1 byte"));
        }
        books.check_host(size)?;
        let taken = round_up(size, BLOCK).and_then(|taken| Some((self.space.take(taken)?, taken)));
        let Some((address, taken)) = taken else {
            return Err(DriverError::OutOfMemory { asked: size, free: books.host_free() });
        };
        books.take_managed(size);
        let blocks = vec![Block::default(); (taken / BLOCK) as usize];
        let physical = *next_physical;
        *next_physical += 1;
        let range = Range { asked: size, ordinal: self.made, physical, settled: 0, blocks };
        self.made += 1;
        self.ranges.insert(address, range);
        Ok(address)
    }

    /// No more bytes than these are on the device.
    pub(super) fn resident_at_most(&self) -> u64 {
        self.lru.len() as u64 * BLOCK
    }

    /// Is it the beginning of a live range?
    pub(super) fn is_live(&self, address: Address) -> bool {
        self.ranges.contains_key(&address)
    }

    /// The bytes that were asked for.
    pub(super) fn free(&mut self, books: &mut Books, address: Address) -> u64 {
        let Some(range) = self.ranges.remove(&address) else { return 0 };
        for block in &range.blocks {
            books.give_physical(bytes(block.on_device));
            self.lru.remove(&block.stamp);
        }
        self.space.give(address, range.blocks.len() as u64 * BLOCK);
        books.give_managed(range.asked);
        range.asked
    }

    fn find(&self, address: Address) -> Option<(Address, &Range)> {
        let (start, range) = self.ranges.range(..=address).next_back()?;
        (address - start < range.asked).then_some((*start, range))
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let (start, range) = self.find(address)?;
        let offset = address - start;
        Some(Origin { kind: RangeKind::Managed, ordinal: range.ordinal, offset })
    }

    pub(super) fn physical(&self, address: Address) -> Option<Physical> {
        let (start, range) = self.find(address)?;
        let offset = address - start;
        Some(Physical { handle: range.physical, offset, run: range.asked - offset })
    }

    /// The range around `size` bytes at `address`.
    fn range_of(
        &self,
        call: &'static str,
        address: Address,
        size: u64,
    ) -> Result<Address, DriverError> {
        match self.find(address) {
            Some((start, range)) if size <= range.asked - (address - start) => Ok(start),
            Some((start, range)) => {
                let what = format!(
                    "found {size} bytes at {address:#x}, expected no more than the {} to the end of u{}",
                    range.asked - (address - start),
                    range.ordinal
                );
                Err(invalid(call, what))
            }
            None => Err(invalid(call, format!("found {address:#x}, expected managed memory"))),
        }
    }

    /// A device touches memory: rules `first_touch`, `migrate` and those of advice.
    pub(super) fn device_access(
        &mut self,
        books: &mut Books,
        address: Address,
        size: u64,
        write: bool,
    ) -> Result<Effort, DriverError> {
        let start = self.range_of("touch", address, size)?;
        let mut effort = Effort::default();
        let mut batches = Batches::default();
        if size == 0 || self.ranges[&start].settled == self.ranges[&start].pages() {
            return Ok(effort);
        }
        for (at, pages) in blocks(address - start, size) {
            let change = self.block(start, at).device_access(pages, write);
            if change.faults != 0 {
                if !self.make_room(books, (start, at), change.taken, &mut effort) {
                    return Err(no_room(books));
                }
                batches.add(change.faults.count_ones().into(), &mut effort);
                self.count_in(start, at, &change, &mut effort);
                self.change(start, at, |block| block.device_accessed(pages, write, &change));
                self.touch_lru(start, at, change.taken);
            }
            if change.remote != 0 {
                effort.bytes_remote += overlap(change.remote, at, address - start, size);
            }
        }
        self.work.faults += effort.faults;
        self.work.fault_batches += effort.batches;
        self.work.bytes_remote += effort.bytes_remote;
        Ok(effort)
    }

    /// The host touches memory.
    pub(super) fn host_access(
        &mut self,
        books: &mut Books,
        address: Address,
        size: u64,
        write: bool,
    ) -> Result<Effort, DriverError> {
        let start = self.range_of("touch", address, size)?;
        let mut effort = Effort::default();
        for (at, pages) in blocks(address - start, size) {
            let change = self.change(start, at, |block| block.host_access(pages, write));
            effort.faults += u64::from(change.faults.count_ones());
            self.give(books, start, at, &change, &mut effort);
        }
        self.work.host_faults += effort.faults;
        Ok(effort)
    }

    /// Rule `prefetch`.
    pub(super) fn prefetch(
        &mut self,
        books: &mut Books,
        address: Address,
        size: u64,
        to: Place,
    ) -> Result<Effort, DriverError> {
        let start = self.range_of("cudaMemPrefetchAsync", address, size)?;
        let mut effort = Effort::default();
        for (at, pages) in blocks(address - start, size) {
            if to == Place::Host {
                let change = self.change(start, at, |block| block.prefetch_out(pages));
                self.give(books, start, at, &change, &mut effort);
                self.work.bytes_prefetched += bytes(change.copied_out);
                continue;
            }
            let change = self.block(start, at).prefetch_in(pages);
            if change.taken == 0 {
                continue;
            }
            if !self.make_room(books, (start, at), change.taken, &mut effort) {
                break;
            }
            self.count_in(start, at, &change, &mut effort);
            self.change(start, at, |block| block.prefetched_in(&change));
            self.touch_lru(start, at, change.taken);
            self.work.bytes_prefetched += bytes(change.copied_in);
        }
        Ok(effort)
    }

    /// Rules `preferred_location`, `accessed_by`, `read_mostly`, `unset_read_mostly`.
    pub(super) fn advise(
        &mut self,
        books: &mut Books,
        address: Address,
        size: u64,
        advice: Advice,
    ) -> Result<(), DriverError> {
        let start = self.range_of("cudaMemAdvise", address, size)?;
        for (at, pages) in blocks(address - start, size) {
            let given = self.change(start, at, |block| {
                let mut given = 0;
                match advice {
                    Advice::ReadMostly(true) => {
                        block.read_mostly |= pages;
                        block.mapped &= !pages;
                    }
                    Advice::ReadMostly(false) => {
                        block.read_mostly &= !pages;
                        given = block.collapse(pages);
                    }
                    Advice::Preferred(place) => {
                        block.prefer_device &= !pages;
                        block.prefer_host &= !pages;
                        match place {
                            Some(Place::Device) => {
                                block.prefer_device |= pages;
                                block.mapped &= !pages;
                            }
                            Some(Place::Host) => block.prefer_host |= pages,
                            None => {}
                        }
                    }
                    Advice::AccessedBy(Place::Device, true) => {
                        block.by_device |= pages;
                        block.map(pages & !block.read_mostly);
                    }
                    Advice::AccessedBy(Place::Device, false) => block.by_device &= !pages,
                    Advice::AccessedBy(Place::Host, _) => {}
                }
                given
            });
            books.give_physical(bytes(given));
            self.leave_lru(start, at);
        }
        Ok(())
    }

    fn block(&self, start: Address, at: u32) -> &Block {
        &self.ranges[&start].blocks[at as usize]
    }

    /// Changes a block, and the count of settled pages with it.
    fn change<T>(&mut self, start: Address, at: u32, change: impl FnOnce(&mut Block) -> T) -> T {
        let range = self.ranges.get_mut(&start).expect("the caller found it");
        let block = &mut range.blocks[at as usize];
        let settled = |block: &Block| u64::from((block.on_device & !block.on_host).count_ones());
        let before = settled(block);
        let done = change(block);
        range.settled = range.settled + settled(block) - before;
        done
    }

    /// Counts what comes to the device.
    fn count_in(&mut self, start: Address, at: u32, change: &Change, effort: &mut Effort) {
        let back = change.taken & self.block(start, at).evicted;
        effort.bytes_in += bytes(change.copied_in);
        self.work.bytes_to_device += bytes(change.copied_in);
        self.work.bytes_refaulted += bytes(back);
    }

    /// The device gives pages back.
    fn give(
        &mut self,
        books: &mut Books,
        start: Address,
        at: u32,
        change: &Change,
        effort: &mut Effort,
    ) {
        effort.bytes_out += bytes(change.copied_out);
        self.work.bytes_to_host += bytes(change.copied_out);
        if change.given != 0 {
            books.give_physical(bytes(change.given));
            self.leave_lru(start, at);
        }
    }

    /// Takes memory for pages of a block, evicting others for it; `false` if there is none to be had.
    fn make_room(
        &mut self,
        books: &mut Books,
        keep: (Address, u32),
        pages: Pages,
        effort: &mut Effort,
    ) -> bool {
        let size = bytes(pages);
        while books.take_physical(size, Some(size)).is_err() {
            if !self.evict_one(books, Some(keep), effort) {
                return false;
            }
        }
        true
    }

    /// Rule `evict`: one block, if there is one other than `keep`.
    pub(super) fn evict_one(
        &mut self,
        books: &mut Books,
        keep: Option<(Address, u32)>,
        effort: &mut Effort,
    ) -> bool {
        let Some((start, at)) = self.lru.values().copied().find(|block| Some(*block) != keep)
        else {
            return false;
        };
        let change = self.change(start, at, Block::evict);
        effort.evicted_blocks += 1;
        self.work.evicted_blocks += 1;
        self.work.bytes_evicted += bytes(change.given);
        self.give(books, start, at, &change, effort);
        true
    }

    /// Memory was taken for a block: it is the latest.
    fn touch_lru(&mut self, start: Address, at: u32, taken: Pages) {
        if taken == 0 {
            return;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        let before = self.change(start, at, |block| std::mem::replace(&mut block.stamp, stamp));
        self.lru.remove(&before);
        self.lru.insert(stamp, (start, at));
    }

    /// A block that may hold no memory any more.
    fn leave_lru(&mut self, start: Address, at: u32) {
        if self.block(start, at).on_device == 0 {
            let stamp = self.change(start, at, |block| std::mem::take(&mut block.stamp));
            self.lru.remove(&stamp);
        }
    }
}

fn no_room(books: &Books) -> DriverError {
    let what = format!(
        "found {} bytes free and no managed page to evict, expected room for a page of {PAGE}",
        books.free()
    );
    DriverError::Failed { call: "page fault", what: what.into() }
}

/// The blocks of a part of a range, each with the pages in it.
fn blocks(offset: u64, size: u64) -> impl Iterator<Item = (u32, Pages)> {
    let (first, end) = (offset / PAGE, (offset + size).div_ceil(PAGE));
    let per_block = u64::from(Pages::BITS);
    let numbers = if size == 0 { 0..0 } else { first / per_block..end.div_ceil(per_block) };
    numbers.map(move |at| {
        let low = first.saturating_sub(at * per_block);
        let high = (end - at * per_block).min(per_block);
        let below = |n: u64| (1_u64 << n) - 1;
        (at as u32, (below(high) & !below(low)) as Pages)
    })
}

/// Bytes of the part from `offset` on that lie in these pages of a block.
fn overlap(pages: Pages, at: u32, offset: u64, size: u64) -> u64 {
    let begin = u64::from(at) * BLOCK;
    let each = (0..u64::from(Pages::BITS)).filter(|n| pages >> n & 1 == 1).map(|n| {
        let page = begin + n * PAGE;
        (page + PAGE).min(offset + size) - page.max(offset)
    });
    each.sum()
}

#[cfg(test)]
mod tests;
