//! The figures of a server of language models: what its users waited for.
//!
//! | name | unit | definition |
//! |---|---|---|
//! | `ttft` | ns | time to first token: from a request's arrival to the end of the step that gave its first token |
//! | `tpot` | ns | time per output token: from the first token to the last, over the tokens after the first; of requests with two or more |
//! | `e2e` | ns | from arrival to the last token |
//! | `preemptions` | - | running requests that lost their slots to others |
//! | `swaps` | - | of these, those whose keys and values were kept in host memory |
//! | `refused` | - | requests that can never fit, turned away; the sum of the next two |
//! | `refused_limit` | - | longer than the model, a slot of the cache or a step without chunks takes, however much memory there is |
//! | `refused_memory` | - | the memory of the device, or the cache's share of it, never has room for them |
//! | `recomputed_tokens` | tokens | computed a second time, after a preemption |
//!
//! The server knows when a request arrived, even while the host was busy; so it counts these itself.
//!
//! Other services that answer requests, and may refuse to, count [`Answers`].

use super::{Spread, Summary};
use crate::units::Nanos;

/// Requests of which a run keeps the times one by one; of later ones only the distribution is kept.
pub const REQUESTS_KEPT: usize = 1 << 20;

/// When a request came and was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number.
    pub number: u64,
    /// When it arrived.
    pub arrival: Nanos,
    /// When its first token was there; of a request without tokens, when it was answered.
    pub first: Nanos,
    /// When it was answered whole.
    pub last: Nanos,
    /// Tokens of its answer, if it has such.
    pub outputs: u64,
}

impl Done {
    /// From arrival to the first token (ns).
    pub const fn ttft(&self) -> u64 {
        self.first.0.saturating_sub(self.arrival.0)
    }

    /// From the first token to the last, over the tokens after the first (ns); none if there are no such.
    pub const fn tpot(&self) -> Option<u64> {
        match self.outputs {
            0 | 1 => None,
            outputs => Some(self.last.0.saturating_sub(self.first.0) / (outputs - 1)),
        }
    }

    /// From arrival to the end (ns).
    pub const fn e2e(&self) -> u64 {
        self.last.0.saturating_sub(self.arrival.0)
    }
}

/// What a service that may refuse to answer counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Answers {
    /// Requests that came.
    pub requests: u64,
    /// Of these, answered, in whatever way.
    pub answered: u64,
    /// Of the answered, those that were given up for want of memory.
    pub shed: u64,
    /// Times that one was begun again with less memory.
    pub retries: u64,
    /// Not let in: the queue was full, or the service has no room for its models.
    pub turned_away: u64,
}

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
    pub refused_limit: u64,
    pub refused_memory: u64,
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
