//! The weights of the model, in the order in which PyTorch registers them: every size follows from the configuration.
//!
//! ```text
//! embeddings  words V×H, positions P×H, types 2×H, norm H H
//! layer × L   query, key, value, output H×H + H; norm H H; intermediate F×H + F; output H×F + H; norm H H
//! classify    pooler H×H + H; classifier C×H + C
//! mlm         decoder bias V; transform H×H + H; norm H H          (decoder weight: the word embedding)
//! ```

use super::Config;
use super::settings::Head;

/// A weight: how many numbers, and its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Where it belongs, for reports.
    pub site: &'static str,
    /// Numbers in it.
    pub numbers: u64,
}

/// Place of a weight in [`weights`].
pub type WeightId = usize;

/// A dense layer `outputs`×`inputs` with bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Its matrix.
    pub weight: WeightId,
    /// Its bias.
    pub bias: WeightId,
    /// Width of what it reads.
    pub inputs: u64,
    /// Width of what it writes.
    pub outputs: u64,
}

/// The word embedding.
pub const WORDS: WeightId = 0;
/// The position embedding.
pub const POSITIONS: WeightId = 1;
/// The token type embedding.
pub const TYPES: WeightId = 2;
/// The norm after the embeddings.
pub const EMBEDDING_NORM: WeightId = 3;
const LAYER_FIRST: WeightId = 5;
const LAYER_WEIGHTS: usize = 16;

/// All weights, in order.
pub fn weights(c: &Config) -> Vec<Weight> {
    let (h, f) = (c.hidden, c.ffn);
    let weight = |site, numbers| Weight { site, numbers };
    let mut all = vec![
        weight("embedding.words", c.vocabulary * h),
        weight("embedding.positions", c.positions * h),
        weight("embedding.types", 2 * h),
        weight("embedding.norm", h),
        weight("embedding.norm", h),
    ];
    for _ in 0..c.layers {
        for site in ["attention.query", "attention.key", "attention.value", "attention.output"] {
            all.extend([weight(site, h * h), weight(site, h)]);
        }
        all.extend([weight("attention.norm", h); 2]);
        all.extend([weight("ffn.inner", h * f), weight("ffn.inner", f)]);
        all.extend([weight("ffn.output", f * h), weight("ffn.output", h)]);
        all.extend([weight("ffn.norm", h); 2]);
    }
    match c.head {
        Head::Classify => {
            all.extend([weight("head.pooler", h * h), weight("head.pooler", h)]);
            all.extend([weight("head.output", c.labels * h), weight("head.output", c.labels)]);
        }
        Head::MaskedLm => {
            all.push(weight("head.output", c.vocabulary));
            all.extend([weight("head.transform", h * h), weight("head.transform", h)]);
            all.extend([weight("head.norm", h); 2]);
        }
    }
    all
}

/// Numbers in all weights.
pub fn numbers(c: &Config) -> u64 {
    weights(c).iter().map(|weight| weight.numbers).sum()
}

/// The dense layers and norms of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the table above
pub struct Layer {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    pub attention_norm: WeightId,
    pub ffn_inner: Linear,
    pub ffn_output: Linear,
    pub ffn_norm: WeightId,
}

/// Where the weights of layer `index` are.
pub fn layer(c: &Config, index: u64) -> Layer {
    let first = LAYER_FIRST + LAYER_WEIGHTS * index as usize;
    let linear = |at: usize, inputs, outputs| Linear {
        weight: first + at,
        bias: first + at + 1,
        inputs,
        outputs,
    };
    let (h, f) = (c.hidden, c.ffn);
    Layer {
        query: linear(0, h, h),
        key: linear(2, h, h),
        value: linear(4, h, h),
        output: linear(6, h, h),
        attention_norm: first + 8,
        ffn_inner: linear(10, h, f),
        ffn_output: linear(12, f, h),
        ffn_norm: first + 14,
    }
}

/// The head's first dense layer: pooler or transform.
pub fn head_dense(c: &Config) -> Linear {
    let first = head_first(c) + usize::from(c.head == Head::MaskedLm);
    Linear { weight: first, bias: first + 1, inputs: c.hidden, outputs: c.hidden }
}

/// The head's norm (masked language model only).
pub fn head_norm(c: &Config) -> WeightId {
    head_first(c) + 3
}

/// The head's last dense layer: classifier or decoder.
pub fn head_output(c: &Config) -> Linear {
    let first = head_first(c);
    match c.head {
        Head::Classify => {
            Linear { weight: first + 2, bias: first + 3, inputs: c.hidden, outputs: c.labels }
        }
        Head::MaskedLm => {
            Linear { weight: WORDS, bias: first, inputs: c.hidden, outputs: c.vocabulary }
        }
    }
}

fn head_first(c: &Config) -> WeightId {
    LAYER_FIRST + LAYER_WEIGHTS * c.layers as usize
}
