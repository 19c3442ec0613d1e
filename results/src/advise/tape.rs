//! An input's steps in memory: decoded once, played as often as there are settings, by several threads at once.
//!
//! Sites are dropped (no strategy hears them). Sources that react to answers or have sequences are not taped: they are made anew for each run.

use std::sync::Arc;

use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

use crate::failure::Failure;
use crate::job::Input;

/// Most steps that are held: half a GB.
const STEPS_MAX: usize = 16_000_000;

/// The steps of an input.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// In order.
    pub steps: Vec<Step>,
    texts: Vec<String>,
    uses: Vec<BufferUse>,
    /// Where the uses of the n-th work end.
    uses_end: Vec<usize>,
    touches: Vec<TouchRange>,
    gaps: u64,
}

impl Tape {
    /// Of an input; none if it cannot be taped.
    ///
    /// # Errors
    /// A bad input.
    pub fn of(input: &Input<'_>) -> Result<Option<Self>, Failure> {
        let mut source = (input.make)()?;
        if !source.independent() {
            return Ok(None);
        }
        let mut tape = Self { texts: vec![String::new()], ..Self::default() };
        loop {
            let step = source.next(Nanos(0), Answered::Done).map_err(Failure::input)?;
            let Step::Op(op) = step else {
                if step == Step::End {
                    break;
                }
                tape.steps.push(step);
                continue;
            };
            let op = match op {
                Op::KvNew { .. } | Op::KvMore { .. } | Op::KvFork { .. } | Op::KvFree { .. } => {
                    return Ok(None);
                }
                Op::Alloc { id, stream, size, .. } => {
                    Op::Alloc { id, stream, site: NameId(0), size }
                }
                Op::Mark { name } => Op::Mark { name: tape.keep(source.text(name)) },
                Op::Set { key, value } => {
                    let key = tape.keep(source.text(key));
                    Op::Set { key, value: tape.keep(source.text(value)) }
                }
                Op::Work { .. } => {
                    tape.uses.extend_from_slice(source.uses());
                    tape.uses_end.push(tape.uses.len());
                    op
                }
                Op::Touch { .. } => {
                    tape.touches.push(source.touch());
                    op
                }
                other => other,
            };
            if tape.steps.len() >= STEPS_MAX {
                return Ok(None);
            }
            tape.steps.push(Step::Op(op));
        }
        tape.gaps = source.gaps();
        Ok(Some(tape))
    }

    fn keep(&mut self, text: &str) -> NameId {
        self.texts.push(text.to_owned());
        NameId((self.texts.len() - 1) as u32)
    }

    /// Has it nothing but requests, frees and what goes with them, on one device? Only such steps may be put in another order.
    pub fn is_plain(&self) -> bool {
        self.steps.iter().all(|step| {
            !matches!(
                step,
                Step::WaitUntil(_)
                    | Step::Op(
                        Op::Device { .. }
                            | Op::Thread { .. }
                            | Op::Work { .. }
                            | Op::Touch { .. }
                            | Op::Event { .. }
                            | Op::Wait { .. }
                    )
            )
        })
    }

    /// The same with other steps, for which [`Tape::is_plain`] must hold.
    pub fn with(&self, steps: Vec<Step>) -> Self {
        Self { steps, texts: self.texts.clone(), gaps: self.gaps, ..Self::default() }
    }

    /// An input that plays it, with the name and figures of `input`.
    pub fn input(self: &Arc<Self>, input: &Input<'_>) -> Input<'static> {
        let tape = Arc::clone(self);
        let make = move || -> Result<Box<dyn Source>, Failure> {
            let tape = Arc::clone(&tape);
            Ok(Box::new(TapeSource { tape, next: 0, works: 0, touches: 0 }))
        };
        Input {
            origin: input.origin.clone(),
            seed: input.seed,
            devices: input.devices,
            accesses: input.accesses,
            times: input.times,
            ..Input::new(input.name.clone(), Box::new(make))
        }
    }
}

struct TapeSource {
    tape: Arc<Tape>,
    next: usize,
    works: usize,
    touches: usize,
}

impl Source for TapeSource {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        let step = self.tape.steps.get(self.next).copied().unwrap_or(Step::End);
        self.next += 1;
        match step {
            Step::Op(Op::Work { .. }) => self.works += 1,
            Step::Op(Op::Touch { .. }) => self.touches += 1,
            _ => {}
        }
        Ok(step)
    }

    fn uses(&self) -> &[BufferUse] {
        let end = |n: usize| n.checked_sub(1).and_then(|n| self.tape.uses_end.get(n)).copied();
        let (from, to) = (end(self.works.saturating_sub(1)).unwrap_or(0), end(self.works));
        to.and_then(|to| self.tape.uses.get(from..to)).unwrap_or(&[])
    }

    fn touch(&self) -> TouchRange {
        let last = self.touches.checked_sub(1).and_then(|n| self.tape.touches.get(n));
        last.copied().unwrap_or_default()
    }

    fn text(&self, name: NameId) -> &str {
        self.tape.texts.get(name.0 as usize).map_or("", String::as_str)
    }

    fn name(&self, id: BufferId) -> u64 {
        u64::from(id.0)
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.tape.gaps
    }
}

#[cfg(test)]
mod tests {
    use vramlab_allocators::Spec;

    use super::*;
    use crate::analysis::lives::tests::input;
    use crate::job::{Place, run_pair};

    /// Every figure of a run is the same from the tape.
    #[test]
    fn a_tape_plays_what_it_was_made_from() {
        let original = input(&[
            r#"{"op":"alloc","id":7,"size":3000000,"site":"a"}"#,
            r#"{"op":"work","stream":1,"dur":1000,"reads":[7]}"#,
            r#"{"op":"alloc","id":8,"size":50,"stream":1,"t":5000}"#,
            r#"{"op":"work","stream":1,"dur":10,"reads":[7,8]}"#,
            r#"{"op":"free","id":7}"#,
            r#"{"op":"mark","name":"m"}"#,
            r#"{"op":"alloc","id":9,"size":3000000,"stream":1}"#,
        ]);
        let original = Input { accesses: true, ..original };
        let tape = Arc::new(Tape::of(&original).expect("reads").expect("can be taped"));
        assert!(!tape.is_plain());
        let (taped, spec) = (tape.input(&original), Spec::new("torch.caching", Default::default()));
        let place = Place::for_recording(None, None).expect("a device");
        let row = |input: &Input<'_>| {
            serde_json::to_string(&run_pair(input, &spec, &place, None).expect("runs"))
                .expect("JSON")
        };
        assert_eq!(row(&taped), row(&original));
    }

    #[test]
    fn sequences_are_not_taped() {
        let sequences = input(&[r#"{"op":"kv_new","seq":1,"tokens":20}"#]);
        assert!(Tape::of(&sequences).expect("reads").is_none());
    }
}
