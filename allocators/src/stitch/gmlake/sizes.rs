//! Sizes: what a request is rounded to, and what is taken from the device for it.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `round` | multiples of 512 B up to 1 MiB, of 2 MiB above | 1949-1966, gm01 |
//! | `divisions` | N > 1 and size > 512 N: up to the next of N steps between powers of two, and not to 2 MiB. Departure: N = 1 leaves a size as it is in PyTorch 2.0, unaligned; here it means no divisions | 1924-1947 |
//! | `whole_pieces` | a size above 1 MiB that divisions leave between multiples of 2 MiB is refused; the real one ends the process when it splits | h 550-556 |
//! | `segment` | 2 MiB for up to 1 MiB, 20 MiB below 10 MiB, else exact | 2249-2257, gm01 |
//! | `no_wrap` | a size that 64 bits cannot hold after rounding is refused. Departure: the real one wraps | |

use vramlab_sim::allocator::AllocError;

use super::conf::CLASSES;

/// Every block is a multiple of this many bytes.
pub(super) const UNIT: u64 = 512;
/// A physical piece of the device's memory, and the step of large sizes.
pub(super) const PIECE: u64 = 2 << 20;
/// Units of a piece.
pub(super) const PIECE_UNITS: u32 = (PIECE / UNIT) as u32;
/// Largest request of the small pool.
pub(super) const SMALL_SIZE_MAX: u64 = 1 << 20;
const SMALL_SEGMENT_SIZE: u64 = 2 << 20;
/// Segment for requests of the large pool that are too small for one of their own.
pub(super) const LARGE_SEGMENT_SIZE: u64 = 20 << 20;
const OWN_SEGMENT_SIZE_MIN: u64 = 10 << 20;
/// log2 of the first class of divisions.
const FIRST_CLASS: u32 = SMALL_SIZE_MAX.ilog2();

/// Bytes set aside for a request of `size` > 0; in whole pieces if they are to be `mapped`.
#[inline]
pub(super) fn round(
    divisions: &[u64; CLASSES],
    mapped: bool,
    size: u64,
) -> Result<u64, AllocError> {
    let class = size.ilog2().saturating_sub(FIRST_CLASS).min(CLASSES as u32 - 1);
    let divisions = divisions[class as usize];
    let refused = |why| AllocError::InvalidSize { asked: size, why };
    let too_large = || refused("rounding it up to whole blocks passes 2^64");
    if divisions > 1 && size > UNIT.saturating_mul(divisions) && !size.is_power_of_two() {
        let step = (1 << size.ilog2()) / divisions;
        let rounded = size.checked_next_multiple_of(step).ok_or_else(too_large)?;
        if mapped && rounded > SMALL_SIZE_MAX && !rounded.is_multiple_of(PIECE) {
            return Err(refused(
                "roundup_power2_divisions leaves it no multiple of 2 MiB, and GMLake ends the process",
            ));
        }
        return Ok(rounded);
    }
    let step = if size > SMALL_SIZE_MAX { PIECE } else { UNIT };
    size.checked_next_multiple_of(step).ok_or_else(too_large)
}

/// Bytes to take from the device for a rounded request.
pub(super) fn segment(rounded: u64) -> u64 {
    if rounded <= SMALL_SIZE_MAX {
        SMALL_SEGMENT_SIZE
    } else if rounded < OWN_SEGMENT_SIZE_MIN {
        LARGE_SEGMENT_SIZE
    } else {
        // one that 64 bits cannot hold is larger than any device either way
        rounded.checked_next_multiple_of(PIECE).unwrap_or(rounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn round_and_segment() {
        for (size, rounded, taken) in [
            (1, 512, 2 * MIB),
            (513, 1024, 2 * MIB),
            (MIB, MIB, 2 * MIB),
            (MIB + 1, 2 * MIB, 20 * MIB),
            (9 * MIB, 10 * MIB, 10 * MIB),
            (11 * MIB, 12 * MIB, 12 * MIB),
        ] {
            assert_eq!(round(&[0; CLASSES], true, size), Ok(rounded), "for {size}");
            assert_eq!(segment(rounded), taken, "for {size}");
        }
        assert!(round(&[0; CLASSES], true, u64::MAX).is_err());
    }

    #[test]
    fn divisions_and_whole_pieces() {
        let round = |mapped, size| round(&[4; CLASSES], mapped, size);
        assert_eq!(round(true, 1200), Ok(1536), "512 x 4 and less: multiples of 512");
        assert_eq!(round(true, 4097), Ok(5120));
        assert_eq!(round(true, 100 * MIB), Ok(112 * MIB));
        assert_eq!(round(false, 4 * MIB + 1), Ok(5 * MIB));
        assert!(matches!(round(true, 4 * MIB + 1), Err(AllocError::InvalidSize { .. })));
        assert!(round(true, u64::MAX).is_err());
    }
}
