//! What is between an arena's rules and the shell ([`crate::parts::shell`]): counts, peaks, and chunks as blocks.

use vramlab_sim::allocator::{AllocError, Block, LayoutSegment, Notice, Placement, Reply, Usage};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::chunks::{Chunks, UNIT};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Segment;
use crate::parts::room::malloc;
use crate::parts::shell::{Core, Shell};

/// What a strategy of this kind counts. Bytes.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) reserved: u64,
    pub(crate) peak_active: u64,
    pub(crate) peak_reserved: u64,
    /// Requests served.
    pub(crate) allocs: u64,
    pub(crate) largest: u64,
}

impl Book {
    /// Memory from the driver; `None` where the device has no such room.
    pub(crate) fn malloc(
        &mut self,
        driver: &mut dyn Driver,
        bytes: u64,
    ) -> Result<Option<Address>, DriverError> {
        let Some(address) = malloc(driver, bytes)? else { return Ok(None) };
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        Ok(Some(address))
    }

    /// Memory that goes back, one malloc after another; how many went, and the error that ended it.
    pub(crate) fn give_back(
        &mut self,
        driver: &mut dyn Driver,
        mallocs: &[Segment],
        uses: &mut LastUses,
    ) -> (usize, Result<(), DriverError>) {
        for (given, malloc) in mallocs.iter().enumerate() {
            if let Err(error) = driver.free(malloc.address) {
                return (given, Err(error));
            }
            self.reserved -= malloc.size;
            uses.device_waited();
        }
        (mallocs.len(), Ok(()))
    }

    #[inline]
    pub(crate) fn served(&mut self, bytes: u64, active: u64) {
        self.peak_active = self.peak_active.max(active);
        self.allocs += 1;
        self.largest = self.largest.max(bytes);
    }
}

/// The rules of one strategy.
pub(crate) trait Arena: Send {
    /// The pool's name in layouts.
    const POOL: &'static str;

    /// All chunks.
    fn chunks(&self) -> &Chunks;

    /// All chunks.
    fn chunks_mut(&mut self) -> &mut Chunks;

    /// A free chunk for `units` on `stream`, cut to size and in no order any more; `None` if there is no room.
    ///
    /// # Errors
    /// Driver errors other than out of memory.
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        units: u32,
        stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError>;

    /// A chunk that is free from now on.
    fn give(&mut self, slot: u32, uses: &mut LastUses);

    /// The limit on memory from the driver, once it is known.
    fn limit(&self) -> Option<u64>;

    /// Units of the largest free chunk.
    fn largest_free(&self) -> u32;

    /// Notices that are not answered for it.
    ///
    /// # Errors
    /// As [`vramlab_sim::Allocator::notice`].
    fn notice(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        notice: Notice<'_>,
        uses: &mut LastUses,
    ) -> Result<Reply, AllocError>;

    /// Counters, with the real system's names.
    fn counters(&self, book: &Book, usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)>;
}

/// An arena and its book.
pub(crate) struct Booked<A> {
    pub(crate) arena: A,
    pub(crate) book: Book,
}

impl<A: Arena> Booked<A> {
    /// The strategy of an arena.
    pub(crate) fn shell(arena: A) -> Shell<Self> {
        Shell::new(Self { arena, book: Book::default() })
    }

    /// The limit, if it is what refuses `bytes` from the driver.
    pub(crate) fn refusing_limit(&self, bytes: u64) -> Option<u64> {
        let total = self.book.reserved.checked_add(bytes);
        self.arena.limit().filter(|limit| total.is_none_or(|total| total > *limit))
    }
}

impl<A: Arena> Core for Booked<A> {
    #[inline]
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        let Some(units) = self.arena.chunks().pieces.units(size) else { return Ok(None) };
        let taken = self.arena.take(driver, &mut self.book, units, stream, uses)?;
        if let Some(slot) = taken {
            self.arena.chunks_mut().pieces.take(slot, size);
        }
        Ok(taken)
    }

    #[inline]
    fn give(
        &mut self,
        _driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        self.arena.chunks_mut().pieces.give(slot);
        self.arena.give(slot, uses);
        Ok(())
    }

    #[inline]
    fn find(&self, block: Block) -> Option<u32> {
        self.arena.chunks().pieces.find(block)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        self.arena.chunks().pieces.placement(slot)
    }

    #[inline]
    fn served(&mut self, size: u64, active: u64) {
        self.book.served(size, active);
    }

    fn reserved(&self) -> u64 {
        self.book.reserved
    }

    fn rounded(&self, size: u64) -> Option<u64> {
        let pieces = &self.arena.chunks().pieces;
        pieces.units(size).map(|units| pieces.bytes(units))
    }

    fn largest_free(&mut self) -> u64 {
        u64::from(self.arena.largest_free()) * UNIT
    }

    fn limit(&self, size: u64) -> Option<u64> {
        self.refusing_limit(self.rounded(size).unwrap_or(size))
    }

    fn other(
        &mut self,
        driver: &mut dyn Driver,
        notice: Notice<'_>,
        active: u64,
        uses: &mut LastUses,
    ) -> Result<Reply, AllocError> {
        match notice {
            Notice::ResetPeak => {
                self.book.peak_active = active;
                self.book.peak_reserved = self.book.reserved;
                self.book.largest = 0;
            }
            Notice::ResetAccumulated => self.book.allocs = 0,
            other => return self.arena.notice(driver, &mut self.book, other, uses),
        }
        Ok(Reply::Done)
    }

    fn counters(&self, usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        self.arena.counters(&self.book, usage, uses)
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.arena.chunks().pieces.walk(A::POOL)
    }
}
