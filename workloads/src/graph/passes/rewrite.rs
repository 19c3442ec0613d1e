//! A graph copied operator by operator, with changes on the way. Blocks, ranges that are recomputed, results, what is sent and loss follow.

use crate::graph::network::{Carry, Graph, GraphError, Node};
use crate::graph::op::Kind;
use crate::graph::plan::Plan;
use crate::graph::tensor::{DType, Role, ScopeId, Tensor, TensorId};

/// A copy in the making.
pub struct Rewrite<'a> {
    old: &'a Graph,
    /// The copy.
    pub new: Graph,
    map: Vec<Option<TensorId>>,
    /// By operator of the old graph: operators of the new one before it.
    starts: Vec<usize>,
}

impl<'a> Rewrite<'a> {
    /// Begins with all leaves; `dtype` says their type.
    ///
    /// # Errors
    /// When a leaf is too large.
    pub fn new(old: &'a Graph, dtype: impl Fn(&Tensor) -> DType) -> Result<Self, GraphError> {
        Self::of_leaves(old, |_, leaf| dtype(leaf))
    }

    /// The same; `dtype` says the type of each leaf.
    ///
    /// # Errors
    /// When a leaf is too large.
    pub fn of_leaves(
        old: &'a Graph,
        dtype: impl Fn(TensorId, &Tensor) -> DType,
    ) -> Result<Self, GraphError> {
        let mut new = old.without_operators();
        let mut map = vec![None; old.tensors().count()];
        for (id, tensor) in old.tensors().filter(|(_, tensor)| tensor.role != Role::Activation) {
            map[id.0 as usize] = Some(new.leaf_like(tensor, dtype(id, tensor))?);
        }
        Ok(Self { old, new, map, starts: Vec::new() })
    }

    /// The old graph's next operator is due: what follows stands in its place.
    pub fn begin(&mut self) {
        self.starts.push(self.new.nodes().len());
    }

    /// What a tensor of the old graph is in the new one; none if it is not there.
    pub fn get(&self, old: TensorId) -> Option<TensorId> {
        self.map[old.0 as usize]
    }

    /// From here on a tensor of the old graph is this one of the new.
    pub fn bind(&mut self, old: TensorId, new: TensorId) {
        self.map[old.0 as usize] = Some(new);
    }

    /// What an operator reads, in the new graph. What is not there is left out.
    pub fn inputs(&self, node: &Node) -> Vec<TensorId> {
        node.inputs.iter().filter_map(|id| self.get(*id)).collect()
    }

    /// Adds an operator at a place of the old graph.
    ///
    /// # Errors
    /// When its inputs do not fit it.
    pub fn add(
        &mut self,
        scope: ScopeId,
        kind: impl Into<Kind>,
        inputs: &[TensorId],
    ) -> Result<Vec<TensorId>, GraphError> {
        self.new.at(scope, |graph| graph.node(kind, inputs))
    }

    /// Adds an operator in the place of an old one, whose outputs it has.
    ///
    /// # Errors
    /// When its inputs do not fit it.
    pub fn replace(
        &mut self,
        node: &Node,
        kind: impl Into<Kind>,
        inputs: &[TensorId],
    ) -> Result<(), GraphError> {
        let kind = kind.into();
        if let (Kind::Concat(_), [cache, new]) = (&kind, inputs) {
            // what the batch before left was made as the new one is, whatever type that has now
            self.new.retype_carried(*cache, *new);
        }
        let outputs = self.add(node.scope, kind, inputs)?;
        if let Some(over) = node.over {
            // where it does not fit any more, since a pass changed types, the graph is settled afterwards
            self.new.write_over(over);
        }
        for (old, new) in node.outputs.iter().zip(outputs) {
            self.bind(*old, new);
        }
        Ok(())
    }

    /// The copy takes the old graph's place.
    pub fn finish(self) -> Finished {
        let Self { old, mut new, map, mut starts } = self;
        starts.push(new.nodes().len());
        let moved = |range: &std::ops::Range<usize>| starts[range.start]..starts[range.end];
        let blocks = old.blocks().iter().map(moved).collect();
        let results = old.results().iter().filter_map(|id| map[id.0 as usize]).collect();
        let sent = old.sent().iter().filter_map(|id| map[id.0 as usize]).collect();
        let loss = old.loss().and_then(|id| map[id.0 as usize]);
        let carried = |carry: &Carry| {
            let old = carry.old.and_then(|id| map[id.0 as usize]);
            map[carry.new.0 as usize].map(|new| Carry { number: carry.number, old, new })
        };
        let carries = old.carries().iter().filter_map(carried).collect();
        new.set_ends(blocks, results, loss, sent, (carries, old.carries_max()));
        Finished { graph: new, starts }
    }
}

/// A finished copy.
pub struct Finished {
    graph: Graph,
    starts: Vec<usize>,
}

impl Finished {
    /// Puts it into a plan.
    pub fn put(self, plan: &mut Plan) {
        let moved =
            |range: &std::ops::Range<usize>| self.starts[range.start]..self.starts[range.end];
        plan.run.again = plan.run.again.iter().map(moved).collect();
        plan.graph = self.graph;
    }
}
