//! A dense layer: forward, what it keeps, and its three gradients.
//!
//! | rule | what it says |
//! |---|---|
//! | `autocast` | the weight, the bias and an fp32 input are copied to 16 bits first; copies of weights live until forward ends, or until backward has used them |
//! | `forward` | one product with fused bias, space of cublasLt |
//! | `backward` | input gradient, then weight gradient, each with its workspace; then the bias gradient, a column sum |
//! | `unpack` | the saved input is freed after the bias gradient; in a recomputed layer before it, since the saved tensor is unpacked for the products only |
//!
//! Source: `addmm` and its backward in PyTorch 2.15, as recorded. Sizes: see the table in `layer`. Left out: layers without bias.

use vramlab_sim::units::BufferId;

use super::Model;
use super::kernels::{BLAS_WORKSPACE, LT_WORKSPACE, column_sum_space};
use super::settings::Workspace;
use super::shapes::Linear;
use crate::synthetic::emit::Out;

/// What a dense layer keeps.
pub(super) struct LinearKept {
    pub(super) input: BufferId,
    /// The input is an own 16-bit copy of an fp32 tensor.
    input_cast: bool,
    pub(super) weight_cast: Option<BufferId>,
}

impl LinearKept {
    pub(super) fn release(&self, out: &mut Out) {
        out.release(self.input);
        if let Some(weight) = self.weight_cast {
            out.release(weight);
        }
    }
}

/// Is a tensor in the residual stream's type, or in a product's?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Typed {
    Stream,
    Product,
}

impl Model {
    /// A dense layer over `rows` rows of `x` (not consumed).
    pub(super) fn linear(
        &mut self,
        out: &mut Out,
        linear: Linear,
        x: BufferId,
        typed: Typed,
        rows: u64,
        keep: bool,
    ) -> (BufferId, Option<LinearKept>) {
        let p = self.config.product_bytes();
        let site = self.site(linear.weight);
        let mut weight = self.weights[linear.weight];
        let mut bias = self.weights[linear.bias];
        let mut input = x;
        let input_cast = self.config.casts() && typed == Typed::Stream;
        let mut weight_cast = None;
        if self.config.casts() {
            bias = self.cast(out, bias, linear.outputs * p);
            weight = self.cast(out, weight, linear.inputs * linear.outputs * p);
            // autocast keeps its copies until the forward pass ends
            self.autocast.extend([bias, weight]);
            weight_cast = keep.then(|| out.retain(weight));
        }
        if input_cast {
            input = self.cast(out, x, rows * linear.inputs * p);
        }
        let y = out.alloc(site, rows * linear.outputs * p);
        self.workspace(out, LT_WORKSPACE);
        out.work(product_flops(rows, linear), &[input, weight, bias], &[y]);
        match (keep, input_cast) {
            (true, false) => {
                out.retain(input);
            }
            (false, true) => out.release(input),
            _ => {}
        }
        (y, keep.then_some(LinearKept { input, input_cast, weight_cast }))
    }

    /// The gradient of a dense layer's input; `gradient` is consumed.
    ///
    /// With `add_to` it is added there and `add_to` is returned.
    pub(super) fn linear_backward(
        &mut self,
        out: &mut Out,
        linear: Linear,
        kept: LinearKept,
        gradient: BufferId,
        rows: u64,
        add_to: Option<BufferId>,
    ) -> BufferId {
        let p = self.config.product_bytes();
        let site = self.site(linear.weight);
        let weight = kept.weight_cast.unwrap_or(self.weights[linear.weight]);
        let flops = product_flops(rows, linear);

        let mut g_input = out.alloc(site, rows * linear.inputs * p);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[gradient, weight], &[g_input]);
        let g_weight = out.alloc(site, linear.inputs * linear.outputs * p);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[gradient, kept.input], &[g_weight]);
        if self.recomputed {
            kept.release(out);
        }
        let g_bias = self.column_sum(out, site, rows, linear.outputs, gradient);
        out.release(gradient);
        if !self.recomputed {
            kept.release(out);
        }
        let (mut g_weight, mut g_bias) = (g_weight, g_bias);
        if !self.config.casts() {
            self.give(out, linear.bias, g_bias);
            self.give(out, linear.weight, g_weight);
        } else if kept.input_cast {
            g_input = self.recast(out, g_input, rows * linear.inputs * 4);
        }
        let g_input = match add_to {
            Some(sum) => {
                out.work(0.0, &[g_input], &[sum]);
                out.release(g_input);
                sum
            }
            None => g_input,
        };
        if self.config.casts() {
            g_weight = self.recast(out, g_weight, linear.inputs * linear.outputs * 4);
            self.give(out, linear.weight, g_weight);
            g_bias = self.recast(out, g_bias, linear.outputs * 4);
            self.give(out, linear.bias, g_bias);
        }
        g_input
    }

    /// The same over all tokens, added to the residual stream's gradient.
    pub(super) fn linear_backward_into(
        &mut self,
        out: &mut Out,
        linear: Linear,
        kept: LinearKept,
        gradient: BufferId,
        residual: BufferId,
    ) {
        self.linear_backward(out, linear, kept, gradient, self.tokens, Some(residual));
    }

    /// Sum over the rows of `matrix`, as a new buffer of `columns` numbers.
    pub(super) fn column_sum(
        &mut self,
        out: &mut Out,
        site: &'static str,
        rows: u64,
        columns: u64,
        matrix: BufferId,
    ) -> BufferId {
        let sum = out.alloc(site, columns * self.config.product_bytes());
        match column_sum_space(rows, columns, self.config.device) {
            Some(space) => {
                let partial = out.alloc("sum.partial", space.partial);
                let counters = out.alloc("sum.counters", space.counters);
                out.work(0.0, &[matrix], &[partial, counters, sum]);
                out.release(counters);
                out.release(partial);
            }
            None => out.work(0.0, &[matrix], &[sum]),
        }
        sum
    }

    /// The workspace of one product.
    pub(super) fn workspace(&mut self, out: &mut Out, size: u64) {
        match self.config.workspace {
            Workspace::Call => out.scratch("blas.workspace", size),
            Workspace::Cached if self.workspace_cached.is_none() => {
                self.workspace_cached = Some(out.alloc("blas.workspace", BLAS_WORKSPACE));
            }
            Workspace::Cached | Workspace::None => {}
        }
    }
}

fn product_flops(rows: u64, linear: Linear) -> f64 {
    2.0 * rows as f64 * linear.inputs as f64 * linear.outputs as f64
}
