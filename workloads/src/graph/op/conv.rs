//! Convolutions and transposed ones.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `workspace` | each of forward, input gradient and weight gradient asks for a workspace of its own after its result, and frees it when it is queued; its size is the run's [`crate::graph::plan::ConvSpace`] | `aten/src/ATen/native/cudnn/Conv_v7.cpp`, PyTorch 2.15; recordings |
//! | `benchmark` | the first time that a shape is met, each of the three is tried: a workspace, then the cache is emptied, then the call itself | `findAlgorithm` in the same file; recordings |
//! | `bias` | added in place; its gradient is a sum (its splitting is left out) | `_convolution`, `convolution_backward` |
//! | `saved` | input and weight | `derivatives.yaml` |
//!
//! A transposed convolution does its products at the input's places.

use super::image::{image, windows};
use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, one_float};
use crate::graph::tensor::shape_text;

/// Inputs: `x` (n×c×h×w), weight (o×c/g×kh×kw; transposed c×o/g×kh×kw), and bias (o) if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Step between windows, down and across.
    pub stride: [u64; 2],
    /// Rows and columns of zeros on each side.
    pub pad: [u64; 2],
    /// Channels are convolved in so many groups.
    pub groups: u64,
    /// Transposed: the image grows by the stride.
    pub transposed: bool,
}

impl Conv {
    /// One with equal sides.
    pub fn square(stride: u64, pad: u64) -> Self {
        Self { stride: [stride; 2], pad: [pad; 2], groups: 1, transposed: false }
    }

    /// A convolution of 1×1 with stride 1 is a product of matrices.
    fn is_product(&self, weight: &Tensor) -> bool {
        weight.shape[2..] == [1, 1] && self.stride == [1, 1]
    }
}

impl Operator for Conv {
    fn name(&self) -> &'static str {
        if self.transposed { "conv_transposed" } else { "conv" }
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let (x, weight) = match inputs {
            [x, weight] | [x, weight, _] => (x, weight),
            _ => return Err(format!("found {} inputs, expected 2 or 3", inputs.len())),
        };
        let dtype = one_float(inputs)?;
        let [n, c, h, w] = image(x)?;
        let misfit = || {
            let found = shape_text(&weight.shape);
            format!(
                "a weight of {found} in {} groups does not fit {}",
                self.groups,
                shape_text(&x.shape)
            )
        };
        let [a, b, kh, kw] = weight.shape[..] else { return Err(misfit()) };
        let (from, to) = if self.transposed { (a, b) } else { (b, a) };
        let groups = self.groups;
        // a plain one reads c/g channels in each group, a transposed one writes o/g
        let (reads, makes) = if self.transposed { (1, groups) } else { (groups, 1) };
        let fits = groups > 0
            && from.checked_mul(reads) == Some(c)
            && c % groups == 0
            && (self.transposed || to % groups == 0);
        let Some(to) = to.checked_mul(makes).filter(|_| fits) else { return Err(misfit()) };
        if let [_, _, bias] = inputs
            && bias.shape != [to]
        {
            let found = shape_text(&bias.shape);
            return Err(format!("a bias of {found}, expected {to}"));
        }
        let [h, w] = if self.transposed {
            let side = |side: u64, i: usize, kernel: u64| {
                let last = side.checked_sub(1)?.checked_mul(self.stride[i])?;
                last.checked_add(kernel)?.checked_sub(2 * self.pad[i])
            };
            match (side(h, 0, kh), side(w, 1, kw)) {
                (Some(h), Some(w)) => [h, w],
                _ => return Err(misfit()),
            }
        } else {
            windows([h, w], [kh, kw], self.stride, self.pad)?
        };
        Ok(vec![Spec::new([n, to, h, w], dtype)])
    }

    fn flops(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> f64 {
        let weight = inputs[1];
        // each place of one side meets each number of the filters once
        let image = if self.transposed { inputs[0] } else { outputs[0] };
        let places = image.numbers() / image.shape[1].max(1);
        2.0 * places as f64 * weight.numbers() as f64
    }

    fn saves(&self) -> Saves {
        Saves::inputs([0, 1])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let scratch = match self.is_product(at.tensor_in(1)) {
            true => 0,
            false => {
                [at.tensor_in(0), at.tensor_in(1), at.tensor_out(0)].map(Tensor::bytes).iter().sum()
            }
        };
        at.run_convolution(scratch);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let g = at.gradient();
        let scratch = match self.is_product(at.tensor_in(1)) {
            true => 0,
            false => {
                [at.tensor_in(0), at.tensor_in(1), at.tensor_out()].map(Tensor::bytes).iter().sum()
            }
        };
        if at.wants(0) {
            let g_input = at.like_input(0);
            let weight = at.input(1);
            at.convolution("input", &[g, weight], g_input, scratch);
            at.give(0, g_input);
        }
        if at.wants(1) {
            let g_weight = at.like_input(1);
            let x = at.input(0);
            at.convolution("weight", &[g, x], g_weight, scratch);
            at.give(1, g_weight);
        }
        if at.inputs() == 3 && at.wants(2) {
            let g_bias = at.like_input(2);
            at.kernel(&[g], &[g_bias]);
            at.give(2, g_bias);
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl From<Conv> for super::Kind {
    fn from(op: Conv) -> Self {
        Self::Conv(op)
    }
}
