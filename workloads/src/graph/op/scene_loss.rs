//! Losses of text detection and recognition.
//!
//! | operator | forward makes | backward makes | source |
//! |---|---|---|---|
//! | binary cross entropy | the terms, as large as the map, then their mean | the input gradient | `aten/src/ATen/native/Loss.cpp`, PyTorch 2.15 |
//! | CTC | per sequence its loss and, kept, log-alpha: n×t×(2s+1) fp32; then the mean | log-beta as large as log-alpha as a temporary, and the gradient of the scores | `aten/src/ATen/native/cuda/LossCTC.cu` |
//!
//! n sequences, t steps, s symbols of the longest text. The log-softmax that CTC reads is an operator of its own
//! ([`LogSoftmax`]), which saves its output.

use super::pool::give_one;
use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::{DType, shape_text};

/// Inputs: scores and targets of one shape. Makes the mean loss and the terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryCrossEntropy;

impl Operator for BinaryCrossEntropy {
    fn name(&self) -> &'static str {
        "binary_cross_entropy"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [scores, targets] = expect(inputs)?;
        if scores.shape != targets.shape {
            let (a, b) = (shape_text(&scores.shape), shape_text(&targets.shape));
            return Err(format!("scores of {a} and targets of {b}, expected one shape"));
        }
        Ok(vec![Spec::new([], scores.dtype), Spec::aside(scores.shape.clone(), scores.dtype)])
    }

    fn saves(&self) -> Saves {
        Saves::inputs([0, 1])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let (loss, terms) = (at.output(0), at.output(1));
        at.kernel(&[at.input(0), at.input(1)], &[terms]);
        at.kernel(&[terms], &[loss]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_one(at);
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }
}

impl From<BinaryCrossEntropy> for super::Kind {
    fn from(op: BinaryCrossEntropy) -> Self {
        Self::BinaryCrossEntropy(op)
    }
}

/// Logarithm of the softmax over the innermost extent. Input: scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSoftmax;

impl Operator for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        Ok(vec![Spec::new(x.shape.clone(), x.dtype)])
    }

    fn saves(&self) -> Saves {
        Saves::outputs([0])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_one(at);
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }
}

impl From<LogSoftmax> for super::Kind {
    fn from(op: LogSoftmax) -> Self {
        Self::LogSoftmax(op)
    }
}

/// Inputs: log-probabilities (n×t×classes) and texts (n×s, int64). Makes the mean loss, that of each sequence, and log-alpha.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctc;

impl Operator for Ctc {
    fn name(&self) -> &'static str {
        "ctc"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [scores, texts] = expect(inputs)?;
        let ([n, t, _], [texts_n, s]) = (&scores.shape[..], &texts.shape[..]) else {
            let (a, b) = (shape_text(&scores.shape), shape_text(&texts.shape));
            return Err(format!("found {a} and {b}, expected n x steps x classes and n x symbols"));
        };
        if n != texts_n || s > t {
            return Err(format!(
                "{texts_n} texts of {s} symbols do not fit {n} lines of {t} steps"
            ));
        }
        Ok(vec![
            Spec::new([], scores.dtype),
            Spec::aside([*n], scores.dtype),
            Spec::aside([*n, *t, 2 * s + 1], DType::F32),
        ])
    }

    fn saves(&self) -> Saves {
        Saves { inputs: vec![0, 1], outputs: vec![1, 2] }
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let [loss, each, alpha] = [0, 1, 2].map(|i| at.output(i));
        at.kernel(&[at.input(0), at.input(1)], &[each, alpha]);
        at.kernel(&[each], &[loss]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let mut reads = vec![at.gradient()];
        reads.extend(at.saved());
        let texts = at.tensor_in(1).width();
        let alpha = at.tensor_in(0).rows() * (2 * texts + 1) * DType::F32.bytes();
        let beta = at.temporary(alpha, DType::F32, "beta");
        let back = at.like_input(0);
        at.kernel_with(0.0, &reads, &[back], &[beta]);
        at.give(0, back);
    }

    fn autocast(&self) -> Autocast {
        Autocast::Full
    }
}

impl From<Ctc> for super::Kind {
    fn from(op: Ctc) -> Self {
        Self::Ctc(op)
    }
}
