//! The requests of a scheduler: in slots that are used again, and those that wait in their order.

use std::collections::VecDeque;

use super::Policy;

/// A handle for a request that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Tokens of its prompt, 1 or more.
    pub prompt: u64,
    /// Tokens that it asks for, 1 or more.
    pub max_tokens: u64,
    /// Lower is served first, under that policy.
    pub priority: i64,
}

/// A request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) prompt: u64,
    pub(super) max_tokens: u64,
    priority: i64,
    arrival: u64,
    /// Tokens given.
    pub(super) outputs: u64,
    /// Tokens that steps which are computed will give.
    pub(super) coming: u64,
    /// Of the known tokens, those that were computed, or are in this step.
    pub(super) computed: u64,
    /// Was it preempted and not admitted since?
    pub(super) preempted: bool,
    /// Tokens of it in host memory.
    pub(super) swapped: u64,
}

impl State {
    /// Prompt and output.
    pub(super) const fn known(&self) -> u64 {
        self.prompt + self.outputs
    }

    /// What comes first among the waiting, and last among victims.
    const fn rank(&self) -> (i64, u64) {
        (self.priority, self.arrival)
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Requests {
    policy: Policy,
    slots: Vec<State>,
    vacant: Vec<RequestId>,
    waiting: VecDeque<RequestId>,
    arrivals: u64,
}

impl Requests {
    pub(super) const fn new(policy: Policy) -> Self {
        let waiting = VecDeque::new();
        Self { policy, slots: Vec::new(), vacant: Vec::new(), waiting, arrivals: 0 }
    }

    pub(super) fn add(&mut self, pending: Pending) -> RequestId {
        let Pending { prompt, max_tokens, priority } = pending;
        let arrival = self.arrivals;
        self.arrivals += 1;
        let state = State { prompt, max_tokens, priority, arrival, ..State::default() };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(state);
            RequestId(self.slots.len() as u32 - 1)
        });
        self.slots[id.0 as usize] = state;
        self.queue(id, false);
        id
    }

    /// It waits: by rank, or at the end or the front.
    fn queue(&mut self, id: RequestId, front: bool) {
        match self.policy {
            Policy::Priority => {
                let rank = self.get(id).rank();
                let at = self.waiting.partition_point(|other| self.get(*other).rank() < rank);
                self.waiting.insert(at, id);
            }
            Policy::Fcfs if front => self.waiting.push_front(id),
            Policy::Fcfs => self.waiting.push_back(id),
        }
    }

    /// It waits again, with nothing computed.
    pub(super) fn put_back(&mut self, id: RequestId) {
        let state = self.get_mut(id);
        (state.computed, state.coming, state.preempted) = (state.swapped, 0, true);
        self.queue(id, true);
    }

    pub(super) fn first(&self) -> Option<RequestId> {
        self.waiting.front().copied()
    }

    pub(super) fn pop_first(&mut self) -> Option<RequestId> {
        self.waiting.pop_front()
    }

    /// It waits no more; says whether it did.
    pub(super) fn unqueue(&mut self, id: RequestId) -> bool {
        let place = self.waiting.iter().position(|other| *other == id);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().copied()
    }

    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// The place of the running request that loses its slots.
    pub(super) fn victim(&self, running: &[RequestId]) -> usize {
        let last = running.len() - 1;
        match self.policy {
            Policy::Fcfs => last,
            Policy::Priority => {
                (0..=last).max_by_key(|at| self.get(running[*at]).rank()).unwrap_or(last)
            }
        }
    }

    pub(super) fn get(&self, id: RequestId) -> &State {
        &self.slots[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> &mut State {
        &mut self.slots[id.0 as usize]
    }

    /// It is over.
    pub(super) fn remove(&mut self, id: RequestId) {
        self.vacant.push(id);
    }
}
