//! From a graph to programs: forward here, gradients in `backward`, the update in `optimizer`.
//!
//! ```text
//! load │ batch 1: forward, backward │ … │ batch N: forward, backward │ optimizer
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `last_use` | a storage lives until the last step that names it; a view is its base's storage |
//! | `cache` | autocast's copies of weights live until the forward pass ends |
//! | `batch` | how a batch comes: `loader` |
//! | `over` | what is written over an input is that input's storage |
//! | `spread` | what is fetched, sent and kept elsewhere: `fetch`, `sink`, `host`, `pipeline` |
//! | `carry` | what is carried is dropped when its successor is there, or before a batch that does not know it |
//! | `result` | results are held until the next step's are there, or until backward ends |
//!
//! Order and lifetimes are those of PyTorch 2.15 as recorded (`tests/recorded_graph.rs`). Left out: the host's own memory.

mod at;
mod backward;
mod conv;
mod fetch;
mod host;
mod load;
mod loader;
mod optimizer;
mod pipeline;
mod sink;
mod storages;
mod streams;
mod units;

pub use at::{Backward, Forward};
pub(crate) use conv::CONV_SPACE;

use rustc_hash::FxHashSet;
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::StreamId;

use super::fixed::{Numbers, Single};
use super::kernels::{BLAS_WORKSPACE, LT_WORKSPACE};
use super::op::Kind;
use super::plan::{Plan, Workspace};
use super::program::{Kernel, Program, Step, StorageId};
use super::tensor::{DType, ScopeId, TensorId};
use fetch::Fetched;
use host::OnHost;
use streams::COMPUTE;
use units::Units;

/// Whose workspace a product takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blas {
    /// cublasLt's.
    Lt,
    /// cuBLAS's.
    Plain,
}

/// A part of a run that has a program of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The model goes to the device.
    Load,
    /// A batch: forward, and backward in training. The number is its place in the step.
    Batch(u64),
    /// The update.
    Optimizer,
}

/// The program of a phase, when the fixed storages of `live` are there; `live` becomes what is there after it.
/// `fresh`: the plan runs for the first time.
pub fn lower(
    plan: &Plan,
    numbers: &Numbers,
    phase: Phase,
    fresh: bool,
    live: &mut [bool],
) -> Program {
    let mut lower = Lower::new(plan, numbers, live);
    lower.fresh = fresh;
    match phase {
        Phase::Load => lower.load(),
        Phase::Batch(micro) => lower.batch(micro),
        Phase::Optimizer => lower.optimize(),
    }
    lower.program
}

/// A program in the making.
pub struct Lower<'a> {
    plan: &'a Plan,
    numbers: &'a Numbers,
    live: &'a mut [bool],
    program: Program,
    /// By fixed number: its storage, once it is named.
    fixed: Vec<Option<StorageId>>,
    /// By tensor: its storage at this point.
    place: Vec<Option<StorageId>>,
    /// By tensor: its gradient as far as it has come.
    pending: Vec<Option<StorageId>>,
    /// By storage: how many gradients on their way are this one.
    holders: Vec<u32>,
    /// By tensor: gradients still to come (weights only).
    awaited: Vec<u32>,
    /// Blocks.
    units: Units,
    fetched: Fetched,
    on_host: OnHost,
    /// Gradients that wait for their bucket to fill.
    bucket: Vec<(TensorId, StorageId)>,
    /// Buckets that were summed, and the gradients that they go back to.
    summed: Vec<(StorageId, Vec<StorageId>)>,
    /// Is this the first micro-batch of a step?
    first: bool,
    /// Is this the last micro-batch of a step?
    last: bool,
    /// Events so far.
    events: u32,
    /// Something was copied to the host.
    read: bool,
    /// The plan runs for the first time.
    fresh: bool,
    /// Convolutions that were tried in this program.
    tried: FxHashSet<conv::Tried>,
}

impl<'a> Lower<'a> {
    fn new(plan: &'a Plan, numbers: &'a Numbers, live: &'a mut [bool]) -> Self {
        let tensors = plan.graph.tensors().count();
        let mut lower = Self {
            plan,
            numbers,
            fixed: vec![None; live.len()],
            live,
            program: Program::default(),
            place: vec![None; tensors],
            pending: vec![None; tensors],
            holders: Vec::new(),
            awaited: vec![0; tensors],
            units: Units::of(&plan.graph),
            fetched: Fetched::default(),
            on_host: OnHost::default(),
            bucket: Vec::new(),
            summed: Vec::new(),
            first: true,
            last: true,
            events: streams::EVENTS_FIRST,
            read: false,
            fresh: false,
            tried: FxHashSet::default(),
        };
        for i in 0..numbers.state().len() {
            lower.state_storage(i);
        }
        lower
    }

    fn push(&mut self, kernel: Kernel) {
        self.program.steps.push(Step::Run(kernel));
    }

    /// A kernel that is bound by memory.
    fn simple(
        &mut self,
        name: &'static str,
        scope: ScopeId,
        reads: &[StorageId],
        writes: &[StorageId],
    ) {
        self.push(Kernel {
            name,
            scope,
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            scratch: Vec::new(),
            moved: None,
            flops: 0.0,
            math: DType::F32,
            stream: StreamId(0),
        });
    }

    /// The last kernel moves so many bytes, not all that it names.
    fn moves(&mut self, bytes: u64) {
        if let Some(Step::Run(kernel)) = self.program.steps.last_mut() {
            kernel.moved = Some(bytes);
        }
    }

    fn hold(&mut self, held: Vec<StorageId>) {
        if !held.is_empty() {
            self.program.steps.push(Step::Hold(held));
        }
    }

    /// What a product's workspace is, if it takes one of its own.
    fn workspace(&mut self, space: Blas, scope: ScopeId) -> Option<StorageId> {
        let bytes = match space {
            Blas::Lt => LT_WORKSPACE,
            Blas::Plain => BLAS_WORKSPACE,
        };
        match self.plan.run.workspace {
            Workspace::None => None,
            Workspace::Call => Some(self.storage(bytes, DType::I8, scope, "workspace")),
            Workspace::Cached => {
                let number = self.numbers.of_single(Single::Workspace);
                let part = "workspace";
                let id = self.fixed_storage(number, BLAS_WORKSPACE, DType::I8, scope, part);
                self.born(number);
                Some(id)
            }
        }
    }

    fn mark(&mut self, text: String, numbered: bool) {
        self.program.steps.push(Step::Mark { text, numbered });
    }

    fn copy_out(&mut self, from: StorageId) {
        let bytes = self.program.get(from).bytes;
        let direction = Direction::DeviceToHost;
        self.program.steps.push(Step::Copy {
            from: Some(from),
            to: None,
            bytes,
            direction,
            stream: COMPUTE,
        });
    }

    fn wait_for_device(&mut self) {
        self.program.steps.push(Step::Op(Op::Sync { stream: Some(StreamId(0)) }));
    }

    fn read_by_host(&mut self, id: StorageId) {
        self.read = true;
        self.copy_out(id);
        self.wait_for_device();
        self.hold(vec![id]);
    }

    /// What stands before a phase's name.
    fn label(&self) -> String {
        let label = &self.plan.run.label;
        if label.is_empty() { String::new() } else { format!("{label} ") }
    }

    fn batch(&mut self, micro: u64) {
        let run = &self.plan.run;
        if let Some(pipeline) = run.spread.pipeline.filter(|_| run.train) {
            return self.run_stage(pipeline, micro);
        }
        let mut text = String::new();
        if run.accumulation > 1 && run.train {
            text += &format!("micro {micro} ");
        }
        text += &self.label();
        (self.first, self.last) = (micro == 0, micro + 1 >= run.accumulation);
        self.find_carried();
        match &run.mark {
            None => self.mark(format!("{text}forward"), true),
            Some(mark) => self.mark(mark.clone(), false),
        }
        self.load_batch();
        self.forward();
        let results = self.results();
        if self.plan.run.train {
            self.mark(format!("{text}backward"), true);
            if self.plan.run.zero_first && micro == 0 {
                self.zero_gradients();
            }
            self.backward();
        } else if !self.read {
            // no operator made something smaller for the host
            results.iter().for_each(|id| self.copy_out(*id));
            self.wait_for_device();
        }
        self.hold(results);
        self.end_batch();
    }

    /// What the batch before left is in its place; what this one does not know is dropped (rule `carry`).
    fn find_carried(&mut self) {
        for carry in self.plan.graph.carries() {
            let pair = self.numbers.of_carried(carry.number);
            for number in pair {
                match carry.old.filter(|_| self.is_live(number)) {
                    Some(old) => {
                        self.place[old.0 as usize] = Some(self.fixed_like(number, old, "cache"));
                    }
                    None => self.drop_fixed(number, carry.new),
                }
            }
        }
    }

    /// If this operator makes what is carried, that takes its predecessor's place.
    fn carry(&mut self, index: usize) {
        let made = &self.plan.graph.nodes()[index].outputs;
        for carry in self.plan.graph.carries().iter().filter(|carry| made.contains(&carry.new)) {
            let Some(storage) = self.place[carry.new.0 as usize] else { continue };
            let [a, b] = self.numbers.of_carried(carry.number);
            let (new, old) = if self.is_live(a) { (b, a) } else { (a, b) };
            self.adopt(storage, new);
            self.drop_fixed(old, carry.new);
        }
    }

    fn forward(&mut self) {
        self.begin_fetching(true);
        for index in 0..self.plan.graph.nodes().len() {
            if let Some(unit) = self.units.beginning(index) {
                self.use_unit(unit);
            }
            self.forward_node(index);
            self.carry(index);
            if let Some(unit) = self.units.ending(index) {
                self.used_unit();
                self.send_saved(unit);
            }
        }
        self.end_casts(0..self.plan.graph.nodes().len());
        self.note_saved();
    }

    fn forward_node(&mut self, index: usize) {
        let node = &self.plan.graph.nodes()[index];
        let operator = node.kind.operator();
        if operator.is_view() {
            for output in &node.outputs {
                self.place[output.0 as usize] = self.place[node.inputs[0].0 as usize];
            }
            return;
        }
        for output in &node.outputs {
            self.place[output.0 as usize] = Some(self.like(*output, node.scope, ""));
        }
        if let Some(i) = node.over {
            self.place[node.outputs[0].0 as usize] = self.place[node.inputs[i].0 as usize];
        }
        operator.forward(&mut Forward::new(self, node));
    }

    /// Autocast's copies among these operators end here (rule `cache`).
    fn end_casts(&mut self, range: std::ops::Range<usize>) {
        let cached = |kind: &Kind| matches!(kind, Kind::Cast(cast) if cast.cached);
        let held = self.plan.graph.nodes()[range]
            .iter()
            .filter(|node| cached(&node.kind))
            .filter_map(|node| self.place[node.outputs[0].0 as usize])
            .collect();
        self.hold(held);
    }

    /// Results are held from here (rule `result`).
    fn results(&mut self) -> Vec<StorageId> {
        let results = self.plan.graph.results();
        let placed: Vec<StorageId> =
            results.iter().filter_map(|id| self.place[id.0 as usize]).collect();
        if !self.plan.run.results_held {
            return placed;
        }
        for (i, (id, storage)) in results.iter().zip(&placed).enumerate() {
            if self.program.get(*storage).fixed.is_some() {
                continue;
            }
            let [a, b] = self.numbers.of_result(i);
            let (new, old) = if self.is_live(a) { (b, a) } else { (a, b) };
            self.adopt(*storage, new);
            self.drop_fixed(old, *id);
        }
        placed
    }
}
