//! Tensors seen otherwise, and copies that make them contiguous.
//!
//! | operator | forward | backward |
//! |---|---|---|
//! | view | nothing: the same storage in another shape | nothing; or a copy, where the gradient's order of numbers is another (heads and rows) |
//! | slice | nothing: a part of the same storage | a zeroed gradient of the whole, into which the part is copied |
//! | copy | a new tensor | nothing, or a copy |
//!
//! Source: `reshape`, `transpose`, `select` and `contiguous` of PyTorch 2.15, as recorded.

use super::{Backward, Operator, Spec, Tensor, expect};
use crate::graph::tensor::shape_text;

/// The same numbers in another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The shape.
    pub shape: Vec<u64>,
    /// The gradient is copied.
    pub copies_back: bool,
}

impl Operator for View {
    fn name(&self) -> &'static str {
        "view"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let numbers: Option<u64> = self.shape.iter().try_fold(1_u64, |n, e| n.checked_mul(*e));
        if numbers != Some(x.numbers()) {
            let (found, wanted) = (shape_text(&x.shape), shape_text(&self.shape));
            return Err(format!("{found} cannot be seen as {wanted}"));
        }
        Ok(vec![Spec::new(self.shape.clone(), x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_back(at, self.copies_back);
    }

    fn is_view(&self) -> bool {
        true
    }
}

impl From<View> for super::Kind {
    fn from(op: View) -> Self {
        Self::View(op)
    }
}

/// A part of the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The part's shape.
    pub shape: Vec<u64>,
}

impl Operator for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let numbers: Option<u64> = self.shape.iter().try_fold(1_u64, |n, e| n.checked_mul(*e));
        if numbers.is_none_or(|numbers| numbers > x.numbers()) {
            let (found, wanted) = (shape_text(&x.shape), shape_text(&self.shape));
            return Err(format!("{found} has no part of {wanted}"));
        }
        Ok(vec![Spec::new(self.shape.clone(), x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let whole = at.like_input(0);
        at.kernel(&[at.gradient()], &[whole]);
        at.give(0, whole);
    }

    fn is_view(&self) -> bool {
        true
    }
}

impl From<Slice> for super::Kind {
    fn from(op: Slice) -> Self {
        Self::Slice(op)
    }
}

/// A contiguous copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The gradient is copied too.
    pub copies_back: bool,
}

impl Operator for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        Ok(vec![Spec::new(x.shape.clone(), x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_back(at, self.copies_back);
    }
}

impl From<Copy> for super::Kind {
    fn from(op: Copy) -> Self {
        Self::Copy(op)
    }
}

fn give_back(at: &mut Backward<'_, '_>, copied: bool) {
    let mut g = at.gradient();
    if copied {
        let copy = at.like_input(0);
        at.kernel(&[g], &[copy]);
        g = copy;
    }
    at.give(0, g);
}
