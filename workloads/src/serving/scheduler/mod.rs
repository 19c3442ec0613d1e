//! vLLM's scheduler: which requests the next step computes, how many tokens of each, and who loses its slots.
//!
//! | rule | what it says | shown by |
//! |---|---|---|
//! | `running_first` | running requests in their order, each up to the token budget; then waiting ones in order | `vs01` |
//! | `preempt_last` | a running request without room: the last running one is preempted, maybe itself; all its slots are freed, nothing of it counts as computed, it goes to the front of the waiting; repeat; nobody is admitted in that step | `vs02`, `vs03` |
//! | `whole_sequence` | admission needs room for all known tokens, though a chunk is computed (`scheduler_reserve_full_isl`) | `vs04`, `vs05` |
//! | `watermark` | the cache's watermark holds for admissions while something runs | `vs06` |
//! | `head_of_line` | the first waiting request that does not fit ends the scan | `vs07` |
//! | `priority` | waiting by (priority, arrival); the victim has the largest of both; if this step had it already, its tokens go back to the budget; one that preempted itself does not end the scan | `vs08` |
//! | `max_num_seqs` | at most so many run | `vs09` |
//! | `long_prefill` | `long_prefill_token_threshold` caps a chunk where more than one request is there | `vs10` |
//! | `no_chunks` | without chunked prefill, one that passes what is left of the budget ends the scan | `vs11` |
//! | `same_step` | what is placed in a step is found by later requests of it | `vs13` |
//! | `stop` | a request ends with its `max_tokens`-th token, or when its tokens reach `max_model_len` | `vs01` |
//! | `swap` | with swap space, a preempted request that decodes keeps its keys and values in host memory; they are copied back when it resumes, and nothing is computed again | vLLM 0.6, `vllm/core/scheduler.py`; a test here |
//! | `static_reservation` | all slots of prompt and output are taken at admission; nobody is ever preempted | a test here |
//! | `static_batching` | a batch is those who wait when nothing runs, as many as places and slots allow; prompts that pass a step's budget are computed in the next ones; nobody else is admitted while something runs | a test here |
//!
//! Source: vLLM 0.33.0, `vllm/v1/core/sched/scheduler.py` (`schedule`, `_preempt_request`, `update_from_output`) and `utils.py` (`check_stop`), one step at a
//! time. The last three rules are of older servers, and off unless asked for. Left out: speculation, encoders, LoRA, connectors, pipeline and data parallelism.
//!
//! A step may be planned while the one before it is computed (vLLM's `async_scheduling`, the default since 0.14; who drives the scheduler decides): the tokens that this will give are counted on, so a request that arrives is
//! computed one step later, and who is finished gives its slots back one step later (`async_scheduler.py`; vLLM's default since 0.14).
//!
//! The scheduler knows no cache. [`Scheduler::next`] says what is to be asked of one ([`Ask`]) and hears the answer with the next call, until the step is
//! planned; so the same rules drive the engine's ops and a test's cache.
//!
//! ```text
//! add ─▶ next, next, … Planned ─▶ launch ─▶ (compute) ─▶ complete ─▶ next, next, … Idle ─▶ the next step
//!                                     └─ asynchronous: next, … Planned, launch ─▶ complete: of the step before
//! ```

mod queue;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use vramlab_sim::source::Answered;

pub use self::queue::{Pending, RequestId};
use self::queue::{Requests, State};

/// The scheduler's settings, by vLLM's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most requests that run.
    pub max_num_seqs: u64,
    /// Most tokens of a step.
    pub max_num_batched_tokens: u64,
    /// Most tokens of a request, if there is a limit.
    pub max_model_len: Option<u64>,
    /// Most tokens of a chunk while more than one request is there; 0: no cap.
    pub long_prefill_token_threshold: u64,
    /// May a prompt be computed in chunks?
    pub enable_chunked_prefill: bool,
    /// Does admission need room for all known tokens?
    pub scheduler_reserve_full_isl: bool,
    /// Order of the waiting, and choice of victims.
    pub policy: Policy,
    /// Tokens whose keys and values host memory has room for; 0: preempted requests are computed again.
    pub swap_tokens: u64,
    /// Take all slots of prompt and output at admission.
    pub static_reservation: bool,
    /// Admit those who wait when nothing runs, and nobody else until they are done.
    pub static_batching: bool,
}

impl Default for Config {
    /// vLLM 0.33.0's settings for its server on an A100 (`vllm/engine/arg_utils.py`).
    fn default() -> Self {
        Self {
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_model_len: None,
            long_prefill_token_threshold: 0,
            enable_chunked_prefill: true,
            scheduler_reserve_full_isl: true,
            policy: Policy::Fcfs,
            swap_tokens: 0,
            static_reservation: false,
            static_batching: false,
        }
    }
}

/// Who is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Who came first.
    #[default]
    Fcfs,
    /// Who has the lower number, then who came first.
    Priority,
}

/// What is to be done before the scheduler can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A new sequence of the cache. Its answer: slots with the tokens that were found, or a refusal.
    New(NewSlots),
    /// Slots for further tokens of a request's sequence. Its answer: slots, or a refusal.
    More {
        /// Whose.
        request: RequestId,
        /// Tokens of it that have slots.
        from: u64,
        /// How many more.
        tokens: u64,
    },
    /// The keys and values of so many tokens go to host memory.
    SwapOut {
        /// Whose.
        request: RequestId,
        /// How many.
        tokens: u64,
    },
    /// The keys and values of so many tokens come back.
    SwapIn {
        /// Whose.
        request: RequestId,
        /// How many.
        tokens: u64,
    },
    /// A request's sequence ends.
    Free(RequestId),
    /// The step is planned: look at [`Scheduler::plan`], then call [`Scheduler::launch`], and [`Scheduler::complete`] when it is computed.
    Planned,
    /// All is done; the next call begins a new step.
    Idle,
}

/// What a new sequence asks for, as a cache of keys and values takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSlots {
    /// Whose.
    pub request: RequestId,
    /// Tokens to look up and give slots.
    pub tokens: u64,
    /// At most so many of those that are not found get slots now.
    pub chunk: Option<u64>,
    /// More than the chunk that are not found are a refusal.
    pub whole: bool,
    /// There must be room for all of them.
    pub reserve: bool,
    /// The watermark must stay free.
    pub watermark: bool,
}

/// How a request came into a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It ran before.
    Running,
    /// It was admitted.
    New,
    /// It was admitted again.
    Resumed,
}

/// A request's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Whose.
    pub request: RequestId,
    /// Tokens to compute.
    pub tokens: u64,
    /// Tokens that were computed before, or found.
    pub computed: u64,
    /// How it came in.
    pub kind: Kind,
    /// It gives a token: all that is known of it is computed then.
    pub gives: bool,
}

/// A token that a request gave in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Whose.
    pub request: RequestId,
    /// Its number, from 1.
    pub number: u64,
    /// It was the last.
    pub finished: bool,
}

/// What the last ask was, so that its answer can be understood.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Between two steps.
    Idle,
    /// The running request at this place is next.
    Running(usize),
    /// Slots were asked for the running request at this place.
    Grow(usize, u64),
    /// A victim's slots are to be freed; then the running request at this place is next, or asks again for so many tokens.
    Evict { victim: RequestId, at: usize, again: Option<u64> },
    /// The running request at this place asks again for so many tokens.
    Retry(usize, u64),
    /// The first of the waiting is next.
    Waiting,
    /// Slots were asked for the first of the waiting; at most so many tokens are to be computed.
    Admit(u64),
    /// The step is planned.
    Planned,
    /// The output at this place is next to be looked at.
    Ending(usize),
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    requests: Requests,
    phase: Phase,
    running: Vec<RequestId>,
    plan: Vec<Scheduled>,
    /// Steps that are computed, the oldest first.
    flights: VecDeque<Vec<Scheduled>>,
    preempted: Vec<RequestId>,
    outputs: Vec<Output>,
    /// Tokens that the step may still compute.
    budget: u64,
    /// Cap of a chunk in this step; 0: none.
    threshold: u64,
    /// Of those that waited when the batch began, how many may still come in (rule `static_batching`).
    batch_left: usize,
    /// Tokens in host memory.
    swapped: u64,
}

impl Scheduler {
    /// With nothing to do.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            requests: Requests::new(config.policy),
            phase: Phase::Idle,
            running: Vec::new(),
            plan: Vec::new(),
            flights: VecDeque::new(),
            preempted: Vec::new(),
            outputs: Vec::new(),
            budget: 0,
            threshold: 0,
            batch_left: 0,
            swapped: 0,
        }
    }

    /// A request arrives. Its handle may be that of an earlier one that is over.
    pub fn add(&mut self, request: Pending) -> RequestId {
        self.requests.add(request)
    }

    /// What the step is to compute, in order; complete once [`Ask::Planned`] was said, until [`Scheduler::launch`].
    pub fn plan(&self) -> &[Scheduled] {
        &self.plan
    }

    /// Requests that this step preempted.
    pub fn preempted(&self) -> &[RequestId] {
        &self.preempted
    }

    /// Steps that were launched and not completed.
    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    /// What the step gave, after [`Scheduler::complete`].
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Requests that run, in order.
    pub fn running(&self) -> &[RequestId] {
        &self.running
    }

    /// Requests that wait, the next one first.
    pub fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.requests.waiting()
    }

    /// How many wait.
    pub fn waiting_len(&self) -> usize {
        self.requests.waiting_len()
    }

    /// Tokens of a request so far: its prompt and its output.
    pub fn known(&self, request: RequestId) -> u64 {
        self.requests.get(request).known()
    }

    /// What a request would ask for that has everything to itself: all tokens that it needs slots for, at once where they may not be computed in chunks.
    pub fn whole_ask(&self, request: RequestId) -> NewSlots {
        let whole = self.must_be_whole(self.config.max_num_batched_tokens);
        let state = self.requests.get(request);
        NewSlots {
            request,
            tokens: match self.config.static_reservation {
                true => self.longest(state.prompt, state.max_tokens),
                false => state.known(),
            },
            chunk: whole.then_some(self.config.max_num_batched_tokens),
            whole,
            reserve: true,
            watermark: false,
        }
    }

    /// Must what a request computes next fit the budget as a whole? A cap within the budget is never the reason to stop.
    const fn must_be_whole(&self, budget: u64) -> bool {
        let capped = self.threshold > 0 && self.threshold <= budget;
        !self.config.enable_chunked_prefill && !capped
    }

    /// Turns a waiting request away; says whether it waited.
    pub fn refuse(&mut self, request: RequestId) -> bool {
        let waited = self.requests.unqueue(request);
        if waited {
            self.swapped -= self.requests.get(request).swapped;
            self.requests.remove(request);
        }
        waited
    }

    /// The next thing to be done, after the last one was answered so.
    pub fn next(&mut self, answer: Answered) -> Ask {
        let slots = match answer {
            Answered::Slots { hit, .. } => Some(hit),
            _ => None,
        };
        loop {
            let ask = match self.phase {
                Phase::Idle => self.begin(),
                Phase::Running(at) => self.run(at),
                Phase::Grow(at, tokens) if slots.is_some() => self.grown(at, tokens),
                // one that is too long for the cache makes no room by preempting others
                Phase::Grow(at, tokens) if answer == Answered::InvalidSize => {
                    self.preempt(at, tokens, at)
                }
                Phase::Grow(at, tokens) => {
                    self.preempt(at, tokens, self.requests.victim(&self.running))
                }
                Phase::Evict { victim, at, again } => Some(self.evict(victim, at, again)),
                Phase::Retry(at, tokens) => self.grow(at, tokens),
                Phase::Waiting => self.admit(),
                Phase::Admit(most) => self.admitted(most, slots),
                Phase::Planned => Some(Ask::Planned),
                Phase::Ending(at) => self.end(at),
            };
            if let Some(ask) = ask {
                return ask;
            }
        }
    }

    /// Tokens that a request may compute next, whatever the budget.
    fn wanted(&self, state: &State) -> u64 {
        // asynchronous: who will be finished by what is computed now is left alone
        if state.outputs + state.coming >= state.max_tokens {
            return 0;
        }
        let missing = state.known() + state.coming - state.computed;
        let capped = if self.threshold > 0 { missing.min(self.threshold) } else { missing };
        // the last token of a request of full length is never put in
        let length = self.config.max_model_len.unwrap_or(u64::MAX);
        capped.min(length.saturating_sub(state.computed + 1))
    }
}
