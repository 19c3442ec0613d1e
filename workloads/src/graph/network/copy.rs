//! What graphs need that are made from others: passes copy a graph operator by operator.

use std::ops::Range;

use super::{Carry, Graph, GraphError};
use crate::graph::tensor::{DType, Role, Spec, Tensor, TensorId};

impl Graph {
    /// The same scopes and nothing else.
    pub(in crate::graph) fn without_operators(&self) -> Self {
        let (scopes, scope_ids) = (self.scopes.clone(), self.scope_ids.clone());
        Self { scopes, scope_ids, ..Self::default() }
    }

    /// A leaf like one of another graph with the same scopes.
    pub(in crate::graph) fn leaf_like(
        &mut self,
        tensor: &Tensor,
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        let (shape, differentiable) = (tensor.shape.clone(), tensor.gradient);
        let spec = Spec { shape, dtype, differentiable };
        self.at(tensor.scope, |graph| graph.tensor(spec, tensor.role, None))
    }

    /// Blocks, results, loss and what is carried, of a graph that was made from another.
    pub(in crate::graph) fn set_ends(
        &mut self,
        blocks: Vec<Range<usize>>,
        results: Vec<TensorId>,
        loss: Option<TensorId>,
        sent: Vec<TensorId>,
        carries: (Vec<Carry>, u32),
    ) {
        (self.blocks, self.results, self.loss, self.sent) = (blocks, results, loss, sent);
        (self.carries, self.carries_max) = carries;
    }

    /// A leaf is none any more: an operator makes what it was, or nobody needs it.
    pub(in crate::graph) fn drop_leaf(&mut self, leaf: TensorId) {
        self.tensors[leaf.0 as usize].role = Role::Activation;
    }

    /// What the batch before left is of the type of `new`, if `old` is such.
    pub(in crate::graph) fn retype_carried(&mut self, old: TensorId, new: TensorId) {
        let dtype = self.get(new).dtype;
        let old = &mut self.tensors[old.0 as usize];
        if old.role == Role::Carried {
            old.dtype = dtype;
        }
    }
}
