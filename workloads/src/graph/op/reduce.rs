//! Sums to one number, the best of each row, and masks.
//!
//! The gradient of a sum is one number, seen as a whole tensor of equal ones: whoever needs it as a tensor makes one of its own
//! (`expand` in PyTorch 2.15). Its storage is smaller than the tensor it is the gradient of; that is how it is known.

use super::{Backward, Operator, Spec, Tensor, expect};
use crate::graph::tensor::{DType, shape_text};

/// Input: any tensor. Makes its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum;

impl Operator for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        Ok(vec![Spec::new([], x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        at.give(0, at.gradient());
    }
}

impl From<Sum> for super::Kind {
    fn from(op: Sum) -> Self {
        Self::Sum(op)
    }
}

/// Input: scores (…×C). Makes the place of the best in each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best;

impl Operator for Best {
    fn name(&self) -> &'static str {
        "best"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let rows = x.shape.split_last().map(|(_, rows)| rows.to_vec()).unwrap_or_default();
        Ok(vec![Spec::aside(rows, DType::I64)])
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Best> for super::Kind {
    fn from(op: Best) -> Self {
        Self::Best(op)
    }
}

/// Input: which tokens count (b×l, int64). Makes which query sees which key (b×1×l×l, one byte each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask;

impl Operator for Mask {
    fn name(&self) -> &'static str {
        "mask"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [b, l] = x.shape[..] else {
            return Err(format!("found {}, expected batch x tokens", shape_text(&x.shape)));
        };
        Ok(vec![Spec::new([b, 1, l, l], DType::Bool)])
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Mask> for super::Kind {
    fn from(op: Mask) -> Self {
        Self::Mask(op)
    }
}
