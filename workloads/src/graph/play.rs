//! Programs as a source: load, then step by step, each phase written once for each state of the run that it meets.
//!
//! What a phase's ops are depends on its plan (one for each length of a batch) and on which fixed storages are there when it begins: the
//! first step makes moments, later ones find them. So each pair is lowered and compiled once and then played from a table; nothing is allocated for an op.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

use super::compile::{Compiled, Compiler, MARK_NAME_FIRST, Mark, Sites};
use super::fixed::Numbers;
use super::lower::{Phase, lower};
use super::passes::PassError;
use super::plan::Plan;
use crate::rates::Rates;

/// Makes the plan of a batch from its key, such as its length.
pub type MakePlan = Box<dyn Fn(u64) -> Result<Plan, PassError> + Send>;
/// The keys of the batches, without end.
pub type Keys = Box<dyn Iterator<Item = u64> + Send>;

/// Ops kept in tables; beyond, tables are made anew.
const OPS_KEPT: usize = 1 << 22;

struct Made {
    ops: Arc<Compiled>,
    live_after: Vec<bool>,
}

/// A run of a model.
pub struct Player {
    make: MakePlan,
    keys: Keys,
    rates: Rates,
    steps: u64,
    sites: Sites,
    plans: FxHashMap<u64, Arc<(Plan, Numbers)>>,
    made: FxHashMap<(u64, Phase, Vec<bool>), Made>,
    ops_kept: usize,
    /// The plan at hand, and its key.
    now: Arc<(Plan, Numbers)>,
    key: u64,
    live: Vec<bool>,
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
        let now = Arc::new(make(key).and_then(numbered)?);
        let live = vec![false; now.1.count()];
        let mut player = Self {
            make,
            keys,
            rates,
            steps,
            sites: Sites::new(),
            plans: FxHashMap::default(),
            made: FxHashMap::default(),
            ops_kept: 0,
            now,
            key,
            live,
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

    /// The ops of a phase, from a table if they were made before.
    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.at = 0;
        let key = (self.key, phase, self.live.clone());
        if let Some(made) = self.made.get(&key) {
            self.ops = Arc::clone(&made.ops);
            self.live.clone_from(&made.live_after);
            return;
        }
        let (plan, numbers) = &*self.now;
        let program = lower(plan, numbers, phase, &mut self.live);
        let mut compiler = Compiler {
            graph: &plan.graph,
            rates: &self.rates,
            sites: &mut self.sites,
            release: plan.run.release,
            fixed: numbers.count() as u32,
        };
        self.ops = Arc::new(compiler.compile(&program));
        self.ops_kept += self.ops.ops.len();
        if self.ops_kept > OPS_KEPT {
            self.made.clear();
            self.plans.clear();
            self.ops_kept = self.ops.ops.len();
        }
        self.made.insert(key, Made { ops: Arc::clone(&self.ops), live_after: self.live.clone() });
    }

    /// The next batch's plan.
    fn choose(&mut self, first: bool) -> Result<(), SourceError> {
        if !first {
            self.key = self.keys.next().unwrap_or(self.key);
        }
        if let Some(known) = self.plans.get(&self.key) {
            self.now = Arc::clone(known);
            return Ok(());
        }
        let made = (self.make)(self.key).and_then(numbered).map_err(|error| SourceError {
            place: format!("step {}", self.step),
            what: error.to_string(),
        })?;
        self.now = Arc::new(made);
        self.plans.insert(self.key, Arc::clone(&self.now));
        Ok(())
    }

    /// The phase at hand is over; the next begins.
    fn proceed(&mut self) -> Result<(), SourceError> {
        let run = &self.now.0.run;
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
        let every = self.now.0.run.empty_cache;
        let ends = match self.phase {
            Phase::Optimizer => true,
            Phase::Batch(_) => !self.now.0.run.train,
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

fn numbered(plan: Plan) -> Result<(Plan, Numbers), PassError> {
    plan.check()?;
    let numbers = Numbers::of(&plan.graph);
    Ok((plan, numbers))
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
