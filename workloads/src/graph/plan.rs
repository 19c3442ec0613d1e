//! A graph and how it is run: what passes change, and what programs are made from.

use std::ops::Range;

use super::kernels::Multiprocessors;
use super::network::{Graph, GraphError};
use super::spread::Spread;

/// What updates the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// None: gradients are made and dropped.
    None,
    /// Gradient descent.
    Sgd {
        /// With a momentum buffer for each weight.
        momentum: bool,
    },
    /// Adam; `decoupled` makes it AdamW, else weight decay goes through the gradient.
    Adam {
        /// Weight decay beside the gradient, not in it.
        decoupled: bool,
    },
}

/// How the update is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over lists of tensors: temporaries of all weights at once.
    ForEach,
    /// In one kernel without temporaries.
    Fused,
    /// Weight by weight: temporaries of one weight at a time.
    Single,
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimizer {
    /// Its rule.
    pub rule: Rule,
    /// How it is run.
    pub way: Way,
    /// Weight decay is not 0.
    pub decay: bool,
}

/// How cuBLAS gets its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// Allocated and freed around each call.
    Call,
    /// Allocated at the first product and kept.
    Cached,
    /// Not from the allocator.
    None,
}

/// When a batch's inputs are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Before those of the next batch are asked for.
    Before,
    /// Each when its successor is on the device.
    Replaced,
    /// When the batch is over.
    After,
}

/// How much workspace a convolution asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvSpace {
    /// Bytes of input, output and filter; none for 1×1 with stride 1. A stand-in for cuDNN's choice, which only a real device knows.
    Transpose,
    /// None.
    None,
}

/// How weights come to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// From a model on the host.
    ToDevice,
    /// Beside a model that is on the device already.
    Copy,
    /// In place of a model without memory.
    Assign,
    /// As [`Load::Copy`], but in shards of so many bytes.
    Shards(u64),
    /// From a mapped file.
    Mapped,
    /// As [`Load::ToDevice`], but eight-bit weights come in 16 bits and are quantised one by one.
    Quantised,
}

/// When dead storages are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// After their last use.
    Immediate,
    /// When the dead ones exceed so many bytes, all of them; and at the program's end.
    Delayed(u64),
    /// At the program's end.
    AtEnd,
    /// Storages that are never live together share one, chosen ahead, largest first.
    Planned,
}

/// How a graph is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Forward and backward; otherwise inference.
    pub train: bool,
    /// Batches for each step of the optimizer.
    pub accumulation: u64,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The gradient norm is clipped before.
    pub clip: bool,
    /// `zero_grad` frees gradients; otherwise it zeroes them.
    pub set_to_none: bool,
    /// `zero_grad` stands before backward (as in most vision scripts), not after the update.
    pub zero_first: bool,
    /// When a batch's inputs are dropped.
    pub inputs: Inputs,
    /// Inputs of 16 bits come in fp32 and are cast on the device.
    pub inputs_cast: bool,
    /// Results live until the next step's replace them; otherwise until backward ends.
    pub results_held: bool,
    /// The loss is scaled and gradients unscaled (mixed precision in fp16).
    pub scaled: bool,
    /// Weights have fp32 master copies (16-bit weights).
    pub master: bool,
    /// cuBLAS's workspace.
    pub workspace: Workspace,
    /// Convolutions' workspace.
    pub conv_space: ConvSpace,
    /// Convolutions are tried out the first time a shape is met (`cudnn.benchmark`).
    pub benchmark: bool,
    /// How weights come to the device.
    pub load: Load,
    /// When dead storages are freed.
    pub release: Release,
    /// Ranges of operators that keep their inputs only and are computed again in backward.
    pub again: Vec<Range<usize>>,
    /// How a step is spread over devices and the host.
    pub spread: Spread,
    /// Empty the allocator's cache after every so many steps; 0: never.
    pub empty_cache: u64,
    /// Decides how sums are split.
    pub device: Multiprocessors,
    /// Stands in the marks, before the phase: `seq 128`.
    pub label: String,
    /// A batch's mark, if it is not its number and phase.
    pub mark: Option<String>,
    /// Batches of a decoding run, each a token for every sequence; 0 where it is run for a number of steps.
    pub tokens: u64,
}

impl Run {
    /// Does the optimizer keep something for each weight?
    pub const fn has_states(&self) -> bool {
        match self.optimizer.rule {
            Rule::None => false,
            Rule::Sgd { momentum } => momentum || self.master,
            Rule::Adam { .. } => true,
        }
    }
}

impl Default for Run {
    /// Training in the way of PyTorch's defaults, with AdamW, on an A100.
    fn default() -> Self {
        Self {
            train: true,
            accumulation: 1,
            optimizer: Optimizer {
                rule: Rule::Adam { decoupled: true },
                way: Way::ForEach,
                decay: true,
            },
            clip: false,
            set_to_none: true,
            zero_first: false,
            inputs: Inputs::Before,
            inputs_cast: false,
            results_held: true,
            scaled: false,
            master: false,
            workspace: Workspace::Call,
            conv_space: ConvSpace::Transpose,
            benchmark: false,
            load: Load::ToDevice,
            release: Release::Immediate,
            again: Vec::new(),
            spread: Spread::default(),
            empty_cache: 0,
            device: Multiprocessors { count: 108, threads: 2048 },
            label: String::new(),
            mark: None,
            tokens: 0,
        }
    }
}

/// A graph and how it is run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The forward graph.
    pub graph: Graph,
    /// How it is run.
    pub run: Run,
}

impl Plan {
    /// Can it be run so?
    ///
    /// # Errors
    /// Training without a loss.
    pub fn check(&self) -> Result<(), GraphError> {
        let ends = self.graph.loss().is_some() || !self.graph.sent().is_empty();
        if self.run.train && !ends {
            return Err(self.graph.error("found no loss, expected one to train with"));
        }
        Ok(())
    }
}
