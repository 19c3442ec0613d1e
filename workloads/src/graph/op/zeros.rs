//! A tensor of zeros, made on the device.

use super::{Backward, Operator, Spec, Tensor};
use crate::graph::tensor::DType;

/// Makes it; has no inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zeros {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Type of its numbers.
    pub dtype: DType,
}

impl Operator for Zeros {
    fn name(&self) -> &'static str {
        "zeros"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        match inputs.len() {
            0 => Ok(vec![Spec::aside(self.shape.clone(), self.dtype)]),
            found => Err(format!("found {found} inputs, expected none")),
        }
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Zeros> for super::Kind {
    fn from(op: Zeros) -> Self {
        Self::Zeros(op)
    }
}
