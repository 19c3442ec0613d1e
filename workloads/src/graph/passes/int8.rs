//! `int8`: weights of dense layers in eight bits, with a scale in fp32 for each row, made wide again for each product. Inference only.
//!
//! Where `amp` casts a weight for its products, the weight is made wide again in that type, in the cast's place.
//!
//! A table that is also read row by row (a shared word embedding) stays as it is. Source: weight-only quantisation as in bitsandbytes, without its
//! outlier columns.

use super::reach::Readers;
use super::{Pass, PassError, Rewrite, bad};
use crate::graph::op::{Dequantise, Kind};
use crate::graph::plan::Plan;
use crate::graph::tensor::{DType, Role, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "int8",
    options: "",
    summary: "weights of dense layers in eight bits (inference)",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !option.is_empty() {
        return Err(bad("int8", option, "no option"));
    }
    if plan.run.train {
        return Err(bad("int8", "training", "inference (phase=inference or decode)"));
    }
    let (graph, before) = (&plan.graph, plan.graph.state_bytes());
    let readers = Readers::of(graph);
    let weighs = |id: TensorId| {
        let in_product = |index: &usize| {
            let node = &graph.nodes()[*index];
            matches!(node.kind, Kind::Linear(_)) && node.inputs.get(1) == Some(&id)
        };
        !readers.all(id).is_empty() && readers.all(id).iter().all(in_product)
    };
    let cast_weighs = |id: TensorId| {
        let in_cast = |index: &usize| {
            let node = &graph.nodes()[*index];
            matches!(node.kind, Kind::Cast(_)) && node.outputs.iter().all(|made| weighs(*made))
        };
        !readers.all(id).is_empty() && readers.all(id).iter().all(in_cast)
    };
    let is_weight =
        |id: TensorId| graph.get(id).role == Role::Parameter && (weighs(id) || cast_weighs(id));
    let quantised: Vec<bool> = graph.tensors().map(|(id, _)| is_weight(id)).collect();
    let mut copy =
        Rewrite::of_leaves(
            graph,
            |id, leaf| {
                if quantised[id.0 as usize] { DType::I8 } else { leaf.dtype }
            },
        )?;
    let mut count = 0;
    for node in graph.nodes() {
        copy.begin();
        let mut inputs = copy.inputs(node);
        let mut kind = node.kind.clone();
        for (old, new) in node.inputs.iter().zip(&mut inputs) {
            if quantised[old.0 as usize] {
                let tensor = graph.get(*old);
                let rows = tensor.shape.first().copied().unwrap_or(1);
                let scales =
                    copy.new.at(tensor.scope, |new| new.buffer("scale", &[rows], DType::F32))?;
                count += 1;
                if let Kind::Cast(cast) = &node.kind {
                    kind = Dequantise { to: cast.to }.into();
                    inputs = vec![*new, scales];
                    break;
                }
                let wide = Dequantise { to: tensor.dtype };
                *new = copy.add(node.scope, wide, &[*new, scales])?[0];
            }
        }
        copy.replace(node, kind, &inputs)?;
    }
    copy.finish().put(plan);
    let after = plan.graph.state_bytes();
    Ok(format!("{count} weights in int8: {after} B instead of {before} B"))
}
