//! One layer of the stack, and the pieces it is made of: what each allocates forward, keeps, and does backward.
//!
//! Sizes below for t = batch × length tokens, width H, inner width F; s, p, w are the bytes of a number in the residual stream, a
//! product and a weight ([`Config`]).
//!
//! | piece | forward | kept for backward | backward |
//! |---|---|---|---|
//! | dense | out t·O·p; workspace | its input (autocast: 16-bit copies of input, if that is fp32, and of weight) | input gradient, weight gradient O·I·p and bias gradient O·p, a workspace each; split-sum space |
//! | dropout | mask t·H bytes, out | mask | out |
//! | norm | out t·H·s, mean and deviation t·4 each | its input, both statistics | out, two H·w |
//! | gelu | out t·F·p | its input | out |
//! | sum with the branch before | out t·H·s | nothing | added into the other gradient in place |
//!
//! Source: order and lifetimes as PyTorch 2.15 runs transformers' `BertLayer`, seen in recordings; sizes from shapes.
//! Without `keep` (recomputation's first pass, inference) the same runs and everything is dropped as soon as it is used.

use vramlab_sim::units::BufferId;

#[cfg(doc)]
use super::Config;
use super::Model;
use super::attention::AttentionKept;
use super::dense::{LinearKept, Typed};
use super::shapes::{self, WeightId};
use crate::synthetic::emit::Out;

/// What a norm keeps.
pub(super) struct NormKept {
    input: BufferId,
    mean: BufferId,
    deviation: BufferId,
}

/// What a layer keeps.
pub(super) struct LayerKept {
    query: LinearKept,
    key: LinearKept,
    value: LinearKept,
    attention: AttentionKept,
    output: LinearKept,
    attention_mask: BufferId,
    attention_norm: NormKept,
    ffn_inner: LinearKept,
    gelu_input: BufferId,
    ffn_output: LinearKept,
    ffn_mask: BufferId,
    ffn_norm: NormKept,
}

impl Model {
    /// Layer `index` over `x` (not consumed).
    pub(super) fn layer_forward(
        &mut self,
        out: &mut Out,
        index: u64,
        x: BufferId,
        keep: bool,
    ) -> (BufferId, Option<LayerKept>) {
        let layer = shapes::layer(&self.config, index);
        let (q, query) = self.linear(out, layer.query, x, Typed::Stream, self.tokens, keep);
        let (k, key) = self.linear(out, layer.key, x, Typed::Stream, self.tokens, keep);
        let (v, value) = self.linear(out, layer.value, x, Typed::Stream, self.tokens, keep);
        let (context, held, attention) = self.attention_forward(out, [q, k, v], keep);
        let (o, output) =
            self.linear(out, layer.output, context, Typed::Product, self.tokens, keep);
        let (y, attention_mask, attention_norm) =
            self.close_branch(out, "attention", layer.attention_norm, o, x, keep);
        out.release(context);

        let (h, ffn_inner) = self.linear(out, layer.ffn_inner, y, Typed::Stream, self.tokens, keep);
        let g = out.alloc("ffn.gelu", out.size(h));
        out.work(0.0, &[h], &[g]);
        if !keep {
            out.release(h);
        }
        let (f, ffn_output) =
            self.linear(out, layer.ffn_output, g, Typed::Product, self.tokens, keep);
        let (z, ffn_mask, ffn_norm) = self.close_branch(out, "ffn", layer.ffn_norm, f, y, keep);
        out.release(g);
        if let Some(held) = held {
            out.release(held);
        }
        out.release(y);
        let kept = || {
            Some(LayerKept {
                query: query?,
                key: key?,
                value: value?,
                attention: attention?,
                output: output?,
                attention_mask: attention_mask?,
                attention_norm: attention_norm?,
                ffn_inner: ffn_inner?,
                gelu_input: h,
                ffn_output: ffn_output?,
                ffn_mask: ffn_mask?,
                ffn_norm: ffn_norm?,
            })
        };
        (z, kept())
    }

    /// The gradient of layer `index`'s input from that of its output (consumed).
    pub(super) fn layer_backward(
        &mut self,
        out: &mut Out,
        index: u64,
        kept: LayerKept,
        gradient: BufferId,
    ) -> BufferId {
        let layer = shapes::layer(&self.config, index);
        let tokens = self.tokens;
        let residual = self.norm_backward(out, layer.ffn_norm, kept.ffn_norm, gradient);
        let g = self.dropout_backward(out, residual, kept.ffn_mask);
        let g = self.linear_backward(out, layer.ffn_output, kept.ffn_output, g, tokens, None);
        let inner = out.alloc("ffn.gelu.grad", out.size(g));
        out.work(0.0, &[g, kept.gelu_input], &[inner]);
        out.release(g);
        out.release(kept.gelu_input);
        self.linear_backward_into(out, layer.ffn_inner, kept.ffn_inner, inner, residual);

        let residual = self.norm_backward(out, layer.attention_norm, kept.attention_norm, residual);
        let g = self.dropout_backward(out, residual, kept.attention_mask);
        let g = self.linear_backward(out, layer.output, kept.output, g, tokens, None);
        let [gq, gk, gv] = self.attention_backward(out, kept.attention, g);
        for (linear, kept, g) in [
            (layer.value, kept.value, gv),
            (layer.key, kept.key, gk),
            (layer.query, kept.query, gq),
        ] {
            let g = self.attention_gradient_rows(out, g);
            self.linear_backward_into(out, linear, kept, g, residual);
        }
        residual
    }

    /// Dropout of `branch` (consumed), sum with `before`, norm.
    fn close_branch(
        &mut self,
        out: &mut Out,
        part: &'static str,
        norm: WeightId,
        branch: BufferId,
        before: BufferId,
        keep: bool,
    ) -> (BufferId, Option<BufferId>, Option<NormKept>) {
        let [sum_site, norm_site] = match part {
            "ffn" => ["ffn.sum", "ffn.norm"],
            _ => ["attention.sum", "attention.norm"],
        };
        let (dropped, mask) = self.dropout(out, branch, self.config.product_bytes());
        if !keep && let Some(mask) = mask {
            out.release(mask);
        }
        out.release(branch);
        let sum = out.alloc(sum_site, self.stream_size());
        out.work(0.0, &[dropped, before], &[sum]);
        let (y, kept) = self.norm(out, norm_site, norm, sum, self.tokens, keep);
        out.release(sum);
        out.release(dropped);
        (y, mask.filter(|_| keep), kept)
    }

    /// Norm of `x` (not consumed).
    pub(super) fn norm(
        &mut self,
        out: &mut Out,
        site: &'static str,
        norm: WeightId,
        x: BufferId,
        rows: u64,
        keep: bool,
    ) -> (BufferId, Option<NormKept>) {
        let y = out.alloc(site, rows * self.config.hidden * self.config.stream_bytes());
        let mean = out.alloc("norm.mean", rows * 4);
        let deviation = out.alloc("norm.deviation", rows * 4);
        let weights = [x, self.weights[norm], self.weights[norm + 1]];
        out.work(0.0, &weights, &[y, mean, deviation]);
        if keep {
            out.retain(x);
            return (y, Some(NormKept { input: x, mean, deviation }));
        }
        out.release(mean);
        out.release(deviation);
        (y, None)
    }

    /// The gradient of a norm's input; `gradient` is consumed.
    pub(super) fn norm_backward(
        &mut self,
        out: &mut Out,
        norm: WeightId,
        kept: NormKept,
        gradient: BufferId,
    ) -> BufferId {
        let width = self.config.hidden * self.config.weight_bytes();
        let g_input = out.alloc("norm.grad", out.size(gradient));
        let g_weight = out.alloc("norm.weight.grad", width);
        let g_bias = out.alloc("norm.bias.grad", width);
        let reads = [gradient, kept.input, kept.mean, kept.deviation, self.weights[norm]];
        out.work(0.0, &reads, &[g_input, g_weight, g_bias]);
        for id in [gradient, kept.input, kept.mean, kept.deviation] {
            out.release(id);
        }
        self.give(out, norm, g_weight);
        self.give(out, norm + 1, g_bias);
        g_input
    }

    /// Dropout of `x` (not consumed), whose numbers take `number` bytes. In inference the same buffer, with one owner more.
    pub(super) fn dropout(
        &mut self,
        out: &mut Out,
        x: BufferId,
        number: u64,
    ) -> (BufferId, Option<BufferId>) {
        if !self.config.train {
            return (out.retain(x), None);
        }
        let size = out.size(x);
        let mask = out.alloc("dropout.mask", size / number);
        let y = out.alloc("dropout", size);
        out.work(0.0, &[x], &[mask, y]);
        (y, Some(mask))
    }

    /// The gradient of a branch's dropout from the residual stream's (not consumed).
    fn dropout_backward(&mut self, out: &mut Out, residual: BufferId, mask: BufferId) -> BufferId {
        let mut source = out.retain(residual);
        if self.config.casts() {
            out.release(source);
            source = self.cast(out, residual, self.product_size());
        }
        let g = out.alloc("dropout.grad", self.product_size());
        out.work(0.0, &[source, mask], &[g]);
        out.release(source);
        out.release(mask);
        g
    }

    /// A copy of `x` in another type.
    pub(super) fn cast(&mut self, out: &mut Out, x: BufferId, size: u64) -> BufferId {
        let copy = out.alloc("cast", size);
        out.work(0.0, &[x], &[copy]);
        copy
    }

    /// `x` (consumed) in another type.
    pub(super) fn recast(&mut self, out: &mut Out, x: BufferId, size: u64) -> BufferId {
        let copy = self.cast(out, x, size);
        out.release(x);
        copy
    }
}
