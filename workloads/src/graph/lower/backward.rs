//! Gradients: the graph walked from its end, as PyTorch's engine does.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `order` | of the operators whose gradient is complete, the one that ran last is next; a weight's gradient is taken over at once | `torch/csrc/autograd/engine.cpp`, PyTorch 2.15 |
//! | `unpack` | what an operator saved is dropped when its backward is done, before its gradients are delivered; in a recomputed block with the last kernel that reads it | `engine.cpp`, `call_function`; recordings |
//! | `cast` | a gradient of another type than its tensor is cast when it is delivered | `engine.cpp`, `validate_outputs` |
//! | `sum` | a second gradient is added into the first, if nobody else has that; else, and for a weight used twice, both are summed into a third | `input_buffer.cpp`, `accumulate`; recordings |
//! | `steal` | a weight's first gradient is kept as it is, if nobody else has it; later ones are added to it | `accumulate_grad.h` |
//! | `again` | a block that was not kept is run forward once more before its backward | `torch/utils/checkpoint.py`, `use_reentrant=False` |

use std::ops::Range;

use super::{Backward, Lower};
use crate::graph::fixed::Single;
use crate::graph::program::StorageId;
use crate::graph::tensor::{DType, Role, TensorId};

impl Lower<'_> {
    pub(super) fn backward(&mut self) {
        let graph = &self.plan.graph;
        let active = self.awaited_from(graph.loss().into_iter().chain(graph.sent().to_vec()));
        if let Some(loss) = graph.loss() {
            self.seed(loss);
        }
        self.begin_fetching(false);
        for index in (0..graph.nodes().len()).rev() {
            if let Some(unit) = self.units.ending(index) {
                self.bring_saved(unit);
                self.use_unit(unit);
            }
            let again = self.plan.run.again.iter().find(|range| range.contains(&index)).cloned();
            if let Some(range) = again.clone().filter(|range| range.end == index + 1) {
                self.run_again(range);
            }
            if active[index] {
                self.backward_node(index, again.is_some());
            }
            if self.units.beginning(index).is_some() {
                self.used_unit();
            }
        }
        self.end_sinking();
    }

    /// The gradient of the loss: one, times the scale.
    fn seed(&mut self, loss: TensorId) {
        let scope = self.plan.graph.get(loss).scope;
        let mut g = self.like(loss, scope, "grad");
        let value: Vec<StorageId> = self.place[loss.0 as usize].into_iter().collect();
        if !self.plan.run.scaled {
            self.simple("ones", scope, &[], &[g]);
        } else {
            for single in [Single::Scale, Single::ScaleGrowth] {
                let number = self.numbers.of_single(single);
                let id = self.fixed_storage(number, 4, DType::F32, scope, "scale");
                if !self.is_live(number) {
                    self.born(number);
                    self.simple("scale", scope, &[], &[id]);
                }
            }
            let scaled = self.like(loss, scope, "scaled");
            self.simple("scale", scope, &value, &[scaled]);
            self.simple("ones", scope, &[], &[g]);
            let unscaled = self.like(loss, scope, "grad");
            self.simple("scale", scope, &[g], &[unscaled]);
            self.hold(vec![scaled]);
            g = unscaled;
        }
        self.deliver(loss, g);
    }

    /// Which operators get a gradient, and how many each weight is to get.
    fn awaited_from(&mut self, roots: impl Iterator<Item = TensorId>) -> Vec<bool> {
        let graph = &self.plan.graph;
        let mut wanted = vec![false; self.place.len()];
        roots.for_each(|root| wanted[root.0 as usize] = true);
        self.awaited.fill(0);
        let mut active = vec![false; graph.nodes().len()];
        for (index, node) in graph.nodes().iter().enumerate().rev() {
            if !node.outputs.iter().any(|id| wanted[id.0 as usize]) {
                continue;
            }
            active[index] = true;
            for id in node.inputs.iter().filter(|id| graph.get(**id).gradient) {
                wanted[id.0 as usize] = true;
                self.awaited[id.0 as usize] += 1;
            }
        }
        active
    }

    fn run_again(&mut self, range: Range<usize>) {
        for index in range.clone() {
            if let Some(unit) = self.units.beginning(index)
                && self.units.all[unit].nodes.end != range.end
            {
                self.fetch_again(unit);
            }
            self.forward_node(index);
        }
        self.end_casts(range);
    }

    fn backward_node(&mut self, index: usize, recomputed: bool) {
        let node = &self.plan.graph.nodes()[index];
        let gradients: Vec<Option<StorageId>> = node
            .outputs
            .iter()
            .map(|id| self.pending[id.0 as usize].take())
            .inspect(|g| g.iter().for_each(|g| self.holders[g.0 as usize] -= 1))
            .collect();
        if gradients.iter().all(Option::is_none) {
            return;
        }
        let mut at = Backward::new(self, node, gradients);
        node.kind.operator().backward(&mut at);
        let saved = at.saved();
        let given = at.given();
        if !recomputed {
            self.hold(saved);
        }
        let cast: Vec<(TensorId, StorageId)> = given
            .into_iter()
            .map(|(i, g)| (node.inputs[i], self.cast_for(node.inputs[i], g)))
            .collect();
        for (tensor, gradient) in cast {
            self.deliver(tensor, gradient);
        }
    }

    /// `gradient` in the type of `tensor` (rule `cast`).
    fn cast_for(&mut self, tensor: TensorId, gradient: StorageId) -> StorageId {
        let wanted = self.plan.graph.get(tensor);
        if self.program.get(gradient).dtype == wanted.dtype {
            return gradient;
        }
        let cast = self.like(tensor, wanted.scope, "grad");
        self.simple("cast", wanted.scope, &[gradient], &[cast]);
        cast
    }

    pub(super) fn deliver(&mut self, tensor: TensorId, gradient: StorageId) {
        let place = tensor.0 as usize;
        let wanted = self.plan.graph.get(tensor);
        let is_weight = wanted.role == Role::Parameter;
        let whole = match self.pending[place] {
            None => gradient,
            Some(first)
                if !is_weight
                    && self.holders[first.0 as usize] == 1
                    && self.is_whole(first, tensor) =>
            {
                self.simple("add", wanted.scope, &[gradient, first], &[first]);
                first
            }
            Some(first) => {
                self.holders[first.0 as usize] -= 1;
                let sum = self.like(tensor, wanted.scope, "grad");
                self.simple("add", wanted.scope, &[first, gradient], &[sum]);
                sum
            }
        };
        if self.pending[place] != Some(whole) {
            self.holders[whole.0 as usize] += 1;
            self.pending[place] = Some(whole);
        }
        if is_weight {
            self.awaited[place] -= 1;
            if self.awaited[place] == 0 {
                self.take_over(tensor);
            }
        }
    }

    /// Is it as large as the tensor, not one number for all of it?
    fn is_whole(&self, gradient: StorageId, tensor: TensorId) -> bool {
        self.program.get(gradient).bytes == self.plan.graph.get(tensor).bytes()
    }

    /// A weight's gradient is complete (rule `steal`).
    fn take_over(&mut self, weight: TensorId) {
        let Some(gradient) = self.pending[weight.0 as usize].take() else { return };
        self.holders[gradient.0 as usize] -= 1;
        if !self.sinks(weight, gradient) {
            self.keep(weight, gradient);
        }
    }

    /// A weight's gradient stays, added to what is there.
    pub(super) fn keep(&mut self, weight: TensorId, gradient: StorageId) {
        let number = self.numbers.of_gradient(weight);
        let scope = self.plan.graph.get(weight).scope;
        if self.is_live(number) {
            let sum = self.fixed_like(number, weight, "grad");
            let stale = self.plan.run.spread.in_buckets && self.plan.run.set_to_none;
            match stale && self.first {
                // the room is there, what is in it is of the step before
                true => self.simple("copy", scope, &[gradient], &[sum]),
                false => self.simple("add", scope, &[gradient, sum], &[sum]),
            }
        } else if self.holders[gradient.0 as usize] > 0
            || self.program.get(gradient).fixed.is_some()
            || self.plan.run.spread.in_buckets
        {
            let copy = self.fixed_like(number, weight, "grad");
            self.born(number);
            self.simple("copy", scope, &[gradient], &[copy]);
        } else {
            self.adopt(gradient, number);
        }
    }
}
