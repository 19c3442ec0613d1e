//! Eight-bit weights made wide again for a product: `w = q·scale`, a scale for each row (as bitsandbytes' and GPTQ's weight-only kernels that do not fuse it).

use super::{Backward, Operator, Spec, Tensor, expect};
use crate::graph::tensor::{DType, shape_text};

/// Inputs: weights (int8, R×…) and scales (R). Makes the weights in the type `to`. It has no backward: such weights are not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dequantise {
    /// The type.
    pub to: DType,
}

impl Operator for Dequantise {
    fn name(&self) -> &'static str {
        "dequantise"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [weight, scales] = expect(inputs)?;
        if weight.dtype != DType::I8 || weight.shape.first() != Some(&scales.numbers()) {
            let (w, s) = (shape_text(&weight.shape), shape_text(&scales.shape));
            let dtype = weight.dtype.name();
            return Err(format!("weights of {w} in {dtype} and scales of {s} do not fit"));
        }
        Ok(vec![Spec::new(weight.shape.clone(), self.to)])
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Dequantise> for super::Kind {
    fn from(op: Dequantise) -> Self {
        Self::Dequantise(op)
    }
}
