//! Results that are written over an input, whose storage they share from there.
//!
//! Whether a result may stand there depends on all that reads the old value, so passes that come later may take the place away: after each pass the graph
//! is settled, and a result that may not stand there any more gets a storage of its own.
//!
//! | a result may not be written over an input when | because |
//! |---|---|
//! | shape or type differ | it has no room, or not its numbers |
//! | the input is a weight, comes with the batch, or is carried | it is needed later |
//! | the old value is a result of the step, or sent | it is read later |
//! | an operator reads the old value later, through any view | it would see the new one |
//! | the backward of an operator reads the old value | the same |
//! | a range that is computed again begins from the old value | the same |
//!
//! Source: PyTorch's version counters (`torch/csrc/autograd/saved_variable.cpp`), which refuse at run time what is refused here ahead.

use std::ops::Range;

use super::{Graph, GraphError, Node};
use crate::graph::op::Kind;
use crate::graph::tensor::{Role, TensorId, shape_text};

impl Graph {
    /// Adds an operator that writes over the input that it may overwrite; its result.
    ///
    /// # Errors
    /// As [`Graph::node`]; and when the operator has no such input, the shapes or types differ, or the backward of an operator so far needs
    /// the old value.
    pub fn add_over(
        &mut self,
        kind: impl Into<Kind>,
        inputs: &[TensorId],
    ) -> Result<TensorId, GraphError> {
        let kind = kind.into();
        let name = kind.operator().name();
        let found = kind.operator().overwrites().and_then(|i| Some((i, *inputs.get(i)?)));
        let Some((place, over)) = found else {
            return Err(self.error(format!("{name} cannot write over an input")));
        };
        if let Some(keeper) = self.keeper(over) {
            let what = format!("{name} would write over what the backward of {keeper} needs");
            return Err(self.error(what));
        }
        let output = self.add(kind, inputs)?;
        if !self.write_over(place) {
            let [old, new] = [over, output].map(|id| {
                let tensor = self.get(id);
                format!("{} {}", tensor.dtype.name(), shape_text(&tensor.shape))
            });
            return Err(self.error(format!("{name} would write {new} over {old}")));
        }
        Ok(output)
    }

    /// The operator so far whose backward reads the storage of `tensor`.
    fn keeper(&self, tensor: TensorId) -> Option<String> {
        let storage = self.storage(tensor);
        let keeps = |node: &&Node| self.saved(node).any(|id| self.storage(id) == storage);
        let node = self.nodes.iter().find(keeps)?;
        Some(format!("{} ({})", self.scope_text(node.scope), node.kind.operator().name()))
    }

    /// The last operator's result is written over its input `i`, whose storage it shares from here; false if it does not fit there (then
    /// [`Graph::settle`] finds it).
    pub(in crate::graph) fn write_over(&mut self, i: usize) -> bool {
        let Some(node) = self.nodes.last_mut() else { return false };
        node.over = Some(i);
        let Some((input, result)) = node.over_at(i) else { return false };
        let fits = self.fits(input, result);
        if fits {
            self.tensors[result.0 as usize].view_of = Some(self.storage(input));
        }
        fits
    }

    /// Are they of one shape and type?
    fn fits(&self, input: TensorId, result: TensorId) -> bool {
        let (input, result) = (self.get(input), self.get(result));
        (&input.shape, input.dtype) == (&result.shape, result.dtype)
    }

    /// Results that may not be written over an input any more get storages of their own: how many. `again`: ranges that are computed again.
    pub(in crate::graph) fn settle(&mut self, train: bool, again: &[Range<usize>]) -> usize {
        let users = Users::of(self);
        let moved: Vec<usize> = (0..self.nodes.len())
            .filter(|index| {
                let node = &self.nodes[*index];
                node.over.is_some_and(|i| !self.may_stand(&users, *index, i, train, again))
            })
            .collect();
        for index in &moved {
            self.nodes[*index].over = None;
        }
        if !moved.is_empty() {
            self.find_storages();
        }
        moved.len()
    }

    /// May operator `index` write over its input `i`?
    fn may_stand(
        &self,
        users: &Users,
        index: usize,
        i: usize,
        train: bool,
        again: &[Range<usize>],
    ) -> bool {
        let Some((input, result)) = self.nodes[index].over_at(i) else { return false };
        let base = self.storage(input);
        let own = matches!(self.get(base).role, Role::Activation | Role::Received);
        if !own || !self.fits(input, result) {
            return false;
        }
        let here = |id: &TensorId| self.storage(*id) == base;
        let made_before = |id: TensorId| users.maker[id.0 as usize].is_none_or(|at| at < index);
        // views of the old value that are made later
        let mut late: Vec<TensorId> = Vec::new();
        if users.kept.iter().any(|id| here(id) && made_before(*id)) {
            return false;
        }
        for at in users.of_storage[base.0 as usize].iter().copied() {
            let node = &self.nodes[at];
            let saved = train && self.is_trained(node);
            let mut old = |id: &TensorId| here(id) && (made_before(*id) || late.contains(id));
            if saved && self.saved(node).any(|id| old(&id)) {
                return false;
            }
            if matches!(node.kind, Kind::Hold(_)) || !node.inputs.iter().any(&mut old) {
                continue;
            }
            if node.kind.operator().is_view() {
                if at > index {
                    late.extend(&node.outputs);
                }
                continue;
            }
            let begins = |range: &Range<usize>| {
                let made = users.maker[base.0 as usize].is_some_and(|made| range.contains(&made));
                range.contains(&at) && !made
            };
            if at > index || (train && again.iter().any(begins)) {
                return false;
            }
        }
        true
    }

    /// What the backward of an operator reads.
    pub(in crate::graph) fn saved<'g>(
        &self,
        node: &'g Node,
    ) -> impl Iterator<Item = TensorId> + 'g {
        let saves = node.kind.operator().saves();
        let inputs = saves.inputs.into_iter().filter_map(|i| node.inputs.get(i).copied());
        inputs.chain(saves.outputs.into_iter().filter_map(|i| node.outputs.get(i).copied()))
    }

    /// Has a result of it a gradient?
    pub(in crate::graph) fn is_trained(&self, node: &Node) -> bool {
        node.outputs.iter().any(|id| self.get(*id).gradient)
    }

    /// Views and results in place find the storages that they are seen through anew.
    fn find_storages(&mut self) {
        for node in &self.nodes {
            let seen = |tensors: &[super::Tensor], id: TensorId| {
                tensors[id.0 as usize].view_of.unwrap_or(id)
            };
            let is_view = node.kind.operator().is_view();
            for (place, output) in node.outputs.iter().enumerate() {
                let through = match (is_view, node.over) {
                    (true, _) => node.inputs.first(),
                    (false, Some(i)) if place == 0 => node.inputs.get(i),
                    _ => None,
                };
                self.tensors[output.0 as usize].view_of =
                    through.map(|id| seen(&self.tensors, *id));
            }
        }
    }
}

impl Node {
    /// Its input `i`, and the result that would be written over it.
    fn over_at(&self, i: usize) -> Option<(TensorId, TensorId)> {
        Some((*self.inputs.get(i)?, *self.outputs.first()?))
    }
}

/// Who makes and who uses what.
struct Users {
    /// By tensor: the operator that makes it.
    maker: Vec<Option<usize>>,
    /// By tensor that owns a storage: operators that name it, in order.
    of_storage: Vec<Vec<usize>>,
    /// Tensors that are read when all operators have run.
    kept: Vec<TensorId>,
}

impl Users {
    fn of(graph: &Graph) -> Self {
        let count = graph.tensors.len();
        let (mut maker, mut of_storage) = (vec![None; count], vec![Vec::new(); count]);
        for (index, node) in graph.nodes.iter().enumerate() {
            for id in &node.outputs {
                maker[id.0 as usize] = Some(index);
            }
            for id in node.inputs.iter().chain(&node.outputs) {
                let users: &mut Vec<usize> = &mut of_storage[graph.storage(*id).0 as usize];
                if users.last() != Some(&index) {
                    users.push(index);
                }
            }
        }
        let carried = graph.carries.iter().map(|carry| carry.new);
        let ends = graph.results.iter().chain(&graph.sent).chain(&graph.loss).copied();
        Self { maker, of_storage, kept: ends.chain(carried).collect() }
    }
}
