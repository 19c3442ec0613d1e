//! Language models as a server sees them: bytes of weights, bytes of a token's keys and values, operations of a token.
//!
//! | rule | what it says |
//! |---|---|
//! | `weights` | every parameter: embedding, of each layer attention (queries, keys, values, output), three matrices of each expert, router, norms; last norm; head |
//! | `token_bytes` | 2 (keys, values) × layers × KV heads × head size × bytes of a number |
//! | `copies` | data-parallel copies with expert parallelism, a card each: the experts of a mixture are split among the cards; attention, routers, norms, embedding and head are whole on each, and so is all of a dense model |
//! | `operations` | 2 for each weight that a token goes through (of a mixture, those of the chosen experts); the head only where a token is given; attention 4 × heads × head size × layers for each token that a token looks at |
//! | `touched` | a step reads the weights that its tokens need: of `E` experts of which each token takes `k`, with `t` tokens, `E × (1 − (1 − k/E)^t)` if the choice is even |
//!
//! `copies`: vllm-project/vllm, `docs/serving/data_parallel_deployment.md` and `docs/serving/expert_parallel_deployment.md`.
//!
//! Hyper-parameters: the models' public configuration files. Dense decoders with gated feed-forward (Llama, Qwen) and mixtures of such experts.

/// A decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// As parameters name it.
    pub name: &'static str,
    /// Transformer layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_size: u64,
    /// Inner width of a feed-forward block, or of an expert.
    pub inner: u64,
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
    /// Experts of a layer; 1: dense.
    pub experts: u64,
    /// Experts that a token takes.
    pub chosen: u64,
    /// Are queries and keys normalised by head?
    pub head_norms: bool,
    /// Most tokens of a sequence.
    pub max_len: u64,
    /// Bytes of a number.
    pub number: u64,
}

const LLAMA_3_1_8B: Model = Model {
    name: "llama-3.1-8b",
    layers: 32,
    hidden: 4096,
    heads: 32,
    kv_heads: 8,
    head_size: 128,
    inner: 14_336,
    vocabulary: 128_256,
    experts: 1,
    chosen: 1,
    head_norms: false,
    max_len: 131_072,
    number: 2,
};

/// The models that have names.
pub const MODELS: &[Model] = &[
    LLAMA_3_1_8B,
    Model {
        name: "llama-3.1-70b",
        layers: 80,
        hidden: 8192,
        heads: 64,
        inner: 28_672,
        ..LLAMA_3_1_8B
    },
    Model {
        name: "llama-2-7b",
        kv_heads: 32,
        inner: 11_008,
        vocabulary: 32_000,
        max_len: 4096,
        ..LLAMA_3_1_8B
    },
    Model {
        name: "llama-2-13b",
        layers: 40,
        hidden: 5120,
        heads: 40,
        kv_heads: 40,
        inner: 13_824,
        vocabulary: 32_000,
        max_len: 4096,
        ..LLAMA_3_1_8B
    },
    Model {
        name: "qwen3-30b-a3b",
        layers: 48,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        inner: 768,
        vocabulary: 151_936,
        experts: 128,
        chosen: 8,
        head_norms: true,
        max_len: 262_144,
        ..LLAMA_3_1_8B
    },
];

impl Model {
    /// The model of this name, in any case.
    pub fn find(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name.eq_ignore_ascii_case(name))
    }

    /// Parameters of a layer's attention, with its norms.
    const fn attention(&self) -> u64 {
        let (q, kv) = (self.heads * self.head_size, self.kv_heads * self.head_size);
        let norms = 2 * self.hidden + if self.head_norms { 2 * self.head_size } else { 0 };
        self.hidden * (2 * q + 2 * kv) + norms
    }

    /// Parameters of an expert.
    const fn expert(&self) -> u64 {
        3 * self.hidden * self.inner
    }

    /// Parameters of a layer's router.
    const fn router(&self) -> u64 {
        if self.experts > 1 { self.hidden * self.experts } else { 0 }
    }

    /// All parameters.
    pub const fn parameters(&self) -> u64 {
        let layer = self.attention() + self.router() + self.experts * self.expert();
        let table = self.vocabulary * self.hidden;
        self.layers * layer + 2 * table + self.hidden
    }

    /// Bytes of the weights.
    pub const fn weight_bytes(&self) -> u64 {
        self.parameters() * self.number
    }

    /// Bytes of the weights on all of so many cards together (rule `copies`).
    pub const fn weight_bytes_of(&self, copies: u64) -> u64 {
        self.weight_bytes() + (copies - 1) * (self.weight_bytes() - self.split_bytes())
    }

    /// Bytes of the weights that are split among copies: the experts of a mixture.
    const fn split_bytes(&self) -> u64 {
        if self.experts == 1 { 0 } else { self.layers * self.experts * self.expert() * self.number }
    }

    /// Bytes of a token's keys and values in all layers.
    pub const fn token_bytes(&self) -> u64 {
        2 * self.layers * self.kv_heads * self.head_size * self.number
    }

    /// Bytes of weights that each of so many cards reads in a step of `tokens` in all (rules `touched`, `copies`). The embedding is looked up by row: nothing.
    pub fn touched_bytes(&self, tokens: u64, copies: u64) -> f64 {
        let missed = 1.0 - self.chosen as f64 / self.experts as f64;
        let cards = if self.experts == 1 { 1.0 } else { copies as f64 };
        let experts = self.experts as f64 * (1.0 - power(missed, tokens)) / cards;
        let layer = (self.attention() + self.router()) as f64 + experts * self.expert() as f64;
        let head = (self.vocabulary * self.hidden) as f64;
        (self.layers as f64 * layer + head) * self.number as f64
    }

    /// The share of those bytes of a step that reads all weights; 1 for a dense model.
    pub fn touched_share(&self, tokens: u64, copies: u64) -> f64 {
        if self.experts == 1 {
            return 1.0;
        }
        self.touched_bytes(tokens, copies) / self.touched_bytes(ALL, copies)
    }

    /// Operations of a step of `tokens` that give `outputs` tokens, and look at `pairs` tokens in all.
    pub fn operations(&self, tokens: u64, outputs: u64, pairs: u64) -> f64 {
        let layer = self.attention() + self.router() + self.chosen * self.expert();
        let weights = 2.0 * (self.layers * layer) as f64 * tokens as f64;
        let head = 2.0 * (self.vocabulary * self.hidden) as f64 * outputs as f64;
        let looks = 4.0 * (self.heads * self.head_size * self.layers) as f64 * pairs as f64;
        weights + head + looks
    }
}

/// Tokens that are enough to reach every expert.
pub const ALL: u64 = 1 << 20;

/// By squaring, so that it is the same on every machine.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_that_the_models_are_published_with() {
        let of = |name| Model::find(name).map(Model::parameters);
        assert_eq!(of("Llama-3.1-8B"), Some(8_030_261_248));
        assert_eq!(of("llama-3.1-70b"), Some(70_553_706_496));
        assert_eq!(of("llama-2-7b"), Some(6_738_415_616));
        assert_eq!(of("llama-2-13b"), Some(13_015_864_320));
        assert_eq!(of("qwen3-30b-a3b"), Some(30_532_122_624));
        assert_eq!(of("gpt-5"), None);
    }

    #[test]
    fn a_token_of_keys_and_values() {
        let of = |name| Model::find(name).map(Model::token_bytes);
        assert_eq!(of("llama-3.1-8b"), Some(131_072));
        assert_eq!(of("llama-2-7b"), Some(524_288));
        assert_eq!(of("qwen3-30b-a3b"), Some(98_304));
    }

    #[test]
    fn a_mixture_reads_more_experts_with_more_tokens() {
        let [Some(dense), Some(mixture)] = ["llama-3.1-8b", "qwen3-30b-a3b"].map(Model::find)
        else {
            panic!("expected both models");
        };
        assert_eq!(dense.touched_bytes(1, 1), dense.touched_bytes(2048, 1));
        let share = |tokens| mixture.touched_share(tokens, 1);
        assert_eq!(dense.touched_share(1, 1), 1.0);
        assert!((0.10..0.12).contains(&share(1)), "{}", share(1));
        assert!((0.97..0.99).contains(&share(60)), "{}", share(60));
    }

    #[test]
    fn copies_split_the_experts_and_hold_all_else_each() {
        let [Some(dense), Some(mixture)] = ["llama-3.1-8b", "qwen3-30b-a3b"].map(Model::find)
        else {
            panic!("expected both models");
        };
        assert_eq!(mixture.weight_bytes_of(1), mixture.weight_bytes());
        assert_eq!(dense.weight_bytes_of(2), 2 * dense.weight_bytes());
        // 48 layers of attention with its norms and a router, two tables of 151,936 rows, the last norm
        let whole = 2 * (48 * (18_878_720 + 262_144) + 2 * 151_936 * 2048 + 2048);
        assert_eq!(mixture.weight_bytes_of(2) - mixture.weight_bytes(), whole);
        let experts = (mixture.weight_bytes() - whole) as f64;
        let table = 2.0 * 151_936.0 * 2048.0;
        // neither the embedding nor the last norm is read
        let read = whole as f64 - table - 4096.0 + experts / 2.0;
        assert_eq!(mixture.touched_bytes(ALL, 2), read);
        assert_eq!(dense.touched_bytes(1, 2), dense.touched_bytes(1, 1));
        // what each card reads whole is more of what it reads
        assert!(mixture.touched_share(1, 2) > 1.2 * mixture.touched_share(1, 1));
    }
}
