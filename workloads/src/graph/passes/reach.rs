//! Who reads what: what passes ask of a graph before they change it.

use crate::graph::network::Graph;
use crate::graph::op::Kind;
use crate::graph::tensor::TensorId;

/// Readers of each tensor; holds are none.
pub(super) struct Readers {
    readers: Vec<Vec<usize>>,
    maker: Vec<Option<usize>>,
    kept: Vec<bool>,
}

impl Readers {
    pub(super) fn of(graph: &Graph) -> Self {
        let count = graph.tensors().count();
        let mut all = Self {
            readers: vec![Vec::new(); count],
            maker: vec![None; count],
            kept: vec![false; count],
        };
        for (index, node) in graph.nodes().iter().enumerate() {
            if !matches!(node.kind, Kind::Hold(_)) {
                for id in &node.inputs {
                    all.readers[id.0 as usize].push(index);
                }
            }
            for id in &node.outputs {
                all.maker[id.0 as usize] = Some(index);
            }
        }
        let carried = graph.carries().iter().map(|carry| &carry.new);
        let loss = graph.loss();
        let ends = graph.results().iter().chain(graph.sent()).chain(&loss);
        for id in ends.chain(carried) {
            all.kept[id.0 as usize] = true;
        }
        all
    }

    /// The operators that read it.
    pub(super) fn all(&self, id: TensorId) -> &[usize] {
        &self.readers[id.0 as usize]
    }

    /// The only reader of a tensor that nobody else sees.
    pub(super) fn only(&self, id: TensorId) -> Option<usize> {
        match self.all(id) {
            [one] if !self.kept[id.0 as usize] => Some(*one),
            _ => None,
        }
    }

    /// The operator that makes it; none for a leaf.
    pub(super) fn maker(&self, id: TensorId) -> Option<usize> {
        self.maker[id.0 as usize]
    }

    /// Is it a result of the step?
    pub(super) fn is_result(&self, id: TensorId) -> bool {
        self.kept[id.0 as usize]
    }
}
