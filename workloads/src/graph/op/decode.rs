//! The best class of every row, for decoding on the host.
//!
//! Source: `argmax` and `max` over a dimension of PyTorch 2.15 (int64 places, and the values where they are asked for), each copied to the host and
//! dropped, as recorded.

use super::{Backward, Forward, Operator, Spec, Tensor, expect};
use crate::graph::tensor::DType;

/// Input: scores (…×classes). Makes the places of the best; with `values`, these first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Makes the scores themselves too, and only these go to the host.
    pub values: bool,
}

impl Operator for Decode {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let rows = x.shape[..x.shape.len().saturating_sub(1)].to_vec();
        let places = Spec::aside(rows.clone(), DType::I64);
        Ok(if self.values { vec![Spec::aside(rows, x.dtype), places] } else { vec![places] })
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        at.run();
        at.read_by_host(0);
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Decode> for super::Kind {
    fn from(op: Decode) -> Self {
        Self::Decode(op)
    }
}
