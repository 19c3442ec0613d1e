//! The pool itself: chunks from the device, cut into blocks, with a coalescing free list for each stream. `rmm.pool` is one, and `rmm.binning` stands on one.

use vramlab_sim::allocator::{AllocError, Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::settings::{PoolSettings, rounded};
use super::streams::{Lists, Streams};
use crate::parts::free_lists::FreeLists;
use crate::parts::owned_pieces::{OwnedPieces, State};
use crate::parts::room::{malloc, out_of_memory};

/// The stream in whose list the initial block is (`cuda_stream_legacy`).
pub(super) const DEFAULT_STREAM: StreamId = StreamId(0);

impl Lists for FreeLists {
    fn open(&mut self) -> u32 {
        Self::open(self)
    }
    #[inline]
    fn find(&mut self, list: u32, size: u64) -> Option<u32> {
        Self::find(self, list, size)
    }
    fn merge(&mut self, into: u32, from: u32) -> u32 {
        Self::merge(self, into, from)
    }
}

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    settings: PoolSettings,
    lists: FreeLists,
    streams: Streams,
    /// Bytes in use.
    allocated: u64,
    /// Bytes held.
    size: u64,
    chunks: u64,
    /// Device allocations that were refused.
    refused: u64,
}

impl Pool {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            lists: FreeLists::default(),
            streams: Streams::new(settings.record_merged),
            allocated: 0,
            size: 0,
            chunks: 0,
            refused: 0,
        }
    }

    /// Takes the initial block (rule `initial`).
    ///
    /// # Errors
    /// Out of memory, an initial size above the maximum, or a driver error.
    pub(super) fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let initial = self.settings.initial(driver)?;
        if initial == 0 {
            return Ok(());
        }
        let Some(address) = malloc(driver, initial)? else {
            self.refused += 1;
            return Err(out_of_memory(driver, initial, self.usage(), 0, None));
        };
        let number = match self.streams.number(driver, DEFAULT_STREAM) {
            Ok(number) => number,
            Err(error) => {
                driver.free(address)?;
                return Err(error.into());
            }
        };
        self.add(number, address, initial);
        Ok(())
    }

    /// Gives all memory back; no block may be live.
    ///
    /// # Errors
    /// A driver error.
    pub(super) fn release(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        for head in self.lists.pieces.heads() {
            driver.free(self.lists.pieces.get(head).address)?;
        }
        *self = Self { refused: self.refused, ..Self::new(self.settings) };
        Ok(())
    }

    fn add(&mut self, number: u32, address: u64, size: u64) -> u32 {
        self.size += size;
        self.chunks += 1;
        let list = self.streams.list(&mut self.lists, number);
        self.lists.add(list, address, size)
    }

    /// A block of `requested` bytes (1 or more).
    ///
    /// # Errors
    /// As [`vramlab_sim::allocator::Allocator::alloc`].
    #[inline]
    pub(super) fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        requested: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        let size = rounded(requested)?;
        let number = self.streams.number(driver, stream)?;
        let slot = match self.streams.search(&mut self.lists, driver, number, size)? {
            Some(slot) => slot,
            None => self.expand(driver, number, size)?,
        };
        let block = self.lists.cut(slot, size, requested, stream);
        self.allocated += size;
        Ok(Placement { block, address: self.lists.pieces.get(slot).address, size })
    }

    /// Bytes to grow by for a request; 0 if the maximum does not allow it (rules `growth`, `maximum`).
    fn size_to_grow(&self, size: u64) -> u64 {
        match self.settings.maximum {
            None => size.max(self.size),
            Some(maximum) => match rounded(maximum.saturating_sub(self.size)) {
                Ok(rest) if size <= rest => size.max(rest / 2),
                _ => 0,
            },
        }
    }

    /// Takes another chunk, or says why there is none (rule `halving`).
    #[cold]
    fn expand(
        &mut self,
        driver: &mut dyn Driver,
        number: u32,
        size: u64,
    ) -> Result<u32, AllocError> {
        let mut attempt = self.size_to_grow(size);
        if attempt == 0 && self.settings.reclaim {
            self.reclaim(driver, size)?;
            attempt = self.size_to_grow(size);
        }
        let limit = if attempt == 0 { self.settings.maximum } else { None };
        while attempt > 0 {
            if let Some(address) = malloc(driver, attempt)? {
                return Ok(self.add(number, address, attempt));
            }
            self.refused += 1;
            attempt = if attempt == size { 0 } else { size.max(attempt / 2) };
        }
        let largest = self.largest_free();
        Err(out_of_memory(driver, size, self.usage(), largest, limit))
    }

    /// Gives whole free chunks back, lowest address first, until a request would fit below the maximum (rule `reclaim`).
    fn reclaim(&mut self, driver: &mut dyn Driver, size: u64) -> Result<(), DriverError> {
        let Some(maximum) = self.settings.maximum.filter(|maximum| size <= *maximum) else {
            return Ok(());
        };
        for head in self.lists.pieces.heads() {
            let piece = *self.lists.pieces.get(head);
            if maximum.saturating_sub(self.size) >= size {
                break;
            }
            if piece.state == State::Free && piece.is_whole() {
                driver.free(piece.address)?;
                self.lists.pull(head);
                self.lists.pieces.remove(head);
                self.size -= piece.size;
                self.chunks -= 1;
            }
        }
        Ok(())
    }

    /// A block comes back.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(super) fn deallocate(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let number = self.streams.number(driver, stream)?;
        self.streams.record(driver, number)?;
        let list = self.streams.list(&mut self.lists, number);
        self.allocated -= self.lists.pieces.get(slot).size;
        self.lists.give(list, slot);
        Ok(())
    }

    /// Who stands on the pool keeps a block for good.
    pub(super) fn keep(&mut self, block: Block) {
        self.lists.pieces.keep(block);
    }

    pub(super) fn pieces(&self) -> &OwnedPieces {
        &self.lists.pieces
    }

    fn largest_free(&mut self) -> u64 {
        let lists: Vec<u32> = self.streams.lists().collect();
        lists.into_iter().map(|list| self.lists.largest(list)).max().unwrap_or_default()
    }

    /// `pool_size()`, and what the summary of RMM's trace log counts.
    pub(super) fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let lists: Vec<u32> = self.streams.lists().collect();
        let blocks: usize = lists.iter().map(|list| self.lists.count(*list)).sum();
        vec![
            ("pool_size", self.size),
            ("upstream_blocks", self.chunks),
            ("upstream_failures", self.refused),
            ("free_lists", lists.len() as u64),
            ("free_blocks", blocks as u64),
            ("max_block", self.largest_free()),
            ("total_free", self.size - self.allocated),
            ("stream_waits", self.streams.waits()),
        ]
    }

    /// What is where.
    pub(super) fn walk(&self) -> Vec<LayoutSegment> {
        self.lists.pieces.walk(|_| ("pool", DEFAULT_STREAM))
    }

    /// Bytes in use and held.
    #[inline]
    pub(super) fn usage(&self) -> Usage {
        Usage { allocated: self.allocated, active: self.allocated, reserved: self.size }
    }
}
