//! Sizes: what a request is rounded to, and what is taken from the device for it.
//!
//! | rule | what it says |
//! |---|---|
//! | `round512` | less than 512 B becomes 512 B, else the next multiple (RULES 1) |
//! | `divisions` | N > 1 and size > 512 N: up to the next of N steps between powers of two, exact powers stay (RULES 2, 3, `roundup_pow2`) |
//! | `pool` | small up to 1 MiB, of the rounded size (RULES 2, 4) |
//! | `segment` | small: 2 MiB; below 10 MiB: `large_segment_size`; else the next multiple of 2 MiB (RULES 4, `segment_tiers`) |
//! | `legacy` | from 1 MiB on multiples of 128 KiB with segments of exactly that size; smaller ones share 1 MiB segments |
//! | `no-wrap` | a size that 64 bits cannot hold after rounding is refused. Departure: PyTorch wraps to a tiny block (pytorch/pytorch#182446, #182277) |

use super::pieces::UNIT;
use super::settings::{CLASSES, LARGE_SEGMENT_SIZE, MIB, Settings, Version};
use super::stats::{LARGE, SMALL};

/// Largest rounded request of the small pool.
pub(super) const SMALL_SIZE_MAX: u64 = MIB;
/// Segment of the small pool: holds at least two of the largest small requests.
pub(super) const SMALL_SEGMENT_SIZE: u64 = 2 * MIB;
/// From here on a request gets a segment of its own.
const OWN_SEGMENT_SIZE_MIN: u64 = 10 * MIB;
const OWN_SEGMENT_STEP: u64 = 2 * MIB;
const LEGACY_STEP: u64 = 128 << 10;
const _: () = assert!(SMALL_SIZE_MAX * 2 == SMALL_SEGMENT_SIZE);
const _: () = assert!(OWN_SEGMENT_SIZE_MIN * 2 == LARGE_SEGMENT_SIZE);
/// log2 of the first class of divisions.
const FIRST_CLASS: u32 = MIB.ilog2();

/// What rounding needs of the settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    legacy: bool,
    /// To multiples of 512 B and nothing else.
    plain: bool,
    divisions: [u64; CLASSES],
    large_segment: u64,
}

/// Block size of a request of `size` bytes. `divisions` are pairs (class in MiB, number of divisions), as snapshots list them; classes
/// that are not named are not divided. A size that 64 bits cannot hold after rounding stays as it is.
pub fn rounded(divisions: &[(u64, u64)], size: u64) -> u64 {
    let mut settings = Settings::new(Version::V2_15);
    for (class_mib, count) in divisions {
        let class = class_mib.max(&1).ilog2() as usize;
        settings.divisions[class.min(CLASSES - 1)] = *count;
    }
    Rounding::new(&settings).round(size.max(1)).unwrap_or(size)
}

impl Rounding {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            legacy: settings.version == Version::Legacy,
            plain: settings.version != Version::Legacy
                && settings.divisions.iter().all(|n| *n <= 1),
            divisions: settings.divisions,
            large_segment: settings.large_segment,
        }
    }

    /// Bytes set aside for a request of `size` > 0; `None` if 64 bits cannot hold them.
    #[inline]
    pub(super) fn round(&self, size: u64) -> Option<u64> {
        if !self.plain {
            return self.round_otherwise(size);
        }
        Some(size.checked_add(UNIT - 1)? & !(UNIT - 1))
    }

    fn round_otherwise(&self, size: u64) -> Option<u64> {
        if self.legacy && size >= SMALL_SIZE_MAX {
            return size.checked_next_multiple_of(LEGACY_STEP);
        }
        let class = size.ilog2().saturating_sub(FIRST_CLASS).min(CLASSES as u32 - 1);
        let divisions = self.divisions[class as usize];
        if divisions > 1 && size > UNIT.saturating_mul(divisions) {
            if size.is_power_of_two() {
                return Some(size);
            }
            // More divisions than bytes in the power of two below cannot be: the size is above 512 times as many.
            return size.checked_next_multiple_of((1 << size.ilog2()) / divisions);
        }
        size.checked_next_multiple_of(UNIT)
    }

    /// [`SMALL`] or [`LARGE`].
    #[inline]
    pub(super) fn kind(rounded: u64) -> usize {
        if rounded <= SMALL_SIZE_MAX { SMALL } else { LARGE }
    }

    /// Bytes to take from the device for a rounded request; `None` if 64 bits cannot hold them.
    pub(super) fn segment(&self, rounded: u64) -> Option<u64> {
        if self.legacy {
            Some(rounded.max(SMALL_SIZE_MAX))
        } else if rounded <= SMALL_SIZE_MAX {
            Some(SMALL_SEGMENT_SIZE)
        } else if rounded < OWN_SEGMENT_SIZE_MIN {
            Some(self.large_segment)
        } else {
            rounded.checked_next_multiple_of(OWN_SEGMENT_STEP)
        }
    }

    /// Bytes of a page of an expandable segment of this kind.
    pub(super) fn page(&self, kind: usize) -> u64 {
        if kind == SMALL { SMALL_SEGMENT_SIZE } else { self.large_segment }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounding(text: &str) -> Rounding {
        Rounding::new(&Settings::new(Version::V2_15).with_text(text, true).expect("accepted"))
    }

    #[test]
    fn round512_and_no_wrap() {
        let rounding = rounding("");
        for (size, want) in [
            (1, Some(512)),
            (512, Some(512)),
            (513, Some(1024)),
            (1 << 63, Some(1 << 63)),
            (18_446_744_073_709_551_104, Some(18_446_744_073_709_551_104)),
            (18_446_744_073_709_551_105, None),
            (u64::MAX, None),
        ] {
            assert_eq!(rounding.round(size), want, "for {size}");
        }
        assert_eq!(rounding.segment(18_446_744_073_709_551_104), None);
    }

    #[test]
    fn divisions_step_between_powers_of_two() {
        let four = rounding("roundup_power2_divisions:4");
        for (size, want) in [
            (1200, 1536),
            (2048, 2048),
            (2049, 2560),
            (4097, 5120),
            (5121, 6144),
            (7 << 20, 7 << 20),
        ] {
            assert_eq!(four.round(size), Some(want), "for {size}");
        }
        assert_eq!(four.round((1 << 63) + 1), Some(5 << 61));
        assert_eq!(four.round(u64::MAX), None);
        let list = rounding("roundup_power2_divisions:[64:8,256:4,>:1]");
        assert_eq!(list.round((65 << 20) + 1), Some(72 << 20), "its own class");
        assert_eq!(list.round((130 << 20) + 1), Some((130 << 20) + 512), "between two names: none");
        assert_eq!(
            list.round((5 << 20) + 1),
            Some((5 << 20) + (512 << 10)),
            "below the first name"
        );
    }

    #[test]
    fn segment_tiers() {
        let rounding = rounding("");
        for (size, want) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 512, 12 * MIB),
        ] {
            assert_eq!(rounding.segment(size), Some(want), "for {size}");
        }
    }

    #[test]
    fn legacy_steps_of_128_kib() {
        let legacy = Rounding::new(&Settings::new(Version::Legacy));
        for (size, rounded, segment) in
            [(1, 512, MIB), (MIB - 1, MIB, MIB), (4_000_000, 31 * LEGACY_STEP, 31 * LEGACY_STEP)]
        {
            assert_eq!(legacy.round(size), Some(rounded));
            assert_eq!(legacy.segment(rounded), Some(segment));
        }
    }
}
