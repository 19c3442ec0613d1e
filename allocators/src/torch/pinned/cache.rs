//! The cache itself: requests, frees, events, the reserve segment.

use vramlab_sim::allocator::{
    AllocError, Block as Token, BlockState, Layout, LayoutBlock, LayoutSegment, OutOfMemory,
    Placement, Request, Usage,
};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::super::settings::Settings;
use super::super::statistics::Stat;
use super::blocks::{Block, Blocks, Lists, State};
use super::routes::{DEFAULT, Routes};
use crate::parts::nulls::Nulls;

/// Blocks of the reserve segment begin on multiples of this (rule `reserve_segment`).
const RESERVE_STEP: u64 = 4096;

/// Names and meanings of `torch.cuda.host_memory_stats`.
#[derive(Debug, Default)]
pub(super) struct HostStats {
    allocations: Stat,
    allocated_bytes: Stat,
    active_requests: Stat,
    active_bytes: Stat,
}

impl HostStats {
    fn each(&mut self) -> [&mut Stat; 4] {
        [
            &mut self.allocations,
            &mut self.allocated_bytes,
            &mut self.active_requests,
            &mut self.active_bytes,
        ]
    }

    pub(super) fn reset_peak(&mut self) {
        self.each().into_iter().for_each(Stat::reset_peak);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.each().into_iter().for_each(Stat::reset_accumulated);
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let of = |value: i64| value.max(0) as u64;
        vec![
            ("allocations.current", of(self.allocations.current)),
            ("allocations.peak", of(self.allocations.peak)),
            ("allocated_bytes.current", of(self.allocated_bytes.current)),
            ("allocated_bytes.peak", of(self.allocated_bytes.peak)),
            ("active_requests.current", of(self.active_requests.current)),
            ("active_requests.peak", of(self.active_requests.peak)),
            ("active_bytes.current", of(self.active_bytes.current)),
            ("active_bytes.peak", of(self.active_bytes.peak)),
            ("num_host_alloc", of(self.allocations.allocated)),
            ("num_host_free", of(self.allocations.freed)),
        ]
    }
}

/// The segment that blocks are cut from first.
#[derive(Clone, Copy, Debug)]
struct Reserve {
    start: Address,
    size: u64,
    cut: u64,
}

/// The cache of one process.
#[derive(Debug)]
pub(super) struct Cache {
    settings: Settings,
    blocks: Blocks,
    nulls: Nulls,
    /// By pool; the first is the default one.
    lists: Vec<Lists>,
    pub(super) routes: Routes,
    /// Events at hand.
    idle: Vec<EventId>,
    reserve: Option<Reserve>,
    /// Another thread looks at events (rule `background`).
    background: bool,
    pub(super) usage: Usage,
    pub(super) statistics: HostStats,
}

impl Cache {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            blocks: Blocks::default(),
            nulls: Nulls::default(),
            lists: vec![Lists::default()],
            routes: Routes::default(),
            idle: Vec::new(),
            reserve: None,
            background: false,
            usage: Usage::default(),
            statistics: HostStats::default(),
        }
    }

    pub(super) fn set(&mut self, text: &str) -> Result<(), AllocError> {
        let settings = self.settings.with_text(text, false);
        self.settings = settings.map_err(|why| AllocError::BadSetting(why.into()))?;
        Ok(())
    }

    /// Rules `power_of_two` and `round_threshold`.
    fn rounded(&self, asked: u64) -> Result<u64, AllocError> {
        let pinned = &self.settings.pinned;
        if asked > pinned.round_max || asked > pinned.cached_max {
            return Ok(asked);
        }
        let why = "rounding it up to a power of two passes 2^64";
        asked.checked_next_power_of_two().ok_or(AllocError::InvalidSize { asked, why })
    }

    pub(super) fn place(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        let pool = self.routes.pool_for(request.stream);
        if self.lists.len() < self.routes.count() {
            self.lists.resize_with(self.routes.count(), Lists::default);
        }
        let in_background = self.settings.pinned.background && pool == DEFAULT;
        if !in_background && !self.lists[pool as usize].events.is_empty() {
            self.look_at_events(driver, pool)?;
        }
        let size = self.rounded(request.size)?;
        let slot = match self.lists[pool as usize].take(self.blocks.all(), size) {
            Some(slot) => slot,
            None => {
                self.background |= self.settings.pinned.background;
                self.make(driver, size, pool)?
            }
        };
        let captured = self.routes.is_captured(request.stream);
        let block = self.blocks.hand_out(slot, request.size, captured);
        let Block { address, size, .. } = *self.blocks.get(slot);
        self.usage.allocated += size;
        self.usage.active += size;
        self.statistics.active_requests.rise(1);
        self.statistics.active_bytes.rise(size as i64);
        Ok(Placement { block, address, size })
    }

    /// A new block, from the reserve segment or from the driver.
    fn make(&mut self, driver: &mut dyn Driver, size: u64, pool: u32) -> Result<u32, AllocError> {
        let cut = self.cut(driver, size)?;
        let address = match cut {
            Some(address) => address,
            None => self.pin(driver, size)?,
        };
        let slot = self.blocks.add(address, size, pool, cut.is_some());
        self.lists[pool as usize].blocks += 1;
        self.statistics.allocations.rise(1);
        self.statistics.allocated_bytes.rise(size as i64);
        Ok(slot)
    }

    fn pin(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Address, AllocError> {
        match driver.malloc_host(size, true) {
            Ok(address) => {
                self.usage.reserved += size;
                Ok(address)
            }
            Err(DriverError::OutOfMemory { asked, free }) => {
                let Usage { active, reserved, .. } = self.usage;
                let cached = self.blocks.all().iter().filter(|block| block.state == State::Free);
                let largest_free = cached.map(|block| block.size).max().unwrap_or_default();
                let oom = OutOfMemory {
                    asked,
                    device_free: free,
                    reserved,
                    active,
                    largest_free,
                    limit: None,
                };
                Err(oom.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Rule `reserve_segment`.
    fn cut(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Option<Address>, AllocError> {
        let wanted = self.settings.pinned.reserve;
        if self.reserve.is_none() && wanted > 0 {
            let start = self.pin(driver, wanted)?;
            self.reserve = Some(Reserve { start, size: wanted, cut: 0 });
        }
        let Some(reserve) = &mut self.reserve else { return Ok(None) };
        let end =
            size.checked_next_multiple_of(RESERVE_STEP).and_then(|s| s.checked_add(reserve.cut));
        let Some(end) = end.filter(|end| *end <= reserve.size) else { return Ok(None) };
        let address = reserve.start + std::mem::replace(&mut reserve.cut, end);
        Ok(Some(address))
    }

    pub(super) fn take_back(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
    ) -> Result<(), AllocError> {
        if self.nulls.take(token) {
            return Ok(());
        }
        let slot = self.blocks.live(token)?;
        let Block { size, recorded, captured, pool, .. } = *self.blocks.get(slot);
        if !recorded {
            self.come_back(driver, slot)?;
            self.usage.allocated -= size;
            return Ok(());
        }
        let mut events = Vec::new();
        if !captured {
            for at in 0..self.blocks.recorded(slot).len() {
                let event = match self.idle.pop() {
                    Some(event) => event,
                    None => driver.event_create()?,
                };
                driver.event_record(event, self.blocks.recorded(slot)[at])?;
                events.push(event);
            }
        }
        self.usage.allocated -= size;
        self.blocks.get_mut(slot).state = State::Waiting(events.len() as u32);
        self.blocks.forget_recorded(slot);
        self.lists[pool as usize].events.extend(events.into_iter().map(|event| (event, slot)));
        Ok(())
    }

    /// Nothing uses the block any more: it is free, or goes back (rule `cached_size`).
    fn come_back(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), AllocError> {
        let Block { size, pool, .. } = *self.blocks.get(slot);
        if size > self.settings.pinned.cached_max {
            self.drop_block(driver, slot)?;
        } else {
            self.blocks.get_mut(slot).state = State::Free;
            self.lists[pool as usize].put(slot, size);
        }
        self.usage.active -= size;
        self.statistics.active_requests.fall(1);
        self.statistics.active_bytes.fall(size as i64);
        Ok(())
    }

    /// Gives a block back that is in no list.
    fn drop_block(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), AllocError> {
        let Block { address, size, pool, reserve, .. } = *self.blocks.get(slot);
        if reserve {
            self.blocks.get_mut(slot).state = State::Lost;
        } else {
            driver.free_host(address)?;
            self.blocks.remove(slot);
            self.usage.reserved -= size;
        }
        self.lists[pool as usize].blocks -= 1;
        self.statistics.allocations.fall(1);
        self.statistics.allocated_bytes.fall(size as i64);
        Ok(())
    }

    /// Rule `noticed`.
    fn look_at_events(&mut self, driver: &mut dyn Driver, pool: u32) -> Result<(), AllocError> {
        while let Some((event, slot)) = self.lists[pool as usize].events.front().copied() {
            if !driver.event_query(event)? {
                break;
            }
            self.lists[pool as usize].events.pop_front();
            self.idle.push(event);
            if let State::Waiting(left) = &mut self.blocks.get_mut(slot).state {
                *left -= 1;
                if *left == 0 {
                    self.come_back(driver, slot)?;
                }
            }
        }
        Ok(())
    }

    /// Rule `background`.
    pub(super) fn work_in_background(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if self.background && !self.lists[DEFAULT as usize].events.is_empty() {
            self.look_at_events(driver, DEFAULT)?;
        }
        Ok(())
    }

    pub(super) fn record(&mut self, token: Token, stream: StreamId) -> Result<(), AllocError> {
        if !self.nulls.is_live(token) {
            let slot = self.blocks.live(token)?;
            self.blocks.record(slot, stream);
        }
        Ok(())
    }

    /// Rule `empty_cache`, for the default pool and for private ones without uses.
    pub(super) fn empty(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        for pool in 0..self.lists.len() as u32 {
            if pool != DEFAULT && !self.routes.is_idle(pool) {
                continue;
            }
            self.look_at_events(driver, pool)?;
            for slot in self.lists[pool as usize].drain() {
                self.drop_block(driver, slot)?;
            }
            if pool != DEFAULT && self.lists[pool as usize].blocks == 0 {
                self.routes.forget(pool);
            }
        }
        Ok(())
    }

    /// A segment for each range of the driver's.
    pub(super) fn layout(&self) -> Layout {
        let mut parts: Vec<&Block> =
            self.blocks.all().iter().filter(|block| block.state != State::Vacant).collect();
        parts.sort_unstable_by_key(|block| block.address);
        let mut segments = Vec::new();
        if let Some(Reserve { start, size, .. }) = self.reserve {
            let mut blocks = Vec::new();
            let mut at = start;
            for part in parts.iter().filter(|part| part.reserve) {
                free_between(&mut blocks, at, part.address);
                blocks.push(part_of(part));
                at = part.address + part.size;
            }
            free_between(&mut blocks, at, start + size);
            let pool = "reserve";
            segments.push(LayoutSegment {
                address: start,
                size,
                pool,
                blocks,
                ..Default::default()
            });
        }
        segments.extend(parts.iter().filter(|part| !part.reserve).map(|part| LayoutSegment {
            address: part.address,
            size: part.size,
            pool: "pinned",
            private_pool: self.routes.id(part.pool),
            blocks: vec![part_of(part)],
            ..Default::default()
        }));
        segments.sort_unstable_by_key(|segment| segment.address);
        Layout { segments }
    }
}

fn part_of(block: &Block) -> LayoutBlock {
    let state = match block.state {
        State::Live => BlockState::Allocated,
        State::Waiting(_) => BlockState::Pending,
        State::Vacant | State::Free | State::Lost => BlockState::Free,
    };
    let requested = if state == BlockState::Free { 0 } else { block.requested };
    LayoutBlock { address: block.address, size: block.size, requested, state, age: 0 }
}

fn free_between(blocks: &mut Vec<LayoutBlock>, from: Address, to: Address) {
    if from < to {
        let state = BlockState::Free;
        blocks.push(LayoutBlock { address: from, size: to - from, requested: 0, state, age: 0 });
    }
}
