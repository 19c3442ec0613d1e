//! Batch normalisation.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `training` | the result, then mean and inverse deviation of each channel, fp32; the count of batches and the running statistics are written in place | `aten/src/ATen/native/cudnn/BatchNorm.cpp`, PyTorch 2.15; recordings |
//! | `inference` | the result; with 16 bits also two tensors as in training, dropped at once | `native_batch_norm`; recordings |
//! | `backward` | input gradient, weight gradient, bias gradient | `cudnn_batch_norm_backward`; recordings |
//! | `saved` | input, weight, mean, inverse deviation |  |
//!
//! Left out: cuDNN's workspace and reserve, which are 0 in the recordings.

use super::image::image;
use super::{Backward, Operator, Saves, Spec, Tensor};
use crate::graph::tensor::{DType, shape_text};

/// Inputs: `x` (n×c×h×w), weight and bias (c), and whatever is only kept (running statistics).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNorm {
    /// Statistics are of the batch.
    pub training: bool,
}

impl Operator for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x, weight, bias, ..] = inputs else {
            return Err(format!("found {} inputs, expected at least 3", inputs.len()));
        };
        let [_, channels, ..] = image(x)?;
        for tensor in [weight, bias] {
            if tensor.shape != [channels] {
                let found = shape_text(&tensor.shape);
                return Err(format!("a weight or bias of {found}, expected {channels} channels"));
            }
        }
        let mut made = vec![Spec::new(x.shape.clone(), x.dtype)];
        if self.training || x.dtype != DType::F32 {
            made.extend([(); 2].map(|()| Spec::aside([channels], DType::F32)));
        }
        Ok(made)
    }

    fn saves(&self) -> Saves {
        let outputs = if self.training { vec![1, 2] } else { Vec::new() };
        Saves { inputs: vec![0, 1], outputs }
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let mut reads = vec![at.gradient()];
        reads.extend(at.saved());
        let wanted: Vec<usize> = (0..3).filter(|i| at.wants(*i)).collect();
        let made: Vec<_> = wanted.iter().map(|i| at.like_input(*i)).collect();
        at.kernel(&reads, &made);
        for (i, gradient) in wanted.into_iter().zip(made) {
            at.give(i, gradient);
        }
    }
}

impl From<BatchNorm> for super::Kind {
    fn from(op: BatchNorm) -> Self {
        Self::BatchNorm(op)
    }
}
