//! Sizes and the one rule that differ between versions (rule `geometry` of [`super`]).

use crate::options::{OptionDoc, OptionError, Options};

/// Bytes of a pool's header.
pub(super) const HEADER: u32 = 48;
/// A block's class is its size rounded up to this.
pub(super) const STEP: u32 = 16;
/// The largest block.
pub(super) const LARGEST: u32 = 512;
/// Classes: 16, 32, … 512 bytes.
pub(super) const CLASSES: usize = (LARGEST / STEP) as usize;

/// As `list` shows them.
pub(super) const OPTIONS: &[OptionDoc] = &[OptionDoc {
    name: "version",
    default: "3.11",
    help: "CPython's version, 3.6 to 3.11: up to 3.9 arenas of 256 KiB with pools of 4 KiB, then of 1 MiB and 16 KiB; up to 3.8 an empty arena always goes back",
}];

/// What a version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes of an arena.
    pub(super) arena: u64,
    /// Bytes of a pool.
    pub(super) pool: u32,
    /// An empty arena stays if it is the last of the usable ones.
    pub(super) keeps_one: bool,
}

impl Geometry {
    pub(super) fn parse(name: &str, options: &Options) -> Result<Self, OptionError> {
        options.check(name, OPTIONS)?;
        let text = options.get("version").unwrap_or("3.11");
        let minor = text.strip_prefix("3.").and_then(|rest| {
            let (minor, patch) = rest.split_once('.').unwrap_or((rest, "0"));
            patch.parse::<u32>().ok().and(minor.parse::<u32>().ok())
        });
        let Some(minor @ 6..=11) = minor else {
            return Err(OptionError(format!(
                "option version={text}: expected a version from 3.6 to 3.11 such as 3.11 or 3.9.18"
            )));
        };
        Ok(Self {
            arena: if minor < 10 { 256 << 10 } else { 1 << 20 },
            pool: if minor < 10 { 4 << 10 } else { 16 << 10 },
            keeps_one: minor >= 9,
        })
    }

    /// Pools of an arena that begins at a pool's boundary; one less of any other.
    pub(super) fn pools(self) -> u32 {
        (self.arena / u64::from(self.pool)) as u32
    }
}

/// The class of a request; `None` if it is not for pools.
#[inline]
pub(super) fn class(size: u64) -> Option<u8> {
    (1..=u64::from(LARGEST)).contains(&size).then(|| ((size - 1) / u64::from(STEP)) as u8)
}

/// Bytes of a block of a class.
#[inline]
pub(super) fn block_size(class: u8) -> u32 {
    (u32::from(class) + 1) * STEP
}
