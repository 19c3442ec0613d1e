//! What is done with gradients: unscaling, clipping, the update, zeroing.
//!
//! N numbers in all weights, n weights.
//!
//! | piece | allocates | source (PyTorch 2.15) |
//! |---|---|---|
//! | unscale | an inverse scale and a found-infinity flag, 4 B each, until the update is done | `torch/amp/grad_scaler.py` |
//! | clip | n + 1 64-bit starts, one fp32 for each chunk of 65,536 numbers, n norms; the norms stacked; total, coefficient | `torch/nn/utils/clip_grad.py`, `ForeachReduceOp.cu`, recordings |
//! | SGD | weight decay: a decayed gradient, N at once (for-each) or weight by weight; then, with momentum, in the first step a buffer of N numbers | `torch/optim/sgd.py` |
//! | Adam, AdamW | first step: two moments, weight by weight; fused: a step counter of 4 B each | `torch/optim/adam.py` |
//! | … for-each | the root of the second moment, N numbers, all at once; Adam with decay: N more, the decayed gradients | `_multi_tensor_adam` |
//! | … single | weight by weight the root, then the denominator, which lives until the next one's is there | `_single_tensor_adam` |
//! | … fused | nothing | `_fused_adam` |
//! | master | first step: an fp32 copy of each 16-bit weight; for-each: every step fp32 copies of all gradients | mixed-precision optimizers with fp32 masters (Micikevicius et al. 2018, section 3.1) |
//! | parts | states, masters and temporaries of one part in N of each weight; then the parts are exchanged | Rajbhandari et al. 2020, section 5.1 (ZeRO-1) |
//! | host | nothing on the device; the host waits for all gradients, and weights come back (its own time is left out) | Ren et al. 2021 (ZeRO-Offload) |
//! | `zero_grad` | frees all gradients, or zeroes them; those that live in buckets stay | `torch/optim/optimizer.py`, `reducer.cpp` |
//!
//! What a kernel changes in place it reads and writes: fused AdamW reads weight, gradient and two moments and writes all but the gradient, seven times the
//! weights' bytes.

use rustc_hash::FxHashMap;
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::StreamId;

use super::Lower;
use super::streams::{CARRY, COMPUTE, exchanged};
use crate::graph::fixed::{Single, State};
use crate::graph::plan::{Optimizer, Rule, Way};
use crate::graph::program::{Step, StorageId};
use crate::graph::spread::{Home, Keeper, Sink};
use crate::graph::tensor::{DType, ScopeId, TensorId};

/// Numbers that one block of a list kernel takes.
const CHUNK: u64 = 65_536;

/// Weights with their gradients.
type Pairs = Vec<(TensorId, StorageId)>;

impl Lower<'_> {
    pub(super) fn optimize(&mut self) {
        self.mark("optimizer".to_owned(), true);
        let run = &self.plan.run;
        if run.spread.keeper == Keeper::Host {
            self.take_from_host();
        }
        let pairs = self.gradients();
        if run.optimizer.rule != Rule::None && !pairs.is_empty() {
            let unscaled = self.unscale(&pairs);
            if run.clip {
                self.clip(&pairs);
            }
            self.update(&pairs, run.optimizer);
            self.hold(unscaled);
            self.gather_updated();
        }
        if !run.zero_first {
            self.zero_gradients();
        }
        // the loss is read
        self.program.steps.push(Step::Op(Op::Sync { stream: Some(StreamId(0)) }));
    }

    pub(super) fn zero_gradients(&mut self) {
        let pairs = self.gradients();
        if self.plan.run.set_to_none && self.plan.run.spread.in_buckets {
            // they are parts of their buckets, which stay
        } else if self.plan.run.set_to_none {
            for (weight, _) in &pairs {
                self.drop_fixed(self.numbers.of_gradient(*weight), *weight);
            }
        } else if !pairs.is_empty() {
            let all = gradients(&pairs);
            self.simple("zero", ScopeId(0), &[], &all);
        }
    }

    fn gradients(&mut self) -> Pairs {
        let mut pairs = Pairs::new();
        for weight in self.numbers.parameters() {
            let number = self.numbers.of_gradient(*weight);
            if self.is_live(number) {
                pairs.push((*weight, self.gradient_storage(*weight)));
            }
        }
        pairs
    }

    /// A weight's gradient that stays: all of it, or this device's part.
    pub(super) fn gradient_storage(&mut self, weight: TensorId) -> StorageId {
        let tensor = self.plan.graph.get(weight);
        let numbers = match self.plan.run.spread.sink {
            Sink::Parts(devices) => tensor.numbers().div_ceil(devices.max(1)),
            _ => tensor.numbers(),
        };
        let (number, dtype) = (self.numbers.of_gradient(weight), tensor.dtype);
        self.fixed_storage(number, numbers * dtype.bytes(), dtype, tensor.scope, "grad")
    }

    /// The host has updated the weights when all gradients are there; they come back.
    fn take_from_host(&mut self) {
        self.program.steps.push(Step::Op(Op::Sync { stream: Some(CARRY) }));
        self.bring_weights(Direction::HostToDevice, |bytes| bytes);
    }

    /// Each device has updated its part; all parts come to all, unless each keeps its own only.
    fn gather_updated(&mut self) {
        if let Keeper::Devices(devices) = self.plan.run.spread.keeper {
            self.bring_weights(Direction::PeerToPeer, |bytes| exchanged(bytes, devices));
        }
    }

    /// Weights that stay on the device are filled anew.
    fn bring_weights(&mut self, direction: Direction, received: impl Fn(u64) -> u64) {
        if self.plan.run.spread.home != Home::Device {
            return;
        }
        for weight in self.numbers.parameters() {
            if let Some(to) = self.place[weight.0 as usize] {
                let bytes = received(self.program.get(to).bytes);
                self.carry_over([None, Some(to)], bytes, direction, COMPUTE);
            }
        }
    }

    /// Of so many numbers, those that this device updates.
    fn part(&self, numbers: u64) -> u64 {
        numbers.div_ceil(self.plan.run.spread.parts())
    }

    fn weights(&self, pairs: &Pairs) -> Vec<StorageId> {
        pairs.iter().filter_map(|(weight, _)| self.place[weight.0 as usize]).collect()
    }

    fn unscale(&mut self, pairs: &Pairs) -> Vec<StorageId> {
        if !self.plan.run.scaled {
            return Vec::new();
        }
        let scope = ScopeId(0);
        let number = self.numbers.of_single(Single::Scale);
        let scale = self.fixed_storage(number, 4, DType::F32, scope, "scale");
        let inverse = self.storage(4, DType::F32, scope, "scale");
        let found = self.storage(4, DType::F32, scope, "scale");
        self.simple("unscale", scope, &[scale], &[inverse]);
        self.simple("unscale", scope, &[], &[found]);
        let mut reads = gradients(pairs);
        let mut writes = reads.clone();
        reads.push(inverse);
        writes.push(found);
        self.simple("unscale", scope, &reads, &writes);
        vec![found, inverse]
    }

    fn clip(&mut self, pairs: &Pairs) {
        let scope = ScopeId(0);
        let all = gradients(pairs);
        let count = pairs.len() as u64;
        let chunks = |id: &StorageId| {
            let storage = self.program.get(*id);
            (storage.bytes / storage.dtype.bytes()).div_ceil(CHUNK)
        };
        let chunks: u64 = all.iter().map(chunks).sum();
        let dtype = self.program.get(all[0]).dtype;
        let width = dtype.bytes();
        let starts = self.storage((count + 1) * 8, DType::I64, scope, "clip");
        let partial = self.storage(chunks * 4, DType::F32, scope, "clip");
        let norms: Vec<StorageId> =
            all.iter().map(|_| self.storage(width, dtype, scope, "clip")).collect();
        let mut writes = vec![starts, partial];
        writes.extend(&norms);
        self.simple("norms", scope, &all, &writes);
        self.hold(vec![partial, starts]);
        let stacked = self.storage(count * width, dtype, scope, "clip");
        let total = self.storage(width, dtype, scope, "clip");
        self.simple("norm", scope, &norms, &[stacked]);
        self.simple("norm", scope, &[stacked], &[total]);
        self.hold(norms.into_iter().rev().collect());
        let factor = self.storage(width, dtype, scope, "clip");
        self.simple("clip", scope, &[total], &[factor]);
        let mut reads = vec![factor];
        reads.extend(&all);
        self.simple("clip", scope, &reads, &all);
        self.hold(vec![factor, total]);
    }

    /// What the optimizer keeps of a weight, made if it is not there.
    fn state(&mut self, weight: TensorId, state: State) -> (StorageId, bool) {
        let number = self.numbers.of_optimizer(weight, state);
        let tensor = self.plan.graph.get(weight);
        let part = self.part(tensor.numbers());
        let (bytes, dtype, name) = match state {
            State::Counter => (4, DType::F32, "step"),
            State::Master => (part * 4, DType::F32, "master"),
            _ if self.plan.run.master => (part * 4, DType::F32, "moment"),
            _ => (part * tensor.dtype.bytes(), tensor.dtype, "moment"),
        };
        let fresh = !self.is_live(number);
        let id = self.fixed_storage(number, bytes, dtype, tensor.scope, name);
        self.born(number);
        (id, fresh)
    }

    /// The states that this rule keeps of each weight.
    fn kept(&self) -> Vec<State> {
        let Optimizer { rule, way, .. } = self.plan.run.optimizer;
        let mut kept = Vec::new();
        if self.plan.run.master {
            kept.push(State::Master);
        }
        match rule {
            Rule::None | Rule::Sgd { momentum: false } => {}
            Rule::Sgd { momentum: true } => kept.push(State::First),
            Rule::Adam { .. } => {
                if way == Way::Fused {
                    kept.push(State::Counter);
                }
                kept.extend([State::First, State::Second]);
            }
        }
        kept
    }

    fn make_states(&mut self, pairs: &[(TensorId, StorageId)]) {
        let kept = self.kept();
        for (weight, gradient) in pairs {
            for state in &kept {
                let (id, fresh) = self.state(*weight, *state);
                if !fresh {
                    continue;
                }
                let scope = self.plan.graph.get(*weight).scope;
                let from = match (state, self.plan.run.optimizer.rule) {
                    (State::Master, _) => self.place[weight.0 as usize].into_iter().collect(),
                    (State::First, Rule::Sgd { .. }) => vec![*gradient],
                    _ => Vec::new(),
                };
                self.simple("state", scope, &from, &[id]);
            }
        }
    }

    /// All states of these weights.
    fn states(&mut self, pairs: &[(TensorId, StorageId)]) -> Vec<StorageId> {
        let kept = self.kept();
        let of = |lower: &mut Self, weight: TensorId| {
            kept.iter().map(|state| lower.state(weight, *state).0).collect::<Vec<_>>()
        };
        pairs.iter().flat_map(|(weight, _)| of(self, *weight)).collect()
    }

    fn update(&mut self, pairs: &Pairs, optimizer: Optimizer) {
        let decays_gradient = optimizer.decay
            && matches!(optimizer.rule, Rule::Sgd { .. } | Rule::Adam { decoupled: false });
        let adam = matches!(optimizer.rule, Rule::Adam { .. });
        match optimizer.way {
            Way::Fused => {
                self.make_states(pairs);
                self.update_in_one(pairs, gradients(pairs), &[]);
            }
            Way::ForEach => {
                if adam {
                    self.make_states(pairs);
                }
                let mut reads = gradients(pairs);
                if self.plan.run.master {
                    reads = self.all_like(pairs, "grad", |numbers, _| (numbers * 4, DType::F32));
                    self.simple("cast", ScopeId(0), &gradients(pairs), &reads);
                }
                if decays_gradient {
                    let decayed = self.like_all(pairs, "decayed");
                    reads.extend(self.weights(pairs));
                    self.simple("decay", ScopeId(0), &reads, &decayed);
                    self.move_parts(pairs);
                    // a list's items are dropped last first
                    reads = decayed.iter().rev().copied().collect();
                }
                if !adam {
                    self.make_states(pairs);
                }
                let mut roots = Vec::new();
                if adam {
                    let states = self.states(pairs);
                    roots = self.like_all(pairs, "root");
                    self.simple("root", ScopeId(0), &states, &roots);
                }
                self.update_in_one(pairs, reads, &roots);
            }
            Way::Single => self.update_singly(pairs, decays_gradient, adam),
        }
    }

    fn update_in_one(&mut self, pairs: &Pairs, mut reads: Vec<StorageId>, roots: &[StorageId]) {
        reads.extend(roots.iter().rev());
        self.step_weights(ScopeId(0), reads, pairs);
    }

    /// The kernel that changes these weights and their states in place; of the fp32 master of a weight, where there is one, the weight is a copy.
    fn step_weights(&mut self, scope: ScopeId, mut reads: Vec<StorageId>, pairs: &Pairs) {
        let (weights, states) = (self.weights(pairs), self.states(pairs));
        if !self.plan.run.master {
            reads.extend(&weights);
        }
        reads.extend(&states);
        let writes: Vec<StorageId> = weights.into_iter().chain(states).collect();
        self.simple("update", scope, &reads, &writes);
        self.move_parts(pairs);
    }

    /// Of whole weights and gradients the last kernel moves this device's part.
    fn move_parts(&mut self, pairs: &Pairs) {
        if self.plan.run.spread.parts() == 1 {
            return;
        }
        let mut part_of: FxHashMap<StorageId, u64> = FxHashMap::default();
        for (weight, gradient) in pairs {
            let part = self.part(self.plan.graph.get(*weight).numbers());
            for id in self.place[weight.0 as usize].into_iter().chain([*gradient]) {
                part_of.insert(id, part * self.program.get(id).dtype.bytes());
            }
        }
        let Some(Step::Run(kernel)) = self.program.steps.last() else { return };
        let named = kernel.reads.iter().chain(&kernel.writes);
        let bytes = named.map(|id| {
            let whole = self.program.get(*id).bytes;
            part_of.get(id).map_or(whole, |part| whole.min(*part))
        });
        let bytes = bytes.sum();
        self.moves(bytes);
    }

    fn update_singly(&mut self, pairs: &Pairs, decays_gradient: bool, adam: bool) {
        if adam {
            self.make_states(pairs);
        }
        let mut before = None;
        for pair in pairs {
            let (weight, gradient) = *pair;
            let scope = self.plan.graph.get(weight).scope;
            let one = vec![*pair];
            let mut reads = vec![gradient];
            if decays_gradient {
                let decayed = self.part_like(weight, "decayed");
                reads.extend(self.weights(&one));
                self.simple("decay", scope, &reads, &[decayed]);
                self.move_parts(&one);
                reads = vec![decayed];
            }
            if !adam {
                self.make_states(&one);
            }
            if adam {
                let states = self.states(&one);
                let root = self.part_like(weight, "root");
                self.simple("root", scope, &states, &[root]);
                let denominator = self.part_like(weight, "denominator");
                self.simple("root", scope, &[root], &[denominator]);
                self.hold(before.replace(denominator).into_iter().collect());
                reads.push(denominator);
            }
            self.step_weights(scope, reads, &one);
        }
        self.hold(before.into_iter().collect());
    }

    fn part_like(&mut self, weight: TensorId, name: &'static str) -> StorageId {
        let tensor = self.plan.graph.get(weight);
        let dtype = own_number(tensor.dtype, self.plan.run.master);
        let bytes = self.part(tensor.numbers()) * dtype.bytes();
        self.storage(bytes, dtype, tensor.scope, name)
    }

    /// A temporary for each weight, as the optimizer's numbers are.
    fn like_all(&mut self, pairs: &Pairs, part: &'static str) -> Vec<StorageId> {
        let master = self.plan.run.master;
        self.all_like(pairs, part, |numbers, weight| {
            let dtype = own_number(weight, master);
            (numbers * dtype.bytes(), dtype)
        })
    }

    fn all_like(
        &mut self,
        pairs: &Pairs,
        part: &'static str,
        size: impl Fn(u64, DType) -> (u64, DType),
    ) -> Vec<StorageId> {
        let mut made = Vec::with_capacity(pairs.len());
        for (weight, _) in pairs {
            let tensor = self.plan.graph.get(*weight);
            let (bytes, dtype) = size(self.part(tensor.numbers()), tensor.dtype);
            made.push(self.storage(bytes, dtype, tensor.scope, part));
        }
        made
    }
}

fn gradients(pairs: &Pairs) -> Vec<StorageId> {
    pairs.iter().map(|(_, gradient)| *gradient).collect()
}

/// The optimizer's numbers: of a weight's own type, or of its fp32 master's.
fn own_number(weight: DType, master: bool) -> DType {
    if master { DType::F32 } else { weight }
}
