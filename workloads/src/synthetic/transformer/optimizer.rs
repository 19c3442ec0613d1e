//! Gradients and what is done with them: accumulation, clipping, the update, zeroing.
//!
//! N numbers in all weights, n weights.
//!
//! | piece | allocates |
//! |---|---|
//! | clip | n + 1 64-bit starts, one fp32 per chunk of 65,536 numbers, n norms; the norms stacked; total, coefficient |
//! | AdamW, first step | two moments of N numbers each, weight by weight |
//! | AdamW over lists | every step: the root of the second moment, N numbers, all at once |
//! | AdamW fused | first step: a step counter of 4 B per weight; no temporary |
//! | gradient descent | nothing |
//! | zero_grad | frees all gradients, or zeroes them: then each new gradient is a temporary beside the kept one |
//!
//! Source: `torch/nn/utils/clip_grad.py`, `torch/optim/adamw.py`, `aten/src/ATen/native/cuda/ForeachReduceOp.cu` of PyTorch 2.15, as
//! recorded. Moments have the weights' type. Left out: the scalars of gradient scaling.

use vramlab_sim::op::Op;
use vramlab_sim::units::{BufferId, StreamId};

use super::Model;
use super::settings::{Head, Optimizer};
use super::shapes::{WORDS, WeightId};
use crate::synthetic::emit::Out;

/// Numbers that one block of a list kernel takes.
const CHUNK: u64 = 65_536;

impl Model {
    /// Hands over a weight's gradient: the first is kept, later ones are added to it.
    pub(super) fn give(&mut self, out: &mut Out, weight: WeightId, gradient: BufferId) {
        if weight == WORDS && self.config.head == Head::MaskedLm && self.tied_expected {
            // the decoder's share waits for the embedding's
            self.tied_expected = false;
            self.tied_gradient = Some(gradient);
            return;
        }
        match self.gradients[weight] {
            None => self.gradients[weight] = Some(gradient),
            Some(sum) => {
                out.work(0.0, &[gradient], &[sum]);
                out.release(gradient);
            }
        }
    }

    /// Clips, updates and zeroes.
    pub(super) fn optimize(&mut self, out: &mut Out) {
        if self.config.optimizer != Optimizer::None {
            if self.config.clip {
                self.clip(out);
            }
            self.make_moments(out);
            self.update(out);
        }
        if self.config.set_to_none {
            for gradient in self.gradients.iter_mut().filter_map(Option::take) {
                out.release(gradient);
            }
        } else {
            let all: Vec<BufferId> = self.gradients.iter().copied().flatten().collect();
            out.work(0.0, &[], &all);
        }
        // the loss is read
        out.op(Op::Sync { stream: Some(StreamId(0)) });
    }

    fn clip(&mut self, out: &mut Out) {
        let gradients: Vec<BufferId> = self.gradients.iter().copied().flatten().collect();
        let count = gradients.len() as u64;
        let width = self.config.weight_bytes();
        let chunks: u64 = gradients.iter().map(|id| (out.size(*id) / width).div_ceil(CHUNK)).sum();
        let starts = out.alloc("clip.starts", (count + 1) * 8);
        let partial = out.alloc("clip.partial", chunks * 4);
        let norms: Vec<BufferId> =
            gradients.iter().map(|_| out.alloc("clip.norm", width)).collect();
        let mut writes = vec![starts, partial];
        writes.extend(&norms);
        out.work(0.0, &gradients, &writes);
        out.release(partial);
        out.release(starts);
        let stacked = out.alloc("clip.stacked", count * width);
        let total = out.alloc("clip.total", width);
        out.work(0.0, &norms, &[stacked, total]);
        out.release(stacked);
        for norm in norms.into_iter().rev() {
            out.release(norm);
        }
        let factor = out.alloc("clip.factor", width);
        out.work(0.0, &[total], &[factor]);
        out.work(0.0, &[factor], &gradients);
        out.release(factor);
        out.release(total);
    }

    /// AdamW's state, at the first step.
    fn make_moments(&mut self, out: &mut Out) {
        let adam = matches!(self.config.optimizer, Optimizer::AdamwForeach | Optimizer::AdamwFused);
        if !adam || !self.moments.is_empty() {
            return;
        }
        for weight in self.weights.clone() {
            if self.config.optimizer == Optimizer::AdamwFused {
                let step = out.alloc("optimizer.step", 4);
                self.moments.push(step);
            }
            for site in ["optimizer.moment1", "optimizer.moment2"] {
                let moment = out.alloc(site, out.size(weight));
                out.work(0.0, &[], &[moment]);
                self.moments.push(moment);
            }
        }
    }

    fn update(&mut self, out: &mut Out) {
        let mut written = self.weights.clone();
        written.extend(&self.moments);
        let gradients: Vec<BufferId> = self.gradients.iter().copied().flatten().collect();
        if self.config.optimizer != Optimizer::AdamwForeach {
            out.work(0.0, &gradients, &written);
            return;
        }
        let roots: Vec<BufferId> = self
            .weights
            .iter()
            .map(|weight| out.alloc("optimizer.root", out.size(*weight)))
            .collect();
        out.work(0.0, &self.moments, &roots);
        let mut reads = gradients;
        reads.extend(&roots);
        out.work(0.0, &reads, &written);
        for root in roots.into_iter().rev() {
            out.release(root);
        }
    }
}
