//! `fusion`: fewer kernels and fewer tensors between them.
//!
//! | option | what it does | source |
//! |---|---|---|
//! | `pointwise` | chains of elementwise operators of one shape, whose results nobody else reads, become one kernel, which writes in place what its parts did | `torch.compile` over PyTorch 2.15 |
//! | `attention` | product, scaling, a mask's bias, softmax, dropout, product become one kernel that keeps no scores; a bias that nobody else reads is not made | `aten/src/ATen/native/transformers/attention.cpp` |
//! | `bias` | a dense layer with bias and the activation that alone reads it become one kernel | epilogues of cublasLt |
//! | `all` | all of them |  |

use rustc_hash::{FxHashMap, FxHashSet};

use super::reach::Readers;
use super::{Pass, PassError, Rewrite, bad};
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{
    ActivatedLinear, Attention, Cast, F, Fused, FusedChain, Kind, Operator as _, Part, View, Wire,
};
use crate::graph::plan::Plan;
use crate::graph::tensor::{DType, Tensor, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "fusion",
    options: "all, pointwise, attention, bias",
    summary: "operators are fused: elementwise chains, attention, bias and activation",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !["", "all", "pointwise", "attention", "bias"].contains(&option) {
        return Err(bad("fusion", option, PASS.options));
    }
    let wanted = |name: &str| option == name || option.is_empty() || option == "all";
    let mut changed = Vec::new();
    if wanted("attention") {
        let count = fuse_attention(plan)?;
        changed.push(format!("{count} attentions in one kernel each"));
    }
    if wanted("bias") {
        let count = fuse_bias(plan)?;
        changed.push(format!("{count} dense layers with their activation"));
    }
    if wanted("pointwise") {
        let (groups, parts) = fuse_chains(plan)?;
        changed.push(format!("{parts} elementwise operators in {groups} kernels"));
    }
    Ok(changed.join(", "))
}

/// An attention that was found: what it reads, the operators that it replaces, the last of them.
struct Found {
    rows: [Row; 3],
    /// What is added to the scores, and what it is.
    bias: Option<(TensorId, Bias)>,
    dropout: bool,
    gone: Vec<usize>,
    last: usize,
}

/// Queries, keys or values.
#[derive(Clone, Copy)]
struct Row {
    from: TensorId,
    /// The cast that stands before them.
    cast: Option<Cast>,
}

/// What is added to scores.
#[derive(Clone, Copy)]
enum Bias {
    /// Keys after the query's own place count for nothing.
    Causal,
    /// Which query sees which key, in this tensor.
    Mask(TensorId),
}

fn fuse_attention(plan: &mut Plan) -> Result<usize, GraphError> {
    let graph = &plan.graph;
    let readers = Readers::of(graph);
    let found: Vec<Found> = (0..graph.nodes().len())
        .filter_map(|index| find_attention(graph, &readers, index))
        .collect();
    let count = found.len();
    let rows: FxHashSet<TensorId> =
        found.iter().flat_map(|found| found.rows.map(|row| row.from)).collect();
    let mut gone: FxHashSet<usize> = found.iter().flat_map(|f| f.gone.iter().copied()).collect();
    for (bias, _) in found.iter().filter_map(|found| found.bias) {
        if readers.all(bias).iter().all(|reader| gone.contains(reader)) {
            gone.extend(readers.maker(bias));
        }
    }
    let mut copy = Rewrite::new(graph, |leaf| leaf.dtype)?;
    for (index, node) in graph.nodes().iter().enumerate() {
        copy.begin();
        if let Some(found) = found.iter().find(|found| found.last == index) {
            let mask = match found.bias {
                Some((_, Bias::Mask(mask))) => Some(mask),
                _ => None,
            };
            let op = Attention {
                way: Fused::Efficient,
                chosen: true,
                masked: mask.is_some(),
                causal: matches!(found.bias, Some((_, Bias::Causal))),
                dropout: found.dropout,
            };
            let mut inputs = Vec::with_capacity(4);
            for row in &found.rows {
                let from = copy.get(row.from).into_iter();
                inputs.extend(match row.cast {
                    Some(cast) => copy.add(node.scope, cast, &from.collect::<Vec<_>>())?,
                    None => from.collect(),
                });
            }
            inputs.extend(mask.and_then(|mask| copy.get(mask)));
            let made = copy.add(node.scope, op, &inputs)?;
            copy.bind(node.outputs[0], made[0]);
        } else if !gone.contains(&index) {
            let mut kind = node.kind.clone();
            if let Kind::View(view) = &kind
                && rows.contains(&node.outputs[0])
            {
                kind = View { copies_back: false, ..view.clone() }.into();
            }
            let inputs = copy.inputs(node);
            copy.replace(node, kind, &inputs)?;
        }
    }
    copy.finish().put(plan);
    Ok(count)
}

/// The attention whose first product is this operator.
fn find_attention(graph: &Graph, readers: &Readers, first: usize) -> Option<Found> {
    let nodes = graph.nodes();
    let Kind::MatMul(product) = &nodes[first].kind else { return None };
    if !product.transposed {
        return None;
    }
    let mut gone = vec![first];
    let mut at = readers.only(nodes[first].outputs[0])?;
    let mut step = |at: &mut usize, fits: &dyn Fn(&Kind) -> bool| -> Option<bool> {
        if !fits(&nodes[*at].kind) {
            return Some(false);
        }
        gone.push(*at);
        *at = readers.only(nodes[*at].outputs[0])?;
        Some(true)
    };
    step(&mut at, &|kind| matches!(kind, Kind::Elementwise(e) if e.0 == F::Scale))?;
    let add = at;
    let mut bias = None;
    if step(&mut at, &|kind| matches!(kind, Kind::Elementwise(e) if e.0 == F::Add))? {
        let scores = graph.get(nodes[add].outputs[0]);
        bias = Some((nodes[add].inputs[1], bias_of(graph, readers, nodes[add].inputs[1], scores)?));
    }
    if !step(&mut at, &|kind| matches!(kind, Kind::Softmax(_)))? {
        return None;
    }
    step(&mut at, &|kind| matches!(kind, Kind::Cast(_)))?;
    let dropout = step(&mut at, &|kind| matches!(kind, Kind::Dropout(_)))?;
    step(&mut at, &|kind| matches!(kind, Kind::Cast(_)))?;
    let second = at;
    let Kind::MatMul(product) = &nodes[second].kind else { return None };
    if product.transposed || nodes[second].inputs.len() != 2 {
        return None;
    }
    let mut last = second;
    if let Some(copy) = readers.only(nodes[second].outputs[0])
        && matches!(nodes[copy].kind, Kind::Copy(_))
    {
        gone.push(second);
        last = copy;
    }
    let rows = [nodes[first].inputs[0], nodes[first].inputs[1], nodes[second].inputs[1]];
    let rows = rows.map(|row| behind_copy(graph, readers, row, &mut gone));
    Some(Found { rows, bias, dropout, gone, last })
}

/// The tensor of which this is a copy that nobody else reads: one that made it contiguous, or wrote shared heads out; with the cast after it, if there is
/// one. What is left out is added to `gone`.
fn behind_copy(graph: &Graph, readers: &Readers, row: TensorId, gone: &mut Vec<usize>) -> Row {
    let nodes = graph.nodes();
    let only_maker = |id: TensorId| readers.only(id).and_then(|_| readers.maker(id));
    let cast = only_maker(row).and_then(|maker| match nodes[maker].kind {
        Kind::Cast(cast) if !cast.cached => Some((maker, cast)),
        _ => None,
    });
    let copied = cast.map_or(row, |(maker, _)| nodes[maker].inputs[0]);
    let copies = |maker: &usize| matches!(nodes[*maker].kind, Kind::Copy(_) | Kind::Repeat(_));
    let Some(copy) = only_maker(copied).filter(copies) else {
        return Row { from: row, cast: None };
    };
    gone.push(copy);
    gone.extend(cast.map(|(maker, _)| maker));
    Row { from: nodes[copy].inputs[0], cast: cast.map(|(_, cast)| cast) }
}

/// What this tensor is to these scores (b×n×l×s), if one kernel can take it.
fn bias_of(graph: &Graph, readers: &Readers, bias: TensorId, scores: &Tensor) -> Option<Bias> {
    let [b, _, l, s] = scores.shape[..] else { return None };
    if graph.get(bias).shape != [b, 1, l, s] {
        return None;
    }
    let maker = readers.maker(bias).map(|maker| &graph.nodes()[maker]);
    Some(match maker.map(|node| (&node.kind, &node.inputs[..])) {
        Some((Kind::Causal(_), _)) => Bias::Causal,
        Some((Kind::Cast(_), [seen])) if graph.get(*seen).dtype == DType::Bool => Bias::Mask(*seen),
        _ => Bias::Mask(bias),
    })
}

/// Fuses dense layers with the activation after them: how many.
fn fuse_bias(plan: &mut Plan) -> Result<usize, GraphError> {
    let graph = &plan.graph;
    let nodes = graph.nodes();
    let readers = Readers::of(graph);
    let activation = |index: usize| {
        let layer = &nodes[index];
        let next = readers.only(*layer.outputs.first()?)?;
        let Kind::Elementwise(function) = &nodes[next].kind else { return None };
        let fits = matches!(function.0, F::Relu | F::Gelu | F::Silu | F::Tanh | F::Sigmoid);
        let dense = matches!(layer.kind, Kind::Linear(_)) && layer.inputs.len() == 3;
        (fits && dense).then_some((next, function.0))
    };
    let training = plan.run.train;
    let mut gone = vec![false; nodes.len()];
    let mut copy = Rewrite::new(graph, |leaf| leaf.dtype)?;
    let mut count = 0;
    for (index, node) in nodes.iter().enumerate() {
        copy.begin();
        let inputs = copy.inputs(node);
        if gone[index] {
            continue;
        }
        match activation(index) {
            Some((next, activation)) => {
                let made =
                    copy.add(node.scope, ActivatedLinear { activation, training }, &inputs)?;
                copy.bind(nodes[next].outputs[0], made[0]);
                gone[next] = true;
                count += 1;
            }
            None => copy.replace(node, node.kind.clone(), &inputs)?,
        }
    }
    copy.finish().put(plan);
    Ok(count)
}

/// Fuses chains: how many, and of how many operators.
fn fuse_chains(plan: &mut Plan) -> Result<(usize, usize), GraphError> {
    let graph = &plan.graph;
    let nodes = graph.nodes();
    let readers = Readers::of(graph);
    let fits = |index: usize| {
        let kind = &nodes[index].kind;
        kind.operator().is_pointwise() && !matches!(kind, Kind::Cast(cast) if cast.cached)
    };
    // by operator: the one at which its chain ends
    let mut end: Vec<usize> = (0..nodes.len()).collect();
    let mut members: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for index in (0..nodes.len()).rev().filter(|index| fits(*index)) {
        let result = nodes[index].outputs[0];
        if let Some(reader) = readers.only(result)
            && fits(reader)
            && graph.get(nodes[reader].outputs[0]).shape == graph.get(result).shape
        {
            end[index] = end[reader];
        }
        members.entry(end[index]).or_default().push(index);
    }
    members.retain(|_, list| list.len() > 1);
    let parts = members.values().map(Vec::len).sum();
    let mut copy = Rewrite::new(graph, |leaf| leaf.dtype)?;
    for (index, node) in nodes.iter().enumerate() {
        copy.begin();
        match members.get(&end[index]) {
            Some(list) if index == end[index] => chain(&mut copy, graph, list)?,
            Some(_) => {}
            None => {
                let inputs = copy.inputs(node);
                copy.replace(node, node.kind.clone(), &inputs)?;
            }
        }
    }
    copy.finish().put(plan);
    Ok((members.len(), parts))
}

/// Adds a chain; `list` are its operators, last first.
fn chain(copy: &mut Rewrite<'_>, graph: &Graph, list: &[usize]) -> Result<(), GraphError> {
    let mut outer: Vec<TensorId> = Vec::new();
    let mut inner: FxHashMap<TensorId, Wire> = FxHashMap::default();
    let mut fused = FusedChain { parts: Vec::new() };
    for (place, index) in list.iter().rev().enumerate() {
        let node = &graph.nodes()[*index];
        let wires = node
            .inputs
            .iter()
            .map(|id| {
                inner.get(id).copied().unwrap_or_else(|| {
                    let known = outer.iter().position(|other| other == id);
                    Wire::Outer(known.unwrap_or_else(|| {
                        outer.push(*id);
                        outer.len() - 1
                    }))
                })
            })
            .collect();
        for (output, id) in node.outputs.iter().enumerate() {
            inner.insert(*id, Wire::Inner(place, output));
        }
        fused.parts.push(Part { kind: node.kind.clone(), wires });
    }
    let last = &graph.nodes()[list[0]];
    let inputs: Vec<TensorId> = outer.iter().filter_map(|id| copy.get(*id)).collect();
    let asides = fused.asides();
    // the parts' results share one storage with the input that they were written over
    let old = fused.overwrites().and_then(|i| Some((i, *outer.get(i)?)));
    let place = old.filter(|(_, id)| graph.storage(*id) == graph.storage(last.outputs[0]));
    let made = copy.add(last.scope, fused, &inputs)?;
    if let Some((place, _)) = place {
        copy.new.write_over(place);
    }
    copy.bind(last.outputs[0], made[0]);
    for ((part, output), new) in asides.into_iter().zip(&made[1..]) {
        let index = list[list.len() - 1 - part];
        copy.bind(graph.nodes()[index].outputs[output], *new);
    }
    Ok(())
}
