//! How long a step of a server takes.
//!
//! | rule | what it says |
//! |---|---|
//! | `copies` | of so many cards that step together each computes its share of the tokens and reads its share of the keys, values and experts, and all other weights |
//! | `roofline` | the longer of operations / rate and bytes / bandwidth, where the bytes are the weights that are touched and the keys and values that are looked at |
//! | `line` | `a` + `b` × tokens + `c` × keys and values looked at, in tokens |
//! | `longer` | max(`a` × share, `b` × tokens) + `c` × keys and values looked at: reading the weights or computing the tokens, whichever is longer, then attention; the share is that of the weights that the tokens touch, 1 for a dense model |
//!
//! `line` and `longer` are for constants that were fitted: `a` is about weights / bandwidth, `b` operations of a token / rate, `c` bytes of a token's keys and values /
//! bandwidth, with what a card reaches of its data sheet, and the host's time, in them. Shortest step: 1 µs.

use super::model::Model;
use crate::graph::DType;
use crate::rates::Rates;

/// Shortest step (ns).
const STEP_NS_MIN: u64 = 1_000;

/// What a step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Tokens that go through the model.
    pub tokens: u64,
    /// Tokens that are given.
    pub outputs: u64,
    /// Tokens whose keys and values are read: for each request, all up to its last.
    pub looked_at: u64,
    /// For each token, the tokens that it looks at.
    pub pairs: u64,
}

impl Shape {
    /// With `tokens` of a request that had `computed`.
    pub fn add(&mut self, tokens: u64, computed: u64, gives: bool) {
        self.tokens += tokens;
        self.outputs += u64::from(gives);
        self.looked_at += computed + tokens;
        self.pairs += tokens * computed + tokens * (tokens + 1) / 2;
    }
}

/// The three constants of a fit, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Of a step.
    pub step: f64,
    /// Of a token that is computed.
    pub token: f64,
    /// Of a token that is looked at.
    pub look: f64,
}

/// A rule for the time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepTime {
    /// From the device's data sheet, of each of so many copies.
    Roofline {
        /// Of which model.
        model: Model,
        /// So many cards share the tokens.
        copies: u64,
        /// Rates of a card.
        rates: Rates,
    },
    /// A straight line.
    Line(Constants),
    /// The longer of two, then attention.
    Longer {
        /// Of which model.
        model: Model,
        /// So many cards share the tokens.
        copies: u64,
        /// The constants.
        constants: Constants,
    },
}

impl StepTime {
    /// Duration of a step (ns).
    pub fn ns(&self, shape: &Shape) -> u64 {
        let ns = match self {
            Self::Roofline { model, copies, rates } => {
                let Shape { tokens, outputs, looked_at, pairs } = *shape;
                let cards = *copies as f64;
                let read = (looked_at * model.token_bytes()) as f64 / cards;
                let bytes = model.touched_bytes(tokens, *copies) + read;
                let flops = model.operations(tokens, outputs, pairs) / cards;
                return rates.duration(flops, DType::BF16, bytes as u64);
            }
            Self::Longer { model, copies, constants: Constants { step, token, look } } => {
                let weights = step * model.touched_share(shape.tokens, *copies);
                weights.max(token * shape.tokens as f64) + look * shape.looked_at as f64
            }
            Self::Line(Constants { step, token, look }) => {
                step + token * shape.tokens as f64 + look * shape.looked_at as f64
            }
        };
        (ns.ceil() as u64).max(STEP_NS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::device::profile::device;

    #[test]
    fn shape_counts_what_each_token_looks_at() {
        let mut shape = Shape::default();
        shape.add(3, 10, false); // looks at 11, 12 and 13
        shape.add(1, 7, true);
        assert_eq!(shape, Shape { tokens: 4, outputs: 1, looked_at: 21, pairs: 36 + 8 });
    }

    #[test]
    fn longer_hides_the_shorter_of_weights_and_tokens_and_a_line_does_not() {
        let constants = Constants { step: 10e6, token: 1e5, look: 100.0 };
        let small = Shape { tokens: 50, looked_at: 10_000, ..Shape::default() };
        let large = Shape { tokens: 2000, ..small };
        let [dense, mixture] = ["llama-3.1-8b", "qwen3-30b-a3b"].map(Model::find);
        let longer = |model: Option<&Model>| StepTime::Longer {
            model: *model.expect("a model"),
            copies: 1,
            constants,
        };
        assert_eq!(longer(dense).ns(&small), 11_000_000);
        assert_eq!(longer(dense).ns(&large), 201_000_000);
        assert!(longer(mixture).ns(&Shape { tokens: 8, ..small }) < 6_000_000);
        assert_eq!(StepTime::Line(constants).ns(&large), 211_000_000);
        let nothing = Constants { step: 0.0, token: 0.0, look: 0.0 };
        assert_eq!(StepTime::Line(nothing).ns(&large), STEP_NS_MIN);
    }

    #[test]
    fn a_roofline_reads_the_weights_for_one_token_and_computes_for_many() {
        let model = *Model::find("llama-3.1-8b").expect("a model");
        let rates = Rates::of(&device("rtx4090-24gb").expect("a device"));
        let time = StepTime::Roofline { model, copies: 1, rates };
        let mut one = Shape::default();
        one.add(1, 1000, true);
        // 15.01 GB of weights without the embedding, and 1001 tokens of 131,072 bytes
        assert_eq!(time.ns(&one) / 1000, (15_009_849_344 + 1001 * 131_072) / 1_008_000);
        let mut many = Shape::default();
        many.add(2048, 0, true);
        let flops = 2.0 * 6_979_321_856.0 * 2048.0;
        assert!(time.ns(&many) as f64 > flops / 165e3);
    }
}
