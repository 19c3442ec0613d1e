//! What a query may see, as a bias of its scores: 0 for keys up to its own place, the lowest number for later ones.

use super::{Backward, Kind, Operator, Spec, Tensor};
use crate::graph::tensor::DType;

/// Makes it (b×1×l×s, as `create_causal_mask` of transformers 5.24 does for eager attention); has no inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Causal {
    /// Batch, queries, keys.
    pub shape: [u64; 3],
    /// Type of its numbers.
    pub dtype: DType,
}

impl Operator for Causal {
    fn name(&self) -> &'static str {
        "causal"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [batch, queries, keys] = self.shape;
        match inputs.len() {
            0 => Ok(vec![Spec::aside([batch, 1, queries, keys], self.dtype)]),
            found => Err(format!("found {found} inputs, expected none")),
        }
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Causal> for Kind {
    fn from(op: Causal) -> Self {
        Self::Causal(op)
    }
}
