//! `fold`: in inference a batch norm becomes part of the convolution before it, and so does a ReLU after that.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `norm` | scale and shift of a norm whose statistics are fixed go into the filter and its bias; its weight, mean, variance and count are not loaded | `torch/nn/utils/fusion.py`, `fuse_conv_bn_eval`, PyTorch 2.15 |
//! | `activation` | a ReLU whose input nobody else reads is done by the convolution's kernel | `cudnnConvolutionBiasActivationForward` |
//!
//! In training norms stay, since their statistics are the batch's.

use super::reach::Readers;
use super::{Pass, PassError, Rewrite, bad};
use crate::graph::network::Graph;
use crate::graph::op::{F, Kind};
use crate::graph::plan::Plan;
use crate::graph::tensor::{Role, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "fold",
    options: "none",
    summary: "inference: batch norms and ReLUs become part of the convolutions before them",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !option.is_empty() {
        return Err(bad(PASS.name, option, "no option"));
    }
    if plan.run.train {
        return Err(bad(PASS.name, "training", "inference, where statistics are fixed"));
    }
    let old = plan.graph.clone();
    let readers = Readers::of(&old);
    let folded: Vec<Folded> =
        (0..old.nodes().len()).filter_map(|conv| find(&old, &readers, conv)).collect();
    let mut copy = Rewrite::new(&old, |leaf| leaf.dtype)?;
    let mut activations = 0;
    for (index, node) in old.nodes().iter().enumerate() {
        copy.begin();
        let mut inputs = copy.inputs(node);
        if folded.iter().any(|f| f.norm == index || f.relu == Some(index)) {
            continue;
        }
        let mine = folded.iter().find(|f| f.conv == index);
        if let Some(bias) = mine.and_then(|f| copy.get(f.bias))
            && inputs.len() == 2
        {
            inputs.push(bias);
        }
        copy.replace(node, node.kind.clone(), &inputs)?;
        if let Some(folded) = mine
            && let Some(made) = copy.get(node.outputs[0])
        {
            copy.bind(folded.result, made);
            activations += usize::from(folded.relu.is_some());
        }
    }
    for leaf in unread(&copy.new) {
        copy.new.drop_leaf(leaf);
    }
    copy.finish().put(plan);
    Ok(format!(
        "{} norms and {activations} activations in convolutions; {} of {} tensors are left",
        folded.len(),
        made(&plan.graph),
        made(&old)
    ))
}

/// A convolution, its norm, and what it makes now.
struct Folded {
    conv: usize,
    norm: usize,
    relu: Option<usize>,
    bias: TensorId,
    result: TensorId,
}

fn find(graph: &Graph, readers: &Readers, conv: usize) -> Option<Folded> {
    let nodes = graph.nodes();
    if !matches!(nodes[conv].kind, Kind::Conv(_)) {
        return None;
    }
    let norm = readers.only(nodes[conv].outputs[0])?;
    if !matches!(nodes[norm].kind, Kind::BatchNorm(_)) {
        return None;
    }
    let made = nodes[norm].outputs[0];
    let is_relu =
        |index: &usize| matches!(&nodes[*index].kind, Kind::Elementwise(e) if e.0 == F::Relu);
    let relu = readers.only(made).filter(is_relu);
    let result = relu.map_or(made, |relu| nodes[relu].outputs[0]);
    Some(Folded { conv, norm, relu, bias: nodes[norm].inputs[2], result })
}

/// Tensors with storages of their own that operators make.
fn made(graph: &Graph) -> usize {
    let outputs = graph.nodes().iter().flat_map(|node| &node.outputs);
    outputs.filter(|id| graph.get(**id).view_of.is_none()).count()
}

/// Weights and buffers that no operator reads.
fn unread(graph: &Graph) -> Vec<TensorId> {
    let mut read = vec![false; graph.tensors().count()];
    let inputs = graph.nodes().iter().flat_map(|node| &node.inputs);
    inputs.for_each(|id| read[id.0 as usize] = true);
    let leaf = |role: Role| matches!(role, Role::Parameter | Role::Buffer);
    graph
        .tensors()
        .filter(|(id, tensor)| leaf(tensor.role) && !read[id.0 as usize])
        .map(|(id, _)| id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::models::resnet::ResNet;
    use crate::graph::passes::{self, parse};
    use crate::graph::plan::Run;
    use crate::graph::tensor::DType;

    #[test]
    fn every_norm_of_a_residual_network_goes() {
        let mut net = ResNet::of_depth(50, 1, DType::F32).unwrap();
        net.train = false;
        let graph = net.graph().unwrap();
        let before = graph.state_bytes();
        let mut plan = Plan { graph, run: Run { train: false, ..Run::default() } };
        let reports = passes::apply(&mut plan, &parse("fold").unwrap()).unwrap();
        let text = &reports[0].changed;
        assert!(text.starts_with("53 norms and 33 activations in convolutions; "), "{text}");
        // of a norm's weight, bias, mean, variance (26,560 channels in all) and count the bias is left
        assert_eq!(before - plan.graph.state_bytes(), 3 * 26_560 * 4 + 53 * 8);
        net.train = true;
        let mut plan = Plan { graph: net.graph().unwrap(), run: Run::default() };
        assert!(passes::apply(&mut plan, &parse("fold").unwrap()).is_err());
    }
}
