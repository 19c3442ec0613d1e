//! What a server counts of its requests.

use vramlab_sim::report::{LatencySpread, Served};
use vramlab_sim::units::Nanos;

use super::load::Coming;

/// A request that the server has taken in.
#[derive(Clone, Debug, Default)]
pub(super) struct User {
    pub(super) coming: Coming,
    /// When its first token was there.
    pub(super) first: Nanos,
    /// Tokens of it that were computed once.
    pub(super) reached: u64,
}

/// What became of a request: for those who compare single ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number.
    pub number: u64,
    /// When it arrived, and when its first and last token were there.
    pub arrival: Nanos,
    /// The first token.
    pub first: Nanos,
    /// The last token.
    pub last: Nanos,
    /// Tokens of its answer.
    pub outputs: u64,
}

/// The counts.
#[derive(Default)]
pub(super) struct Books {
    pub(super) served: Served,
    ttft: LatencySpread,
    tpot: LatencySpread,
    e2e: LatencySpread,
    /// Every request that was answered, if it is wanted.
    pub(super) log: Option<Vec<Done>>,
}

impl Books {
    /// A request gave its `number`-th token at `now`; was it the last?
    pub(super) fn token(&mut self, user: &mut User, number: u64, finished: bool, now: Nanos) {
        self.served.output_tokens += 1;
        let arrival = user.coming.at;
        if number == 1 {
            user.first = now;
            self.ttft.record(now.0.saturating_sub(arrival.0));
        }
        if !finished {
            return;
        }
        self.served.finished += 1;
        self.e2e.record(now.0.saturating_sub(arrival.0));
        if number > 1 {
            self.tpot.record(now.0.saturating_sub(user.first.0) / (number - 1));
        }
        if let Some(log) = &mut self.log {
            let (first, outputs) = (user.first, number);
            log.push(Done { number: user.coming.number, arrival, first, last: now, outputs });
        }
    }

    /// So many of its tokens are computed, after `computed`. Says whether some are computed for the first time.
    pub(super) fn computes(&mut self, user: &mut User, computed: u64, tokens: u64) -> bool {
        let (end, prompt) = (computed + tokens, user.coming.prompt);
        let again = user.reached.min(end).saturating_sub(computed);
        self.served.recomputed_tokens += again;
        self.served.prefill_tokens += prompt.min(end).saturating_sub(computed).max(again);
        let new = end > user.reached;
        user.reached = user.reached.max(end);
        new
    }

    pub(super) fn crowd(&mut self, running: usize, waiting: usize) {
        let served = &mut self.served;
        served.most_running = served.most_running.max(running as u64);
        served.most_waiting = served.most_waiting.max(waiting as u64);
    }

    pub(super) fn figures(&self) -> Served {
        let [ttft, tpot, e2e] = [&self.ttft, &self.tpot, &self.e2e].map(LatencySpread::summary);
        Served { ttft, tpot, e2e, ..self.served }
    }
}
