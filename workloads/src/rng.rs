//! Random numbers of the synthetic workloads: one generator per purpose, never a shared one.
//!
//! | rule | what it says |
//! |---|---|
//! | `purpose` | every thing that is drawn (arrivals, page sizes, lengths…) has its own generator, named by a word; drawing more of one thing never moves another |
//! | `seed` | the user's seed and the word together choose both state and stream of the generator |
//! | `portable` | PCG XSL RR 128/64 ([`rand_pcg::Pcg64`]): the same numbers on every machine and in the browser |
//!
//! Draws that pass through `exp` or `ln` (log-normal, exponential) use the platform's functions, which may differ in the last of
//! 53 bits; every draw is rounded to a whole number of bytes, tokens, pixels or nanoseconds before it is used, so that a trace
//! differs only where a value falls within that bit of a rounding boundary. Pinned by `tests/value_stability.rs`.

use rand::RngExt as _;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_pcg::Pcg64;

/// A generator for one purpose.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64);

impl Rng {
    /// The generator of `purpose` under the user's `seed`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let word = fnv1a(purpose.bytes());
        // PCG wants 128 bits of state and of stream: spread seed and word over both.
        let state = u128::from(mix(seed ^ word)) << 64 | u128::from(mix(seed.wrapping_add(1)));
        let stream = u128::from(mix(word)) << 64 | u128::from(word);
        Self(Pcg64::new(state, stream))
    }

    /// A whole number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// A number from 0 (included) to 1 (not).
    pub fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// `exp` of a normal variable with mean `mu` and standard deviation `sigma`.
    pub fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        let normal: f64 = StandardNormal.sample(&mut self.0);
        (mu + sigma * normal).exp()
    }

    /// An exponential variable of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let one: f64 = Exp1.sample(&mut self.0);
        one * mean
    }
}

/// FNV-1a, 64 bits: a digest that needs no table and no dependency.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finaliser of SplitMix64: neighbouring seeds become unrelated states.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_stability() {
        let mut rng = Rng::new(0, "lengths");
        assert_eq!(
            [rng.between(0, 999), rng.between(0, 999), rng.between(0, 999)],
            [334, 704, 442]
        );
        assert_eq!(rng.lognormal(5.3, 0.6).round(), 143.0);
        assert_eq!(rng.exponential(1e6).round(), 3_330_929.0);
    }

    #[test]
    fn purposes_and_seeds_are_unrelated() {
        let first = |seed, purpose| Rng::new(seed, purpose).between(0, u64::MAX - 1);
        assert_ne!(first(0, "lengths"), first(0, "arrivals"));
        assert_ne!(first(0, "lengths"), first(1, "lengths"));
        assert_eq!(first(7, "pages"), first(7, "pages"));
    }

    #[test]
    fn means_are_what_they_say() {
        let mut rng = Rng::new(0, "means");
        let n = 20_000;
        let exponential = (0..n).map(|_| rng.exponential(3.0)).sum::<f64>() / f64::from(n);
        assert!((exponential - 3.0).abs() < 0.1, "{exponential}");
        let mut lengths: Vec<f64> = (0..n).map(|_| rng.lognormal(5.0, 0.5)).collect();
        lengths.sort_by(f64::total_cmp);
        let median = lengths[lengths.len() / 2];
        assert!((median - 5f64.exp()).abs() < 3.0, "{median}");
    }
}
