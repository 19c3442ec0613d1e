//! What every classic strategy has around its rule: one pool for all streams, grown from the driver.
//!
//! | rule | what it says |
//! |---|---|
//! | `grow` | a request that finds no free memory gets a new segment of max(request, `segment`) from `cudaMalloc`; if the device has no room for a whole one, one of the request's size in whole granules |
//! | `arena` | with `arena=SIZE` or `arena=N%` (of the free device memory at the first request) there is one segment of that size and never another |
//! | `out_of_memory` | before it gives up: deferred frees are waited for (device synchronisation) and the request is tried again; wholly free segments go back, highest address first, and the driver is asked once more |
//! | `empty_cache` | deferred frees are waited for, then every wholly free segment goes back; `trim` stops at `keep` bytes |
//! | `streams` | freed memory is reusable at once, on another stream after a stream wait: see [`LastUses`] |
//! | `deferred` | a deferred free holds its block until it is completed, or until the strategy waits for the device |
//! | `null` | a request for 0 bytes gets a null placement |
//!
//! The rule itself is a [`Rule`]: it sees sizes and segments, no driver and no stream.

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::options::Growth;
use super::rule::{GRANULE, Need, Rule, Taken};
use crate::parts::last_uses::LastUses;
use crate::parts::nulls::Nulls;
use crate::parts::pieces::Segment;
use crate::parts::room::malloc;
use crate::parts::tokens::mark_pending;

/// A classic strategy.
pub(super) struct Pool<R> {
    rule: R,
    growth: Growth,
    usage: Usage,
    uses: LastUses,
    nulls: Nulls,
    /// Deferred frees that have not ended.
    deferred: BTreeMap<Block, Taken>,
    made: u64,
    returned: u64,
}

impl<R: Rule> Pool<R> {
    pub(super) fn new(rule: R, growth: Growth) -> Self {
        Self {
            rule,
            growth,
            usage: Usage::default(),
            uses: LastUses::default(),
            nulls: Nulls::default(),
            deferred: BTreeMap::new(),
            made: 0,
            returned: 0,
        }
    }

    #[inline]
    fn hand_out(
        &mut self,
        driver: &mut dyn Driver,
        taken: &Taken,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        self.uses.hand_out(driver, taken.slot, stream)?;
        self.usage.allocated += taken.size;
        self.usage.active += taken.size;
        Ok(Placement { block: taken.token(), address: taken.address, size: taken.size })
    }

    /// Nothing free fits (rules `grow`, `arena`, `out_of_memory`).
    #[cold]
    fn miss(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Taken, AllocError> {
        let asked = self.rule.need(size).map_or(size, |need| need.least);
        let mut need = self.sized(driver, self.rule.need(size))?;
        if let Some(taken) = self.grow(driver, need, size)? {
            return Ok(taken);
        }
        let returned = self.returned;
        if self.wait_for_deferred(driver)?
            && let Some(taken) = self.rule.take(size, &mut self.uses)
        {
            return Ok(taken);
        }
        if self.rule.need(size).is_some() {
            self.give_idle(driver, 0)?;
        }
        if self.returned > returned {
            // an arena that was returned is made anew
            need = self.sized(driver, self.rule.need(size))?;
            if let Some(taken) = self.grow(driver, need, size)? {
                return Ok(taken);
            }
        }
        let limit = if need.is_none() { self.growth.limit() } else { None };
        Err(AllocError::from(OutOfMemory {
            asked,
            device_free: driver.mem_info()?.0,
            reserved: self.usage.reserved,
            active: self.usage.active,
            largest_free: self.rule.largest_free(),
            limit,
        }))
    }

    /// What to ask the driver for.
    fn sized(
        &mut self,
        driver: &mut dyn Driver,
        need: Option<Need>,
    ) -> Result<Option<Need>, DriverError> {
        let Some(need) = need else { return Ok(None) };
        if let Growth::ArenaPercent(percent) = self.growth {
            let share = u128::from(driver.mem_info()?.0) * u128::from(percent) / 100;
            self.growth = Growth::Arena(share as u64 / GRANULE * GRANULE);
        }
        if let Growth::Arena(arena) = &mut self.growth {
            *arena = (*arena).min(self.rule.segment_max() / GRANULE * GRANULE);
        }
        Ok(match self.growth {
            Growth::Arena(arena) if self.usage.reserved == 0 && need.least <= arena => {
                Some(Need { least: arena, full: arena })
            }
            Growth::Arena(_) | Growth::ArenaPercent(_) => None,
            Growth::Segments => Some(need),
        })
    }

    fn grow(
        &mut self,
        driver: &mut dyn Driver,
        need: Option<Need>,
        size: u64,
    ) -> Result<Option<Taken>, DriverError> {
        let Some(Need { least, full }) = need else { return Ok(None) };
        for bytes in [full, least].into_iter().take(if least < full { 2 } else { 1 }) {
            if let Some(address) = malloc(driver, bytes)? {
                self.usage.reserved += bytes;
                self.made += 1;
                let segment = Segment { address, size: bytes };
                return Ok(Some(self.rule.add(segment, size, &mut self.uses)));
            }
        }
        Ok(None)
    }

    /// Ends all deferred frees by waiting for the device; false if there are none.
    fn wait_for_deferred(&mut self, driver: &mut dyn Driver) -> Result<bool, DriverError> {
        if self.deferred.is_empty() {
            return Ok(false);
        }
        driver.device_synchronize()?;
        self.uses.device_waited();
        for (_, deferred) in std::mem::take(&mut self.deferred) {
            self.end_deferred(driver, deferred)?;
        }
        Ok(true)
    }

    fn end_deferred(
        &mut self,
        driver: &mut dyn Driver,
        deferred: Taken,
    ) -> Result<(), DriverError> {
        self.usage.active -= deferred.size;
        self.give(driver, deferred.slot)
    }

    #[inline]
    fn give(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), DriverError> {
        match self.rule.give(slot, &mut self.uses) {
            None => Ok(()),
            Some(segment) => self.return_segment(driver, segment),
        }
    }

    fn return_segment(
        &mut self,
        driver: &mut dyn Driver,
        segment: Segment,
    ) -> Result<(), DriverError> {
        driver.free(segment.address)?;
        self.usage.reserved -= segment.size;
        self.returned += 1;
        self.uses.device_waited();
        Ok(())
    }

    /// Returns wholly free segments while more than `keep` bytes are held.
    fn give_idle(&mut self, driver: &mut dyn Driver, keep: u64) -> Result<(), DriverError> {
        for slot in self.rule.idle() {
            if self.usage.reserved <= keep {
                break;
            }
            let segment = self.rule.drop_idle(slot, &mut self.uses);
            self.return_segment(driver, segment)?;
        }
        Ok(())
    }

    #[inline]
    fn live(&self, block: Block) -> Result<Taken, AllocError> {
        let found = self.rule.find(block);
        found
            .filter(|_| self.deferred.is_empty() || !self.deferred.contains_key(&block))
            .ok_or(AllocError::UnknownBlock(block))
    }

    fn defer(&mut self, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let taken = self.live(block)?;
        self.uses.freed(taken.slot, None);
        self.usage.allocated -= taken.size;
        self.deferred.insert(block, taken);
        Ok(())
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout { segments: self.rule.walk() };
        mark_pending(&mut layout, self.deferred.values().map(|d| d.address).collect());
        layout
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("segments_made", self.made),
            ("segments_returned", self.returned),
            ("stream_waits", self.uses.waits()),
        ]
    }
}

impl<R: Rule> Allocator for Pool<R> {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        self.uses.see(request.stream);
        let taken = match self.rule.take(request.size, &mut self.uses) {
            Some(taken) => taken,
            None => self.miss(driver, request.size)?,
        };
        self.hand_out(driver, &taken, request.stream)
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
        let taken = self.live(block)?;
        self.uses.freed(taken.slot, stream);
        self.usage.allocated -= taken.size;
        self.usage.active -= taken.size;
        Ok(self.give(driver, taken.slot)?)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, .. } if Nulls::owns(block) => self.nulls.check(block)?,
            Notice::RecordStream { block, stream } => {
                let slot = self.live(block)?.slot;
                self.uses.record(slot, stream);
            }
            Notice::FreeDeferred { block } => self.defer(block)?,
            Notice::Completed { block } => {
                if let Some(deferred) = self.deferred.remove(&block) {
                    self.end_deferred(driver, deferred)?;
                }
            }
            Notice::EmptyCache => {
                self.wait_for_deferred(driver)?;
                self.give_idle(driver, 0)?;
            }
            Notice::Trim { keep } => {
                self.wait_for_deferred(driver)?;
                self.give_idle(driver, keep)?;
            }
            Notice::Mark { .. } => {}
            Notice::Counters => return Ok(Reply::Counters(self.counters())),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{KIB, Probe};

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_arena_is_one_segment_and_a_limit() {
        let mut probe = Probe::new("classic.first_fit:arena=64MiB");
        let a = probe.alloc(40 * MIB);
        let numbers = probe.refusal(40 * MIB);
        assert_eq!((numbers.limit, numbers.reserved), (Some(64 * MIB), 64 * MIB));
        assert_eq!((numbers.active, numbers.largest_free), (40 * MIB, 24 * MIB));
        probe.free(a);
        assert_eq!(probe.place(64 * MIB), 0);
    }

    #[test]
    fn an_arena_of_a_share_is_sized_at_the_first_request() {
        let mut probe = Probe::new("classic.tlsf:arena=25%");
        assert_eq!(probe.reserved(), 0);
        probe.alloc(1);
        assert_eq!(probe.reserved(), 2048 * MIB, "of 8 GiB");
    }

    /// 2^32 units of 256 B are one more than a segment can have.
    #[test]
    fn an_arena_beyond_a_segments_units_is_as_large_as_it_can_be() {
        let mut probe = Probe::new("classic.best_fit:align=256,arena=4TiB");
        let numbers = probe.refusal(KIB);
        assert_eq!(numbers.limit, None, "the device is too small");
        assert_eq!(probe.refusal(2 << 40).limit, Some((1 << 40) - 2 * MIB));
    }

    #[test]
    fn a_request_near_the_end_of_the_device_gets_what_is_left() {
        let mut probe = Probe::new("classic.worst_fit:segment=1GiB");
        let _most = probe.alloc(8140 * MIB);
        assert_eq!(probe.place(50 * MIB), 0, "52 MiB are left, not a whole segment");
        assert_eq!(probe.reserved(), 8190 * MIB);
    }
}
