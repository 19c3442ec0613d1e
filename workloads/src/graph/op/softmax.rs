//! Softmax over the innermost extent.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `saved` | its output | `derivatives.yaml` (`_softmax`), PyTorch 2.15 |
//! | `backward` | the gradient, then a product of gradient and output as a temporary | `aten/src/ATen/native/cuda/SoftMax.cu`, recordings |
//! | `autocast` | writes fp32 whatever it reads, without a copy of its input | `autocast_mode.h`, `fp32_set_opt_dtype` |

use super::{Autocast, Backward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::DType;

/// Input: scores. `full`: the result is fp32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Rule `autocast`.
    pub full: bool,
}

impl Operator for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let dtype = if self.full { DType::F32 } else { x.dtype };
        Ok(vec![Spec::new(x.shape.clone(), dtype)])
    }

    fn saves(&self) -> Saves {
        Saves::outputs([0])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let back = at.like_input(0);
        let product = at.like_output();
        at.kernel_with(0.0, &[at.gradient(), at.output(0)], &[back], &[product]);
        at.give(0, back);
    }

    fn autocast(&self) -> Autocast {
        Autocast::WritesFull
    }
}

impl From<Softmax> for super::Kind {
    fn from(op: Softmax) -> Self {
        Self::Softmax(op)
    }
}
