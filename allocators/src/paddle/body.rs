//! What the Paddle strategies have around their rules: tokens, streams, statistics, and frees that are not over yet.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `null` | a request for 0 bytes gets a null placement | `allocator_facade.cc`: such a request goes to an allocator of its own |
//! | `order` | an addition: reuse on another stream waits for the last uses, as in [`LastUses`]. The real allocators share their chunks among streams without order, and leave that to the stream-safe wrapper, under which each instance sees one stream | - |
//! | `deferred` | an addition: a free whose work the run cannot see is waited for (device synchronisation) before a request fails, and at `empty_cache`; the real ones wait for frees of other threads, `gpu_allocator_retry_time` | `retry_allocator.cc` |
//! | `statistics` | `allocated` counts the sizes of blocks, `reserved` the sizes asked of the driver | `stat_allocator.h`, `gpu_info.cc` |

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::chunks::Chunks;
use crate::parts::last_uses::LastUses;
use crate::parts::nulls::Nulls;
use crate::parts::tokens::mark_pending;

/// The rule of a strategy: where blocks come from and what becomes of free memory.
pub(super) trait Heap: Send {
    /// Names of the pools in layouts.
    const POOLS: &'static [&'static str];
    /// Bytes at the beginning of a block that are not handed out.
    const HEADER: u64 = 0;
    /// Its memory is mapped page by page, and never given back.
    const VIRTUAL: bool = false;

    /// Takes a block of at least `size` (1 or more) bytes; none if there is no room. Gives its slot.
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError>;

    /// Takes a live block back.
    fn give(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError>;

    /// Gives wholly free chunks back while more than `keep` bytes are held.
    fn release(
        &mut self,
        driver: &mut dyn Driver,
        keep: u64,
        uses: &mut LastUses,
    ) -> Result<(), DriverError>;

    /// Its pieces.
    fn chunks(&self) -> &Chunks;

    /// Its pieces.
    fn chunks_mut(&mut self) -> &mut Chunks;

    /// Bytes held from the driver.
    fn reserved(&self) -> u64;

    /// The size of the block for a request; the request itself where rounding would pass 2^64.
    fn rounded(&self, size: u64) -> u64;

    /// Counters of its own.
    fn counters(&self, _list: &mut Vec<(&'static str, u64)>) {}
}

/// A strategy.
pub(super) struct Body<H> {
    heap: H,
    allocated: u64,
    active: u64,
    uses: LastUses,
    nulls: Nulls,
    /// Deferred frees that have not ended, and their slots.
    deferred: BTreeMap<Block, u32>,
}

impl<H: Heap> Body<H> {
    pub(super) fn new(heap: H) -> Self {
        Self {
            heap,
            allocated: 0,
            active: 0,
            uses: LastUses::default(),
            nulls: Nulls::default(),
            deferred: BTreeMap::new(),
        }
    }

    /// No room: once more after deferred frees have ended.
    #[cold]
    fn miss(&mut self, driver: &mut dyn Driver, size: u64) -> Result<u32, AllocError> {
        if self.wait_for_deferred(driver)?
            && let Some(slot) = self.heap.take(driver, size, &mut self.uses)?
        {
            return Ok(slot);
        }
        Err(AllocError::from(OutOfMemory {
            asked: self.heap.rounded(size),
            device_free: driver.mem_info()?.0,
            reserved: self.heap.reserved(),
            active: self.active,
            largest_free: self.heap.chunks_mut().largest(),
            limit: None,
        }))
    }

    /// Ends all deferred frees by waiting for the device; false if there are none.
    fn wait_for_deferred(&mut self, driver: &mut dyn Driver) -> Result<bool, DriverError> {
        if self.deferred.is_empty() {
            return Ok(false);
        }
        driver.device_synchronize()?;
        self.uses.device_waited();
        while let Some((block, slot)) = self.deferred.first_key_value().map(|(b, s)| (*b, *s)) {
            self.give(driver, slot)?;
            self.deferred.remove(&block);
        }
        Ok(true)
    }

    /// Takes a block back that is not counted as allocated any more.
    #[inline]
    fn give(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), DriverError> {
        let (token, size) = (self.heap.chunks().token(slot), self.heap.chunks().get(slot).size);
        let answer = self.heap.give(driver, slot, &mut self.uses);
        // a driver that fails may have kept the block, or what was released after it
        if answer.is_ok() || self.heap.chunks().live(token).is_none() {
            self.active -= size;
        }
        answer
    }

    #[inline]
    fn live(&self, block: Block) -> Result<u32, AllocError> {
        let found = self.heap.chunks().live(block);
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
        self.allocated -= self.heap.chunks().get(slot).size;
        self.deferred.insert(block, slot);
        Ok(())
    }

    fn release(&mut self, driver: &mut dyn Driver, keep: u64) -> Result<Reply, AllocError> {
        if H::VIRTUAL {
            return Ok(Reply::Unsupported);
        }
        self.wait_for_deferred(driver)?;
        self.heap.release(driver, keep, &mut self.uses)?;
        Ok(Reply::Done)
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout { segments: self.heap.chunks().walk(H::POOLS, H::VIRTUAL) };
        let address = |slot: &u32| self.heap.chunks().get(*slot).address;
        mark_pending(&mut layout, self.deferred.values().map(address).collect());
        layout
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let chunks = self.heap.chunks();
        let mut list = vec![
            ("curr_chunks_num", chunks.chunks()),
            ("free_blocks_num", chunks.free_pieces()),
            ("stream_waits", self.uses.waits()),
        ];
        self.heap.counters(&mut list);
        list
    }
}

impl<H: Heap> Allocator for Body<H> {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        self.uses.see(request.stream);
        let slot = match self.heap.take(driver, request.size, &mut self.uses)? {
            Some(slot) => slot,
            None => self.miss(driver, request.size)?,
        };
        let (address, size) =
            (self.heap.chunks().get(slot).address, self.heap.chunks().get(slot).size);
        self.active += size;
        if let Err(error) = self.uses.hand_out(driver, slot, request.stream) {
            self.give(driver, slot)?;
            return Err(error.into());
        }
        self.allocated += size;
        Ok(Placement {
            block: self.heap.chunks().token(slot),
            address: address + H::HEADER,
            size: size - H::HEADER,
        })
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
        let size = self.heap.chunks().get(slot).size;
        self.uses.freed(slot, stream);
        let before = self.active;
        let answer = self.give(driver, slot);
        if self.active < before {
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
                    self.give(driver, slot)?;
                    self.deferred.remove(&block);
                }
            }
            Notice::EmptyCache => return self.release(driver, 0),
            Notice::Trim { keep } => return self.release(driver, keep),
            Notice::Mark { .. } => {}
            Notice::Counters => return Ok(Reply::Counters(self.counters())),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        Usage { allocated: self.allocated, active: self.active, reserved: self.heap.reserved() }
    }
}
