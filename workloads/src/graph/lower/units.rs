//! Blocks as units of what is fetched, offloaded and awaited, and the weights of each.

use std::ops::Range;

use crate::graph::network::Graph;
use crate::graph::tensor::{Role, TensorId};

/// A block and its weights.
pub(super) struct Unit {
    pub(super) nodes: Range<usize>,
    /// Used in this block only.
    pub(super) weights: Vec<TensorId>,
}

/// All blocks, in order.
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    /// Weights outside of blocks, or of several.
    pub(super) rest: Vec<TensorId>,
}

impl Units {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut all: Vec<Unit> = graph
            .blocks()
            .iter()
            .map(|nodes| Unit { nodes: nodes.clone(), weights: Vec::new() })
            .collect();
        all.sort_by_key(|unit| unit.nodes.start);
        // by tensor: the one unit that uses it; the number of units stands for "elsewhere too"
        let elsewhere = all.len();
        let mut user: Vec<Option<usize>> = vec![None; graph.tensors().count()];
        for (index, node) in graph.nodes().iter().enumerate() {
            let unit = all.iter().position(|unit| unit.nodes.contains(&index));
            let unit = unit.unwrap_or(elsewhere);
            for id in &node.inputs {
                let id = graph.storage(*id).0 as usize;
                user[id] =
                    Some(user[id].filter(|known| *known != unit).map_or(unit, |_| elsewhere));
            }
        }
        let mut rest = Vec::new();
        for id in graph.of_role(Role::Parameter) {
            match user[id.0 as usize].and_then(|unit| all.get_mut(unit)) {
                Some(unit) => unit.weights.push(id),
                None => rest.push(id),
            }
        }
        Self { all, rest }
    }

    /// The unit that begins with this operator.
    pub(super) fn beginning(&self, node: usize) -> Option<usize> {
        self.all.iter().position(|unit| unit.nodes.start == node && !unit.nodes.is_empty())
    }

    /// The unit that ends with this operator.
    pub(super) fn ending(&self, node: usize) -> Option<usize> {
        self.all.iter().position(|unit| unit.nodes.end == node + 1 && !unit.nodes.is_empty())
    }
}
