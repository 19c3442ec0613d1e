//! Programs as a source: load, then step by step, each phase written once for each state of the run that it meets.
//!
//! They are played from tables (the module `programs`); nothing is allocated for an op.

use std::sync::Arc;

use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

use super::compile::{Compiled, MARK_NAME_FIRST, Mark, Sites};
use super::lower::Phase;
use super::passes::PassError;
use super::plan::Plan;
pub use super::programs::MakePlan;
use super::programs::Programs;
use crate::rates::Rates;

/// The keys of the batches, without end.
pub type Keys = Box<dyn Iterator<Item = u64> + Send>;

/// A run of a model.
pub struct Player {
    programs: Programs,
    keys: Keys,
    key: u64,
    steps: u64,
    sites: Sites,
    phase: Phase,
    step: u64,
    ops: Arc<Compiled>,
    at: usize,
    uses: (u32, u32),
    mark: (NameId, String),
    marks: u32,
    names: Vec<u64>,
    allocs: u64,
    over: bool,
}

impl Player {
    /// `steps` steps (batches in inference) of the plans that `make` makes of `keys`.
    ///
    /// # Errors
    /// When the first plan cannot be made.
    pub fn new(
        make: MakePlan,
        mut keys: Keys,
        steps: u64,
        rates: Rates,
    ) -> Result<Self, PassError> {
        let key = keys.next().unwrap_or_default();
        let mut player = Self {
            programs: Programs::new(make, key, rates)?,
            keys,
            key,
            steps,
            sites: Sites::new(),
            phase: Phase::Load,
            step: 0,
            ops: Arc::default(),
            at: 0,
            uses: (0, 0),
            mark: (NameId(0), String::new()),
            marks: 0,
            names: Vec::new(),
            allocs: 0,
            over: false,
        };
        player.begin(Phase::Load);
        Ok(player)
    }

    /// Of one plan, again and again.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn of(plan: Plan, steps: u64, rates: Rates) -> Result<Self, PassError> {
        let make = Box::new(move |_| Ok(plan.clone()));
        Self::new(make, Box::new(std::iter::repeat(0)), steps, rates)
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.at = 0;
        self.ops = self.programs.phase(&mut self.sites, phase);
    }

    /// The next batch's plan.
    fn choose(&mut self, first: bool) -> Result<(), SourceError> {
        if !first {
            self.key = self.keys.next().unwrap_or(self.key);
        }
        self.programs.choose(self.key).map_err(|error| SourceError {
            place: format!("step {}", self.step),
            what: error.to_string(),
        })
    }

    /// The phase at hand is over; the next begins.
    fn proceed(&mut self) -> Result<(), SourceError> {
        let run = &self.programs.plan().run;
        let next = match self.phase {
            Phase::Load => Phase::Batch(0),
            Phase::Batch(micro) if run.train && micro + 1 < run.accumulation => {
                Phase::Batch(micro + 1)
            }
            Phase::Batch(_) if run.train => Phase::Optimizer,
            Phase::Batch(_) | Phase::Optimizer => {
                self.step += 1;
                Phase::Batch(0)
            }
        };
        if self.step == self.steps {
            self.over = true;
        } else {
            if matches!(next, Phase::Batch(_)) {
                self.choose(self.phase == Phase::Load)?;
            }
            self.begin(next);
        }
        Ok(())
    }

    /// `empty_cache` after this step?
    fn empties(&self) -> bool {
        let every = self.programs.plan().run.empty_cache;
        let ends = match self.phase {
            Phase::Optimizer => true,
            Phase::Batch(_) => !self.programs.plan().run.train,
            Phase::Load => false,
        };
        ends && every > 0 && (self.step + 1).is_multiple_of(every)
    }

    fn handed_out(&mut self, op: Op) -> Op {
        match op {
            Op::Alloc { id, .. } => {
                let slot = id.0 as usize;
                if slot >= self.names.len() {
                    self.names.resize(slot + 1, 0);
                }
                self.names[slot] = self.allocs;
                self.allocs += 1;
                op
            }
            Op::Mark { name } => {
                let Mark { text, numbered } = &self.ops.marks[name.0 as usize];
                let name = NameId(MARK_NAME_FIRST + self.marks % MARK_NAME_FIRST);
                self.marks = self.marks.wrapping_add(1);
                let text =
                    if *numbered { format!("step {} {text}", self.step) } else { text.clone() };
                self.mark = (name, text);
                Op::Mark { name }
            }
            _ => op,
        }
    }
}

impl Source for Player {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        loop {
            if let Some((op, uses_end)) = self.ops.ops.get(self.at) {
                self.uses = (if self.at == 0 { 0 } else { self.uses.1 }, *uses_end);
                self.at += 1;
                let op = *op;
                return Ok(Step::Op(self.handed_out(op)));
            }
            if self.over {
                return Ok(Step::End);
            }
            if self.at == self.ops.ops.len() && self.empties() {
                self.at += 1;
                self.uses = (0, 0);
                return Ok(Step::Op(Op::EmptyCache));
            }
            self.proceed()?;
        }
    }

    fn uses(&self) -> &[BufferUse] {
        &self.ops.uses[self.uses.0 as usize..self.uses.1 as usize]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, name: NameId) -> &str {
        if name == self.mark.0 { &self.mark.1 } else { self.sites.text(name) }
    }

    fn name(&self, id: BufferId) -> u64 {
        self.names.get(id.0 as usize).copied().unwrap_or(0)
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        0
    }
}
