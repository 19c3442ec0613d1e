//! Layer normalisation over the innermost extent.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `statistics` | mean and reciprocal deviation, fp32, one each for each row | `aten/src/ATen/native/cuda/layer_norm_kernel.cu`, PyTorch 2.15 |
//! | `saved` | the input, the weight, both statistics | `derivatives.yaml` (`native_layer_norm`) |
//! | `backward` | one call: the three gradients | as recorded |
//! | `autocast` | runs and writes fp32 | `aten/src/ATen/autocast_mode.h` |

use super::{Autocast, Backward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::{DType, shape_text};

/// Inputs: `x`, weight, bias. Makes the result, mean and deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNorm;

impl Operator for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x, weight, bias] = expect(inputs)?;
        for tensor in [weight, bias] {
            if tensor.shape != [x.width()] {
                let (found, wanted) = (shape_text(&tensor.shape), shape_text(&x.shape));
                return Err(format!("a weight of {found} does not fit an input of {wanted}"));
            }
        }
        let mut rows = x.shape.clone();
        if let Some(last) = rows.last_mut() {
            *last = 1;
        }
        let dtype = x.dtype.promoted(weight.dtype);
        Ok(vec![
            Spec::new(x.shape.clone(), dtype),
            Spec::aside(rows.clone(), DType::F32),
            Spec::aside(rows, DType::F32),
        ])
    }

    fn saves(&self) -> Saves {
        Saves { inputs: vec![0, 1], outputs: vec![1, 2] }
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let mut reads = vec![at.gradient()];
        reads.extend(at.saved());
        let wanted: Vec<usize> = (0..3).filter(|i| at.wants(*i)).collect();
        let gradients: Vec<_> = wanted.iter().map(|i| at.like_input(*i)).collect();
        at.kernel(&reads, &gradients);
        for (i, gradient) in wanted.into_iter().zip(gradients) {
            at.give(i, gradient);
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::WritesFull
    }
}

impl From<LayerNorm> for super::Kind {
    fn from(op: LayerNorm) -> Self {
        Self::LayerNorm(op)
    }
}
