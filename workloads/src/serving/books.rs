//! What a server counts of its requests.

use vramlab_sim::report::{Done, LatencySpread, REQUESTS_KEPT, Served};
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

/// The counts.
#[derive(Default)]
pub(super) struct Books {
    pub(super) served: Served,
    ttft: LatencySpread,
    tpot: LatencySpread,
    e2e: LatencySpread,
    /// The first requests that were answered.
    pub(super) done: Vec<Done>,
}

impl Books {
    /// A request gave its `number`-th token at `now`; was it the last?
    pub(super) fn token(&mut self, user: &mut User, number: u64, finished: bool, now: Nanos) {
        self.served.output_tokens += 1;
        if number == 1 {
            user.first = now;
            self.ttft.record(now.0.saturating_sub(user.coming.at.0));
        }
        if !finished {
            return;
        }
        let (arrival, first) = (user.coming.at, user.first);
        let done = Done { number: user.coming.number, arrival, first, last: now, outputs: number };
        self.served.finished += 1;
        self.e2e.record(done.e2e());
        if let Some(tpot) = done.tpot() {
            self.tpot.record(tpot);
        }
        if self.done.len() < REQUESTS_KEPT {
            self.done.push(done);
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

    /// A request is turned away: there is never memory for it, or it is over a limit.
    pub(super) fn refused(&mut self, for_memory: bool) {
        let served = &mut self.served;
        served.refused += 1;
        served.refused_memory += u64::from(for_memory);
        served.refused_limit += u64::from(!for_memory);
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
