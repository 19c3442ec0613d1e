//! Tensors cut apart and put together.
//!
//! | operator | forward | backward |
//! |---|---|---|
//! | split | parts of one storage | one new gradient, put together from the parts' |
//! | concat | one new tensor | parts of the gradient's storage |
//!
//! Source: `split`, `cat` of PyTorch 2.15 (`derivatives.yaml`).

use super::{Backward, Kind, Operator, Spec, Tensor};
use crate::graph::tensor::shape_text;

/// Input: one tensor. Makes `parts` views of its innermost extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Innermost extents of the parts.
    pub parts: Vec<u64>,
}

impl Operator for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = super::expect(inputs)?;
        let sum: u64 = self.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        if sum != x.width() {
            let found = shape_text(&x.shape);
            return Err(format!("parts of {sum} in all do not make up {found}"));
        }
        let part = |width: &u64| {
            let mut shape = x.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = *width;
            }
            Spec::new(shape, x.dtype)
        };
        Ok(self.parts.iter().map(part).collect())
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let reads: Vec<_> = (0..self.parts.len()).filter_map(|i| at.gradient_of(i)).collect();
        let whole = at.like_input(0);
        at.kernel(&reads, &[whole]);
        at.give(0, whole);
    }

    fn is_view(&self) -> bool {
        true
    }
}

impl From<Split> for Kind {
    fn from(op: Split) -> Self {
        Self::Split(op)
    }
}

/// Inputs that differ in extent `axis` only. Makes them as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat {
    /// Which extent, outermost first.
    pub axis: usize,
}

impl Operator for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let Some(first) = inputs.first() else { return Err("found no input".to_owned()) };
        let mut shape = first.shape.clone();
        if self.axis >= shape.len() {
            let (axis, found) = (self.axis, shape_text(&shape));
            return Err(format!("no extent {axis} in {found}"));
        }
        for tensor in &inputs[1..] {
            let mut other = tensor.shape.clone();
            if other.len() != shape.len() || tensor.dtype != first.dtype {
                let (a, b) = (shape_text(&shape), shape_text(&other));
                return Err(format!("{a} and {b} cannot be put together"));
            }
            let grown = shape[self.axis].saturating_add(other[self.axis]);
            (shape[self.axis], other[self.axis]) = (grown, grown);
            if other != shape {
                let (a, b) = (shape_text(&first.shape), shape_text(&tensor.shape));
                return Err(format!("{a} and {b} differ in more than extent {}", self.axis));
            }
        }
        Ok(vec![Spec::new(shape, first.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        for i in 0..at.inputs() {
            if at.wants(i) {
                at.give(i, at.gradient());
            }
        }
    }
}

impl From<Concat> for Kind {
    fn from(op: Concat) -> Self {
        Self::Concat(op)
    }
}
