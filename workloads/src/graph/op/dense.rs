//! A dense layer with its activation in the product's kernel, made by the pass `fusion`.
//!
//! In training what the activation's backward needs is written beside the result: the value before it (gelu, silu), or the result itself (relu, tanh). Backward applies the
//! activation's gradient first. Source: the epilogues of cublasLt (`CUBLASLT_EPILOGUE_GELU_AUX_BIAS`, `RELU_AUX_BIAS`).

use super::linear::{self, Linear};
use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor};
use crate::graph::lower::Blas;
use crate::graph::op::{Elementwise, F};

/// Inputs: as of [`Linear`], with bias. Makes the result, and the value before the activation where that is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivatedLinear {
    /// The activation.
    pub activation: F,
    /// Backward comes: what it needs is written.
    pub training: bool,
}

impl ActivatedLinear {
    fn saves_before(self) -> bool {
        self.training && !Elementwise(self.activation).saves().inputs.is_empty()
    }
}

impl Operator for ActivatedLinear {
    fn name(&self) -> &'static str {
        "linear.activated"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let mut made = Linear.outputs(inputs)?;
        if self.saves_before() {
            let result = made[0].clone();
            made.push(Spec { differentiable: false, ..result });
        }
        Ok(made)
    }

    fn flops(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> f64 {
        Linear.flops(inputs, outputs)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: vec![0, 1], outputs: vec![usize::from(self.saves_before())] }
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        at.run_with_workspace(Blas::Lt);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let before = at.like_output();
        let saved = at.output(usize::from(self.saves_before()));
        at.kernel(&[at.gradient(), saved], &[before]);
        linear::backward(at, before, false);
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl From<ActivatedLinear> for super::Kind {
    fn from(op: ActivatedLinear) -> Self {
        Self::ActivatedLinear(op)
    }
}
