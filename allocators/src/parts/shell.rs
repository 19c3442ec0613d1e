//! What stands around a strategy whose memory all streams share: tokens that are not live, null placements, order among streams, deferred
//! frees, sums.
//!
//! | rule | what it says |
//! |---|---|
//! | `null` | a request for 0 bytes gets a null placement |
//! | `streams` | memory that was freed goes to another stream after a stream wait, see [`LastUses`] |
//! | `deferred` | a deferred free holds its block until it is completed, or until the device is waited for: before a request is refused, and before free memory goes back |
//! | `books` | the driver is called first, state changes once it has answered: after an error a block is as it was, or free |
//!
//! The rules themselves are a [`Core`].

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, LayoutSegment, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::last_uses::LastUses;
use super::nulls::Nulls;
use super::room::out_of_memory;
use super::tokens::mark_pending;

/// The rules of one strategy: where blocks come from, and what becomes of free memory. A block has a slot, the core's number of it.
pub(crate) trait Core: Send {
    /// Does it give memory back when it is told to? Else `empty_cache` and `trim` are among the notices for [`Core::other`].
    const RELEASES: bool = false;

    /// Takes a block of at least `size` (1 or more) bytes; none if there is no room.
    ///
    /// # Errors
    /// Driver errors other than out of memory.
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError>;

    /// The same once more before the request is refused; did deferred frees end in between?
    ///
    /// # Errors
    /// As [`Core::take`].
    fn retry(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
        uses: &mut LastUses,
        waited: bool,
    ) -> Result<Option<u32>, DriverError> {
        if waited { self.take(driver, size, stream, uses) } else { Ok(None) }
    }

    /// Takes a live block back. After an error it is live as before, or free.
    ///
    /// # Errors
    /// A driver error.
    fn give(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError>;

    /// The slot of a live block.
    fn find(&self, block: Block) -> Option<u32>;

    /// The block in a slot, as its user sees it.
    fn placement(&self, slot: u32) -> Placement;

    /// Bytes of the block in a slot, as they are counted.
    #[inline]
    fn size(&self, slot: u32) -> u64 {
        self.placement(slot).size
    }

    /// A request got `size` bytes, with which so many are active.
    #[inline]
    fn served(&mut self, _size: u64, _active: u64) {}

    /// Bytes held from the driver.
    fn reserved(&self) -> u64;

    /// What a request of `size` bytes asks for; none if there can be no such block, for which nothing is waited for.
    fn rounded(&self, size: u64) -> Option<u64>;

    /// Bytes of the largest free piece.
    fn largest_free(&mut self) -> u64;

    /// The limit, if it is what refuses a request of `size` bytes.
    fn limit(&self, _size: u64) -> Option<u64> {
        None
    }

    /// Gives free memory back while more than `keep` bytes are held.
    ///
    /// # Errors
    /// A driver error.
    fn release(
        &mut self,
        _driver: &mut dyn Driver,
        _keep: u64,
        _uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        Ok(())
    }

    /// A notice that [`Shell`] does not answer itself; so many bytes are active.
    ///
    /// # Errors
    /// As [`Allocator::notice`].
    fn other(
        &mut self,
        _driver: &mut dyn Driver,
        notice: Notice<'_>,
        _active: u64,
        _uses: &mut LastUses,
    ) -> Result<Reply, AllocError> {
        Ok(if matches!(notice, Notice::Mark { .. }) { Reply::Done } else { Reply::Unsupported })
    }

    /// Its counters, by their names in the real system where it has them.
    fn counters(&self, usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)>;

    /// What is where; a block whose free was deferred counts as allocated here.
    fn walk(&self) -> Vec<LayoutSegment>;
}

/// A strategy of a core.
pub(crate) struct Shell<C> {
    pub(crate) core: C,
    pub(crate) allocated: u64,
    pub(crate) active: u64,
    pub(crate) uses: LastUses,
    nulls: Nulls,
    /// Deferred frees that have not ended, and their slots.
    deferred: BTreeMap<Block, u32>,
}

impl<C: Core> Shell<C> {
    pub(crate) fn new(core: C) -> Self {
        Self {
            core,
            allocated: 0,
            active: 0,
            uses: LastUses::default(),
            nulls: Nulls::default(),
            deferred: BTreeMap::new(),
        }
    }

    /// No room: once more after deferred frees have ended.
    #[cold]
    #[inline(never)]
    fn miss(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
    ) -> Result<u32, AllocError> {
        let rounded = self.core.rounded(size);
        if rounded.is_some() {
            let waited = self.wait_for_deferred(driver)?;
            let found = self.core.retry(driver, size, stream, &mut self.uses, waited)?;
            if let Some(slot) = found {
                return Ok(slot);
            }
        }
        let (usage, largest) = (self.usage(), self.core.largest_free());
        let limit = self.core.limit(size);
        Err(out_of_memory(driver, rounded.unwrap_or(size), usage, largest, limit))
    }

    /// Ends all deferred frees by waiting for the device; false if there are none.
    fn wait_for_deferred(&mut self, driver: &mut dyn Driver) -> Result<bool, DriverError> {
        if self.deferred.is_empty() {
            return Ok(false);
        }
        driver.device_synchronize()?;
        self.uses.device_waited();
        while let Some((block, slot)) = self.deferred.first_key_value().map(|(b, s)| (*b, *s)) {
            self.end(driver, block, slot)?;
        }
        Ok(true)
    }

    /// A deferred free is over.
    fn end(&mut self, driver: &mut dyn Driver, block: Block, slot: u32) -> Result<(), DriverError> {
        let size = self.core.size(slot);
        let (gone, answer) = self.give_rarely(driver, block, slot, size);
        if gone {
            self.deferred.remove(&block);
        }
        answer
    }

    /// Takes a block back that is not counted as allocated any more; is it gone?
    #[inline(always)]
    fn give(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        slot: u32,
        size: u64,
    ) -> (bool, Result<(), DriverError>) {
        let answer = self.core.give(driver, slot, &mut self.uses);
        // a driver that fails may have kept the block, or what was released after it
        let gone = answer.is_ok() || self.core.find(block).is_none();
        if gone {
            self.active -= size;
        }
        (gone, answer)
    }

    /// [`Shell::give`] as one copy for all but the plain free, of which it would be a large part.
    #[cold]
    #[inline(never)]
    fn give_rarely(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        slot: u32,
        size: u64,
    ) -> (bool, Result<(), DriverError>) {
        self.give(driver, block, slot, size)
    }

    #[inline]
    fn live(&self, block: Block) -> Result<u32, AllocError> {
        let found = self.core.find(block);
        found
            .filter(|_| self.deferred.is_empty() || !self.deferred.contains_key(&block))
            .ok_or(AllocError::UnknownBlock(block))
    }

    fn defer(&mut self, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let slot = self.live(block)?;
        self.uses.freed(slot, None);
        self.allocated -= self.core.size(slot);
        self.deferred.insert(block, slot);
        Ok(())
    }

    fn release(&mut self, driver: &mut dyn Driver, keep: u64) -> Result<(), DriverError> {
        self.wait_for_deferred(driver)?;
        self.core.release(driver, keep, &mut self.uses)
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout { segments: self.core.walk() };
        let waiting = self.deferred.values().map(|slot| self.core.placement(*slot).address);
        mark_pending(&mut layout, waiting.collect());
        layout
    }
}

impl<C: Core> Allocator for Shell<C> {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let Request { size, stream, .. } = *request;
        if size == 0 {
            return Ok(self.nulls.place());
        }
        self.uses.see(stream);
        let slot = match self.core.take(driver, size, stream, &mut self.uses)? {
            Some(slot) => slot,
            None => self.miss(driver, size, stream)?,
        };
        let (placement, bytes) = (self.core.placement(slot), self.core.size(slot));
        self.active += bytes;
        if let Err(error) = self.uses.hand_out(driver, slot, stream) {
            self.give_rarely(driver, placement.block, slot, bytes).1?;
            return Err(error.into());
        }
        self.allocated += bytes;
        self.core.served(bytes, self.active);
        Ok(placement)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let slot = self.live(block)?;
        let size = self.core.size(slot);
        self.uses.freed(slot, stream);
        let (gone, answer) = self.give(driver, block, slot, size);
        if gone {
            self.allocated -= size;
        }
        Ok(answer?)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, .. } if Nulls::owns(block) => self.nulls.check(block)?,
            Notice::RecordStream { block, stream } => {
                let slot = self.live(block)?;
                self.uses.record(slot, stream);
            }
            Notice::FreeDeferred { block } => self.defer(block)?,
            Notice::Completed { block } => {
                if let Some(slot) = self.deferred.get(&block).copied() {
                    self.end(driver, block, slot)?;
                }
            }
            Notice::EmptyCache if C::RELEASES => self.release(driver, 0)?,
            Notice::Trim { keep } if C::RELEASES => self.release(driver, keep)?,
            Notice::Counters => {
                return Ok(Reply::Counters(self.core.counters(self.usage(), &self.uses)));
            }
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            other => return self.core.other(driver, other, self.active, &mut self.uses),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        Usage { allocated: self.allocated, active: self.active, reserved: self.core.reserved() }
    }
}
