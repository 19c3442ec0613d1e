//! Decoders: GPT-2 and the Llama family, trained, run over a prompt, or decoding token by token over a cache that grows.
//!
//! ```text
//! tokens ─▶ embedding ─▶ layer × L ─▶ norm ─▶ word scores ─▶ loss, or the next token
//! ```
//!
//! | style | positions | norm | attention | feed-forward |
//! |---|---|---|---|---|
//! | GPT-2 | a table, added | layer norm | one product for q, k and v, split | dense, gelu in eight steps, dense |
//! | Llama | rotary, on q and k | root mean square, in six steps | three products; fewer heads of keys and values | silu(gate)·up, then down; or the same in each of E experts, of which each token takes A |
//!
//! With `eager` attention scores are made, masked and kept (module `models::attention`); the mask's bias is made once for all layers.
//!
//! The cache is a tensor for keys and one for values in each layer, replaced by a longer copy for each token (`DynamicCache`). Only the last token of a
//! prompt gets word scores. With experts each is given its even share of tokens. Source: transformers 5.24 (`modeling_gpt2.py`, `modeling_llama.py`,
//! `modeling_mixtral.py`, `cache_utils.py`), and for GPT-2's inference recordings. Left out: sliding windows, quantised caches.

mod gpt2;
mod llama;
pub mod params;

use super::attention::Eager;
use super::mlp::dense;
use crate::graph::network::{Carry, Graph, GraphError};
use crate::graph::op::{
    Attention, Best, Causal, Concat, Copy, CrossEntropy, Dropout, Embedding, Fused, Linear, Slice,
    View,
};
use crate::graph::tensor::{DType, TensorId};

/// The family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // see the table above
pub enum Style {
    Gpt2,
    Llama,
}

/// What a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A training step.
    Train,
    /// Word scores of all tokens, without a cache.
    Score,
    /// A prompt, which leaves a cache; caches have numbers.
    Prompt(u32),
    /// One more token after so many, with the cache of this number.
    Token(u32, u64),
}

/// Its hyper-parameters.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is described by its parameter in `params`
pub struct Decoder {
    pub style: Style,
    pub task: Task,
    pub batch: u64,
    pub seq: u64,
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub ffn: u64,
    pub vocabulary: u64,
    pub positions: u64,
    /// The word table is the last layer's weight too.
    pub tied: bool,
    /// 0: none.
    pub experts: u64,
    pub active: u64,
    pub dtype: DType,
    /// Attention operator by operator, not in one kernel.
    pub eager: bool,
    /// Caches that a run has at once.
    pub caches: u32,
}

impl Decoder {
    fn train(&self) -> bool {
        self.task == Task::Train
    }

    /// Width of a head.
    fn width(&self) -> u64 {
        self.hidden / self.heads.max(1)
    }

    /// Tokens that are in the cache already.
    fn past(&self) -> u64 {
        if let Task::Token(_, past) = self.task { past } else { 0 }
    }

    fn cache(&self) -> Option<u32> {
        match self.task {
            Task::Prompt(number) | Task::Token(number, _) => Some(number),
            Task::Train | Task::Score => None,
        }
    }

    /// Its graph.
    ///
    /// # Errors
    /// When heads do not divide each other or the width, there are more tokens than positions, or a tensor is too large.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        self.check(&graph)?;
        graph.carry_at_most(self.caches * 2 * self.layers as u32);
        self.build(&mut graph)?;
        Ok(graph)
    }

    fn check(&self, graph: &Graph) -> Result<(), GraphError> {
        let Self { hidden, heads, kv_heads, experts, active, .. } = *self;
        if heads == 0 || !hidden.is_multiple_of(heads) {
            return Err(graph.error(format!("{heads} heads do not divide a width of {hidden}")));
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(
                graph.error(format!("{kv_heads} heads of keys do not divide {heads} heads"))
            );
        }
        let tokens = self.past() + self.seq;
        if tokens > self.positions {
            let positions = self.positions;
            return Err(
                graph.error(format!("{tokens} tokens, expected at most {positions} positions"))
            );
        }
        if experts > 0 && !(1..=experts).contains(&active) {
            return Err(
                graph.error(format!("{active} of {experts} experts, expected 1 to {experts}"))
            );
        }
        Ok(())
    }

    fn build(&self, graph: &mut Graph) -> Result<(), GraphError> {
        let (h, dtype) = (self.hidden, self.dtype);
        let words = graph.parameter("words", &[self.vocabulary, h], dtype)?;
        let places = match self.style {
            Style::Gpt2 => Some(graph.parameter("positions", &[self.positions, h], dtype)?),
            Style::Llama => None,
        };
        let tokens = [self.batch, self.seq];
        let ids = graph.within("batch", |graph| graph.input("tokens", &tokens, DType::I64))?;
        let labels = match self.train() {
            true => {
                Some(graph.within("batch", |graph| graph.input("labels", &tokens, DType::I64))?)
            }
            false => None,
        };
        let embedded =
            graph.within("embedding", |graph| graph.add(Embedding::ONCE, &[ids, words]))?;
        let (mut x, held, rotary) = match places {
            Some(table) => self.place_by_table(graph, embedded, table)?,
            None => {
                let rotary = graph.within("rotary", |graph| self.rotary(graph))?;
                (embedded, vec![embedded], Some(rotary))
            }
        };
        let bias = match self.eager {
            true => Some(graph.within("mask", |graph| self.mask(graph))?),
            false => None,
        };
        for i in 0..self.layers {
            x = graph.block(&format!("layer.{i}"), |graph| match rotary {
                Some(rotary) => self.llama_layer(graph, i, x, rotary, bias),
                None => self.gpt2_layer(graph, i, x, bias),
            })?;
        }
        let y = graph.within("norm", |graph| match self.style {
            Style::Gpt2 => self.layer_norm(graph, x),
            Style::Llama => self.rms_norm(graph, x),
        })?;
        graph.hold(&[x]);
        graph.hold(&held);
        graph.hold(bias.as_slice());
        graph.within("head", |graph| self.end(graph, y, words, labels))
    }

    fn dropout(&self, graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
        let drops = self.train() && self.style == Style::Gpt2;
        if drops { graph.within("dropout", |graph| graph.add(Dropout, &[x])) } else { Ok(x) }
    }

    /// A dense layer of this name.
    fn dense(
        &self,
        graph: &mut Graph,
        name: &str,
        x: TensorId,
        [from, to]: [u64; 2],
    ) -> Result<TensorId, GraphError> {
        graph.within(name, |graph| match self.style {
            Style::Gpt2 => dense(graph, x, from, to, self.dtype),
            Style::Llama => {
                let weight = graph.parameter("weight", &[to, from], self.dtype)?;
                graph.add(Linear, &[x, weight])
            }
        })
    }

    /// Rows (b×l×n·d) by heads (b×n×l×d).
    fn by_heads(&self, graph: &mut Graph, x: TensorId, heads: u64) -> Result<TensorId, GraphError> {
        let shape = vec![self.batch, heads, self.seq, self.width()];
        graph.add(View { shape, copies_back: self.eager }, &[x])
    }

    /// What queries may see, as a bias.
    fn mask(&self, graph: &mut Graph) -> Result<TensorId, GraphError> {
        let shape = [self.batch, self.seq, self.past() + self.seq];
        graph.add(Causal { shape, dtype: self.dtype }, &[])
    }

    /// Keys or values as attention sees them: the cache with the new ones, if there is one.
    fn cached(
        &self,
        graph: &mut Graph,
        number: u64,
        new: TensorId,
    ) -> Result<TensorId, GraphError> {
        let Some(cache) = self.cache() else { return Ok(new) };
        let number = cache * 2 * self.layers as u32 + number as u32;
        let past = self.past();
        let shape = [self.batch, self.kv_heads, past, self.width()];
        let (old, all) = if past > 0 {
            let old = graph.carried("cache", &shape, self.dtype)?;
            (Some(old), graph.add(Concat { axis: 2 }, &[old, new])?)
        } else {
            (None, graph.add(Copy { copies_back: false }, &[new])?)
        };
        graph.carry(Carry { number, old, new: all });
        Ok(all)
    }

    /// The context of queries, keys and values by heads, as rows; with a bias eagerly, and the scores then.
    fn attend(
        &self,
        graph: &mut Graph,
        layer: u64,
        [q, k, v]: [TensorId; 3],
        bias: Option<TensorId>,
    ) -> Result<(TensorId, Option<TensorId>), GraphError> {
        let k = graph.within("key", |graph| self.cached(graph, 2 * layer, k))?;
        let v = graph.within("value", |graph| self.cached(graph, 2 * layer + 1, v))?;
        let dropout = self.train() && self.style == Style::Gpt2;
        let (context, scores) = if bias.is_some() {
            let cached = self.cache().is_some();
            let eager = Eager {
                // a cache is contiguous, and so is a single query
                copied: [self.seq > 1, !cached, !cached],
                shared: self.heads / self.kv_heads,
                full: self.style == Style::Llama,
                dropout,
            };
            let [context, scores] = eager.attend(graph, [q, k, v], bias)?;
            (context, Some(scores))
        } else {
            let op = Attention {
                way: Fused::Efficient,
                chosen: true,
                masked: false,
                causal: self.seq > 1,
                dropout,
            };
            (graph.add(op, &[q, k, v])?, None)
        };
        let shape = vec![self.batch, self.seq, self.hidden];
        Ok((graph.add(View { shape, copies_back: false }, &[context])?, scores))
    }

    fn end(
        &self,
        graph: &mut Graph,
        mut y: TensorId,
        words: TensorId,
        labels: Option<TensorId>,
    ) -> Result<(), GraphError> {
        if self.cache().is_some() {
            let last = vec![self.batch, 1, self.hidden];
            y = graph.add(Slice { shape: last }, &[y])?;
        }
        let weight = match self.tied {
            true => words,
            false => graph.parameter("weight", &[self.vocabulary, self.hidden], self.dtype)?,
        };
        let scores = graph.add(Linear, &[y, weight])?;
        match labels {
            Some(labels) => {
                graph.result(scores);
                let loss =
                    graph.within("loss", |graph| graph.add(CrossEntropy, &[scores, labels]))?;
                graph.minimise(loss);
            }
            None => {
                let next = graph.within("next", |graph| graph.add(Best, &[scores]))?;
                graph.result(next);
            }
        }
        Ok(())
    }
}
