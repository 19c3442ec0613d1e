//! The figures of a server of language models: what its users waited for.
//!
//! | name | unit | definition |
//! |---|---|---|
//! | `ttft` | ns | time to first token: from a request's arrival to the end of the step that gave its first token |
//! | `tpot` | ns | time per output token: from the first token to the last, over the tokens after the first; of requests with two or more |
//! | `e2e` | ns | from arrival to the last token |
//! | `preemptions` | - | running requests that lost their slots to others |
//! | `swaps` | - | of these, those whose keys and values were kept in host memory |
//! | `refused` | - | requests that can never fit, turned away |
//! | `recomputed_tokens` | tokens | computed a second time, after a preemption |
//!
//! The server knows when a request arrived, even while the host was busy; so it counts these itself.

use super::{Spread, Summary};

/// A distribution of nanoseconds that keeps its mean.
#[derive(Clone, Debug)]
pub struct LatencySpread {
    spread: Spread,
    sum: u128,
}

impl Default for LatencySpread {
    fn default() -> Self {
        Self { spread: Spread::new(0), sum: 0 }
    }
}

impl LatencySpread {
    /// One more value.
    pub fn record(&mut self, ns: u64) {
        self.spread.record(ns);
        self.sum += u128::from(ns);
    }

    /// Its mean and quantiles.
    pub fn summary(&self) -> Latency {
        let spread = self.spread.summary();
        Latency { mean: (self.sum / u128::from(spread.count.max(1))) as u64, spread }
    }
}

/// Mean and quantiles, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Latency {
    /// Exact, rounded down to a nanosecond.
    pub mean: u64,
    /// To three digits.
    #[serde(flatten)]
    pub spread: Summary,
}

/// What a server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[allow(missing_docs)] // the module's table says what they are
pub struct Served {
    /// Requests that arrived.
    pub requests: u64,
    /// Of these, answered whole.
    pub finished: u64,
    pub refused: u64,
    pub preemptions: u64,
    pub swaps: u64,
    /// Passes of the model.
    pub steps: u64,
    /// Tokens of prompts and of recomputed sequences that went through the model.
    pub prefill_tokens: u64,
    pub recomputed_tokens: u64,
    /// Tokens that were given.
    pub output_tokens: u64,
    /// Most requests that ran at once, and that waited.
    pub most_running: u64,
    pub most_waiting: u64,
    pub ttft: Latency,
    pub tpot: Latency,
    pub e2e: Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_is_exact_and_quantiles_are_those_of_the_spread() {
        let mut spread = LatencySpread::default();
        assert_eq!(spread.summary(), Latency::default());
        [10, 20, 60].into_iter().for_each(|ns| spread.record(ns));
        let summary = spread.summary();
        assert_eq!((summary.mean, summary.spread.p50, summary.spread.count), (30, 20, 3));
    }
}
