//! One step of the scheduler, piece by piece. Each piece says what to ask next, or goes to another one.

use super::{Ask, Kind, NewSlots, Output, Phase, RequestId, Scheduled, Scheduler};

impl Scheduler {
    /// A new step.
    pub(super) fn begin(&mut self) -> Option<Ask> {
        self.plan.clear();
        self.preempted.clear();
        self.outputs.clear();
        self.budget = self.config.max_num_batched_tokens;
        let alone = self.running.len() + self.waiting_len() <= 1;
        self.threshold = if alone { 0 } else { self.config.long_prefill_token_threshold };
        if self.running.is_empty() {
            self.batch_left = self.waiting_len();
        }
        self.phase = Phase::Running(0);
        None
    }

    /// The running request at this place (rule `running_first`).
    pub(super) fn run(&mut self, at: usize) -> Option<Ask> {
        let Some(request) = self.running.get(at).copied().filter(|_| self.budget > 0) else {
            self.phase = Phase::Waiting;
            return None;
        };
        let state = *self.requests.get(request);
        let tokens = self.wanted(&state).min(self.budget);
        if tokens == 0 {
            self.phase = Phase::Running(at + 1);
            return None;
        }
        if self.config.static_reservation {
            return self.grown(at, tokens);
        }
        self.grow(at, tokens)
    }

    /// Slots for so many tokens of the running request at this place.
    pub(super) fn grow(&mut self, at: usize, tokens: u64) -> Option<Ask> {
        let request = self.running[at];
        let from = self.requests.get(request).computed;
        self.phase = Phase::Grow(at, tokens);
        Some(Ask::More { request, from, tokens })
    }

    /// It has its slots.
    pub(super) fn grown(&mut self, at: usize, tokens: u64) -> Option<Ask> {
        let request = self.running[at];
        self.schedule(request, tokens, Kind::Running);
        self.phase = Phase::Running(at + 1);
        None
    }

    fn schedule(&mut self, request: RequestId, tokens: u64, kind: Kind) {
        let state = self.requests.get_mut(request);
        let computed = state.computed;
        state.computed += tokens;
        let gives = state.computed >= state.known() + state.coming;
        state.coming += u64::from(gives);
        self.budget -= tokens;
        self.plan.push(Scheduled { request, tokens, computed, kind, gives });
    }

    /// It has no room: the one at `place` loses its slots (rules `preempt_last` and `priority`).
    pub(super) fn preempt(&mut self, at: usize, tokens: u64, place: usize) -> Option<Ask> {
        self.batch_left = 0;
        let victim = self.running.remove(place);
        if let Some(planned) = self.plan.iter().position(|part| part.request == victim) {
            let part = self.plan.remove(planned);
            self.budget += part.tokens;
            let state = self.requests.get_mut(victim);
            state.computed = part.computed;
            state.coming -= u64::from(part.gives);
        }
        self.preempted.push(victim);
        // the one that wanted room asks again for as much, unless it was the victim itself
        self.phase = Phase::Evict {
            victim,
            at: if place < at { at - 1 } else { at },
            again: (place != at).then_some(tokens),
        };
        let state = self.requests.get_mut(victim);
        let decodes = state.outputs > 0 && state.coming == 0 && state.computed + 1 == state.known();
        if !decodes || self.swapped + state.computed > self.config.swap_tokens {
            return None;
        }
        state.swapped = state.computed;
        self.swapped += state.swapped;
        Some(Ask::SwapOut { request: victim, tokens: state.swapped })
    }

    /// The victim's slots are freed; it waits.
    pub(super) fn evict(&mut self, victim: RequestId, at: usize, again: Option<u64>) -> Ask {
        self.requests.put_back(victim);
        self.phase = again.map_or(Phase::Running(at), |tokens| Phase::Retry(at, tokens));
        Ask::Free(victim)
    }

    /// The first of the waiting (rules `max_num_seqs`, `head_of_line`, `whole_sequence`).
    pub(super) fn admit(&mut self) -> Option<Ask> {
        let first = self.requests.first().filter(|_| {
            let full = self.running.len() as u64 >= self.config.max_num_seqs;
            let closed = self.config.static_batching && self.batch_left == 0;
            self.preempted.is_empty() && self.budget > 0 && !full && !closed
        });
        let Some(request) = first else {
            self.phase = Phase::Planned;
            return None;
        };
        let state = self.requests.get(request);
        let (known, watermark) = (state.known(), !self.running.is_empty());
        let ask = NewSlots {
            request,
            tokens: known,
            chunk: None,
            whole: false,
            reserve: true,
            watermark,
        };
        if state.swapped > 0 {
            self.phase = Phase::Admit(1);
            return Some(Ask::New(ask));
        }
        let cap = if self.threshold > 0 { self.threshold } else { u64::MAX };
        let most = cap.min(self.budget);
        self.phase = Phase::Admit(most);
        if self.config.static_reservation {
            let tokens = self.longest(state.prompt, state.max_tokens);
            return Some(Ask::New(NewSlots { tokens, ..ask }));
        }
        Some(Ask::New(NewSlots {
            chunk: Some(most),
            whole: self.must_be_whole(self.budget),
            reserve: self.config.scheduler_reserve_full_isl,
            ..ask
        }))
    }

    /// Tokens that a request can come to.
    pub(super) fn longest(&self, prompt: u64, max_tokens: u64) -> u64 {
        let length = self.config.max_model_len.unwrap_or(u64::MAX);
        prompt.saturating_add(max_tokens).min(length).max(prompt)
    }

    /// It has its slots, or not.
    pub(super) fn admitted(&mut self, most: u64, found: Option<u64>) -> Option<Ask> {
        let Some((request, found)) = self.requests.first().zip(found) else {
            // what was missing is room, or only the budget of this step
            if self.budget == self.config.max_num_batched_tokens || !self.must_be_whole(self.budget)
            {
                self.batch_left = 0;
            }
            self.phase = Phase::Planned;
            return None;
        };
        self.requests.pop_first();
        self.batch_left = self.batch_left.saturating_sub(1);
        self.running.push(request);
        self.phase = Phase::Waiting;
        let state = self.requests.get_mut(request);
        let kind = if state.preempted { Kind::Resumed } else { Kind::New };
        state.preempted = false;
        let swapped = std::mem::take(&mut state.swapped);
        self.swapped -= swapped;
        if swapped == 0 {
            // all tokens but one may be found, and more where slots were taken ahead
            state.computed = found.min(state.known() - 1);
        }
        let tokens = (state.known() - state.computed).min(most);
        self.schedule(request, tokens, kind);
        let back = swapped.saturating_sub(found);
        (back > 0).then_some(Ask::SwapIn { request, tokens: back })
    }

    /// The planned step begins to be computed; one without work is dropped.
    pub fn launch(&mut self) {
        let plan = std::mem::take(&mut self.plan);
        if !plan.is_empty() {
            self.flights.push_back(plan);
        }
        self.phase = Phase::Idle;
    }

    /// The oldest step was computed: its requests give their tokens (rule `stop`). The next calls of [`Scheduler::next`] end those that are finished.
    pub fn complete(&mut self) {
        self.outputs.clear();
        let mut flight = self.flights.pop_front().unwrap_or_default();
        for part in flight.drain(..).filter(|part| part.gives) {
            let state = self.requests.get_mut(part.request);
            state.outputs += 1;
            // one that was preempted meanwhile has none coming
            state.coming = state.coming.saturating_sub(1);
            let full = self.config.max_model_len.is_some_and(|length| state.known() >= length);
            let finished = full || state.outputs >= state.max_tokens;
            self.outputs.push(Output { request: part.request, number: state.outputs, finished });
        }
        self.plan = flight;
        self.phase = Phase::Ending(0);
    }

    /// The output at this place: one that is finished gives its slots back.
    pub(super) fn end(&mut self, at: usize) -> Option<Ask> {
        let Some(output) = self.outputs.get(at).copied() else {
            self.phase = Phase::Idle;
            let over = self.outputs.iter().filter(|output| output.finished);
            over.for_each(|output| self.requests.remove(output.request));
            return Some(Ask::Idle);
        };
        self.phase = Phase::Ending(at + 1);
        if !output.finished {
            return None;
        }
        let place = self.running.iter().position(|request| *request == output.request);
        let Some(place) = place else {
            // preempted while its last token was computed: it has no slots
            self.requests.unqueue(output.request);
            return None;
        };
        self.running.remove(place);
        Some(Ask::Free(output.request))
    }
}
