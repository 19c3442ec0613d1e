//! Attention: three ways to run it, which differ in what they save.
//!
//! b batch, n heads, l length, d width of a head; p bytes of a product's number; t·H = b·n·l·d numbers in queries, keys, values.
//!
//! | way | forward | kept | backward |
//! |---|---|---|---|
//! | eager | copies of q, k, v; scores b·n·l² twice, softmax, dropout mask (1 B) and result; context twice | the copies, softmax, mask, dropped | a copy of the gradient; l² gradients of dropout, softmax (with one product as a temporary) and scaling; copies of each gradient |
//! | efficient | context; log-sums, fp32, l padded to 32 | q, k, v, context, log-sums (and the bias of a ragged mask, b·l²·p) | three gradients; row sums (fp32: over a product t·H·4, and once more transposed); blocks of query gradients |
//! | flash | context; log-sums b·n·l·4; generator state 16, 8 and 16 B | q, k, v, context, log-sums, two of the generator's | three gradients; row sums and fp32 query gradients, l padded to 128 |
//!
//! Autocast runs softmax and dropout in fp32 and casts the result; the fp32 result then lives until the layer returns.
//! Source: `sdpa_attention_forward` and `eager_attention_forward` of transformers over PyTorch 2.15, as recorded.
//! Left out: attention without dropout in training, key-value caches, attention masks in `eager`.

use vramlab_sim::units::BufferId;

use super::Model;
use super::kernels::{
    BLAS_WORKSPACE, efficient_backward_space, efficient_logsum, flash_backward_rows,
    flash_backward_space,
};
use super::settings::Attention;
use crate::synthetic::emit::Out;

/// What attention keeps.
pub(super) enum AttentionKept {
    Eager {
        /// Copies of query, key and value.
        rows: [BufferId; 3],
        softmax: BufferId,
        mask: BufferId,
        /// What the second product reads: the dropped scores, cast under autocast.
        dropped: BufferId,
    },
    Fused {
        /// Query, key and value.
        rows: [BufferId; 3],
        context: BufferId,
        logsum: BufferId,
        /// Bias of a ragged mask, or the generator's state.
        rest: Vec<BufferId>,
    },
}

impl Model {
    /// Context of queries, keys and values (consumed); what autocast holds until the layer returns; what is kept.
    pub(super) fn attention_forward(
        &mut self,
        out: &mut Out,
        rows: [BufferId; 3],
        keep: bool,
    ) -> (BufferId, Option<BufferId>, Option<AttentionKept>) {
        let result = match self.config.attention {
            Attention::Eager => self.eager_forward(out, rows, keep),
            Attention::Efficient | Attention::Flash => {
                let (context, kept) = self.fused_forward(out, rows, keep);
                (context, None, kept)
            }
        };
        for id in rows {
            out.release(id);
        }
        result
    }

    /// Gradients of query, key and value from that of the context (consumed).
    pub(super) fn attention_backward(
        &mut self,
        out: &mut Out,
        kept: AttentionKept,
        gradient: BufferId,
    ) -> [BufferId; 3] {
        match kept {
            AttentionKept::Eager { rows, softmax, mask, dropped } => {
                self.eager_backward(out, rows, [softmax, mask, dropped], gradient)
            }
            AttentionKept::Fused { rows, context, logsum, rest } => {
                let gradients = self.fused_backward(out, rows, [context, logsum], &rest, gradient);
                for id in rows.into_iter().chain([logsum, context]).chain(rest) {
                    out.release(id);
                }
                gradients
            }
        }
    }

    /// The gradient of one of the three as rows of tokens: eager attention has it by heads and copies it.
    pub(super) fn attention_gradient_rows(&mut self, out: &mut Out, g: BufferId) -> BufferId {
        match self.config.attention {
            Attention::Eager => self.recast(out, g, self.product_size()),
            Attention::Efficient | Attention::Flash => g,
        }
    }

    fn eager_forward(
        &mut self,
        out: &mut Out,
        [q, k, v]: [BufferId; 3],
        keep: bool,
    ) -> (BufferId, Option<BufferId>, Option<AttentionKept>) {
        let (row_size, numbers) = (self.product_size(), self.score_numbers());
        let score_size = numbers * self.config.product_bytes();
        let softmax_bytes = self.softmax_bytes();

        let qc = self.cast(out, q, row_size);
        let kc = self.cast(out, k, row_size);
        let scores = out.alloc("attention.scores", score_size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(self.score_flops(), &[qc, kc], &[scores]);
        if !keep {
            out.release(qc);
            out.release(kc);
        }
        let scaled = self.recast(out, scores, score_size);
        let softmax = out.alloc("attention.softmax", numbers * softmax_bytes);
        out.work(0.0, &[scaled], &[softmax]);
        out.release(scaled);
        let (mut dropped, mask) = self.dropout(out, softmax, softmax_bytes);
        if !keep {
            out.release(softmax);
            if let Some(mask) = mask {
                out.release(mask);
            }
        }
        let mut held = None;
        if self.config.casts() {
            held = Some(dropped);
            dropped = self.cast(out, dropped, score_size);
        }
        let vc = self.cast(out, v, row_size);
        let by_heads = out.alloc("attention.context", row_size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(self.score_flops(), &[dropped, vc], &[by_heads]);
        if !keep {
            out.release(vc);
        }
        let context = self.recast(out, by_heads, row_size);
        match mask.filter(|_| keep) {
            Some(mask) => {
                let rows = [qc, kc, vc];
                (context, held, Some(AttentionKept::Eager { rows, softmax, mask, dropped }))
            }
            None if held.is_some() => {
                out.release(dropped);
                (context, held, None)
            }
            // the layer returns its scores, so they live until it does
            None => (context, Some(dropped), None),
        }
    }

    fn eager_backward(
        &mut self,
        out: &mut Out,
        [qc, kc, vc]: [BufferId; 3],
        [softmax, mask, dropped]: [BufferId; 3],
        gradient: BufferId,
    ) -> [BufferId; 3] {
        let (row_size, numbers) = (self.product_size(), self.score_numbers());
        let score_size = numbers * self.config.product_bytes();
        let softmax_size = numbers * self.softmax_bytes();
        let flops = self.score_flops();

        let g = self.recast(out, gradient, row_size);
        let gv = out.alloc("attention.value.grad", row_size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[g, dropped], &[gv]);
        let mut g_scores = out.alloc("attention.scores.grad", score_size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[g, vc], &[g_scores]);
        for id in [g, vc, dropped] {
            out.release(id);
        }
        if self.config.casts() {
            g_scores = self.recast(out, g_scores, softmax_size);
        }
        let g_dropout = out.alloc("dropout.grad", softmax_size);
        out.work(0.0, &[g_scores, mask], &[g_dropout]);
        out.release(g_scores);
        out.release(mask);

        let g_softmax = out.alloc("attention.scores.grad", score_size);
        let product = out.alloc("attention.softmax.product", softmax_size);
        out.work(0.0, &[g_dropout, softmax], &[product, g_softmax]);
        for id in [product, g_dropout, softmax] {
            out.release(id);
        }
        let g_scaled = self.recast(out, g_softmax, score_size);
        let gq = out.alloc("attention.query.grad", row_size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[g_scaled, kc], &[gq]);
        let gk = out.alloc("attention.key.grad", row_size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[g_scaled, qc], &[gk]);
        for id in [g_scaled, kc, qc] {
            out.release(id);
        }
        [gq, gk, gv]
    }

    fn fused_forward(
        &mut self,
        out: &mut Out,
        rows: [BufferId; 3],
        keep: bool,
    ) -> (BufferId, Option<AttentionKept>) {
        let (b, n, l) = (self.config.batch, self.config.heads, self.len);
        let mut rest = Vec::new();
        let (context, logsum);
        if self.config.attention == Attention::Flash {
            context = out.alloc("attention.context", self.product_size());
            logsum = out.alloc("attention.logsum", b * n * l * 4);
            let state = out.alloc("attention.generator", 16);
            rest.push(out.alloc("attention.generator", 8));
            rest.push(out.alloc("attention.generator", 16));
            out.release(state);
        } else {
            if let Some(mask) = self.ragged_mask {
                let bias = out.alloc("attention.bias", b * l * l * self.config.product_bytes());
                out.work(0.0, &[mask], &[bias]);
                rest.push(bias);
            }
            context = out.alloc("attention.context", self.product_size());
            logsum = out.alloc("attention.logsum", efficient_logsum(b, n, l));
        }
        out.work(2.0 * self.score_flops(), &rows, &[context, logsum]);
        if keep {
            for id in rows.into_iter().chain([context]) {
                out.retain(id);
            }
            return (context, Some(AttentionKept::Fused { rows, context, logsum, rest }));
        }
        for id in [logsum].into_iter().chain(rest) {
            out.release(id);
        }
        (context, None)
    }

    /// Does not release what was kept; consumes `gradient`.
    fn fused_backward(
        &mut self,
        out: &mut Out,
        rows: [BufferId; 3],
        [context, logsum]: [BufferId; 2],
        rest: &[BufferId],
        gradient: BufferId,
    ) -> [BufferId; 3] {
        let (b, n, l) = (self.config.batch, self.config.heads, self.len);
        let width = self.config.hidden / n;
        let gradients = ["attention.query.grad", "attention.key.grad", "attention.value.grad"]
            .map(|site| out.alloc(site, self.product_size()));
        let sums;
        let space;
        if self.config.attention == Attention::Flash {
            sums = out.alloc("attention.rowsum", flash_backward_rows(b, n, l));
            space = flash_backward_space(b, n, l, width);
        } else if self.config.product_bytes() == 4 {
            let product = out.alloc("attention.product", self.product_size());
            out.work(0.0, &[gradient, context], &[product]);
            let by_token = out.alloc("attention.rowsum", b * l * n * 4);
            out.work(0.0, &[product], &[by_token]);
            sums = self.cast(out, by_token, b * n * l * 4);
            out.release(by_token);
            out.release(product);
            space = efficient_backward_space(b, n, l, width);
        } else {
            sums = out.alloc("attention.rowsum", b * n * l * 4);
            space = efficient_backward_space(b, n, l, width);
        }
        let blocks = out.alloc("attention.query.blocks", space);
        let mut reads = vec![gradient, context, logsum, sums];
        reads.extend(rows);
        reads.extend(rest);
        let mut writes = vec![blocks];
        writes.extend(gradients);
        // five products where forward has two
        out.work(5.0 * self.score_flops(), &reads, &writes);
        if self.config.attention == Attention::Flash {
            out.release(blocks);
            out.release(sums);
        } else {
            out.release(sums);
            out.release(blocks);
        }
        out.release(gradient);
        gradients
    }

    /// Numbers in all scores.
    fn score_numbers(&self) -> u64 {
        self.config.batch * self.config.heads * self.len * self.len
    }

    /// Operations of one product with l² scores.
    fn score_flops(&self) -> f64 {
        2.0 * self.score_numbers() as f64 * (self.config.hidden / self.config.heads) as f64
    }

    /// Bytes of a number in softmax and dropout: autocast runs them in fp32.
    fn softmax_bytes(&self) -> u64 {
        if self.config.casts() { 4 } else { self.config.product_bytes() }
    }
}
