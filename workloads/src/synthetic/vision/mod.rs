//! Vision models, and the plainest of all, as workloads: their parameters, and what they share.
//!
//! Training is the usual script: SGD with momentum and weight decay (He et al. 2016, section 3.4), `zero_grad` before backward, the old
//! batch dropped when the new one is there. Nothing is drawn, so the seed has no effect.

pub mod detector;
pub mod mlp;
pub mod recogniser;
pub mod resnet;

use crate::graph::models::params::{RUN, chosen_passes, join, run, with_default};
use crate::graph::passes::{self, Chosen, PassError, Report};
use crate::graph::plan::{ConvSpace, Inputs, Run};
use crate::graph::{DType, Graph, GraphError, Plan};
use crate::params::{ParamDoc, ParamError, Params, doc};

/// Most images in a batch, and pixels of a side.
const MANY: u64 = 1 << 16;

/// Parameters of how all of them are run.
const COUNT: usize = RUN.len() + OWN.len();

/// How all of them are run: as every model, but for the defaults of optimizer and clipping.
const SHARED: [ParamDoc; COUNT] = {
    let all = join(RUN, OWN);
    with_default(with_default(all, "optimizer", "momentum_foreach"), "clip", "false")
};

const OWN: [ParamDoc; 7] = [
    doc("phase", "train", "-", "train or inference"),
    doc("steps", "3", "steps", "optimiser steps (batches in inference)"),
    doc("precision", "fp32", "-", "fp32, fp16 or bf16, of weights and activations"),
    doc("weight_decay", "true", "-", "weights are decayed (SGD and Adam: a temporary)")
        .only("phase", &["train"]),
    doc("zero_grad", "first", "-", "first (before backward) or last (after the update)")
        .only("phase", &["train"]),
    doc(
        "conv_workspace",
        "transpose",
        "-",
        "convolution workspace: transpose (input + output + filter) or none",
    ),
    doc("benchmark", "false", "-", "try each convolution when its shape is new"),
];

/// Is it trained, and in which type?
fn phase(p: &Params) -> Result<(bool, DType), ParamError> {
    let train = p.choice("phase", &[("train", true), ("inference", false)])?;
    let types = [("fp32", DType::F32), ("fp16", DType::F16), ("bf16", DType::BF16)];
    Ok((train, p.choice("precision", &types)?))
}

/// How it is run, and passes.
struct Shared {
    run: Run,
    chosen: Vec<Chosen>,
}

impl Shared {
    fn read(p: &Params) -> Result<Self, ParamError> {
        let chosen = chosen_passes(p)?;
        let mut shared = run(p)?;
        shared.optimizer.decay = p.flag("weight_decay")?;
        let run = Run {
            train: phase(p)?.0,
            zero_first: p.choice("zero_grad", &[("first", true), ("last", false)])?,
            inputs: Inputs::Replaced,
            inputs_cast: true,
            conv_space: p.choice(
                "conv_workspace",
                &[("transpose", ConvSpace::Transpose), ("none", ConvSpace::None)],
            )?,
            benchmark: p.flag("benchmark")?,
            ..shared
        };
        Ok(Self { run, chosen })
    }

    /// The plan of a graph that is made for a batch of so many, and what passes changed.
    fn plan(
        &self,
        batch: u64,
        graph: impl Fn(u64) -> Result<Graph, GraphError>,
    ) -> Result<(Plan, Vec<Report>), PassError> {
        let parts = passes::batches(&self.chosen, batch)?;
        let mut plan = Plan { graph: graph(batch / parts)?, run: self.run.clone() };
        let reports = passes::apply(&mut plan, &self.chosen)?;
        Ok((plan, reports))
    }
}

/// Height and width from `640` or `640x960`.
fn sides(p: &Params, key: &'static str) -> Result<[u64; 2], ParamError> {
    let text = p.text(key);
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    let side = |text: &str| text.parse().ok().filter(|side| (1..=MANY).contains(side));
    match (side(height), side(width)) {
        (Some(height), Some(width)) => Ok([height, width]),
        _ => Err(p.bad(key, "pixels, such as 224 or 640x960, each from 1 to 65536")),
    }
}
