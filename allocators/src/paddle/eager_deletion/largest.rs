//! Rule `largest`: which tensors are collected early, by what died in the run before.

use std::collections::BTreeMap;

/// The share, and what is known of sizes.
#[derive(Clone, Debug)]
pub(super) struct Largest {
    fraction: f64,
    /// Sizes of this run's dead tensors, and how often each was met.
    sizes: BTreeMap<u64, u64>,
    /// Larger ones are collected early, and of this size so many; none in the first run.
    cut: Option<(u64, u64)>,
    /// Met in this run of exactly the cut's size.
    at_cut: u64,
}

impl Largest {
    pub(super) fn new(fraction: f64) -> Self {
        Self { fraction, sizes: BTreeMap::new(), cut: None, at_cut: 0 }
    }

    /// A tensor of this size died; is it to be collected early?
    pub(super) fn died(&mut self, size: u64) -> bool {
        *self.sizes.entry(size).or_default() += 1;
        let Some((cut, count)) = self.cut else { return true };
        self.at_cut += u64::from(size == cut);
        size > cut || (size == cut && self.at_cut <= count)
    }

    /// A run ended: from the largest down, tensors are collected early until their sum is the share of all.
    pub(super) fn next_run(&mut self) {
        let sizes = std::mem::take(&mut self.sizes);
        self.at_cut = 0;
        let sum: u128 =
            sizes.iter().map(|(size, count)| u128::from(*size) * u128::from(*count)).sum();
        let mut missing = (self.fraction * sum as f64) as u128;
        for (size, count) in sizes.into_iter().rev().filter(|(size, _)| *size > 0) {
            let wanted = missing.div_ceil(u128::from(size)).min(u128::from(count));
            self.cut = Some((size, wanted as u64));
            missing = missing.saturating_sub(wanted * u128::from(size));
            if wanted < u128::from(count) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_are_collected_up_to_their_share_of_all_bytes() {
        let mut largest = Largest::new(0.5);
        let run = [400, 100, 300, 100, 100];
        assert!(run.iter().all(|size| largest.died(*size)), "nothing is known in the first run");
        largest.next_run();
        assert_eq!(run.map(|size| largest.died(size)), [true, false, true, false, false]);
        let equal = [100; 4];
        let mut largest = Largest::new(0.5);
        assert!(equal.iter().all(|size| largest.died(*size)));
        largest.next_run();
        assert_eq!(equal.map(|size| largest.died(size)), [true, true, false, false]);
    }
}
