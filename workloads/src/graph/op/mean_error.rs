//! The mean of errors against targets: squared, or absolute.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `forward` | the differences, their squares (or sizes) as a temporary, the mean | `(x − t).pow(2).mean()` of PyTorch 2.15; recordings |
//! | `backward` | squared: the mean's gradient, the differences, twice them, and the product of the first and the last; absolute: the mean's gradient, the signs, the product | `derivatives.yaml` (`pow`, `mean`, `abs`); recordings |
//! | `saved` | the differences |  |

use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::shape_text;

/// Inputs: results and targets of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeanError {
    /// Squared, not absolute.
    pub squared: bool,
}

impl Operator for MeanError {
    fn name(&self) -> &'static str {
        "mean_error"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x, targets] = expect(inputs)?;
        if x.shape != targets.shape {
            let (a, b) = (shape_text(&x.shape), shape_text(&targets.shape));
            return Err(format!("results of {a} and targets of {b}, expected one shape"));
        }
        Ok(vec![Spec::new([], x.dtype), Spec::aside(x.shape.clone(), x.dtype)])
    }

    fn saves(&self) -> Saves {
        Saves::outputs([1])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let [loss, difference] = [0, 1].map(|i| at.output(i));
        at.kernel(&[at.input(0), at.input(1)], &[difference]);
        let whole = at.tensor_out(1);
        let terms = at.temporary(whole.bytes(), whole.dtype, "terms");
        at.kernel(&[difference], &[terms]);
        at.kernel(&[terms], &[loss]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let (g, difference) = (at.gradient(), at.output(1));
        let mean = at.like_input(0);
        at.kernel(&[g], &[mean]);
        let mut slope = at.like_input(0);
        let mut parts = vec![mean, slope];
        at.kernel(&[difference], &[slope]);
        if self.squared {
            let twice = at.like_input(0);
            at.kernel(&[slope], &[twice]);
            // all three are dropped together, last first
            parts.push(twice);
            slope = twice;
        }
        let back = at.like_input(0);
        at.kernel(&[mean, slope], &[back]);
        parts.reverse();
        at.hold(&parts);
        at.give(0, back);
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }
}

impl From<MeanError> for super::Kind {
    fn from(op: MeanError) -> Self {
        Self::MeanError(op)
    }
}
