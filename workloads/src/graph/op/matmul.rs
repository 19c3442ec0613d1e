//! A batched product of two tensors.
//!
//! Both are saved. Each product takes cuBLAS's workspace. Backward makes the second input's gradient first, then the first's (`bmm` in
//! `derivatives.yaml`, PyTorch 2.15; order as recorded).

use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, expect, one_float};
use crate::graph::lower::Blas;
use crate::graph::tensor::shape_text;

/// Inputs: `a` (…×M×K) and `b` (…×K×N; with `transposed` …×N×K).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul {
    /// The second input has its innermost extents the other way round.
    pub transposed: bool,
}

impl Operator for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [a, b] = expect(inputs)?;
        let dtype = one_float(inputs)?;
        let misfit = || {
            let (a, b) = (shape_text(&a.shape), shape_text(&b.shape));
            let turned = if self.transposed { " transposed" } else { "" };
            format!("{a} and {b}{turned} do not multiply out")
        };
        let (Some((k, front)), Some((last, front_b))) =
            (a.shape.split_last(), b.shape.split_last())
        else {
            return Err(misfit());
        };
        let (Some((m, batch)), Some((first, batch_b))) = (front.split_last(), front_b.split_last())
        else {
            return Err(misfit());
        };
        let (inner, n) = if self.transposed { (last, first) } else { (first, last) };
        if batch != batch_b || inner != k {
            return Err(misfit());
        }
        let mut shape = batch.to_vec();
        shape.extend([*m, *n]);
        Ok(vec![Spec::new(shape, dtype)])
    }

    fn flops(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> f64 {
        2.0 * outputs[0].numbers() as f64 * inputs[0].width() as f64
    }

    fn saves(&self) -> Saves {
        Saves::inputs([0, 1])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        at.run_with_workspace(Blas::Plain);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let (g, flops) = (at.gradient(), at.forward_flops());
        for i in [1, 0] {
            if at.wants(i) {
                let mine = at.like_input(i);
                at.product(flops, &[g, at.input(1 - i)], &[mine], Blas::Plain);
                at.give(i, mine);
            }
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl From<MatMul> for super::Kind {
    fn from(op: MatMul) -> Self {
        Self::MatMul(op)
    }
}
