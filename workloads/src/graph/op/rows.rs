//! Rows chosen, put back, averaged, turned.
//!
//! | operator | forward | backward |
//! |---|---|---|
//! | mean | one number for each row | spread over the row |
//! | rotate | the halves of each row exchanged, one negated: a temporary of half the size | the same |
//! | gather | chosen rows as a new tensor | a zeroed gradient of all rows, into which the chosen are added |
//! | combine | parts added into one tensor of all rows | the rows of each part |
//!
//! Source: `mean`, `cat`, `index_select`, `index_add` of PyTorch 2.15 (`derivatives.yaml`), as transformers' `LlamaRMSNorm`, `rotate_half` and
//! `MixtralSparseMoeBlock` use them.

use super::{Backward, Forward, Kind, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::shape_text;

/// Input: `x`. Makes the mean of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mean;

impl Operator for Mean {
    fn name(&self) -> &'static str {
        "mean"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let mut shape = x.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = 1;
        }
        Ok(vec![Spec::new(shape, x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        spread(at);
    }
}

impl From<Mean> for Kind {
    fn from(op: Mean) -> Self {
        Self::Mean(op)
    }
}

/// Input: `x`. Makes it with the halves of each row exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotate;

impl Operator for Rotate {
    fn name(&self) -> &'static str {
        "rotate"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        if !x.width().is_multiple_of(2) {
            return Err(format!("rows of {} have no halves", shape_text(&x.shape)));
        }
        Ok(vec![Spec::new(x.shape.clone(), x.dtype)])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let half = at.temporary(at.tensor_in(0).bytes() / 2, at.tensor_in(0).dtype, "half");
        at.kernel(&[at.input(0)], &[half]);
        at.kernel(&[half, at.input(0)], &[at.output(0)]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        spread(at);
    }
}

impl From<Rotate> for Kind {
    fn from(op: Rotate) -> Self {
        Self::Rotate(op)
    }
}

/// Inputs: `x` (R×W) and which rows. Makes `rows` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// How many.
    pub rows: u64,
}

impl Operator for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x, _] = expect(inputs)?;
        Ok(vec![Spec::new([self.rows, x.width()], x.dtype)])
    }

    fn saves(&self) -> Saves {
        Saves::inputs([1])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let whole = at.like_input(0);
        at.kernel(&[at.gradient(), at.input(1)], &[whole]);
        at.give(0, whole);
    }
}

impl From<Gather> for Kind {
    fn from(op: Gather) -> Self {
        Self::Gather(op)
    }
}

/// Inputs: parts of as many columns. Makes one tensor of `rows` rows, to which all are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// How many.
    pub rows: u64,
}

impl Operator for Combine {
    fn name(&self) -> &'static str {
        "combine"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let Some(first) = inputs.first() else { return Err("found no part".to_owned()) };
        if inputs.iter().any(|part| part.width() != first.width()) {
            return Err("found parts of different widths".to_owned());
        }
        Ok(vec![Spec::new([self.rows, first.width()], first.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        for i in 0..at.inputs() {
            if at.wants(i) {
                let mine = at.like_input(i);
                at.kernel(&[at.gradient()], &[mine]);
                at.give(i, mine);
            }
        }
    }
}

impl From<Combine> for Kind {
    fn from(op: Combine) -> Self {
        Self::Combine(op)
    }
}

fn spread(at: &mut Backward<'_, '_>) {
    let back = at.like_input(0);
    at.kernel(&[at.gradient()], &[back]);
    at.give(0, back);
}
