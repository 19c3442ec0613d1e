//! Blocks that go straight to the device (rule `reserve` of [`super::arena`]): ONNX Runtime places the weights of a model so.

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, LayoutBlock, LayoutSegment, Notice,
    Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use super::arena::OrtArena;
use crate::parts::bfc::arena::Booked;
use crate::parts::pieces::Segment;
use crate::parts::room::out_of_memory;
use crate::parts::shell::{Core, Shell};

/// The low half of a reserved block's token; no slot has this number, and no null placement.
const RESERVED: u64 = 1 << 31;

/// The arena, and blocks outside of it.
pub(super) struct Reserving {
    inner: Shell<Booked<OrtArena>>,
    /// Do requests go straight to the device?
    on: bool,
    live: BTreeMap<Block, Segment>,
}

impl Reserving {
    pub(super) fn new(inner: Shell<Booked<OrtArena>>) -> Self {
        Self { inner, on: false, live: BTreeMap::new() }
    }

    fn reserve(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Placement, AllocError> {
        let core = &mut self.inner.core;
        let Some(address) = core.book.malloc(driver, size)? else {
            let (largest, limit) = (core.largest_free(), core.refusing_limit(size));
            return Err(out_of_memory(driver, size, self.inner.usage(), largest, limit));
        };
        self.inner.allocated += size;
        self.inner.active += size;
        core.book.served(size, self.inner.active);
        core.arena.reserves += 1;
        let block = Block(core.arena.reserves << 32 | RESERVED);
        self.live.insert(block, Segment { address, size });
        Ok(Placement { block, address, size })
    }

    fn give_back(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        let segment = *self.live.get(&block).ok_or(AllocError::UnknownBlock(block))?;
        let Shell { core, uses, .. } = &mut self.inner;
        core.book.give_back(driver, &[segment], uses).1?;
        let size = segment.size;
        self.live.remove(&block);
        self.inner.allocated -= size;
        self.inner.active -= size;
        Ok(())
    }

    fn set(&mut self, value: &str) -> Result<Reply, AllocError> {
        self.on = value.parse().map_err(|_| {
            AllocError::BadSetting(format!("reserve={value}: expected true or false").into())
        })?;
        Ok(Reply::Done)
    }

    fn add_to(&self, layout: &mut Layout) {
        layout.segments.extend(self.live.values().map(|segment| {
            let Segment { address, size } = *segment;
            let state = BlockState::Allocated;
            let blocks = vec![LayoutBlock { address, size, requested: size, state, age: 0 }];
            LayoutSegment { address, size, pool: "reserve", blocks, ..LayoutSegment::default() }
        }));
        layout.segments.sort_unstable_by_key(|segment| segment.address);
    }
}

fn is_reserved(block: Block) -> bool {
    block.0 & 0xFFFF_FFFF == RESERVED
}

impl Allocator for Reserving {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if self.on && request.size > 0 {
            return self.reserve(driver, request.size);
        }
        self.inner.alloc(driver, request)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if is_reserved(block) {
            return self.give_back(driver, block);
        }
        self.inner.free(driver, block, stream)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::Set { key: "reserve", value } => self.set(value),
            // a free waits for the device, so nothing needs to be remembered of other streams or of unseen work
            Notice::RecordStream { block, .. } if is_reserved(block) => {
                let live = self.live.contains_key(&block);
                live.then_some(Reply::Done).ok_or(AllocError::UnknownBlock(block))
            }
            Notice::FreeDeferred { block } if is_reserved(block) => {
                self.give_back(driver, block).map(|()| Reply::Done)
            }
            Notice::Walk => {
                let mut reply = self.inner.notice(driver, notice)?;
                if let Reply::Layout(layout) = &mut reply {
                    self.add_to(layout);
                }
                Ok(reply)
            }
            other => self.inner.notice(driver, other),
        }
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.inner.before_work(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.inner.after_work(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
