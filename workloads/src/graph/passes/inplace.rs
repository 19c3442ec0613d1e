//! `inplace`: results are written over an input that nobody needs any more.
//!
//! | refused when | because |
//! |---|---|
//! | the operator saves that input | its backward needs the old value |
//! | the operator that made it saved its output | that one's backward needs the old value |
//! | another operator reads or saves it, through any view | it would see the new value |
//! | it is a weight, an input, a result of the step, or what a recomputed range begins from | it is needed later |
//! | shape or type differ | it has no room |
//!
//! A result in place has no storage of its own: it is a view of its input's, and is counted once. Source: PyTorch's version counters
//! (`torch/csrc/autograd/saved_variable.cpp`), which refuse at run time what is refused here ahead.

use std::collections::BTreeMap;

use super::reach::Readers;
use super::{Pass, PassError, Rewrite, bad};
use crate::graph::network::{Graph, Node};
use crate::graph::op::Kind;
use crate::graph::plan::Plan;
use crate::graph::tensor::{Role, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "inplace",
    options: "",
    summary: "results are written over inputs that nobody needs any more",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !option.is_empty() {
        return Err(bad("inplace", option, "no option"));
    }
    let graph = &plan.graph;
    let readers = Readers::of(graph);
    let mut copy = Rewrite::new(graph, |leaf| leaf.dtype)?;
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut done, mut bytes) = (0, 0);
    for (index, node) in graph.nodes().iter().enumerate() {
        copy.begin();
        let inputs = copy.inputs(node);
        let over = node.kind.operator().overwrites();
        let verdict = over.map(|i| refusal(plan, &readers, index, node.inputs[i]));
        copy.replace(node, node.kind.clone(), &inputs)?;
        match (over, verdict) {
            (Some(i), Some(None)) => {
                copy.new.write_over(i);
                done += 1;
                bytes += graph.get(node.outputs[0]).bytes();
            }
            (_, Some(Some(why))) => {
                *refused.entry(format!("{}: {why}", node.kind.operator().name())).or_default() += 1;
            }
            _ => {}
        }
    }
    let refused: Vec<String> = refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
    let mut changed = format!("{done} results in place, {bytes} B less made");
    if !refused.is_empty() {
        changed += &format!("; refused: {}", refused.join("; "));
    }
    copy.finish().put(plan);
    Ok(changed)
}

/// Why operator `index` may not write over `input`; none if it may.
fn refusal(plan: &Plan, readers: &Readers, index: usize, input: TensorId) -> Option<&'static str> {
    let graph = &plan.graph;
    let node = &graph.nodes()[index];
    let (tensor, result) = (graph.get(input), graph.get(node.outputs[0]));
    if tensor.shape != result.shape || tensor.dtype != result.dtype {
        return Some("its result has another shape or type");
    }
    let base = graph.storage(input);
    if graph.get(base).role != Role::Activation {
        return Some("it reads a weight or an input");
    }
    let shares = |id: &TensorId| graph.storage(*id) == base;
    if graph.tensors().any(|(id, _)| graph.storage(id) == base && readers.is_result(id)) {
        return Some("its input is a result of the step");
    }
    let begins = |range: &std::ops::Range<usize>| {
        let made = readers.maker(base).is_some_and(|maker| range.contains(&maker));
        range.contains(&index) && !made
    };
    if plan.run.again.iter().any(begins) {
        return Some("a recomputed range begins from its input");
    }
    let trained = plan.run.train;
    let saves = |node: &Node, outputs: bool| {
        let saves = node.kind.operator().saves();
        let (ids, places) =
            if outputs { (&node.outputs, saves.outputs) } else { (&node.inputs, saves.inputs) };
        trained && is_trained(graph, node) && places.iter().any(|i| shares(&ids[*i]))
    };
    if saves(node, false) {
        return Some("its backward needs the old value");
    }
    for (at, other) in graph.nodes().iter().enumerate() {
        if saves(other, true) {
            return Some("the operator that made its input saved it");
        }
        if at == index || matches!(other.kind, Kind::Hold(_)) || other.kind.operator().is_view() {
            continue;
        }
        if saves(other, false) {
            return Some("another operator saved its input");
        }
        if at > index && other.inputs.iter().any(shares) {
            return Some("its input is read later");
        }
    }
    None
}

fn is_trained(graph: &Graph, node: &Node) -> bool {
    node.outputs.iter().any(|id| graph.get(*id).gradient)
}
