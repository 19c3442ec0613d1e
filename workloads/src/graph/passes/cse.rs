//! `cse`: an operator that computes what another has computed from the same inputs is left out.
//!
//! Not merged are operators that draw random numbers, and operators of different ranges that are recomputed: a range would depend on another's tensors.

use super::{Pass, PassError, Rewrite, bad};
use crate::graph::network::Node;
use crate::graph::op::Kind;
use crate::graph::plan::Plan;
use crate::graph::tensor::TensorId;

pub(super) const PASS: Pass =
    Pass { name: "cse", options: "", summary: "common subexpressions are computed once", apply };

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !option.is_empty() {
        return Err(bad("cse", option, "no option"));
    }
    let mut copy = Rewrite::new(&plan.graph, |leaf| leaf.dtype)?;
    let range_of = |index: usize| plan.run.again.iter().position(|range| range.contains(&index));
    let mut seen: Vec<(Option<usize>, &Node, Vec<TensorId>)> = Vec::new();
    let (mut merged, mut bytes) = (0, 0);
    for (index, node) in plan.graph.nodes().iter().enumerate() {
        copy.begin();
        let (inputs, range) = (copy.inputs(node), range_of(index));
        let same = seen.iter().rev().find(|(other, earlier, read)| {
            *other == range && *read == inputs && earlier.kind == node.kind
        });
        if let Some((_, earlier, _)) = same.filter(|_| repeatable(&node.kind)) {
            for (old, known) in node.outputs.iter().zip(&earlier.outputs) {
                if let Some(known) = copy.get(*known) {
                    copy.bind(*old, known);
                }
                if plan.graph.get(*old).view_of.is_none() {
                    bytes += plan.graph.get(*old).bytes();
                }
            }
            merged += 1;
            continue;
        }
        copy.replace(node, node.kind.clone(), &inputs)?;
        seen.push((range, node, inputs));
    }
    copy.finish().put(plan);
    Ok(format!("{merged} operators left out, {bytes} B of results less"))
}

/// Does it compute the same each time?
fn repeatable(kind: &Kind) -> bool {
    match kind {
        Kind::Hold(_) | Kind::Dropout(_) => false,
        Kind::Attention(attention) => !attention.dropout,
        Kind::FusedChain(chain) => chain.parts.iter().all(|part| repeatable(&part.kind)),
        _ => true,
    }
}
