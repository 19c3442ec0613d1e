//! Sums of sizes that were printed with few digits: how far they may be off is carried along.

use std::ops::{Add, Sub};

use vramlab_workloads::readers::states::Quantity;

use crate::explain::message::shown;

/// A sum of printed sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rough {
    /// Its value (B).
    pub(super) bytes: i128,
    /// How far it may be off (B).
    pub(super) off: i128,
}

impl From<Quantity> for Rough {
    fn from(size: Quantity) -> Self {
        // an exact byte has a step of 1 and is not off
        Self { bytes: size.bytes.into(), off: i128::from(size.step) / 2 }
    }
}

impl Add for Rough {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, off: self.off + other.off }
    }
}

impl Sub for Rough {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { bytes: self.bytes - other.bytes, off: self.off + other.off }
    }
}

impl Rough {
    /// As printed, is it at least as much?
    pub(super) fn reaches(self, other: Self) -> bool {
        self.bytes >= other.bytes
    }

    /// Could rounding turn the comparison?
    pub(super) fn near(self, other: Self) -> bool {
        (self.bytes - other.bytes).abs() <= self.off + other.off
    }

    /// For people.
    pub(super) fn shown(self) -> String {
        let size = shown(u64::try_from(self.bytes.unsigned_abs()).unwrap_or(u64::MAX));
        if self.bytes < 0 { format!("-{size}") } else { size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_carried_along() {
        let hundredth = |bytes| Rough::from(Quantity { bytes, step: 100 });
        let sum = hundredth(1000) + hundredth(500);
        assert_eq!((sum.bytes, sum.off), (1500, 100));
        assert!(sum.near(hundredth(1650)) && !sum.near(hundredth(1651)));
        assert!(sum.reaches(hundredth(1500)) && !hundredth(400).reaches(sum));
        assert_eq!((hundredth(1024) - hundredth(3072)).shown(), "-2 KiB");
    }
}
