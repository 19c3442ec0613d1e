//! A server of a language model as a source: it hears how its cache answers, and admits, preempts and retries.
//!
//! ```text
//! weights, activations ─▶ loop: who has arrived ─▶ plan (kv_new, kv_more, kv_free, copy) ─▶ work ─▶ tokens, kv_free
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `memory` | the weights, and the peak of activations, are buffers that stay; so a cache that takes its share of the device finds the blocks that the real server has |
//! | `ready` | one token's slots are asked for and given back, so that a cache makes its pool; then the server is ready, and times of arrival count from there |
//! | `step` | one piece of work on the device; the host waits for its end |
//! | `ahead` | asynchronous: the next step is planned and queued while one is computed, on the other of two streams, in order |
//! | `never_fits` | a request is turned away, and counted, if its prompt is not below the model's length; if the cache takes no sequence of its length; if it is refused while nothing runs; or if it was preempted while it ran alone. The cache is asked once more for all its tokens, so that the refusal stands in the run's figures with its numbers |
//! | `progress` | steps that compute only what was computed before, [`STEPS_IDLE_MAX`] of them in a row, are a livelock: an error |
//! | `mark` | at the first end of a step after each interval: `30 s: 49 running, 234 waiting` |
//!
//! Asks of the cache are such that wait ([`NewSequence::waits`]): a refusal that leads to waiting or to a preemption is no failure of the run. Latencies are
//! the server's own ([`Served`]), since a request may arrive while the host waits. Left out: the network, the tokenizer, the time of sampling.

mod step;

use std::collections::VecDeque;

use vramlab_sim::kv::{KeyRun, NewSequence};
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::report::{Done, Served};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, SequenceId, StreamId};

use super::books::{Books, User};
use super::load::{Coming, Load};
use super::scheduler::{Pending, RequestId, Scheduler};
use super::step_time::StepTime;

/// Steps in a row that compute nothing new, after which a server is said to be stuck.
pub const STEPS_IDLE_MAX: u64 = 10_000;

const WEIGHTS: BufferId = BufferId(0);
const ACTIVATIONS: BufferId = BufferId(1);
const WEIGHTS_NAME: NameId = NameId(1);
const ACTIVATIONS_NAME: NameId = NameId(2);
const MARK_NAME: NameId = NameId(3);

/// What a server is made of.
pub struct Setup {
    /// Who is served when.
    pub scheduler: Scheduler,
    /// The requests.
    pub load: Load,
    /// How long a step takes.
    pub time: StepTime,
    /// Plan a step while one is computed.
    pub ahead: bool,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes that activations, graphs and the like take at their peak.
    pub activations: u64,
    /// Bytes of a token's keys and values.
    pub token_bytes: u64,
    /// Layers of the model.
    pub layers: u64,
    /// Most tokens of a request.
    pub max_model_len: u64,
    /// Between two marks; 0: none.
    pub mark: Nanos,
}

/// When somebody who never fits is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The cache takes no sequence of its length.
    AtOnce,
    /// It was preempted while it ran alone: once nothing is computed any more.
    AtRest,
}

/// What the server does next, when nothing is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many of these were asked for: weights, activations, a token's slots.
    Loading(u8),
    /// It asks the scheduler what to do.
    Planning,
    /// It waits for the oldest step.
    Computing,
    /// It waits for the next request.
    Waiting(Nanos),
    /// It has asked once more for a request that never fits.
    Refusing(SequenceId),
    /// There is no room for the model, or nobody is left.
    Over,
}

/// The server.
pub struct Server {
    setup: Setup,
    state: State,
    queue: VecDeque<Op>,
    /// The scheduler's last ask was for slots of this sequence; was it a new one?
    asked: Option<(SequenceId, bool)>,
    /// How it was answered, while its number is freed.
    refusal: Option<Answered>,
    next: Option<Coming>,
    /// When the model and the cache were there.
    ready: Nanos,
    /// By slot of the scheduler's requests.
    users: Vec<User>,
    books: Books,
    /// Steps so far; its stream and event follow from it.
    steps: u64,
    idle_steps: u64,
    /// Running requests that came to be longer than the cache takes, in this step: they make room for nobody.
    outgrown: u64,
    /// Who never fits.
    doomed: Option<(RequestId, Refusal)>,
    marked: Nanos,
    mark: String,
    uses: [BufferUse; 1],
    kv: NewSequence<'static>,
    keys: Vec<KeyRun>,
}

impl Server {
    /// With nobody there yet.
    pub fn new(mut setup: Setup) -> Self {
        let next = setup.load.next();
        Self {
            setup,
            state: State::Loading(0),
            queue: VecDeque::new(),
            asked: None,
            refusal: None,
            next,
            ready: Nanos(0),
            users: Vec::new(),
            books: Books::default(),
            steps: 0,
            idle_steps: 0,
            outgrown: 0,
            doomed: None,
            marked: Nanos(0),
            mark: String::new(),
            uses: [BufferUse { id: WEIGHTS, write: false }],
            kv: NewSequence::default(),
            keys: Vec::new(),
        }
    }

    /// Takes in who has arrived.
    fn arrive(&mut self, now: Nanos) {
        while let Some(coming) = self.next.take_if(|coming| coming.at <= now) {
            self.next = self.setup.load.next().map(|coming| coming.after(self.ready));
            self.books.served.requests += 1;
            if coming.prompt >= self.setup.max_model_len {
                self.books.refused(false);
                continue;
            }
            let (prompt, max_tokens) = (coming.prompt, coming.output);
            let request = self.setup.scheduler.add(Pending { prompt, max_tokens, priority: 0 });
            let slot = request.0 as usize;
            if self.users.len() <= slot {
                self.users.resize_with(slot + 1, User::default);
            }
            self.users[slot] = User { coming, ..User::default() };
        }
    }

    /// The next step of the source, when nothing is queued.
    fn turn(&mut self, now: Nanos, mut answer: Answered) -> Result<Step, SourceError> {
        loop {
            match self.state {
                State::Loading(1..=2)
                    if matches!(answer, Answered::OutOfMemory | Answered::InvalidSize) =>
                {
                    self.give_up();
                }
                State::Loading(done) => match self.load(done, now) {
                    Some(op) => return Ok(Step::Op(op)),
                    None => self.begin_step(now),
                },
                State::Waiting(time) => self.begin_step(now.max(time)),
                State::Refusing(seq) => {
                    self.books.refused(answer == Answered::OutOfMemory);
                    self.begin_step(now);
                    return Ok(Step::Op(Op::KvFree { seq }));
                }
                State::Planning => {
                    let asked = self.asked.take();
                    if let Some((seq, new)) = asked
                        && answer == Answered::InvalidSize
                    {
                        self.outgrown += u64::from(!new);
                        self.doomed = Some((RequestId(seq.0), Refusal::AtOnce));
                    }
                    // a new sequence that was refused has its number until it is freed
                    if let Some((seq, true)) = asked
                        && !matches!(answer, Answered::Slots { .. })
                    {
                        self.refusal = Some(answer);
                        return Ok(Step::Op(Op::KvFree { seq }));
                    }
                    let ask = self.setup.scheduler.next(self.refusal.take().unwrap_or(answer));
                    answer = Answered::Done;
                    if let Some(step) = self.act(ask, now)? {
                        return Ok(step);
                    }
                }
                State::Computing => {
                    self.setup.scheduler.complete();
                    self.tokens(now);
                    self.state = State::Planning;
                    answer = Answered::Done;
                    if let Some(mark) = self.due_mark(now) {
                        return Ok(Step::Op(mark));
                    }
                }
                State::Over => return Ok(Step::End),
            }
        }
    }

    /// The next piece of what must be there before the first request; `None` when all is.
    fn load(&mut self, done: u8, now: Nanos) -> Option<Op> {
        self.state = State::Loading(done + 1);
        let seq = SequenceId(0);
        match done {
            0 => Some(load(WEIGHTS, WEIGHTS_NAME, self.setup.weights)),
            1 => Some(load(ACTIVATIONS, ACTIVATIONS_NAME, self.setup.activations)),
            2 => {
                self.kv = NewSequence { tokens: 1, waits: true, ..self.model() };
                Some(Op::KvNew { seq })
            }
            3 => Some(Op::KvFree { seq }),
            _ => {
                self.ready = now;
                self.next = self.next.take().map(|coming| coming.after(now));
                None
            }
        }
    }

    /// There is no room for the model: nobody is served.
    fn give_up(&mut self) {
        self.state = State::Over;
        while self.next.take().is_some() {
            self.books.served.requests += 1;
            self.books.refused(true);
            self.next = self.setup.load.next();
        }
    }

    fn begin_step(&mut self, now: Nanos) {
        self.arrive(now);
        self.state = State::Planning;
    }

    /// The tokens of the step that has ended.
    fn tokens(&mut self, now: Nanos) {
        for output in self.setup.scheduler.outputs() {
            let user = &mut self.users[output.request.0 as usize];
            self.books.token(user, output.number, output.finished, now);
        }
    }

    fn due_mark(&mut self, now: Nanos) -> Option<Op> {
        let every = self.setup.mark.0;
        let due = now.0.saturating_sub(self.ready.0).checked_div(every)?.saturating_mul(every);
        if due <= self.marked.0 {
            return None;
        }
        self.marked = Nanos(due);
        let scheduler = &self.setup.scheduler;
        let (running, waiting) = (scheduler.running().len(), scheduler.waiting_len());
        let seconds = due as f64 / 1e9;
        self.mark = format!("{seconds} s: {running} running, {waiting} waiting");
        Some(Op::Mark { name: MARK_NAME })
    }
}

fn load(id: BufferId, site: NameId, size: u64) -> Op {
    Op::Alloc { id, stream: StreamId(0), site, size }
}

impl Source for Server {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        match self.queue.pop_front() {
            Some(op) => Ok(Step::Op(op)),
            None => self.turn(now, last),
        }
    }

    fn uses(&self) -> &[BufferUse] {
        &self.uses
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn kv(&self) -> NewSequence<'_> {
        NewSequence { keys: &self.keys, ..self.kv }
    }

    fn text(&self, name: NameId) -> &str {
        match name {
            WEIGHTS_NAME => "weights",
            ACTIVATIONS_NAME => "activations",
            MARK_NAME => &self.mark,
            _ => "",
        }
    }

    fn name(&self, id: BufferId) -> u64 {
        u64::from(id.0)
    }

    fn sequence(&self, seq: SequenceId) -> u64 {
        self.users.get(seq.0 as usize).map_or(0, |user| user.coming.number)
    }

    fn served(&self) -> Option<Served> {
        Some(self.books.figures())
    }

    fn done(&self) -> &[Done] {
        &self.books.done
    }

    fn independent(&self) -> bool {
        false
    }

    fn gaps(&self) -> u64 {
        0
    }
}
