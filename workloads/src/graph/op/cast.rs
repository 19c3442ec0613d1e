//! A copy in another type.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `cast` | one new tensor; backward casts the gradient back | `aten/src/ATen/native/TensorConversions.cpp`, PyTorch 2.15 |
//! | `cache` | autocast keeps its copies of parameters until the forward pass ends | `aten/src/ATen/autocast_mode.cpp`, `cached_cast` |

use super::{Backward, Operator, Spec, Tensor, expect};
use crate::graph::tensor::DType;

/// A copy of the input in the type `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The type.
    pub to: DType,
    /// Kept until the forward pass ends (rule `cache`).
    pub cached: bool,
}

impl Operator for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        Ok(vec![Spec::new(x.shape.clone(), self.to)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let back = at.like_input(0);
        at.kernel(&[at.gradient()], &[back]);
        at.give(0, back);
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

impl From<Cast> for super::Kind {
    fn from(op: Cast) -> Self {
        Self::Cast(op)
    }
}
