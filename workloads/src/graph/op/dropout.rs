//! Dropout in training: the result and a mask of one byte for each number (`native_dropout`, PyTorch 2.15: the mask is asked for first).

use super::{Backward, Forward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::DType;

/// Input: `x`. Makes the result and the mask. In inference a model leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropout;

impl Operator for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        Ok(vec![Spec::new(x.shape.clone(), x.dtype), Spec::aside(x.shape.clone(), DType::Bool)])
    }

    fn saves(&self) -> Saves {
        Saves::outputs([1])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        at.kernel(&[at.input(0)], &[at.output(1), at.output(0)]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let back = at.like_input(0);
        at.kernel(&[at.gradient(), at.output(1)], &[back]);
        at.give(0, back);
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

impl From<Dropout> for super::Kind {
    fn from(op: Dropout) -> Self {
        Self::Dropout(op)
    }
}
