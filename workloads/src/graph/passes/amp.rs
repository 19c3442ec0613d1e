//! `amp`: mixed precision.
//!
//! | option | what it does | source |
//! |---|---|---|
//! | `fp16`, `bf16` | autocast: products run in 16 bits over cast copies, softmax, norms and losses in fp32, all else as it comes; weights stay fp32 | `aten/src/ATen/autocast_mode.h`, PyTorch 2.15 |
//! | `half_fp16`, `half_bf16` | all weights in 16 bits, with fp32 master copies and moments in the optimizer | Micikevicius et al. 2018 |
//!
//! Rules of autocast: the arguments of a product are cast last first; a copy of a weight is made once and kept until forward ends; softmax reads
//! 16 bits and writes fp32; a cache of keys and values is of the type that these come in; fp16 scales the loss (two scalars that stay, one for each step). Source as above, and recordings.

use rustc_hash::FxHashMap;

use super::{Pass, PassError, Rewrite, bad};
use crate::graph::network::{GraphError, Node};
use crate::graph::op::{Autocast, Cast, Kind, Softmax};
use crate::graph::plan::Plan;
use crate::graph::tensor::{DType, Role, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "amp",
    options: "fp16, bf16, half_fp16, half_bf16",
    summary: "mixed precision: 16-bit products, or 16-bit weights with fp32 masters",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let (low, half) = match option {
        "" | "fp16" => (DType::F16, false),
        "bf16" => (DType::BF16, false),
        "half_fp16" => (DType::F16, true),
        "half_bf16" => (DType::BF16, true),
        found => return Err(bad("amp", found, PASS.options)),
    };
    let changed = if half { halve(plan, low)? } else { autocast(plan, low)? };
    plan.run.scaled = plan.run.train && low == DType::F16;
    Ok(changed)
}

fn halve(plan: &mut Plan, low: DType) -> Result<String, GraphError> {
    let before = plan.graph.state_bytes();
    let to_low = |dtype: DType| if dtype == DType::F32 { low } else { dtype };
    let mut copy = Rewrite::new(&plan.graph, |leaf| to_low(leaf.dtype))?;
    for node in plan.graph.nodes() {
        copy.begin();
        let kind = match &node.kind {
            Kind::Cast(cast) => Kind::Cast(Cast { to: to_low(cast.to), ..*cast }),
            other => other.clone(),
        };
        let inputs = copy.inputs(node);
        copy.replace(node, kind, &inputs)?;
    }
    copy.finish().put(plan);
    plan.run.master = plan.run.train;
    let after = plan.graph.state_bytes();
    Ok(format!("weights in {}: {after} B instead of {before} B", low.name()))
}

fn autocast(plan: &mut Plan, low: DType) -> Result<String, GraphError> {
    let mut casts = Casts {
        copy: Rewrite::new(&plan.graph, |leaf| leaf.dtype)?,
        kept: FxHashMap::default(),
        made: 0,
    };
    let mut products = 0;
    for node in plan.graph.nodes() {
        casts.copy.begin();
        let mut inputs = casts.copy.inputs(node);
        let mut kind = node.kind.clone();
        match node.kind.operator().autocast() {
            Autocast::Low => {
                products += 1;
                casts.cast(node, &mut inputs, low)?;
            }
            Autocast::Full => casts.cast(node, &mut inputs, DType::F32)?,
            Autocast::WritesFull => {
                if let Kind::Softmax(_) = kind {
                    kind = Softmax { full: true }.into();
                }
            }
            Autocast::AsGiven => {}
        }
        casts.copy.replace(node, kind, &inputs)?;
    }
    let made = casts.made;
    casts.copy.finish().put(plan);
    Ok(format!("{products} products in {}, {made} casts", low.name()))
}

struct Casts<'a> {
    copy: Rewrite<'a>,
    /// Copies of weights.
    kept: FxHashMap<TensorId, TensorId>,
    made: u64,
}

impl Casts<'_> {
    fn cast(&mut self, node: &Node, inputs: &mut [TensorId], to: DType) -> Result<(), GraphError> {
        for input in inputs.iter_mut().rev() {
            let tensor = self.copy.new.get(*input);
            if !tensor.dtype.is_float() || tensor.dtype == to {
                continue;
            }
            let cached = tensor.role == Role::Parameter && to != DType::F32;
            if let Some(known) = self.kept.get(input).filter(|_| cached) {
                *input = *known;
                continue;
            }
            let made = self.copy.add(node.scope, Cast { to, cached }, &[*input])?;
            self.made += 1;
            if cached {
                self.kept.insert(*input, made[0]);
            }
            *input = made[0];
        }
        Ok(())
    }
}
