//! Cross entropy of scores against labels.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `forward` | log-softmax as large as the scores, then the mean of its picks: two scalars, loss and weight | `aten/src/ATen/native/LossNLL.cpp`, PyTorch 2.15 |
//! | `backward` | a zeroed gradient of the log-softmax, then that of the scores | as recorded |
//! | `saved` | the log-softmax and the weight |  |

use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::{DType, shape_text};

/// Inputs: scores (…×C) and labels (one for each row). Makes the loss, the log-softmax and the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropy;

impl Operator for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [scores, labels] = expect(inputs)?;
        if labels.dtype != DType::I64 || labels.numbers() != scores.rows() {
            let (rows, found) = (scores.rows(), shape_text(&labels.shape));
            let dtype = labels.dtype.name();
            return Err(format!(
                "labels of {found} in {dtype}, expected {rows} in int64, one for each row of scores"
            ));
        }
        Ok(vec![
            Spec::new([], scores.dtype),
            Spec::aside(scores.shape.clone(), scores.dtype),
            Spec::aside([], scores.dtype),
        ])
    }

    fn saves(&self) -> Saves {
        Saves { inputs: vec![1], outputs: vec![1, 2] }
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let [loss, log, weight] = [0, 1, 2].map(|i| at.output(i));
        at.kernel(&[at.input(0)], &[log]);
        at.kernel(&[log, at.input(1)], &[loss, weight]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let g = at.gradient();
        let g_log = at.like_input(0);
        at.kernel(&[g, at.input(1), at.output(2)], &[g_log]);
        let g_scores = at.like_input(0);
        at.kernel(&[g_log, at.output(1)], &[g_scores]);
        at.give(0, g_scores);
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }
}

impl From<CrossEntropy> for super::Kind {
    fn from(op: CrossEntropy) -> Self {
        Self::CrossEntropy(op)
    }
}
