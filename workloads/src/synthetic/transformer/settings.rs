//! The parameters that every workload on the transformer stack shares, and what they mean once read.
//!
//! Defaults are BERT-base fine-tuning: 12 layers, width 768, 12 heads, inner width 3,072, 30,522 words, AdamW.

use crate::params::{ParamDoc, ParamError, Params, doc};
use crate::synthetic::cost;

use super::kernels::Multiprocessors;

/// Shared parameters.
pub const SHARED: [ParamDoc; 24] = [
    doc("phase", "train", "-", "train or inference"),
    doc("layers", "12", "layers", "transformer layers"),
    doc("hidden", "768", "numbers", "width of the model"),
    doc("heads", "12", "heads", "attention heads; they divide the width"),
    doc("ffn", "3072", "numbers", "inner width of the feed-forward part"),
    doc("vocabulary", "30522", "words", "words in the embedding"),
    doc(
        "head",
        "classify",
        "-",
        "classify (pooler and classifier) or mlm (word scores at every token)",
    ),
    doc("labels", "2", "classes", "classes of head=classify"),
    doc(
        "loss",
        "cross_entropy",
        "-",
        "cross_entropy, or sum of the scores (a measuring script's stand-in)",
    ),
    doc("precision", "fp32", "-", "fp32; amp16 (autocast, fp32 weights); fp16 (half weights)"),
    doc(
        "attention",
        "sdpa",
        "-",
        "eager; sdpa (flash below fp32 without mask, else efficient); flash; efficient",
    ),
    doc("mask", "ones", "-", "ones (dropped by the model) or ragged (kept, one bias per layer)"),
    doc(
        "checkpoint",
        "none",
        "-",
        "none, all, or how many first layers are recomputed in backward",
    ),
    doc("optimizer", "adamw_foreach", "-", "adamw_foreach, adamw_fused, sgd (no momentum) or none"),
    doc("clip", "true", "-", "clip the gradient norm before the optimiser"),
    doc("accumulation", "1", "batches", "batches per optimiser step"),
    doc("set_to_none", "true", "-", "zero_grad frees gradients instead of zeroing them"),
    doc(
        "output",
        "held",
        "-",
        "held: scores live until the next step's replace them; dropped: until backward ends",
    ),
    doc("workspace", "call", "-", "cuBLAS workspace per call, cached, or none"),
    doc(
        "empty_cache",
        "0",
        "steps",
        "empty the allocator's cache after every so many steps; 0: never",
    ),
    doc("sms", "108", "multiprocessors", "of the device; decides how sums are split"),
    doc("sm_threads", "2048", "threads", "per multiprocessor"),
    cost::TFLOPS,
    cost::BANDWIDTH,
];

/// Puts a workload's own parameters before the shared ones.
pub const fn with_shared<const OWN: usize, const ALL: usize>(
    own: [ParamDoc; OWN],
) -> [ParamDoc; ALL] {
    assert!(OWN + SHARED.len() == ALL, "the table is as long as its parts");
    let mut all = [own[0]; ALL];
    let mut i = 0;
    while i < ALL {
        all[i] = if i < OWN { own[i] } else { SHARED[i - OWN] };
        i += 1;
    }
    all
}

/// What the model ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Pooler over the first token, dropout, classifier.
    Classify,
    /// Word scores at every token; the decoder shares the word embedding.
    MaskedLm,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Cross entropy against labels.
    CrossEntropy,
    /// Sum of all scores.
    Sum,
}

/// Types of weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// All fp32.
    Fp32,
    /// Autocast: products in 16 bits, weights, norms, softmax and residual stream in fp32.
    Amp16,
    /// All 16 bits (statistics stay fp32).
    Fp16,
}

/// Attention as it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Two products with softmax and dropout between: scores of n² are saved.
    Eager,
    /// FlashAttention-2.
    Flash,
    /// The memory-efficient kernel.
    Efficient,
}

/// What updates the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// AdamW over lists of tensors: one temporary as large as all weights.
    AdamwForeach,
    /// AdamW in one kernel: no temporary, step counters on the device.
    AdamwFused,
    /// Plain gradient descent.
    Sgd,
    /// None: gradients are dropped.
    None,
}

/// How cuBLAS gets its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// Allocated and freed around each call.
    Call,
    /// Allocated at the first product and kept.
    Cached,
    /// Not from the allocator.
    None,
}

/// A model and how it is run.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is described by its parameter above
pub struct Config {
    pub train: bool,
    pub batch: u64,
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub ffn: u64,
    pub vocabulary: u64,
    pub positions: u64,
    pub head: Head,
    pub labels: u64,
    pub loss: Loss,
    pub precision: Precision,
    pub attention: Attention,
    pub ragged: bool,
    /// So many first layers are recomputed.
    pub checkpoint: u64,
    pub optimizer: Optimizer,
    pub clip: bool,
    pub accumulation: u64,
    pub set_to_none: bool,
    pub output_held: bool,
    pub workspace: Workspace,
    pub empty_cache: u64,
    pub device: Multiprocessors,
}

/// Bounds that keep every size below 2^63 and every FLOP count exact.
const SIZE_MAX: u64 = 1 << 20;

impl Config {
    /// Reads the shared parameters; `batch` and `positions` come from the workload's own.
    pub(crate) fn from_params(p: &Params, batch: u64, positions: u64) -> Result<Self, ParamError> {
        let layers = p.count("layers", 1..=1024)?;
        let hidden = p.count("hidden", 1..=SIZE_MAX)?;
        let heads = p.count("heads", 1..=1024)?;
        if !hidden.is_multiple_of(heads) {
            return Err(p.bad("heads", format_args!("a divisor of hidden={hidden}")));
        }
        let precision = p.choice(
            "precision",
            &[("fp32", Precision::Fp32), ("amp16", Precision::Amp16), ("fp16", Precision::Fp16)],
        )?;
        let ragged = p.choice("mask", &[("ones", false), ("ragged", true)])?;
        let sdpa = if precision == Precision::Fp32 || ragged {
            Attention::Efficient
        } else {
            Attention::Flash
        };
        let attention = p.choice(
            "attention",
            &[
                ("eager", Attention::Eager),
                ("sdpa", sdpa),
                ("flash", Attention::Flash),
                ("efficient", Attention::Efficient),
            ],
        )?;
        if attention == Attention::Flash && sdpa != Attention::Flash {
            return Err(
                p.bad("attention", "eager, sdpa or efficient (flash takes 16 bits, no mask)")
            );
        }
        let checkpoint = match p.text("checkpoint") {
            "none" => 0,
            "all" => layers,
            _ => p
                .count("checkpoint", 0..=layers)
                .map_err(|_| p.bad("checkpoint", format_args!("none, all, or 0 to {layers}")))?,
        };
        Ok(Self {
            train: p.choice("phase", &[("train", true), ("inference", false)])?,
            batch,
            layers,
            hidden,
            heads,
            ffn: p.count("ffn", 1..=SIZE_MAX)?,
            vocabulary: p.count("vocabulary", 1..=SIZE_MAX)?,
            positions,
            head: p.choice("head", &[("classify", Head::Classify), ("mlm", Head::MaskedLm)])?,
            labels: p.count("labels", 1..=SIZE_MAX)?,
            loss: p.choice("loss", &[("cross_entropy", Loss::CrossEntropy), ("sum", Loss::Sum)])?,
            precision,
            attention,
            ragged,
            checkpoint,
            optimizer: p.choice(
                "optimizer",
                &[
                    ("adamw_foreach", Optimizer::AdamwForeach),
                    ("adamw_fused", Optimizer::AdamwFused),
                    ("sgd", Optimizer::Sgd),
                    ("none", Optimizer::None),
                ],
            )?,
            clip: p.flag("clip")?,
            accumulation: p.count("accumulation", 1..=SIZE_MAX)?,
            set_to_none: p.flag("set_to_none")?,
            output_held: p.choice("output", &[("held", true), ("dropped", false)])?,
            workspace: p.choice(
                "workspace",
                &[
                    ("call", Workspace::Call),
                    ("cached", Workspace::Cached),
                    ("none", Workspace::None),
                ],
            )?,
            empty_cache: p.count("empty_cache", 0..=u64::MAX)?,
            device: Multiprocessors {
                count: p.count("sms", 1..=SIZE_MAX)?,
                threads: p.count("sm_threads", 1024..=4096)?,
            },
        })
    }

    /// Bytes of a weight's number.
    pub fn weight_bytes(&self) -> u64 {
        if self.precision == Precision::Fp16 { 2 } else { 4 }
    }

    /// Bytes of a number in the residual stream: sums, norms, embeddings.
    pub fn stream_bytes(&self) -> u64 {
        self.weight_bytes()
    }

    /// Bytes of a number that a product writes.
    pub fn product_bytes(&self) -> u64 {
        if self.precision == Precision::Fp32 { 4 } else { 2 }
    }

    /// Are inputs and weights of products cast first?
    pub fn casts(&self) -> bool {
        self.precision == Precision::Amp16
    }
}
