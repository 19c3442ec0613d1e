//! How much memory the next region gets.
//!
//! | rule | what it says |
//! |---|---|
//! | `cover` | the next size is doubled until it covers the request |
//! | `rest` | a region is the next size, or what the limit leaves in whole units if that is less |
//! | `backpedal` | where the device refuses: 0.9 of the size in single precision, truncated, rounded up to 256 B, and again, while it still covers the request; a size that does not get smaller by that loses 256 B |

use vramlab_sim::driver::{Driver, DriverError};

use super::arena::Book;
use super::chunks::{REGION_MAX, UNIT};
use crate::parts::pieces::Segment;

/// Doubles `next` until it covers `bytes`; was it too small? It never passes the largest region.
pub(crate) fn cover(next: &mut u64, bytes: u64) -> bool {
    let small = *next < bytes;
    while *next < bytes {
        *next = double(*next);
    }
    small
}

/// Twice a region's size. One that no device could serve any more stays.
pub(crate) fn double(size: u64) -> u64 {
    if size > REGION_MAX { size } else { size.max(1) * 2 }
}

/// What `limit` leaves beside `held`, in whole units.
pub(crate) fn available(limit: u64, held: u64) -> u64 {
    limit.saturating_sub(held).min(REGION_MAX) / UNIT * UNIT
}

fn smaller(bytes: u64) -> u64 {
    let less = ((bytes as f32 * 0.9) as u64).next_multiple_of(UNIT);
    if less < bytes { less } else { bytes.saturating_sub(UNIT) }
}

/// A region of `bytes`, or as much as the device has above `least` (rule `backpedal`).
///
/// # Errors
/// Driver errors other than out of memory.
pub(crate) fn obtain(
    driver: &mut dyn Driver,
    book: &mut Book,
    mut bytes: u64,
    least: u64,
) -> Result<Option<Segment>, DriverError> {
    loop {
        if let Some(address) = book.malloc(driver, bytes)? {
            return Ok(Some(Segment { address, size: bytes }));
        }
        bytes = smaller(bytes);
        if bytes < least {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backpedal_is_in_single_precision_and_always_gets_smaller() {
        assert_eq!(smaller(1 << 20), 943_872, "0.9 of it is 943718.4");
        assert_eq!(smaller(4_294_967_040), 3_865_470_208, "3865470464 in double precision");
        assert_eq!(smaller((1 << 36) + 512), 61_847_527_424, "61847529728 in double precision");
        assert_eq!((smaller(2560), smaller(256), smaller(0)), (2304, 0, 0));
        assert_eq!(smaller(2304), 2304 - 256, "0.9 of it rounds back to itself");
    }

    #[test]
    fn doubling_ends_before_it_could_wrap() {
        let mut next = 2 << 20;
        assert!(!cover(&mut next, 1 << 20));
        assert!(cover(&mut next, u64::from(u32::MAX) << 8));
        assert_eq!(next, 1 << 40);
        assert_eq!(double(double(next)), 1 << 40);
    }
}
