//! Giving cached memory back to the device.
//!
//! | rule | what it says |
//! |---|---|
//! | `oversize` | with a split limit M, a failed attempt releases: one free block of at least max(request, M), or blocks of at least M from the largest downwards until that much is reached; less counts as failure though they are gone (RULES 11, `max_split_release*`) |
//! | `spared` | a part of a segment is never released. Departure: when the limit was lowered, or expandable segments were on, a part can be oversize; PyTorch then frees the segment although it is in use |
//! | `full` | wait for every event, then the large pool, then the small one, each in search order, whole segments only; then private pools without a use, small first (RULES 12, 27) |
//! | `pages` | blocks of expandable segments are unmapped by whole pages after the ordinary ones of their pool went (RULES 22) |
//! | `collect` | with a limit and a threshold t: when reserved > floor(t x limit), whole free segments of the default large pool at least as old as the average go, round by round, until reserved would be down (RULES 14, `gc_age`) |
//! | `legacy` | before 2019: the small pool first, and nothing waited for |

use vramlab_sim::allocator::AllocError;
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::units::PoolId;

use crate::parts::free_set::NONE;

use super::settings::Version;
use super::stats::{LARGE, SMALL};
use super::{Caching, Need};

impl Caching {
    /// Gives the segment of a whole free piece back to the device.
    pub(super) fn release_segment(
        &mut self,
        driver: &mut dyn Driver,
        piece: u32,
    ) -> Result<(), AllocError> {
        driver.free(self.pieces.address(piece))?;
        let (set, at) = (self.pieces.segment_of(piece).set, self.pieces.get(piece));
        let (units, bytes) = (at.size, at.bytes());
        self.tally.drop_segment(self.pools.set(set).kind, bytes);
        self.pools.count_held(set, -1);
        if units >= self.split_limit {
            self.tally.oversize_segments.fall(1);
        }
        self.pools.sets[set as usize].free.remove(&mut self.pieces, piece);
        self.pieces.drop_segment(piece);
        Ok(())
    }

    /// Rule `oversize`. Is it worth another attempt?
    pub(super) fn release_oversize(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<bool, AllocError> {
        if self.settings.max_split.is_none() {
            return Ok(false);
        }
        let wanted = need.units.max(self.split_limit);
        let first = self.pools.set(need.set).free.find(&self.pieces, wanted);
        if first != NONE && self.is_releasable(first) {
            self.release_segment(driver, first)?;
            return Ok(true);
        }
        let free = &self.pools.set(need.set).free;
        let mut oversize: Vec<u32> = free.from(&self.pieces, self.split_limit).collect();
        if first != NONE {
            // Everything before the first one that would be large enough.
            oversize.retain(|&piece| self.pieces.get(piece).size < wanted);
        }
        let mut released = 0_u64;
        while released < u64::from(wanted)
            && let Some(piece) = oversize.pop()
        {
            if self.is_releasable(piece) {
                released += u64::from(self.pieces.get(piece).size);
                self.release_segment(driver, piece)?;
            }
        }
        Ok(released >= u64::from(wanted))
    }

    /// Rule `spared`.
    fn is_releasable(&mut self, piece: u32) -> bool {
        let fixed = !self.pieces.segment_of(piece).is_expandable();
        let split = self.pieces.get(piece).is_split();
        self.tally.spared += u64::from(fixed && split);
        fixed && !split
    }

    /// Rule `full`.
    pub(super) fn release_all(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if self.settings.version == Version::Legacy {
            self.release_pool(driver, SMALL as u32)?;
            return self.release_pool(driver, LARGE as u32);
        }
        if !self.is_capturing() {
            self.wait_for_events(driver)?;
            self.release_pool(driver, LARGE as u32)?;
            self.release_pool(driver, SMALL as u32)?;
        }
        for id in self.pools.freeable.in_order() {
            self.release_private(driver, id)?;
        }
        Ok(())
    }

    fn release_private(&mut self, driver: &mut dyn Driver, id: PoolId) -> Result<(), AllocError> {
        let Some(pools) = self.pools.private.get(&id).map(|pool| pool.pools) else { return Ok(()) };
        for pool in pools {
            self.release_pool(driver, pool)?;
        }
        if self.pools.private.get(&id).is_some_and(|pool| pool.held == 0) {
            self.pools.forget(id);
        }
        Ok(())
    }

    fn release_pool(&mut self, driver: &mut dyn Driver, pool: u32) -> Result<(), AllocError> {
        let mut expandable = Vec::new();
        for set in self.pools.sets_of(pool) {
            let pieces: Vec<u32> = self.pools.set(set).free.from(&self.pieces, 1).collect();
            for piece in pieces {
                if self.pieces.segment_of(piece).is_expandable() {
                    expandable.push(piece);
                } else if !self.pieces.get(piece).is_split() {
                    self.release_segment(driver, piece)?;
                }
            }
        }
        for piece in expandable {
            self.unmap_piece(driver, piece)?;
        }
        Ok(())
    }

    /// Age of a free piece: searches in its pool since it was put there, counted while collection is on.
    pub(super) fn age(&self, piece: u32) -> u64 {
        let set = self.pieces.segment_of(piece).set;
        let born = self.births.get(piece as usize).copied().unwrap_or_default();
        self.pools.pool_of(set).searches - born
    }

    /// Rule `collect`.
    #[cold]
    pub(super) fn collect(
        &mut self,
        driver: &mut dyn Driver,
        limit: u64,
    ) -> Result<(), AllocError> {
        let threshold = (self.settings.gc_threshold * limit as f64) as u64;
        let reserved = self.tally.reserved();
        if reserved <= threshold {
            return Ok(());
        }
        let target = reserved - threshold;
        let mut candidates = Vec::new();
        for set in self.pools.sets_of(LARGE as u32) {
            let whole = |piece: &u32| !self.pieces.get(*piece).is_split();
            let free = self.pools.set(set).free.from(&self.pieces, 1).filter(whole);
            candidates.extend(free.filter(|piece| !self.pieces.segment_of(*piece).is_expandable()));
        }
        let mut total_age: u64 = candidates.iter().map(|&piece| self.age(piece)).sum();
        let mut reclaimed = 0;
        while reclaimed < target && !candidates.is_empty() {
            let average = total_age as f64 / candidates.len() as f64;
            let before = candidates.len();
            let mut kept = Vec::new();
            for piece in candidates {
                let age = self.age(piece);
                if age as f64 >= average {
                    reclaimed += self.pieces.get(piece).bytes();
                    total_age -= age;
                    self.tally.gc_released += 1;
                    self.release_segment(driver, piece)?;
                } else {
                    kept.push(piece);
                }
            }
            candidates = kept;
            if candidates.len() == before {
                break;
            }
        }
        Ok(())
    }
}
