//! The two ends of the model: embeddings and head, forward and backward.
//!
//! | part | forward | kept for backward |
//! |---|---|---|
//! | embeddings | words and types t·H, their sum, positions l·H, sum again, norm, dropout | the norm's input and statistics, the dropout mask |
//! | classify | pooler over the first tokens b·H, tanh, dropout, classifier b·C, log-softmax | their inputs; the last hidden state itself in fp32 |
//! | mlm | transform t·H, gelu, norm, decoder t·V, log-softmax t·V in fp32 under autocast | their inputs, the log-softmax |
//!
//! Backward of the embeddings: the position gradient is a batch sum l·H and then P·H; types 2·H; words V·H. With more than
//! [`SORT_ROWS_MIN`] tokens the word gradient is summed by segments of equal words: at most t/10 + min(t, V) partial rows of H fp32
//! (`aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu`), and four index lists of t 64-bit numbers. The decoder's weight
//! gradient waits for the word gradient and both are summed into a third.
//!
//! `loss=sum`: the gradient of every score is one, a scalar that each product expands to t·V numbers of its own.
//! Left out: cub's sorting space, the index bookkeeping of the type embedding, scalars of loss and gradient scaling.

use vramlab_sim::machine::Direction;
use vramlab_sim::units::{BufferId, StreamId};

use super::Model;
use super::dense::{LinearKept, Typed};
use super::kernels::BLAS_WORKSPACE;
use super::layer::NormKept;
use super::settings::{Head, Loss};
use super::shapes::{self, EMBEDDING_NORM, POSITIONS, TYPES, WORDS};
use crate::synthetic::emit::Out;

/// Up to so many tokens the gradient of an embedding without padding index is summed without sorting.
const SORT_ROWS_MIN: u64 = 3072;
/// Rows that one thread sums before it writes a partial row.
const ROWS_PER_THREAD: u64 = 10;

/// What the embeddings keep.
pub(super) struct EmbeddingKept {
    norm: NormKept,
    mask: BufferId,
}

/// What the head keeps.
pub(super) struct HeadKept {
    dense: LinearKept,
    /// Output of tanh, or input of gelu.
    activation: BufferId,
    /// Dropout mask (classify).
    mask: Option<BufferId>,
    /// Norm (mlm).
    norm: Option<NormKept>,
    output: LinearKept,
    /// Log-softmax (cross entropy).
    log_softmax: Option<BufferId>,
}

impl Model {
    /// Token ids, types and mask, and labels, copied to the device.
    pub(super) fn load_batch(&mut self, out: &mut Out) {
        for id in std::mem::take(&mut self.batch) {
            out.release(id);
        }
        let ids = self.tokens * 8;
        let labels = match self.config.head {
            Head::Classify => self.config.batch * 8,
            Head::MaskedLm => ids,
        };
        let mut sizes = vec![ids; 3];
        if self.config.train && self.config.loss == Loss::CrossEntropy {
            sizes.push(labels);
        }
        for size in sizes {
            let id = out.alloc("batch", size);
            out.copy(StreamId(0), Direction::HostToDevice, size);
            self.batch.push(id);
        }
    }

    /// Hidden states of the batch.
    pub(super) fn embedding_forward(&mut self, out: &mut Out) -> (BufferId, Option<EmbeddingKept>) {
        let keep = self.config.train;
        let size = self.stream_size();
        let row_size = self.len * self.config.hidden * self.config.stream_bytes();
        let words = out.alloc("embedding.words", size);
        out.work(0.0, &[self.batch[0]], &[words]);
        let types = out.alloc("embedding.types", size);
        out.work(0.0, &[self.batch[1]], &[types]);
        let sum = out.alloc("embedding.sum", size);
        out.work(0.0, &[words, types], &[sum]);
        let positions = out.alloc("embedding.positions", row_size);
        out.work(0.0, &[self.weights[POSITIONS]], &[positions]);
        let total = out.alloc("embedding.sum", size);
        out.work(0.0, &[sum, positions], &[total]);
        out.release(sum);
        let (y, norm) = self.norm(out, "embedding.norm", EMBEDDING_NORM, total, self.tokens, keep);
        out.release(total);
        let (x, mask) = self.dropout(out, y, self.config.stream_bytes());
        for id in [y, words, types, positions] {
            out.release(id);
        }
        if self.config.ragged {
            let bytes = self.config.batch * self.len * self.len;
            let mask = out.alloc("mask", bytes);
            out.work(0.0, &[self.batch[2]], &[mask]);
            self.ragged_mask = Some(mask);
        }
        let kept = || Some(EmbeddingKept { norm: norm?, mask: mask? });
        (x, kept())
    }

    /// Gradients of the embeddings from that of the hidden states (consumed).
    pub(super) fn embedding_backward(
        &mut self,
        out: &mut Out,
        kept: EmbeddingKept,
        gradient: BufferId,
    ) {
        let (h, w) = (self.config.hidden, self.config.weight_bytes());
        let g = out.alloc("dropout.grad", self.stream_size());
        out.work(0.0, &[gradient, kept.mask], &[g]);
        out.release(gradient);
        out.release(kept.mask);
        let g = self.norm_backward(out, EMBEDDING_NORM, kept.norm, g);

        let row_size = self.len * h * self.config.stream_bytes();
        let batch_sum = out.alloc("embedding.positions.grad", row_size);
        out.work(0.0, &[g], &[batch_sum]);
        let positions = out.alloc("embedding.positions.grad", self.config.positions * h * w);
        out.work(0.0, &[batch_sum], &[positions]);
        out.release(batch_sum);
        self.give(out, POSITIONS, positions);

        let types =
            self.segment_sum(out, "embedding.types.grad", g, 2, self.tokens > SORT_ROWS_MIN);
        self.give(out, TYPES, types);
        // the word embedding has a padding index and is always sorted
        let mut words =
            self.segment_sum(out, "embedding.words.grad", g, self.config.vocabulary, true);
        out.release(g);
        if let Some(tied) = self.tied_gradient.take() {
            let sum = out.alloc("embedding.words.grad", self.config.vocabulary * h * w);
            out.work(0.0, &[tied, words], &[sum]);
            out.release(tied);
            out.release(words);
            words = sum;
        }
        self.give(out, WORDS, words);
    }

    /// Gradient of an embedding of `rows` rows.
    fn segment_sum(
        &mut self,
        out: &mut Out,
        site: &'static str,
        g: BufferId,
        rows: u64,
        sorted: bool,
    ) -> BufferId {
        let size = rows * self.config.hidden * self.config.weight_bytes();
        if !sorted {
            let sum = out.alloc(site, size);
            out.work(0.0, &[g], &[sum]);
            return sum;
        }
        let list = self.tokens * 8;
        let order = out.alloc("embedding.sorted", list);
        let origin = out.alloc("embedding.sorted", list);
        out.work(0.0, &[self.batch[0]], &[order, origin]);
        let sum = out.alloc(site, size);
        let segments = out.alloc("embedding.segments", list);
        let mut scratch = vec![order, origin, segments];
        if rows == self.config.vocabulary {
            scratch.push(out.alloc("embedding.segments", list));
            let partial_rows = self.tokens / ROWS_PER_THREAD + self.tokens.min(rows);
            scratch.push(out.alloc("embedding.segments", partial_rows * 8));
            let partial_size = partial_rows * self.config.hidden * 4;
            scratch.push(out.alloc("embedding.partial", partial_size));
        }
        out.work(0.0, &[g, order, origin], &[sum]);
        for id in scratch.into_iter().rev() {
            out.release(id);
        }
        sum
    }

    /// Scores (and loss) of the last hidden states `x`; `x` and `first`, the embeddings' output, are consumed.
    pub(super) fn head_forward(
        &mut self,
        out: &mut Out,
        x: BufferId,
        first: BufferId,
    ) -> (BufferId, Option<HeadKept>) {
        let keep = self.config.train;
        let rows = self.head_rows();
        let p = self.config.product_bytes();
        // the encoder returns after the pooler, which is part of it, or before the transform
        if self.config.head == Head::MaskedLm {
            out.release(first);
        }
        let (y, dense) =
            self.linear(out, shapes::head_dense(&self.config), x, Typed::Stream, rows, keep);
        let a = out.alloc("head.activation", rows * self.config.hidden * p);
        out.work(0.0, &[y], &[a]);
        let (activation, input, mask, norm);
        match self.config.head {
            Head::Classify => {
                // tanh keeps its output
                for id in [y, first, x] {
                    out.release(id);
                }
                (input, mask) = self.dropout(out, a, p);
                (activation, norm) = (a, None);
            }
            Head::MaskedLm => {
                let a =
                    if self.config.casts() { self.recast(out, a, self.stream_size()) } else { a };
                let at = shapes::head_norm(&self.config);
                (input, norm) = self.norm(out, "head.norm", at, a, rows, keep);
                out.release(a);
                (activation, mask) = (y, None);
            }
        }
        if !keep {
            out.release(activation);
        }
        let typed = match self.config.head {
            Head::Classify => Typed::Product,
            Head::MaskedLm => Typed::Stream,
        };
        let output = shapes::head_output(&self.config);
        let (scores, output) = self.linear(out, output, input, typed, rows, keep);
        out.release(input);
        if self.config.head == Head::MaskedLm {
            out.release(x);
        }
        let log_softmax =
            (keep && self.config.loss == Loss::CrossEntropy).then(|| self.log_softmax(out, scores));
        let kept = || {
            Some(HeadKept { dense: dense?, activation, mask, norm, output: output?, log_softmax })
        };
        (scores, kept())
    }

    fn log_softmax(&mut self, out: &mut Out, scores: BufferId) -> BufferId {
        let mut input = out.retain(scores);
        if self.config.casts() {
            out.release(input);
            input = self.cast(out, scores, out.size(scores) * 2);
        }
        let log_softmax = out.alloc("loss", out.size(input));
        out.work(0.0, &[input], &[log_softmax]);
        out.release(input);
        log_softmax
    }

    /// The gradient of the last hidden states.
    pub(super) fn head_backward(&mut self, out: &mut Out, kept: HeadKept) -> BufferId {
        let rows = self.head_rows();
        let output = shapes::head_output(&self.config);
        let numbers = rows * output.outputs;
        let g = match kept.log_softmax {
            Some(log_softmax) => {
                let g_loss = out.alloc("loss.grad", out.size(log_softmax));
                out.work(0.0, &[log_softmax], &[g_loss]);
                let g = out.alloc("loss.grad", out.size(log_softmax));
                out.work(0.0, &[g_loss, log_softmax], &[g]);
                out.release(g_loss);
                out.release(log_softmax);
                let size = numbers * self.config.product_bytes();
                let g = if self.config.casts() { self.recast(out, g, size) } else { g };
                self.linear_backward(out, output, kept.output, g, rows, None)
            }
            None => self.expanded_backward(out, kept.output, rows),
        };
        let g = match self.config.head {
            Head::Classify => {
                let back = out.alloc("dropout.grad", out.size(g));
                out.work(0.0, &[g], &[back]);
                out.release(g);
                if let Some(mask) = kept.mask {
                    out.release(mask);
                }
                back
            }
            Head::MaskedLm => match kept.norm {
                Some(norm) => {
                    let at = shapes::head_norm(&self.config);
                    let g = self.norm_backward(out, at, norm, g);
                    if self.config.casts() { self.recast(out, g, self.product_size()) } else { g }
                }
                None => g,
            },
        };
        let inner = out.alloc("head.activation.grad", out.size(g));
        out.work(0.0, &[g, kept.activation], &[inner]);
        out.release(g);
        out.release(kept.activation);
        let dense = shapes::head_dense(&self.config);
        let g = self.linear_backward(out, dense, kept.dense, inner, rows, None);
        match self.config.head {
            Head::MaskedLm => g,
            Head::Classify => {
                // the first tokens' gradient in a zeroed tensor of all tokens
                let all = out.alloc("head.first.grad", self.stream_size());
                out.work(0.0, &[g], &[all]);
                out.release(g);
                all
            }
        }
    }

    /// Backward of the last dense layer when the gradient of every score is the same scalar.
    fn expanded_backward(&mut self, out: &mut Out, kept: LinearKept, rows: u64) -> BufferId {
        let output = shapes::head_output(&self.config);
        let p = self.config.product_bytes();
        let size = rows * output.outputs * p;
        let flops = 2.0 * rows as f64 * output.inputs as f64 * output.outputs as f64;
        let weight = kept.weight_cast.unwrap_or(self.weights[output.weight]);
        let g_input = out.alloc("head.output", rows * output.inputs * p);
        let ones = out.alloc("loss.grad", size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[ones, weight], &[g_input]);
        out.release(ones);
        let g_weight = out.alloc("head.output", output.inputs * output.outputs * p);
        let ones = out.alloc("loss.grad", size);
        self.workspace(out, BLAS_WORKSPACE);
        out.work(flops, &[ones, kept.input], &[g_weight]);
        out.release(ones);
        let g_bias = out.alloc("head.output", output.outputs * p);
        out.work(0.0, &[], &[g_bias]);
        kept.release(out);
        if !self.config.casts() {
            self.give(out, output.weight, g_weight);
            self.give(out, output.bias, g_bias);
            return g_input;
        }
        let g_input = match self.config.head {
            Head::MaskedLm => self.recast(out, g_input, rows * output.inputs * 4),
            Head::Classify => g_input,
        };
        let g_weight = self.recast(out, g_weight, output.inputs * output.outputs * 4);
        self.give(out, output.weight, g_weight);
        let g_bias = self.recast(out, g_bias, output.outputs * 4);
        self.give(out, output.bias, g_bias);
        g_input
    }

    /// Rows that the head works on.
    fn head_rows(&self) -> u64 {
        match self.config.head {
            Head::Classify => self.config.batch,
            Head::MaskedLm => self.tokens,
        }
    }
}
