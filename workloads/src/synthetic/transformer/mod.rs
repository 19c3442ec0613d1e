//! A BERT-style transformer stack, built from layer shapes: training steps and inference as PyTorch 2.15 allocates them.
//!
//! ```text
//! batch ─▶ embeddings ─▶ layer × L ─▶ head ─▶ loss
//!              ◀─────────── gradients ◀────────┘   then: clip, update, zero
//! ```
//!
//! | file | holds |
//! |---|---|
//! | [`settings`] | parameters and what they mean |
//! | [`shapes`] | the weights |
//! | [`kernels`] | workspaces |
//! | `layer`, `dense`, `attention` | one layer, forward and backward |
//! | `ends` | embeddings, head, loss |
//! | `optimizer` | gradients, clipping, update |
//!
//! Every size follows from shapes; order and lifetimes follow recorded runs (transformers' BERT over PyTorch 2.15). A step is
//! written layer by layer. Peaks against recordings: `tests/recorded_bert.rs`.
//!
//! Marks: `model to device`, `step N forward`, `step N backward`, `step N optimizer`; with several batches per step `step N micro M …`;
//! where the length varies `step N seq LENGTH …`.
//!
//! Left out: several devices, pipeline of the data loader, evaluation between steps, activation offload.

mod attention;
mod dense;
mod ends;
pub mod kernels;
mod layer;
mod optimizer;
pub mod settings;
pub mod shapes;

use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::{BufferId, StreamId};

pub use settings::Config;

use self::ends::EmbeddingKept;
use self::layer::LayerKept;
use crate::synthetic::emit::{Out, Script};

/// Longest sequence that any workload offers (tokens).
pub(crate) const LEN_MAX: u64 = 1 << 16;
/// Largest batch that any workload offers (sequences).
pub(crate) const BATCH_MAX: u64 = 1 << 16;

/// Weights, gradients and the shape of the step at hand.
struct Model {
    config: Config,
    weights: Vec<BufferId>,
    sites: Vec<&'static str>,
    gradients: Vec<Option<BufferId>>,
    moments: Vec<BufferId>,
    /// Length of the batch at hand.
    len: u64,
    /// Batch × length.
    tokens: u64,
    batch: Vec<BufferId>,
    ragged_mask: Option<BufferId>,
    /// 16-bit copies that autocast keeps until forward ends.
    autocast: Vec<BufferId>,
    workspace_cached: Option<BufferId>,
    /// The layer at hand runs backward over recomputed tensors.
    recomputed: bool,
    /// The next gradient of the word embedding is the decoder's.
    tied_expected: bool,
    tied_gradient: Option<BufferId>,
}

impl Model {
    fn new(config: Config) -> Self {
        let sites: Vec<&'static str> =
            shapes::weights(&config).iter().map(|weight| weight.site).collect();
        Self {
            gradients: vec![None; sites.len()],
            sites,
            config,
            weights: Vec::new(),
            moments: Vec::new(),
            len: 0,
            tokens: 0,
            batch: Vec::new(),
            ragged_mask: None,
            autocast: Vec::new(),
            workspace_cached: None,
            recomputed: false,
            tied_expected: false,
            tied_gradient: None,
        }
    }

    fn load(&mut self, out: &mut Out) {
        let width = self.config.weight_bytes();
        for (index, weight) in shapes::weights(&self.config).into_iter().enumerate() {
            let size = weight.numbers * width;
            self.weights.push(out.alloc(weight.site, size));
            out.copy(StreamId(0), Direction::HostToDevice, size);
            if index == shapes::EMBEDDING_NORM + 1 {
                // position and type numbers are registered with the embeddings
                for _ in 0..2 {
                    out.alloc("embedding.numbers", self.config.positions * 8);
                }
            }
        }
    }

    fn site(&self, weight: shapes::WeightId) -> &'static str {
        self.sites[weight]
    }

    /// A tensor of the residual stream (B).
    fn stream_size(&self) -> u64 {
        self.tokens * self.config.hidden * self.config.stream_bytes()
    }

    /// A product as wide as the model (B).
    fn product_size(&self) -> u64 {
        self.tokens * self.config.hidden * self.config.product_bytes()
    }

    fn end_autocast(&mut self, out: &mut Out) {
        for copy in std::mem::take(&mut self.autocast) {
            out.release(copy);
        }
    }
}

/// What waits for a layer's backward pass.
enum Tape {
    Kept(LayerKept),
    /// Only the layer's input: it is recomputed.
    Input(BufferId),
}

enum Stage {
    Load,
    Begin,
    Layer(u64),
    Head,
    LayerBack(u64),
    EmbeddingBack,
    Optimize,
}

/// Steps over batches whose lengths `lengths` yields.
pub(crate) struct Steps<L> {
    model: Model,
    lengths: L,
    varies: bool,
    stage: Stage,
    step: u64,
    micro: u64,
    steps: u64,
    x: Option<BufferId>,
    /// The embeddings' output lives until forward ends.
    first: Option<BufferId>,
    embedding: Option<EmbeddingKept>,
    tape: Vec<Tape>,
    scores: Option<BufferId>,
}

impl<L: Iterator<Item = u64>> Steps<L> {
    /// `varies` puts the length into the marks.
    pub(crate) fn new(config: Config, steps: u64, lengths: L, varies: bool) -> Self {
        Self {
            model: Model::new(config),
            lengths,
            varies,
            stage: Stage::Load,
            step: 0,
            micro: 0,
            steps,
            x: None,
            first: None,
            embedding: None,
            tape: Vec::new(),
            scores: None,
        }
    }

    fn mark(&self, out: &mut Out, phase: &str) {
        let mut text = format!("step {}", self.step);
        if self.model.config.accumulation > 1 && phase != "optimizer" {
            text += &format!(" micro {}", self.micro);
        }
        if self.varies && phase != "optimizer" {
            text += &format!(" seq {}", self.model.len);
        }
        out.mark(format!("{text} {phase}"));
    }

    fn begin(&mut self, out: &mut Out) -> Stage {
        let len = self.lengths.next().unwrap_or(1);
        self.model.len = len;
        self.model.tokens = len * self.model.config.batch;
        self.mark(out, "forward");
        self.model.load_batch(out);
        let (x, kept) = self.model.embedding_forward(out);
        self.embedding = kept;
        self.first = Some(out.retain(x));
        self.x = Some(x);
        Stage::Layer(0)
    }

    fn layer(&mut self, out: &mut Out, index: u64) -> Stage {
        let Some(x) = self.x.take() else { return Stage::Head };
        let train = self.model.config.train;
        let recompute = train && index < self.model.config.checkpoint;
        let (y, kept) = self.model.layer_forward(out, index, x, train && !recompute);
        match kept {
            Some(kept) => {
                self.tape.push(Tape::Kept(kept));
                out.release(x);
            }
            None if recompute => self.tape.push(Tape::Input(x)),
            None => out.release(x),
        }
        self.x = Some(y);
        if index + 1 < self.model.config.layers { Stage::Layer(index + 1) } else { Stage::Head }
    }

    fn head(&mut self, out: &mut Out) -> Stage {
        let (Some(x), Some(first)) = (self.x.take(), self.first.take()) else {
            return Stage::Begin;
        };
        let (scores, kept) = self.model.head_forward(out, x, first);
        if let Some(mask) = self.model.ragged_mask.take() {
            out.release(mask);
        }
        self.model.end_autocast(out);
        if let Some(old) = self.scores.replace(scores) {
            out.release(old);
        }
        if !self.model.config.train {
            let bytes = out.size(scores);
            out.copy(StreamId(0), Direction::DeviceToHost, bytes);
            out.op(Op::Sync { stream: Some(StreamId(0)) });
            return self.next_step(out);
        }
        self.mark(out, "backward");
        self.model.tied_expected = true;
        self.x = kept.map(|kept| self.model.head_backward(out, kept));
        Stage::LayerBack(self.model.config.layers - 1)
    }

    fn layer_back(&mut self, out: &mut Out, index: u64) -> Stage {
        if let (Some(gradient), Some(tape)) = (self.x.take(), self.tape.pop()) {
            self.model.recomputed = matches!(tape, Tape::Input(_));
            let kept = match tape {
                Tape::Kept(kept) => Some(kept),
                Tape::Input(x) => {
                    let (y, kept) = self.model.layer_forward(out, index, x, true);
                    self.model.end_autocast(out);
                    out.release(y);
                    out.release(x);
                    kept
                }
            };
            self.x = kept.map(|kept| self.model.layer_backward(out, index, kept, gradient));
            self.model.recomputed = false;
        }
        if index > 0 { Stage::LayerBack(index - 1) } else { Stage::EmbeddingBack }
    }

    fn embedding_back(&mut self, out: &mut Out) -> Stage {
        if let (Some(gradient), Some(kept)) = (self.x.take(), self.embedding.take()) {
            self.model.embedding_backward(out, kept, gradient);
        }
        if !self.model.config.output_held
            && let Some(scores) = self.scores.take()
        {
            out.release(scores);
        }
        self.micro += 1;
        if self.micro < self.model.config.accumulation { Stage::Begin } else { Stage::Optimize }
    }

    fn next_step(&mut self, out: &mut Out) -> Stage {
        self.micro = 0;
        self.step += 1;
        let every = self.model.config.empty_cache;
        if every > 0 && self.step.is_multiple_of(every) {
            out.op(Op::EmptyCache);
        }
        Stage::Begin
    }
}

impl<L: Iterator<Item = u64>> Script for Steps<L> {
    fn advance(&mut self, out: &mut Out) -> bool {
        self.stage = match self.stage {
            Stage::Load => {
                out.mark("model to device".to_owned());
                self.model.load(out);
                Stage::Begin
            }
            Stage::Begin if self.step == self.steps => return false,
            Stage::Begin => self.begin(out),
            Stage::Layer(index) => self.layer(out, index),
            Stage::Head => self.head(out),
            Stage::LayerBack(index) => self.layer_back(out, index),
            Stage::EmbeddingBack => self.embedding_back(out),
            Stage::Optimize => {
                self.mark(out, "optimizer");
                self.model.optimize(out);
                self.next_step(out)
            }
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::live_peak;
    use crate::params::Params;
    use crate::synthetic::bert::PARAMS;
    use crate::synthetic::cost::Roofline;
    use crate::synthetic::emit::Generated;

    fn generated(text: &str, steps: u64) -> Generated<Steps<std::iter::Repeat<u64>>> {
        let mut params = Params::defaults(PARAMS);
        params.set_text(text).unwrap();
        let config = Config::from_params(&params, 2, 512).unwrap();
        let roofline = Roofline::from_params(&params, false).unwrap();
        Generated::new(Steps::new(config, steps, std::iter::repeat(64), false), roofline)
    }

    #[test]
    fn memory_does_not_grow_with_steps() {
        let room = |steps| {
            let mut source = generated("layers=2", steps);
            live_peak(&mut source).unwrap();
            source.room()
        };
        assert_eq!(room(3), room(300));
    }

    /// What is live at the end is what a program holds between steps, whatever ran.
    #[test]
    fn steps_leave_weights_moments_and_the_last_batch() {
        for text in [
            "attention=eager",
            "precision=amp16",
            "precision=amp16,attention=eager,checkpoint=1",
            "precision=fp16,checkpoint=all",
            "precision=amp16,mask=ragged",
            "mask=ragged",
            "head=mlm",
            "head=mlm,precision=amp16",
            "head=mlm,loss=sum",
            "loss=sum,precision=amp16",
            "accumulation=3",
        ] {
            let mut source = generated(&format!("layers=2,output=dropped,{text}"), 2);
            let seen = live_peak(&mut source).unwrap();
            let mut params = Params::defaults(PARAMS);
            params.set_text(&format!("layers=2,{text}")).unwrap();
            let config = Config::from_params(&params, 2, 512).unwrap();
            let state = 3 * shapes::numbers(&config) * config.weight_bytes();
            let rest = seen.bytes_at_end.checked_sub(state + 2 * 512 * 8);
            // the batch: three lists of tokens, and labels
            let batch = 3 * 2 * 64 * 8;
            assert!(rest.is_some_and(|r| (batch..=2 * batch).contains(&r)), "{text}: {rest:?}");
        }
    }

    #[test]
    fn inference_keeps_no_activation() {
        let peak = |layers: &str| {
            let text = format!("phase=inference,layers={layers}");
            let seen = live_peak(&mut generated(&text, 2)).unwrap();
            let mut params = Params::defaults(PARAMS);
            params.set("layers", layers).unwrap();
            seen.bytes - 4 * shapes::numbers(&Config::from_params(&params, 2, 512).unwrap())
        };
        assert_eq!(peak("2"), peak("8"));
    }
}
