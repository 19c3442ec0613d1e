//! Layers that the vision models share: convolutions with norms, in training and inference.

use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{BatchNorm, Conv, F};
use crate::graph::tensor::{DType, TensorId};

/// Red, green, blue.
pub(super) const COLOURS: u64 = 3;

/// How layers are made.
#[derive(Clone, Copy)]
pub(super) struct Layers {
    pub(super) dtype: DType,
    pub(super) train: bool,
}

impl Layers {
    /// Images in the model's type.
    pub(super) fn images(
        &self,
        graph: &mut Graph,
        name: &str,
        count: u64,
        [height, width]: [u64; 2],
    ) -> Result<TensorId, GraphError> {
        graph.input(name, &[count, COLOURS, height, width], self.dtype)
    }

    /// A convolution, its norm, and ReLU in place.
    pub(super) fn conv_norm_relu(
        &self,
        graph: &mut Graph,
        x: TensorId,
        names: [&str; 2],
        channels: [u64; 2],
        square: Square,
    ) -> Result<TensorId, GraphError> {
        let y = self.conv_norm(graph, x, names, channels, square)?;
        graph.within("relu", |graph| graph.add_over(F::Relu, &[y]))
    }

    /// A convolution and its norm.
    pub(super) fn conv_norm(
        &self,
        graph: &mut Graph,
        x: TensorId,
        [conv, norm]: [&str; 2],
        [from, to]: [u64; 2],
        square: Square,
    ) -> Result<TensorId, GraphError> {
        let y = graph.within(conv, |graph| self.conv(graph, x, [from, to], square))?;
        graph.within(norm, |graph| self.norm(graph, y, to))
    }

    /// A square convolution without bias.
    pub(super) fn conv(
        &self,
        graph: &mut Graph,
        x: TensorId,
        [from, to]: [u64; 2],
        Square { kernel, stride }: Square,
    ) -> Result<TensorId, GraphError> {
        let weight = graph.parameter("weight", &[to, from, kernel, kernel], self.dtype)?;
        graph.add(Conv::square(stride, kernel / 2), &[x, weight])
    }

    /// Batch norm: weight, bias, running mean and variance, and a count of batches.
    pub(super) fn norm(
        &self,
        graph: &mut Graph,
        x: TensorId,
        channels: u64,
    ) -> Result<TensorId, GraphError> {
        let mut inputs = vec![x];
        for name in ["weight", "bias"] {
            inputs.push(graph.parameter(name, &[channels], self.dtype)?);
        }
        for name in ["running_mean", "running_var"] {
            inputs.push(graph.buffer(name, &[channels], self.dtype)?);
        }
        inputs.push(graph.buffer("num_batches_tracked", &[], DType::I64)?);
        graph.add(BatchNorm { training: self.train }, &inputs)
    }
}

/// Side of a kernel and step between windows; padded so that a step of 1 keeps the image's size.
#[derive(Clone, Copy)]
pub(super) struct Square {
    kernel: u64,
    stride: u64,
}

impl Square {
    pub(super) fn of(kernel: u64, stride: u64) -> Self {
        Self { kernel, stride }
    }
}
