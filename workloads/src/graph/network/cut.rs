//! A part of a graph as a graph: a stage of a pipeline.
//!
//! What an earlier stage's program still has in its hands here ([`crate::graph::op::Hold`]) is neither received nor sent.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::{Graph, GraphError, Node};
use crate::graph::op::Kind;
use crate::graph::tensor::{Role, TensorId};

impl Graph {
    /// The operators of a range, as a graph: weights and inputs that they use, what they read of earlier ones received, what later
    /// ones read of them sent.
    ///
    /// # Errors
    /// Never for a range of this graph's operators.
    pub fn part(&self, range: Range<usize>) -> Result<Graph, GraphError> {
        let mut part = self.without_operators();
        let mut map: Vec<Option<TensorId>> = vec![None; self.tensors.len()];
        let nodes = &self.nodes[range.clone()];
        let mut read = vec![false; self.tensors.len()];
        let reads = |node: &&Node| !matches!(node.kind, Kind::Hold(_));
        let inputs = nodes.iter().filter(reads).flat_map(|node| &node.inputs);
        inputs.for_each(|id| read[id.0 as usize] = true);
        for (id, tensor) in self.tensors() {
            if read[id.0 as usize] && tensor.role != Role::Activation {
                map[id.0 as usize] = Some(part.leaf_like(tensor, tensor.dtype)?);
            }
        }
        for node in nodes {
            // what is only still in a program's hands is in those of its own stage
            for id in node.inputs.iter().filter(|_| reads(&node)) {
                self.receive(&mut part, &mut map, *id)?;
            }
            for id in &node.outputs {
                self.take(&mut part, &mut map, *id);
            }
            let moved = |ids: &[TensorId]| ids.iter().filter_map(|id| map[id.0 as usize]).collect();
            let (inputs, outputs) = (moved(&node.inputs), moved(&node.outputs));
            part.nodes.push(Node { inputs, outputs, ..node.clone() });
        }
        let inside = |block: &&Range<usize>| block.start >= range.start && block.end <= range.end;
        let moved = |block: &Range<usize>| block.start - range.start..block.end - range.start;
        part.blocks = self.blocks.iter().filter(inside).map(moved).collect();
        let made = |id: &TensorId| {
            nodes.iter().any(|node| node.outputs.contains(id)).then(|| map[id.0 as usize]).flatten()
        };
        part.results = self.results.iter().filter_map(made).collect();
        part.loss = self.loss.as_ref().and_then(made);
        let after = self.nodes.get(range.end..).unwrap_or_default();
        let later = after.iter().filter(reads).flat_map(|node| &node.inputs);
        let later: FxHashSet<&TensorId> = later.collect();
        let outputs = nodes.iter().flat_map(|node| &node.outputs);
        part.sent = outputs.filter(|id| later.contains(id)).filter_map(made).collect();
        Ok(part)
    }

    /// What an earlier stage made; a view of it is received as a tensor of its own.
    fn receive(
        &self,
        part: &mut Graph,
        map: &mut [Option<TensorId>],
        id: TensorId,
    ) -> Result<(), GraphError> {
        if map[id.0 as usize].is_none() {
            let tensor = self.get(id);
            let made = part.leaf_like(tensor, tensor.dtype)?;
            part.tensors[made.0 as usize].role = Role::Received;
            map[id.0 as usize] = Some(made);
            let base = &mut map[self.storage(id).0 as usize];
            *base = base.or(Some(made));
        }
        Ok(())
    }

    /// An output of one of the part's operators.
    fn take(&self, part: &mut Graph, map: &mut [Option<TensorId>], id: TensorId) {
        let mut tensor = self.get(id).clone();
        tensor.view_of = tensor.view_of.and_then(|base| map[base.0 as usize]);
        part.tensors.push(tensor);
        map[id.0 as usize] = Some(TensorId(part.tensors.len() as u32 - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::models::resnet::ResNet;
    use crate::graph::tensor::DType;

    #[test]
    fn two_parts_have_all_weights_and_one_tensor_between_them() {
        let graph = ResNet::of_depth(18, 2, DType::F32).unwrap().graph().unwrap();
        let cut = graph.blocks()[4].start;
        let [first, second] =
            [0..cut, cut..graph.nodes().len()].map(|range| graph.part(range).unwrap());
        assert_eq!(first.state_bytes() + second.state_bytes(), graph.state_bytes());
        assert_eq!(first.sent().len(), 1);
        let received: Vec<TensorId> = second.of_role(Role::Received).collect();
        assert_eq!(received.len(), 1);
        let shapes = [first.get(first.sent()[0]), second.get(received[0])].map(|t| &t.shape);
        assert_eq!(shapes[0], shapes[1]);
        assert!(first.loss().is_none() && second.loss().is_some() && second.sent().is_empty());
        assert_eq!(first.blocks().len() + second.blocks().len(), graph.blocks().len());
    }
}
