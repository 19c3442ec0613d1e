//! Attention in one kernel, which does not keep its scores.
//!
//! b batch, n heads, l queries, s keys, d width of a head.
//!
//! | way | forward makes | saved | backward |
//! |---|---|---|---|
//! | efficient | context; log-sums, fp32, l padded to 32; with a mask a bias of b·l·s numbers first | q, k, v, context, log-sums, bias | three gradients; row sums (fp32: over a product as large as the context, and once more transposed); blocks of query gradients |
//! | flash | context; log-sums b·n·l·4; generator state 16, 8 and 16 B | q, k, v, context, log-sums, two of the generator's | three gradients; row sums and fp32 query gradients, l padded to 128 |
//!
//! Source: `aten/src/ATen/native/transformers/cuda/attention.cu` and `attention_backward.cu`, PyTorch 2.15, as recorded; sizes in
//! [`crate::graph::kernels`]. Grouped queries (fewer heads in k and v) are read in place. Left out: cuDNN's way, nested tensors.

use super::{Autocast, Backward, Forward, Kind, Operator, Saves, Spec, Tensor, one_float};
use crate::graph::kernels::{
    efficient_backward_space, efficient_logsum, flash_backward_rows, flash_backward_space,
};
use crate::graph::program::StorageId;
use crate::graph::tensor::{DType, shape_text};

/// The kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// FlashAttention-2: 16 bits, no mask.
    Flash,
    /// The memory-efficient kernel.
    Efficient,
}

/// Inputs: q (b×n×l×d), k and v (b×m×s×d, m divides n), and a mask (b×1×l×s) if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// The kernel.
    pub way: Fused,
    /// The kernel follows from type and mask, as PyTorch chooses it: flash below fp32 without mask, else efficient.
    pub chosen: bool,
    /// There is a mask.
    pub masked: bool,
    /// Each query sees the keys up to its own place: half the operations.
    pub causal: bool,
    /// With dropout, so that the generator's state is kept (flash).
    pub dropout: bool,
}

impl Operator for Attention {
    fn name(&self) -> &'static str {
        match self.way {
            Fused::Flash => "attention.flash",
            Fused::Efficient => "attention.efficient",
        }
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let wanted = 3 + usize::from(self.masked);
        let [q, k, v, ..] = inputs else {
            return Err(format!("found {} inputs, expected {wanted}", inputs.len()));
        };
        if inputs.len() != wanted {
            return Err(format!("found {} inputs, expected {wanted}", inputs.len()));
        }
        let rows = [q, k, v];
        let dtype = one_float(&inputs[..3])?;
        let misfit = || {
            let texts = rows.map(|tensor| shape_text(&tensor.shape));
            format!("queries {}, keys {} and values {} do not fit", texts[0], texts[1], texts[2])
        };
        let ([b, n, l, d], [bk, m, s, dk]) = (&rows[0].shape[..], &rows[1].shape[..]) else {
            return Err(misfit());
        };
        if b != bk || d != dk || *m == 0 || n % m != 0 || rows[1].shape != rows[2].shape {
            return Err(misfit());
        }
        if self.way == Fused::Flash && (self.masked || dtype == DType::F32) {
            let found = if self.masked { "a mask" } else { "fp32" };
            return Err(format!("found {found}, expected 16 bits and no mask"));
        }
        let logsum = match self.way {
            Fused::Efficient => efficient_logsum(*b, *n, *l) / 4,
            Fused::Flash => b * n * l,
        };
        let mut made =
            vec![Spec::new(rows[0].shape.clone(), dtype), Spec::aside([logsum], DType::F32)];
        if self.masked {
            made.push(Spec::aside([*b, 1, *l, *s], dtype));
        }
        if self.way == Fused::Flash && self.dropout {
            made.extend([Spec::aside([1], DType::I64), Spec::aside([2], DType::I64)]);
        }
        Ok(made)
    }

    fn flops(&self, inputs: &[&Tensor], _outputs: &[&Tensor]) -> f64 {
        let scores = inputs[0].rows() as f64 * inputs[1].shape[2] as f64;
        let seen = if self.causal { 0.5 } else { 1.0 };
        2.0 * 2.0 * scores * inputs[0].width() as f64 * seen
    }

    fn saves(&self) -> Saves {
        let mut outputs = vec![1, 0];
        if self.masked {
            outputs.push(2);
        }
        if self.way == Fused::Flash && self.dropout {
            outputs.extend([2, 3]);
        }
        Saves { inputs: vec![0, 1, 2], outputs }
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let rows = [at.input(0), at.input(1), at.input(2)];
        let mut reads = rows.to_vec();
        let mut writes = vec![at.output(0), at.output(1)];
        if self.masked {
            at.kernel(&[at.input(3)], &[at.output(2)]);
            reads.push(at.output(2));
        }
        if self.way == Fused::Flash && self.dropout {
            writes.push(at.temporary(16, DType::I64, "generator"));
            writes.extend([at.output(2), at.output(3)]);
        }
        at.kernel_with(at.flops(), &reads, &writes, &[]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let g = at.gradient();
        let [b, n, l, d] = at.tensor_in(0).shape[..] else { return };
        let gradients = [at.like_input(0), at.like_input(1), at.like_input(2)];
        let context = at.output(0);
        let (sums, space): (StorageId, u64);
        match self.way {
            Fused::Flash => {
                sums = at.temporary(flash_backward_rows(b, n, l), DType::F32, "rowsum");
                space = flash_backward_space(b, n, l, d);
            }
            Fused::Efficient => {
                space = efficient_backward_space(b, n, l, d);
                if at.tensor_in(0).dtype == DType::F32 {
                    let product = at.like_output();
                    at.kernel(&[g, context], &[product]);
                    let by_token = at.temporary(b * l * n * 4, DType::F32, "rowsum");
                    at.kernel(&[product], &[by_token]);
                    sums = at.temporary(b * n * l * 4, DType::F32, "rowsum");
                    at.kernel(&[by_token], &[sums]);
                    at.hold(&[product]);
                } else {
                    sums = at.temporary(b * n * l * 4, DType::F32, "rowsum");
                }
            }
        }
        let blocks = at.temporary(space, DType::F32, "query.blocks");
        let mut reads = vec![g];
        reads.extend(at.saved());
        let mut writes = gradients.to_vec();
        writes.extend([sums, blocks]);
        // five products where forward has two
        at.kernel_with(2.5 * at.forward_flops(), &reads, &writes, &[]);
        let dead = match self.way {
            Fused::Flash => [blocks, sums, g],
            Fused::Efficient => [sums, blocks, g],
        };
        at.hold(&dead);
        for (i, gradient) in gradients.into_iter().enumerate() {
            at.give(i, gradient);
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn fitted(&self, inputs: &[&Tensor]) -> Option<Kind> {
        let full = inputs.first().is_none_or(|q| q.dtype == DType::F32);
        let way = if self.masked || full { Fused::Efficient } else { Fused::Flash };
        self.chosen.then_some(Self { way, ..*self }.into())
    }
}

impl From<Attention> for Kind {
    fn from(op: Attention) -> Self {
        Self::Attention(op)
    }
}
