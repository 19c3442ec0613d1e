//! Operators: one small struct each, which says all there is to say about it.
//!
//! | asked | answered by |
//! |---|---|
//! | shapes and types of what it makes, or why the inputs do not fit | [`Operator::outputs`] |
//! | floating-point operations | [`Operator::flops`] |
//! | what backward needs of inputs and outputs | [`Operator::saves`] |
//! | kernels, temporaries and workspaces | [`Operator::forward`], [`Operator::backward`] |
//! | its type under mixed precision | [`Operator::autocast`] |
//! | may it be fused, may it run in place | [`Operator::is_pointwise`], [`Operator::overwrites`] |
//!
//! Bytes are not said: they follow from what a kernel reads and writes.

mod attention;
mod batch_norm;
mod cast;
mod causal;
mod conv;
mod decode;
mod dense;
mod dequantise;
mod dropout;
mod elementwise;
mod embedding;
mod fused;
mod hold;
mod image;
mod join;
mod layer_norm;
mod linear;
mod loss;
mod lstm;
mod matmul;
mod mean_error;
mod pool;
mod reduce;
mod repeat;
mod resize;
mod rows;
mod scene_loss;
mod softmax;
mod view;
mod zeros;

pub use attention::{Attention, Fused};
pub use batch_norm::BatchNorm;
pub use cast::Cast;
pub use causal::Causal;
pub use conv::Conv;
pub use decode::Decode;
pub use dense::ActivatedLinear;
pub use dequantise::Dequantise;
pub use dropout::Dropout;
pub use elementwise::{Elementwise, F};
pub use embedding::Embedding;
pub use fused::{FusedChain, Part, Wire};
pub use hold::Hold;
pub use join::{Concat, Split};
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use loss::CrossEntropy;
pub use lstm::Lstm;
pub use matmul::MatMul;
pub use mean_error::MeanError;
pub use pool::{MaxPool, MeanPool};
pub use reduce::{Best, Mask, Sum};
pub use repeat::Repeat;
pub use resize::{Resample, Rows, Upsample};
pub use rows::{Combine, Gather, Mean, Rotate};
pub use scene_loss::{BinaryCrossEntropy, Ctc, LogSoftmax};
pub use softmax::Softmax;
pub use view::{Copy, Slice, View};
pub use zeros::Zeros;

use super::lower::{Backward, Forward};
use super::tensor::{DType, Spec, Tensor};

/// What an operator's backward needs, as places among its inputs and outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saves {
    /// Of the inputs.
    pub inputs: Vec<usize>,
    /// Of the outputs.
    pub outputs: Vec<usize>,
}

impl Saves {
    /// Nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Inputs only.
    pub fn inputs(places: impl Into<Vec<usize>>) -> Self {
        Self { inputs: places.into(), outputs: Vec::new() }
    }

    /// Outputs only.
    pub fn outputs(places: impl Into<Vec<usize>>) -> Self {
        Self { inputs: Vec::new(), outputs: places.into() }
    }
}

/// The type in which mixed precision runs an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autocast {
    /// Float inputs are cast to the low type first: products.
    Low,
    /// Float inputs are cast to fp32 first: losses.
    Full,
    /// Computes and writes fp32, whatever it reads: norms, softmax.
    WritesFull,
    /// Runs in the type that it is given.
    AsGiven,
}

/// What every operator answers.
pub trait Operator {
    /// Its name in lists.
    fn name(&self) -> &'static str;

    /// What it makes of these inputs: its result, then by-products.
    ///
    /// # Errors
    /// Why the inputs do not fit; the caller adds the layer.
    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String>;

    /// Floating-point operations of its forward kernel; products only, since all else is bound by memory.
    fn flops(&self, _inputs: &[&Tensor], _outputs: &[&Tensor]) -> f64 {
        0.0
    }

    /// What its backward needs.
    fn saves(&self) -> Saves {
        Saves::nothing()
    }

    /// Its kernels. By default one that reads all inputs and writes all outputs.
    fn forward(&self, at: &mut Forward<'_, '_>) {
        at.run();
    }

    /// The kernels of its backward, which give each input that wants one its gradient.
    fn backward(&self, at: &mut Backward<'_, '_>);

    /// Its type under mixed precision.
    fn autocast(&self) -> Autocast {
        Autocast::AsGiven
    }

    /// What it becomes for these inputs, where a framework chooses a kernel by type.
    fn fitted(&self, _inputs: &[&Tensor]) -> Option<Kind> {
        None
    }

    /// Is its result the first input's storage, seen otherwise?
    fn is_view(&self) -> bool {
        false
    }

    /// The input in whose place the result can be written, shapes and types permitting.
    fn overwrites(&self) -> Option<usize> {
        None
    }

    /// Does each number of the result depend on the numbers at its place only? Such operators can be fused.
    fn is_pointwise(&self) -> bool {
        false
    }
}

/// Every operator there is.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is described at its struct
pub enum Kind {
    ActivatedLinear(ActivatedLinear),
    Attention(Attention),
    BatchNorm(BatchNorm),
    Best(Best),
    BinaryCrossEntropy(BinaryCrossEntropy),
    Cast(Cast),
    Causal(Causal),
    Combine(Combine),
    Concat(Concat),
    Conv(Conv),
    Copy(Copy),
    CrossEntropy(CrossEntropy),
    Ctc(Ctc),
    Decode(Decode),
    Dequantise(Dequantise),
    Dropout(Dropout),
    Elementwise(Elementwise),
    Embedding(Embedding),
    FusedChain(FusedChain),
    Gather(Gather),
    Hold(Hold),
    LayerNorm(LayerNorm),
    Linear(Linear),
    LogSoftmax(LogSoftmax),
    Lstm(Lstm),
    Mask(Mask),
    MatMul(MatMul),
    MaxPool(MaxPool),
    Mean(Mean),
    MeanError(MeanError),
    MeanPool(MeanPool),
    Repeat(Repeat),
    Resample(Resample),
    Rotate(Rotate),
    Rows(Rows),
    Slice(Slice),
    Softmax(Softmax),
    Split(Split),
    Sum(Sum),
    Upsample(Upsample),
    View(View),
    Zeros(Zeros),
}

impl Kind {
    /// What answers for it.
    pub fn operator(&self) -> &dyn Operator {
        match self {
            Kind::ActivatedLinear(op) => op,
            Kind::Attention(op) => op,
            Kind::BatchNorm(op) => op,
            Kind::Best(op) => op,
            Kind::BinaryCrossEntropy(op) => op,
            Kind::Cast(op) => op,
            Kind::Causal(op) => op,
            Kind::Combine(op) => op,
            Kind::Concat(op) => op,
            Kind::Conv(op) => op,
            Kind::Copy(op) => op,
            Kind::CrossEntropy(op) => op,
            Kind::Ctc(op) => op,
            Kind::Decode(op) => op,
            Kind::Dequantise(op) => op,
            Kind::Dropout(op) => op,
            Kind::Elementwise(op) => op,
            Kind::Embedding(op) => op,
            Kind::FusedChain(op) => op,
            Kind::Gather(op) => op,
            Kind::Hold(op) => op,
            Kind::LayerNorm(op) => op,
            Kind::Linear(op) => op,
            Kind::LogSoftmax(op) => op,
            Kind::Lstm(op) => op,
            Kind::Mask(op) => op,
            Kind::MatMul(op) => op,
            Kind::MaxPool(op) => op,
            Kind::Mean(op) => op,
            Kind::MeanError(op) => op,
            Kind::MeanPool(op) => op,
            Kind::Repeat(op) => op,
            Kind::Resample(op) => op,
            Kind::Rotate(op) => op,
            Kind::Rows(op) => op,
            Kind::Slice(op) => op,
            Kind::Softmax(op) => op,
            Kind::Split(op) => op,
            Kind::Sum(op) => op,
            Kind::Upsample(op) => op,
            Kind::View(op) => op,
            Kind::Zeros(op) => op,
        }
    }
}

/// `N` inputs, or what was found.
fn expect<'a, const N: usize>(inputs: &[&'a Tensor]) -> Result<[&'a Tensor; N], String> {
    <[&Tensor; N]>::try_from(inputs)
        .map_err(|_| format!("found {} inputs, expected {N}", inputs.len()))
}

/// All inputs of one float type.
fn one_float(inputs: &[&Tensor]) -> Result<DType, String> {
    let Some(first) = inputs.first() else { return Err("found no input".to_owned()) };
    for tensor in inputs {
        if !tensor.dtype.is_float() || tensor.dtype != first.dtype {
            let (a, b) = (first.dtype.name(), tensor.dtype.name());
            return Err(format!("found inputs of {a} and {b}, expected one float type"));
        }
    }
    Ok(first.dtype)
}
