//! Options that RMM's resources share.
//!
//! Sizes are written as in RMM's Python (`parse_bytes`): a number with B, KB, MB, GB, TB or KiB, MiB, GiB, TiB, in any case; `None` or `null` is Python's
//! `None`.

use vramlab_sim::allocator::AllocError;
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::units::Bytes;

use super::ALIGNMENT;
use crate::options::{OptionDoc, OptionError, Options};

pub(super) const INITIAL: OptionDoc = OptionDoc {
    name: "initial_pool_size",
    default: "50%",
    help: "bytes that the pool takes when it is made, a multiple of 256, or N% of the free device memory",
};
pub(super) const MAXIMUM: OptionDoc = OptionDoc {
    name: "maximum_pool_size",
    default: "None",
    help: "bytes that the pool does not grow beyond, a multiple of 256; None: no maximum",
};
pub(super) const RECLAIM: OptionDoc = OptionDoc {
    name: "reclaim_free_upstream",
    default: "false",
    help: "give whole free upstream blocks back before a pool with a maximum refuses to grow (RMM 26.10 does)",
};
pub(super) const VERSION: OptionDoc = OptionDoc {
    name: "version",
    default: "26.08",
    help: "26.08, or 26.06: without the event that 26.08 records after free lists were merged",
};

/// The value of an option, unless it is not there or says `None`.
pub(super) fn given<'o>(options: &'o Options, doc: &OptionDoc) -> Option<&'o str> {
    options.get(doc.name).filter(|text| !matches!(*text, "None" | "none" | "null"))
}

/// A size option in bytes.
pub(super) fn size(options: &Options, doc: &OptionDoc) -> Result<Option<u64>, OptionError> {
    let Some(text) = given(options, doc) else { return Ok(None) };
    let bytes = text.parse::<Bytes>();
    bytes
        .map(|bytes| Some(bytes.0))
        .map_err(|error| OptionError(format!("option {}: {error}", doc.name)))
}

/// Is the event recorded again after a merge?
pub(super) fn record_merged(options: &Options) -> Result<bool, OptionError> {
    match options.get(VERSION.name).unwrap_or(VERSION.default) {
        "26.08" => Ok(true),
        "26.06" => Ok(false),
        text => Err(OptionError(format!("option version={text}: expected 26.08 or 26.06"))),
    }
}

/// What the pool takes when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initial {
    Bytes(u64),
    /// Of the free device memory (`percent_of_free_device_memory`).
    Percent(u64),
}

/// Arguments of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolSettings {
    pub(super) initial: Initial,
    pub(super) maximum: Option<u64>,
    pub(super) reclaim: bool,
    pub(super) record_merged: bool,
}

impl PoolSettings {
    /// Options of a pool.
    pub(super) const OPTIONS: [OptionDoc; 4] = [INITIAL, MAXIMUM, RECLAIM, VERSION];

    /// # Errors
    /// A value that is none, or one that the constructor refuses.
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let settings = Self {
            initial: initial(options)?,
            maximum: aligned(size(options, &MAXIMUM)?, &MAXIMUM)?,
            reclaim: options.switch(&RECLAIM)?,
            record_merged: record_merged(options)?,
        };
        if let Initial::Bytes(initial) = settings.initial {
            settings.check(initial).map_err(OptionError)?;
        }
        Ok(settings)
    }

    /// Does an initial size fit below the maximum? If not, what the constructor says.
    fn check(&self, initial: u64) -> Result<(), String> {
        match self.maximum {
            Some(maximum) if initial > maximum => Err(format!(
                "Initial pool size exceeds the maximum pool size! (found {INITIAL_NAME}={initial}, {MAXIMUM_NAME}={maximum})",
                INITIAL_NAME = INITIAL.name,
                MAXIMUM_NAME = MAXIMUM.name
            )),
            _ => Ok(()),
        }
    }

    /// The initial size in bytes, on this device.
    ///
    /// # Errors
    /// The size exceeds the maximum, or a driver error.
    pub(super) fn initial(&self, driver: &mut dyn Driver) -> Result<u64, AllocError> {
        let initial = match self.initial {
            Initial::Bytes(bytes) => bytes,
            Initial::Percent(percent) => {
                let share = driver.mem_info()?.0 as f64 * (percent as f64 / 100.0);
                share as u64 / ALIGNMENT * ALIGNMENT
            }
        };
        self.check(initial).map_err(|what| AllocError::BadSetting(what.into()))?;
        Ok(initial)
    }
}

/// `reclaim_free_upstream` does nothing without a maximum.
pub(super) fn inert(options: &Options) -> Vec<String> {
    let (reclaim, maximum) = (options.get(RECLAIM.name), given(options, &MAXIMUM));
    match (reclaim, maximum) {
        (Some(text), None) => {
            vec![format!("{}={text} has no effect: the pool has no maximum", RECLAIM.name)]
        }
        _ => Vec::new(),
    }
}

fn initial(options: &Options) -> Result<Initial, OptionError> {
    let text = given(options, &INITIAL).unwrap_or(INITIAL.default);
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent| *percent <= 100);
        return percent.map(Initial::Percent).ok_or_else(|| {
            OptionError(format!("option {}={text}: expected a size, or 0% to 100%", INITIAL.name))
        });
    }
    let bytes = aligned(size(options, &INITIAL)?, &INITIAL)?;
    Ok(Initial::Bytes(bytes.unwrap_or_default()))
}

fn aligned(size: Option<u64>, doc: &OptionDoc) -> Result<Option<u64>, OptionError> {
    match size {
        Some(size) if !size.is_multiple_of(ALIGNMENT) => Err(OptionError(format!(
            "option {}={size}: expected a multiple of 256 bytes",
            doc.name
        ))),
        size => Ok(size),
    }
}

/// Rounds a request up to 256 B.
///
/// # Errors
/// [`AllocError::InvalidSize`] where that would pass 2^64 (RMM's own rounding wraps there).
#[inline]
pub(super) fn rounded(size: u64) -> Result<u64, AllocError> {
    size.checked_next_multiple_of(ALIGNMENT)
        .ok_or(AllocError::InvalidSize { asked: size, why: "rounded up to 256 it passes 2^64" })
}
