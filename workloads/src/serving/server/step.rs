//! What a server does for a step: asks of the cache, work on the device, and who is turned away.

use vramlab_sim::kv::NewSequence;
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::source::{SourceError, Step};
use vramlab_sim::units::{EventId, Nanos, SequenceId, StreamId};

use super::{ACTIVATIONS, Refusal, STEPS_IDLE_MAX, Server, State, WEIGHTS};
use crate::serving::load::keys_of;
use crate::serving::scheduler::{Ask, NewSlots, RequestId};
use crate::serving::step_time::Shape;

impl Server {
    /// Does what the scheduler asks for; `None` if that took no op.
    pub(super) fn act(&mut self, ask: Ask, now: Nanos) -> Result<Option<Step>, SourceError> {
        let op = match ask {
            Ask::New(slots) => {
                self.asked = Some((SequenceId(slots.request.0), true));
                self.new_sequence(&slots, true)
            }
            Ask::More { request, from, tokens } => {
                let user = &self.users[request.0 as usize];
                keys_of(&user.coming, from, tokens, &mut self.keys);
                self.kv = NewSequence { tokens, waits: true, ..NewSequence::default() };
                let seq = SequenceId(request.0);
                self.asked = Some((seq, false));
                Op::KvMore { seq }
            }
            Ask::Free(request) => Op::KvFree { seq: SequenceId(request.0) },
            Ask::SwapOut { tokens, .. } => {
                self.books.served.swaps += 1;
                self.copy(Direction::DeviceToHost, tokens)
            }
            Ask::SwapIn { tokens, .. } => self.copy(Direction::HostToDevice, tokens),
            Ask::Planned => return self.planned(now),
            Ask::Idle => {
                let resting = self.setup.scheduler.flights() == 0;
                if let Some((request, refusal)) = self.doomed
                    && (resting || refusal == Refusal::AtOnce)
                    && let Some(step) = self.refuse(request)
                {
                    return Ok(Some(step));
                }
                self.begin_step(now);
                return Ok(None);
            }
        };
        Ok(Some(Step::Op(op)))
    }

    fn copy(&self, direction: Direction, tokens: u64) -> Op {
        let bytes = tokens.saturating_mul(self.setup.token_bytes);
        Op::Copy { stream: StreamId(0), direction, bytes }
    }

    fn new_sequence(&mut self, slots: &NewSlots, waits: bool) -> Op {
        let user = &self.users[slots.request.0 as usize];
        keys_of(&user.coming, 0, slots.tokens, &mut self.keys);
        self.kv = NewSequence {
            tokens: slots.tokens,
            keys: &[],
            chunk: slots.chunk,
            whole: slots.whole,
            headroom: slots.reserve.then_some(0),
            watermark: slots.watermark,
            waits,
            ..self.model()
        };
        Op::KvNew { seq: SequenceId(slots.request.0) }
    }

    /// What a cache must know of the model.
    pub(super) fn model(&self) -> NewSequence<'static> {
        NewSequence {
            token_bytes: Some(self.setup.token_bytes),
            layers: Some(self.setup.layers),
            longest: Some(self.setup.max_model_len),
            ..NewSequence::default()
        }
    }

    /// A step is planned: it is queued on the device, or there is nothing to compute.
    fn planned(&mut self, now: Nanos) -> Result<Option<Step>, SourceError> {
        let scheduler = &mut self.setup.scheduler;
        let preempted = scheduler.preempted();
        self.books.served.preemptions +=
            preempted.len() as u64 - std::mem::take(&mut self.outgrown);
        self.books.crowd(scheduler.running().len(), scheduler.waiting_len());
        let (mut shape, mut new) = (Shape::default(), false);
        for part in scheduler.plan() {
            shape.add(part.tokens, part.computed, part.gives);
            let user = &mut self.users[part.request.0 as usize];
            new |= self.books.computes(user, part.computed, part.tokens);
        }
        let empty = scheduler.plan().is_empty();
        if empty && scheduler.running().is_empty() {
            let last = preempted.last().map(|request| (*request, Refusal::AtRest));
            self.doomed = self.doomed.or(last);
        }
        scheduler.launch();
        if !empty {
            self.idle_steps = if new { 0 } else { self.idle_steps + 1 };
            self.check_progress()?;
            self.work(&shape);
        }
        let flights = self.setup.scheduler.flights() as u64;
        if flights > 0 && (empty || flights > 1 || !self.setup.ahead) {
            let oldest = self.stream(self.steps - flights);
            self.queue.push_back(Op::Sync { stream: Some(oldest) });
            self.state = State::Computing;
        } else if flights > 0 {
            self.begin_step(now); // the next one is planned ahead
        } else {
            return Ok(Some(self.rest()));
        }
        Ok(self.queue.pop_front().map(Step::Op))
    }

    /// The step of a number is on one of two streams, if they are planned ahead.
    fn stream(&self, step: u64) -> StreamId {
        StreamId(if self.setup.ahead { (step % 2) as u32 } else { 0 })
    }

    fn work(&mut self, shape: &Shape) {
        let (stream, duration) = (self.stream(self.steps), self.setup.time.ns(shape));
        self.books.served.steps += 1;
        if self.setup.ahead && self.steps > 0 {
            let event = EventId(self.stream(self.steps - 1).0);
            self.queue.push_back(Op::Wait { event, stream });
        }
        self.queue.push_back(Op::Work { stream, duration });
        if self.setup.ahead {
            self.queue.push_back(Op::Event { event: EventId(stream.0), stream });
        }
        self.steps += 1;
    }

    fn check_progress(&self) -> Result<(), SourceError> {
        if self.idle_steps < STEPS_IDLE_MAX {
            return Ok(());
        }
        let scheduler = &self.setup.scheduler;
        let (running, waiting) = (scheduler.running().len(), scheduler.waiting_len());
        Err(SourceError {
            place: format!("step {}", self.steps),
            what: format!(
                "livelock: {STEPS_IDLE_MAX} steps computed nothing that was not computed before ({running} running, {waiting} waiting); expected progress"
            ),
        })
    }

    /// Nothing is computed and nothing could be planned: somebody never fits, or nobody is there.
    fn rest(&mut self) -> Step {
        let doomed = self.doomed.map(|(request, _)| request);
        let never = doomed.or_else(|| self.setup.scheduler.waiting().next());
        if let Some(step) = never.and_then(|request| self.refuse(request)) {
            return step;
        }
        if let Some(coming) = &self.next {
            self.state = State::Waiting(coming.at);
            return Step::WaitUntil(coming.at);
        }
        self.state = State::Over;
        self.queue.push_back(Op::Free { id: WEIGHTS, stream: None });
        Step::Op(Op::Free { id: ACTIVATIONS, stream: None })
    }

    /// Turns away who never fits (rule `never_fits`); `None` if it is over already.
    fn refuse(&mut self, request: RequestId) -> Option<Step> {
        self.doomed = None;
        let ask = self.setup.scheduler.whole_ask(request);
        if !self.setup.scheduler.refuse(request) {
            return None;
        }
        self.state = State::Refusing(SequenceId(request.0));
        Some(Step::Op(self.new_sequence(&ask, false)))
    }
}
