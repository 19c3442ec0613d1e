//! The programs of a model, each lowered and compiled once for each state of the run that it meets.
//!
//! What a phase's ops are depends on its plan (one for each length of a batch), on which fixed storages are there when it begins (the first
//! step makes moments, later ones find them), and, where convolutions are tried out, on whether the plan runs for the first time.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::compile::{Compiled, Compiler, Sites};
use super::fixed::Numbers;
use super::lower::{Phase, lower};
use super::passes::PassError;
use super::plan::Plan;
use crate::rates::Rates;

/// Makes the plan of a batch from its key, such as its length.
pub type MakePlan = Box<dyn Fn(u64) -> Result<Plan, PassError> + Send>;

/// Ops kept in tables; beyond, tables are made anew.
const OPS_KEPT: usize = 1 << 22;

struct Made {
    ops: Arc<Compiled>,
    live_after: Vec<bool>,
}

/// Ids that a model's buffers have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ids {
    /// The first of its fixed storages.
    pub(crate) fixed: u32,
    /// From here on, of what does not outlive a program.
    pub(crate) others: u32,
}

/// All programs of a model.
pub(crate) struct Programs {
    make: MakePlan,
    rates: Rates,
    ids: Ids,
    plans: FxHashMap<u64, Arc<(Plan, Numbers)>>,
    made: FxHashMap<(u64, Phase, bool, Vec<bool>), Made>,
    /// Plans that ran, where it matters (`benchmark`).
    met: FxHashSet<u64>,
    ops_kept: usize,
    /// The plan at hand, and its key.
    now: Arc<(Plan, Numbers)>,
    key: u64,
    live: Vec<bool>,
}

impl Programs {
    /// Those of a model whose first plan has this key.
    ///
    /// # Errors
    /// When that plan cannot be made.
    pub(crate) fn new(make: MakePlan, key: u64, rates: Rates) -> Result<Self, PassError> {
        let now = Arc::new(make(key).and_then(numbered)?);
        let count = now.1.count();
        Ok(Self {
            make,
            rates,
            ids: Ids { fixed: 0, others: count as u32 },
            plans: FxHashMap::from_iter([(key, Arc::clone(&now))]),
            made: FxHashMap::default(),
            met: FxHashSet::default(),
            ops_kept: 0,
            now,
            key,
            live: vec![false; count],
        })
    }

    /// Ids of fixed storages that it needs.
    pub(crate) fn fixed_ids(&self) -> u32 {
        self.live.len() as u32
    }

    /// Where several models share a run's ids. To be said before the first phase.
    pub(crate) fn set_ids(&mut self, ids: Ids) {
        self.ids = ids;
    }

    /// The plan at hand.
    pub(crate) fn plan(&self) -> &Plan {
        &self.now.0
    }

    /// The plan of this key is the one at hand.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn choose(&mut self, key: u64) -> Result<(), PassError> {
        self.key = key;
        if let Some(known) = self.plans.get(&key) {
            self.now = Arc::clone(known);
            return Ok(());
        }
        self.now = Arc::new((self.make)(key).and_then(numbered)?);
        self.plans.insert(key, Arc::clone(&self.now));
        Ok(())
    }

    /// Is this number's storage of a batch there, not of the model?
    fn of_batch(&self, number: usize) -> bool {
        number >= self.now.1.state().len()
    }

    /// All but the model is dropped, by somebody else.
    pub(crate) fn forget_batch(&mut self) {
        for number in 0..self.live.len() {
            if self.of_batch(number) {
                self.live[number] = false;
            }
        }
    }

    /// Is this buffer one of the model's own, which stay?
    pub(crate) fn is_model(&self, id: u32) -> bool {
        let number = id.checked_sub(self.ids.fixed).map(|number| number as usize);
        number.is_some_and(|n| n < self.live.len() && !self.of_batch(n))
    }

    /// The ops of a phase of the plan at hand, from a table if they were made before.
    pub(crate) fn phase(&mut self, sites: &mut Sites, phase: Phase) -> Arc<Compiled> {
        let fresh = matches!(phase, Phase::Batch(_))
            && self.now.0.run.benchmark
            && self.met.insert(self.key);
        let key = (self.key, phase, fresh, self.live.clone());
        if let Some(made) = self.made.get(&key) {
            self.live.clone_from(&made.live_after);
            return Arc::clone(&made.ops);
        }
        let (plan, numbers) = &*self.now;
        let program = lower(plan, numbers, phase, fresh, &mut self.live);
        let mut compiler = Compiler {
            graph: &plan.graph,
            rates: &self.rates,
            sites,
            release: plan.run.release,
            ids: self.ids,
        };
        let ops = Arc::new(compiler.compile(&program));
        self.ops_kept += ops.ops.len();
        if self.ops_kept > OPS_KEPT {
            self.made.clear();
            self.plans.clear();
            self.ops_kept = ops.ops.len();
        }
        self.made.insert(key, Made { ops: Arc::clone(&ops), live_after: self.live.clone() });
        ops
    }
}

fn numbered(plan: Plan) -> Result<(Plan, Numbers), PassError> {
    plan.check()?;
    let numbers = Numbers::of(&plan);
    Ok((plan, numbers))
}
