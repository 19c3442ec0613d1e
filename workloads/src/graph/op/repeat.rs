//! Heads that several others share, written out: each as often as there are others (`repeat_kv` of transformers 5.24).

use super::{Backward, Kind, Operator, Spec, Tensor, expect};
use crate::graph::tensor::shape_text;

/// Input: b×m×s×d. Makes b×(times·m)×s×d; backward adds the gradients of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// How often.
    pub times: u64,
}

impl Operator for Repeat {
    fn name(&self) -> &'static str {
        "repeat"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [b, heads, rows, width] = x.shape[..] else {
            return Err(format!(
                "found {}, expected batch x heads x rows x width",
                shape_text(&x.shape)
            ));
        };
        Ok(vec![Spec::new([b, heads.saturating_mul(self.times), rows, width], x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let back = at.like_input(0);
        at.kernel(&[at.gradient()], &[back]);
        at.give(0, back);
    }
}

impl From<Repeat> for Kind {
    fn from(op: Repeat) -> Self {
        Self::Repeat(op)
    }
}
