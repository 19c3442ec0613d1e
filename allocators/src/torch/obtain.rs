//! Where a request gets its block: the search, and what happens when it finds none.
//!
//! | rule | what it says |
//! |---|---|
//! | `best-fit` | the first free block that is large enough, by size, then age of the segment (2.9: not), then address (RULES 5) |
//! | `growable-last` | if that one is expandable: on to the next in order while its size **including the unmapped piece right after it** is smaller (RULES 21, `xp_best_fit`) |
//! | `switched-off` | with expandable segments switched off their blocks are skipped (RULES 24, `xp_toggle`) |
//! | `oversize` | with a split limit M a request below M takes no block of M or more, one of at least M none that is larger by max_non_split_rounding or more; no other is tried then (RULES 6) |
//! | `order` | collect garbage, ask for a segment, release oversize blocks and ask again, release everything and ask again. Only the last attempt is a retry, a failure after it an oom (RULES 8) |
//! | `attempt` | the memory fraction, then `throw_on_cudamalloc_oom` (reserved + segment > the option's fraction of the device), then the device (RULES 9, 13) |
//! | `capture` | during a capture nothing is released for a request (RULES 29) |
//! | `research` | ours, off: search once more before giving up, since waiting for events may have freed a block (pytorch/pytorch#189504) |

use vramlab_sim::allocator::{AllocError, OutOfMemory};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};

use crate::parts::free_set::{NONE, SIZE_MAX};

use super::pieces::{NO_RANGE, RANGE_SIZE_MAX, State, UNIT};
use super::pools::NO_SET;
use super::rounding::Rounding;
use super::settings::Version;
use super::{Caching, Need};

/// What an attempt to get memory gave.
enum Attempt {
    /// A piece that is in no set.
    Got(u32),
    Failed,
    /// Refused before the device was asked; nothing else is tried.
    Rejected,
}

impl Caching {
    /// The free piece for `units` of a set, or [`NONE`]; it stays in the set.
    #[inline(always)]
    pub(super) fn candidate(&mut self, set: u32, units: u32) -> u32 {
        let mut found = self.pools.set(set).free.find(&self.pieces, units);
        if self.watch {
            found = self.watched(set, found);
        }
        if found == NONE || self.is_refused(self.pieces.get(found).size, units) {
            return NONE;
        }
        found
    }

    /// Rule `oversize`.
    #[inline(always)]
    fn is_refused(&self, size: u32, units: u32) -> bool {
        if units < self.split_limit {
            return size >= self.split_limit;
        }
        let rounding = self.settings.max_non_split_rounding.unwrap_or(self.settings.large_segment);
        u64::from(size) * UNIT >= (u64::from(units) * UNIT).wrapping_add(rounding)
    }

    /// The search while collection is on or expandable segments exist.
    #[cold]
    fn watched(&mut self, set: u32, found: u32) -> u32 {
        if self.is_collecting() {
            let pool = self.pools.set(set).pool;
            self.pools.pools[pool as usize].searches += 1;
            self.has_births = true;
        }
        if found == NONE || !self.pieces.segment_of(found).is_expandable() {
            return found;
        }
        let mut order = self.pools.set(set).free.from(&self.pieces, self.pieces.get(found).size);
        let is_expandable = |piece: u32| self.pieces.segment_of(piece).is_expandable();
        if !self.settings.expandable {
            return order.find(|&piece| !is_expandable(piece)).unwrap_or(NONE);
        }
        let mut best = found;
        order.next();
        // Nothing after a block that cannot grow reaches less far than it does.
        while is_expandable(best) && self.reach(best) > self.pieces.get(best).bytes() {
            match order.next() {
                Some(next) if self.reach(next) < self.reach(best) => best = next,
                _ => break,
            }
        }
        best
    }

    /// A piece for a request that no free one serves; it is in no set.
    #[cold]
    pub(super) fn obtain(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<u32, AllocError> {
        if self.is_collecting()
            && let Some(limit) = self.limit
        {
            self.collect(driver, limit)?;
        }
        let mut last = self.attempt(driver, need)?;
        if matches!(last, Attempt::Failed) && self.release_oversize(driver, need)? {
            last = self.attempt(driver, need)?;
        }
        if matches!(last, Attempt::Failed) && !self.is_capturing() {
            self.release_all(driver)?;
            self.tally.counts.retries += 1;
            last = self.attempt(driver, need)?;
        }
        match last {
            Attempt::Got(piece) => return Ok(piece),
            Attempt::Rejected => self.tally.counts.rejections += 1,
            Attempt::Failed => {
                if self.settings.research_after_sync {
                    let found = self.candidate(need.set, need.units);
                    if found != NONE {
                        self.pools.sets[need.set as usize].free.remove(&mut self.pieces, found);
                        return Ok(found);
                    }
                }
                self.tally.counts.ooms += 1;
            }
        }
        Err(self.out_of_memory(driver, need, matches!(last, Attempt::Rejected))?.into())
    }

    /// Rule `attempt`.
    fn attempt(&mut self, driver: &mut dyn Driver, need: &Need) -> Result<Attempt, AllocError> {
        let after = self.tally.reserved().saturating_add(need.segment);
        if self.limit.is_some_and(|limit| after > limit) {
            return Ok(Attempt::Failed);
        }
        if self.settings.throw_on_oom && after > self.rejection_limit(driver)? {
            return Ok(Attempt::Rejected);
        }
        if self.settings.expandable {
            return Ok(self.expand(driver, need)?.map_or(Attempt::Failed, Attempt::Got));
        }
        let address = match driver.malloc(need.segment) {
            Ok(address) => address,
            Err(DriverError::OutOfMemory { .. }) => return Ok(Attempt::Failed),
            Err(error) => return Err(error.into()),
        };
        if need.segment >= RANGE_SIZE_MAX {
            // More than pieces can describe; no real device gets here.
            driver.free(address)?;
            return Ok(Attempt::Failed);
        }
        let units = (need.segment / UNIT) as u32;
        let piece = self.pieces.add_segment(address, need.set, NO_RANGE, units, State::Free);
        self.tally.add_segment(need.kind, need.segment);
        self.pools.count_held(need.set, 1);
        if units >= self.split_limit {
            self.tally.oversize_segments.rise(1);
        }
        Ok(Attempt::Got(piece))
    }

    /// Rejections go by the fraction as it was named last, whatever the limit is.
    fn rejection_limit(&mut self, driver: &mut dyn Driver) -> Result<u64, AllocError> {
        Ok((self.settings.fraction * self.total(driver)? as f64) as u64)
    }

    /// The numbers of a failure.
    fn out_of_memory(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
        rejected: bool,
    ) -> Result<OutOfMemory, AllocError> {
        let (device_free, total) = driver.mem_info()?;
        let reserved = self.tally.reserved();
        let limit = if rejected {
            Some((self.settings.fraction * total as f64) as u64)
        } else {
            self.limit.filter(|limit| reserved.saturating_add(need.segment) > *limit)
        };
        let largest = self.pools.sets.iter().map(|set| set.free.largest(&self.pieces)).max();
        Ok(OutOfMemory {
            asked: if self.settings.expandable { need.bytes } else { need.segment },
            device_free,
            reserved,
            active: self.tally.active(),
            largest_free: u64::from(largest.unwrap_or_default()) * UNIT,
            limit,
        })
    }

    /// A request that pieces cannot describe. The device is asked as PyTorch asks it.
    pub(super) fn refuse_huge(
        &mut self,
        driver: &mut dyn Driver,
        need: Need,
        asked: u64,
    ) -> AllocError {
        match self.obtain(driver, &need) {
            Err(error) => error,
            Ok(piece) => {
                // An expandable range of a device beyond 2 TiB had room for all that can be described.
                self.give_back(piece);
                AllocError::InvalidSize { asked, why: "blocks of 2 TiB and more are not modelled" }
            }
        }
    }

    /// A request whose segment 64 bits cannot hold: no device has it, and PyTorch only gets an internal error. Nothing changes.
    pub(super) fn refuse_unasked(&mut self, driver: &mut dyn Driver, bytes: u64) -> AllocError {
        let (kind, set) = (Rounding::kind(bytes), NO_SET);
        let need = Need { set, kind, units: SIZE_MAX, bytes, segment: bytes };
        match self.out_of_memory(driver, &need, false) {
            Ok(oom) => oom.into(),
            Err(error) => error,
        }
    }

    /// The version that has no settings, limits, private pools or captures.
    pub(super) fn is_legacy(&self) -> bool {
        self.settings.version == Version::Legacy
    }
}
