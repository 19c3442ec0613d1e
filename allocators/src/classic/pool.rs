//! What every classic strategy has around its rule: one pool for all streams, grown from the driver.
//!
//! | rule | what it says |
//! |---|---|
//! | `grow` | a request that finds no free memory gets a new segment of max(request, `segment`) from `cudaMalloc`; if the device has no room for a whole one, one of the request's size in whole granules |
//! | `arena` | with `arena=SIZE` or `arena=N%` (of the free device memory at the first request) there is one segment of that size and never another |
//! | `out_of_memory` | before it gives up: deferred frees are waited for (device synchronisation) and the request is tried again; wholly free segments go back, highest address first, and the driver is asked once more |
//! | `empty_cache` | deferred frees are waited for, then every wholly free segment goes back; `trim` stops at `keep` bytes |
//! | `streams`, `deferred`, `null` | as in [`crate::parts::shell`]: freed memory is reusable at once, on another stream after a stream wait |
//!
//! The rule itself is a [`Rule`]: it sees sizes and segments, no driver.

use vramlab_sim::allocator::{Block, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::options::Growth;
use super::rule::{GRANULE, Need, Rule};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Segment;
use crate::parts::room::malloc;
use crate::parts::shell::{Core, Shell};

/// The memory of a classic strategy.
pub(super) struct Pool<R> {
    rule: R,
    growth: Growth,
    reserved: u64,
    made: u64,
    returned: u64,
    /// Segments returned when the driver last refused one.
    refused_at: u64,
}

impl<R: Rule> Pool<R> {
    /// The strategy of a rule.
    pub(super) fn shell(rule: R, growth: Growth) -> Shell<Self> {
        Shell::new(Self { rule, growth, reserved: 0, made: 0, returned: 0, refused_at: 0 })
    }

    /// A new segment for a request (rules `grow`, `arena`), and the block in it; none if there is no room.
    #[cold]
    #[inline(never)]
    fn grow(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        if let Some(Need { least, full }) = self.need(driver, size)? {
            for bytes in [Some(full), Some(least).filter(|_| least < full)].into_iter().flatten() {
                if let Some(address) = malloc(driver, bytes)? {
                    self.reserved += bytes;
                    self.made += 1;
                    return Ok(Some(self.rule.add(Segment { address, size: bytes }, size, uses)));
                }
            }
        }
        self.refused_at = self.returned;
        Ok(None)
    }

    /// What to ask the driver for.
    fn need(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Option<Need>, DriverError> {
        let Some(need) = self.rule.need(size) else { return Ok(None) };
        if let Growth::ArenaPercent(percent) = self.growth {
            let share = u128::from(driver.mem_info()?.0) * u128::from(percent) / 100;
            self.growth = Growth::Arena(share as u64 / GRANULE * GRANULE);
        }
        if let Growth::Arena(arena) = &mut self.growth {
            *arena = (*arena).min(self.rule.segment_max() / GRANULE * GRANULE);
        }
        Ok(match self.growth {
            Growth::Arena(arena) if self.begins(arena, need) => {
                Some(Need { least: arena, full: arena })
            }
            Growth::Arena(_) | Growth::ArenaPercent(_) => None,
            Growth::Segments => Some(need),
        })
    }

    /// May the arena be asked for?
    fn begins(&self, arena: u64, need: Need) -> bool {
        self.reserved == 0 && need.least <= arena
    }

    fn return_segment(
        &mut self,
        driver: &mut dyn Driver,
        segment: Segment,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        driver.free(segment.address)?;
        self.reserved -= segment.size;
        self.returned += 1;
        uses.device_waited();
        Ok(())
    }
}

impl<R: Rule> Core for Pool<R> {
    const RELEASES: bool = true;

    #[inline(always)]
    fn take(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        _stream: StreamId,
        uses: &mut LastUses,
    ) -> Result<Option<u32>, DriverError> {
        match self.rule.take(size, uses) {
            None => self.grow(driver, size, uses),
            taken => Ok(taken),
        }
    }

    /// Rule `out_of_memory`.
    fn retry(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        _stream: StreamId,
        uses: &mut LastUses,
        waited: bool,
    ) -> Result<Option<u32>, DriverError> {
        if waited && let Some(slot) = self.rule.take(size, uses) {
            return Ok(Some(slot));
        }
        if self.rule.need(size).is_some() {
            self.release(driver, 0, uses)?;
        }
        // an arena that was returned is made anew
        if self.returned > self.refused_at { self.grow(driver, size, uses) } else { Ok(None) }
    }

    #[inline(always)]
    fn give(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        if let Some(segment) = self.rule.goes_back(slot) {
            self.return_segment(driver, segment, uses)?;
        }
        self.rule.give(slot, uses);
        Ok(())
    }

    #[inline(always)]
    fn find(&self, block: Block) -> Option<u32> {
        self.rule.find(block)
    }

    #[inline(always)]
    fn placement(&self, slot: u32) -> Placement {
        self.rule.placement(slot)
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }

    fn rounded(&self, size: u64) -> Option<u64> {
        Some(self.rule.need(size).map_or(size, |need| need.least))
    }

    fn largest_free(&mut self) -> u64 {
        self.rule.largest_free()
    }

    fn limit(&self, size: u64) -> Option<u64> {
        let Growth::Arena(arena) = self.growth else { return self.growth.limit() };
        let begins = self.rule.need(size).is_some_and(|need| self.begins(arena, need));
        (!begins).then_some(arena)
    }

    fn release(
        &mut self,
        driver: &mut dyn Driver,
        keep: u64,
        uses: &mut LastUses,
    ) -> Result<(), DriverError> {
        for (slot, segment) in self.rule.idle() {
            if self.reserved <= keep {
                break;
            }
            self.return_segment(driver, segment, uses)?;
            self.rule.drop_idle(slot, uses);
        }
        Ok(())
    }

    fn counters(&self, _usage: Usage, uses: &LastUses) -> Vec<(&'static str, u64)> {
        vec![
            ("segments_made", self.made),
            ("segments_returned", self.returned),
            ("stream_waits", uses.waits()),
        ]
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        self.rule.walk()
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
