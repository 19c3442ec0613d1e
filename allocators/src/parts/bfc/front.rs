//! What stands around the rules of an [`Arena`].
//!
//! | rule | what it says |
//! |---|---|
//! | `null` | a request for 0 bytes gets a null placement |
//! | `streams` | memory that was freed goes to another stream after a stream wait, see [`LastUses`] |
//! | `deferred` | a deferred free holds its chunk until it is completed, or until a request finds no room: then the device is waited for, and the request is tried once more |

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::chunks::Chunks;
use crate::parts::last_uses::LastUses;
use crate::parts::nulls::Nulls;
use crate::parts::room::malloc;
use crate::parts::tokens::mark_pending;

/// A strategy's sums, and who used its memory last.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) usage: Usage,
    pub(crate) uses: LastUses,
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
        self.usage.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.usage.reserved);
        Ok(Some(address))
    }

    /// Memory that goes back.
    pub(crate) fn give_back(
        &mut self,
        driver: &mut dyn Driver,
        mallocs: &[Address],
        bytes: u64,
    ) -> Result<(), DriverError> {
        mallocs.iter().try_for_each(|address| driver.free(*address))?;
        self.usage.reserved -= bytes;
        self.uses.device_waited();
        Ok(())
    }

    #[inline]
    pub(crate) fn served(&mut self, bytes: u64) {
        self.usage.allocated += bytes;
        self.usage.active += bytes;
        self.peak_active = self.peak_active.max(self.usage.active);
        self.allocs += 1;
        self.largest = self.largest.max(bytes);
    }
}

/// The rules of one strategy.
pub(crate) trait Arena: Send {
    /// The pool's name in layouts.
    const POOL: &'static str;

    /// All chunks.
    fn chunks(&mut self) -> &mut Chunks;

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
    ) -> Result<Option<u32>, DriverError>;

    /// A chunk that is free from now on.
    fn give(&mut self, book: &mut Book, slot: u32);

    /// The limit on memory from the driver, once it is known.
    fn limit(&self) -> Option<u64>;

    /// Units of the largest free chunk.
    fn largest_free(&self) -> u32;

    /// Notices that the front does not answer itself.
    ///
    /// # Errors
    /// As [`Allocator::notice`] says.
    fn notice(
        &mut self,
        driver: &mut dyn Driver,
        book: &mut Book,
        notice: Notice<'_>,
    ) -> Result<Reply, AllocError>;

    /// Counters, with the real system's names.
    fn counters(&self, book: &Book) -> Vec<(&'static str, u64)>;
}

/// A strategy of this kind.
pub(crate) struct Front<A> {
    pub(crate) arena: A,
    pub(crate) book: Book,
    nulls: Nulls,
    /// Deferred frees that have not ended, by slot.
    deferred: BTreeMap<Block, u32>,
}

impl<A: Arena> Front<A> {
    pub(crate) fn new(arena: A) -> Self {
        Self { arena, book: Book::default(), nulls: Nulls::default(), deferred: BTreeMap::new() }
    }

    /// Nothing was found: deferred frees are waited for, and the request is tried once more.
    #[cold]
    fn retry(
        &mut self,
        driver: &mut dyn Driver,
        units: u32,
        stream: StreamId,
    ) -> Result<Option<u32>, DriverError> {
        if self.deferred.is_empty() {
            return Ok(None);
        }
        driver.device_synchronize()?;
        self.book.uses.device_waited();
        for (_, slot) in std::mem::take(&mut self.deferred) {
            self.end(slot);
        }
        self.arena.take(driver, &mut self.book, units, stream)
    }

    /// A chunk whose free was deferred is free.
    fn end(&mut self, slot: u32) {
        self.book.usage.active -= self.size(slot);
        self.release(slot);
    }

    fn release(&mut self, slot: u32) {
        self.arena.chunks().pieces.give(slot);
        self.arena.give(&mut self.book, slot);
    }

    #[inline]
    fn size(&mut self, slot: u32) -> u64 {
        let pieces = &self.arena.chunks().pieces;
        pieces.bytes(pieces.get(slot).units)
    }

    #[inline]
    fn live(&mut self, block: Block) -> Result<u32, AllocError> {
        let found = self.arena.chunks().pieces.find(block);
        found
            .filter(|_| self.deferred.is_empty() || !self.deferred.contains_key(&block))
            .ok_or(AllocError::UnknownBlock(block))
    }

    /// Why there is no room for `asked` bytes.
    pub(crate) fn refusal(
        &self,
        driver: &mut dyn Driver,
        asked: u64,
    ) -> Result<AllocError, DriverError> {
        let Usage { active, reserved, .. } = self.book.usage;
        let by_limit = |limit: &u64| reserved.checked_add(asked).is_none_or(|total| total > *limit);
        Ok(AllocError::from(OutOfMemory {
            asked,
            device_free: driver.mem_info()?.0,
            reserved,
            active,
            largest_free: u64::from(self.arena.largest_free()) * super::chunks::UNIT,
            limit: self.arena.limit().filter(by_limit),
        }))
    }

    fn defer(&mut self, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let slot = self.live(block)?;
        self.book.uses.freed(slot, None);
        self.book.usage.allocated -= self.size(slot);
        self.deferred.insert(block, slot);
        Ok(())
    }

    fn layout(&mut self) -> Layout {
        let pieces = &self.arena.chunks().pieces;
        let mut layout = Layout { segments: pieces.walk(A::POOL) };
        let waiting = self.deferred.values().map(|slot| pieces.get(*slot).address());
        mark_pending(&mut layout, waiting.collect());
        layout
    }
}

impl<A: Arena> Allocator for Front<A> {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let Request { size, stream, .. } = *request;
        if size == 0 {
            return Ok(self.nulls.place());
        }
        self.book.uses.see(stream);
        let Some(units) = self.arena.chunks().pieces.units(size) else {
            return Err(self.refusal(driver, size)?);
        };
        let taken = match self.arena.take(driver, &mut self.book, units, stream)? {
            Some(slot) => Some(slot),
            None => self.retry(driver, units, stream)?,
        };
        let Some(slot) = taken else {
            let asked = self.arena.chunks().pieces.bytes(units);
            return Err(self.refusal(driver, asked)?);
        };
        if let Err(error) = self.book.uses.hand_out(driver, slot, stream) {
            self.arena.give(&mut self.book, slot);
            return Err(error.into());
        }
        let pieces = &mut self.arena.chunks().pieces;
        let generation = pieces.take(slot, size);
        let piece = pieces.get(slot);
        let (address, size) = (piece.address(), pieces.bytes(piece.units));
        self.book.served(size);
        Ok(Placement { block: Block(u64::from(generation) << 32 | u64::from(slot)), address, size })
    }

    fn free(
        &mut self,
        _driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let slot = self.live(block)?;
        self.book.uses.freed(slot, stream);
        let size = self.size(slot);
        self.book.usage.allocated -= size;
        self.book.usage.active -= size;
        self.release(slot);
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, .. } if Nulls::owns(block) => self.nulls.check(block)?,
            Notice::RecordStream { block, stream } => {
                let slot = self.live(block)?;
                self.book.uses.record(slot, stream);
            }
            Notice::FreeDeferred { block } => self.defer(block)?,
            Notice::Completed { block } => {
                if let Some(slot) = self.deferred.remove(&block) {
                    self.end(slot);
                }
            }
            Notice::ResetPeak => {
                self.book.peak_active = self.book.usage.active;
                self.book.peak_reserved = self.book.usage.reserved;
                self.book.largest = 0;
            }
            Notice::ResetAccumulated => self.book.allocs = 0,
            Notice::Counters => return Ok(Reply::Counters(self.arena.counters(&self.book))),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            other => return self.arena.notice(driver, &mut self.book, other),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.book.usage
    }
}
