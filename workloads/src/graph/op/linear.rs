//! A dense layer: `y = x·Wᵀ + b` over all rows of `x`.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `lt` | with bias one product with fused bias, in cublasLt's workspace; without, a plain product in cuBLAS's | `addmm`, `mm` in `aten/src/ATen/native/cuda/Blas.cpp`, PyTorch 2.15 |
//! | `backward` | input gradient, then weight gradient, a workspace each; then the bias gradient, a column sum that may be split | `derivatives.yaml` (`addmm`), recordings |
//! | `delivery` | bias first, then input, then weight | `torch/csrc/autograd/generated` (the order of `addmm`'s arguments) |
//! | `saved` | input and weight | `derivatives.yaml` |

use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, one_float};
use crate::graph::lower::Blas;
use crate::graph::program::StorageId;
use crate::graph::tensor::shape_text;

/// Inputs: `x` (…×I), weight (O×I), and bias (O) if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear;

impl Operator for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let (x, weight, bias) = match inputs {
            [x, weight] => (x, weight, None),
            [x, weight, bias] => (x, weight, Some(bias)),
            _ => return Err(format!("found {} inputs, expected 2 or 3", inputs.len())),
        };
        let dtype = one_float(inputs)?;
        let [to, from] = weight.shape[..] else {
            let found = shape_text(&weight.shape);
            return Err(format!("a weight of {found}, expected outputs x inputs"));
        };
        if x.width() != from {
            let found = shape_text(&x.shape);
            return Err(format!("a weight of {to}x{from} does not fit an input of {found}"));
        }
        if let Some(bias) = bias
            && bias.shape != [to]
        {
            let found = shape_text(&bias.shape);
            return Err(format!("a bias of {found} does not fit a weight of {to}x{from}"));
        }
        let mut shape = x.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = to;
        }
        Ok(vec![Spec::new(shape, dtype)])
    }

    fn flops(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> f64 {
        2.0 * outputs[0].numbers() as f64 * inputs[0].width() as f64
    }

    fn saves(&self) -> Saves {
        Saves::inputs([0, 1])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let space = if at.inputs() == 3 { Blas::Lt } else { Blas::Plain };
        at.run_with_workspace(space);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        backward(at, at.gradient(), at.is_expanded());
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl From<Linear> for super::Kind {
    fn from(op: Linear) -> Self {
        Self::Linear(op)
    }
}

/// Gradients of input, weight and bias from that of the product; it may be one number for all of it.
pub(super) fn backward(at: &mut Backward<'_, '_>, g: StorageId, expanded: bool) {
    let flops = at.forward_flops();
    let bias = at.inputs() == 3 && at.wants(2);
    for (i, other) in [(0, 1), (1, 0)] {
        if !at.wants(i) {
            continue;
        }
        let mut g = g;
        if expanded {
            let ones = at.like_output();
            at.kernel(&[g], &[ones]);
            g = ones;
        }
        let mine = at.like_input(i);
        at.product(flops, &[g, at.input(other)], &[mine], Blas::Plain);
        at.give(i, mine);
    }
    if bias {
        let g_bias = at.like_input(2);
        let (rows, columns) = (at.tensor_out().rows(), at.tensor_out().width());
        if expanded {
            at.kernel(&[g], &[g_bias]);
        } else {
            at.column_sum(rows, columns, g, g_bias);
        }
        at.give_first(2, g_bias);
    }
}
