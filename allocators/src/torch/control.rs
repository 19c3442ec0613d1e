//! Settings and limits in force, and what follows from them.
//!
//! | rule | what it says |
//! |---|---|
//! | `fraction` | limit = fraction x total, to the nearest byte (RULES 10 says floor; 0.7 x 360 MiB shows it); 1.0 means none. 2.9: rounded down, and 1.0 is a limit of all (RULES 10, `gc_fraction_one`) |
//! | `lazy-total` | the device is asked for its size once, when the size is needed first |
//! | `while-running` | settings act on what comes; what lies where it is stays there (RULES 7, 24, 30) |

use vramlab_sim::allocator::{AllocError, Reply};
use vramlab_sim::driver::{Driver, DriverExt};

use crate::parts::free_set::SIZE_MAX;

use super::rounding::Rounding;
use super::settings::Version;
use super::stats::LARGE;
use super::{Caching, LARGE_REST_MIN, SMALL_REST_MIN, units_of};

impl Caching {
    /// What follows from the settings.
    pub(super) fn derive(&mut self) {
        let settings = &self.settings;
        self.rounding = Rounding::new(settings);
        self.split_limit = settings.max_split.map_or(SIZE_MAX, units_of);
        self.rest_min = [SMALL_REST_MIN, LARGE_REST_MIN];
        self.split_below = [SIZE_MAX, self.split_limit];
        if settings.expandable {
            self.rest_min[LARGE] = SMALL_REST_MIN;
            self.split_below[LARGE] = SIZE_MAX;
        }
        self.update_chores();
        self.update_watch();
    }

    pub(super) fn update_chores(&mut self) {
        self.chores = self.events.is_busy() || self.fraction_due.is_some();
    }

    pub(super) fn update_watch(&mut self) {
        self.watch = self.is_collecting() || self.ranges.len() > self.ranges_vacant.len();
    }

    /// Is garbage collected? (RULES 14)
    pub(super) fn is_collecting(&self) -> bool {
        self.settings.gc_threshold > 0.0 && self.limit.is_some()
    }

    pub(super) fn by_address(&self) -> bool {
        self.settings.version != Version::V2_15
    }

    pub(super) fn kind_of(&self, piece: u32) -> usize {
        self.pools.set(self.pieces.segment_of(piece).set).kind
    }

    /// Bytes of the device.
    pub(super) fn total(&mut self, driver: &mut dyn Driver) -> Result<u64, AllocError> {
        match self.total {
            Some(total) => Ok(total),
            None => {
                let (_, total) = driver.mem_info()?;
                self.total = Some(total);
                Ok(total)
            }
        }
    }

    /// Rule `fraction`.
    pub(super) fn set_fraction(
        &mut self,
        driver: &mut dyn Driver,
        fraction: f64,
    ) -> Result<(), AllocError> {
        let total = self.total(driver)?;
        let limit = fraction * total as f64;
        self.limit = match self.settings.version {
            Version::V2_15 if fraction >= 1.0 => None,
            Version::V2_15 => Some(limit.round() as u64),
            Version::V2_9 | Version::Legacy => Some(limit as u64),
        };
        self.update_watch();
        Ok(())
    }

    pub(super) fn set(
        &mut self,
        driver: &mut dyn Driver,
        key: &str,
        value: &str,
    ) -> Result<Reply, AllocError> {
        match key {
            "conf" => {
                let refused = |why: String| AllocError::BadSetting(why.into());
                self.settings = self.settings.with_text(value, false).map_err(refused)?;
                self.derive();
                Ok(Reply::Done)
            }
            "memory_fraction" if !self.is_legacy() => {
                let fraction = value.trim().parse().ok().filter(|f| (0.0..=1.0).contains(f));
                let fraction = fraction.ok_or_else(|| {
                    let why = format!("invalid fraction:{value}. Please set within [0, 1].");
                    AllocError::BadSetting(why.into())
                })?;
                self.fraction_due = None;
                self.set_fraction(driver, fraction)?;
                self.update_chores();
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Unsupported),
        }
    }
}
