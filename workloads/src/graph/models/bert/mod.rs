//! BERT: embeddings, layers of attention and feed-forward, a head.
//!
//! ```text
//! words, types, positions ─▶ norm ─▶ dropout ─▶ layer × L ─▶ head ─▶ loss
//! ```
//!
//! | part | operators | the program's locals that live longer |
//! |---|---|---|
//! | embeddings | two sums of three tables, norm, dropout | the tables' rows and the norm's output, until they return; their output until the encoder's caller returns |
//! | attention | three dense layers, attention, dense, dropout, sum, norm | the context and the dropped branch until the norm is done; with `eager` the dropped scores, until the layer returns |
//! | feed-forward | dense, gelu, dense, dropout, sum, norm | the activation and the dropped branch until the norm is done; the layer's input and the attention's output until the layer returns |
//! | classify | pooler over the first token, tanh, dropout, dense | the last hidden state until the pooler is done |
//! | mlm | dense, gelu, norm, decoder that shares the word table | the last hidden state until the decoder is done |
//!
//! Source: transformers' `BertModel` (5.24) over PyTorch 2.15, as recorded; weights are in the order in which it registers them.

mod attention;
mod head;
pub mod params;

use super::mlp::dense;
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{Cast, Copy, Dropout, Embedding, F, LayerNorm, Mask, Slice};
use crate::graph::tensor::{DType, TensorId};

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

/// Attention as it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attend {
    /// Two products with softmax and dropout between: scores of l² are saved.
    Eager,
    /// In one kernel, chosen by type and mask.
    Chosen,
    /// FlashAttention-2.
    Flash,
    /// The memory-efficient kernel.
    Efficient,
}

/// Its hyper-parameters.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is described by its parameter in `params`
pub struct Bert {
    pub train: bool,
    pub batch: u64,
    pub seq: u64,
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub ffn: u64,
    pub vocabulary: u64,
    pub positions: u64,
    pub head: Head,
    pub labels: u64,
    pub loss: Loss,
    pub dtype: DType,
    pub attention: Attend,
    pub ragged: bool,
    pub bare: bool,
}

/// What comes with a batch.
struct Batch {
    words: TensorId,
    types: TensorId,
    mask: Option<TensorId>,
    labels: Option<TensorId>,
}

/// The weights that the two ends share, or that are made before they are used.
struct Tables {
    words: TensorId,
    positions: TensorId,
    types: TensorId,
    norm: [TensorId; 2],
    /// Numbers of positions, and zeros for types.
    numbers: [TensorId; 2],
}

impl Bert {
    /// Its graph.
    ///
    /// # Errors
    /// When the heads do not divide the width, the sequence is longer than the positions, or a tensor is too large.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        self.build(&mut graph)?;
        Ok(graph)
    }

    fn build(&self, graph: &mut Graph) -> Result<(), GraphError> {
        if self.seq > self.positions {
            let (seq, positions) = (self.seq, self.positions);
            return Err(
                graph.error(format!("{seq} tokens, expected at most {positions} positions"))
            );
        }
        let tables = graph.within("embeddings", |graph| self.tables(graph))?;
        let batch = self.batch(graph, &tables)?;
        let mut x = graph.within("embeddings", |graph| self.embed(graph, &tables, &batch))?;
        let first = x;
        let mask = match batch.mask.filter(|_| self.ragged) {
            Some(mask) => Some(graph.within("mask", |graph| self.mask(graph, mask))?),
            None => None,
        };
        for i in 0..self.layers {
            x = graph.block(&format!("layer.{i}"), |graph| self.layer(graph, x, mask))?;
        }
        let scores = graph.within("head", |graph| self.head(graph, x, first, tables.words))?;
        graph.hold(mask.as_slice());
        graph.result(scores);
        self.minimise(graph, scores, batch.labels)
    }

    /// Which query sees which key; eagerly as a bias of the scores.
    fn mask(&self, graph: &mut Graph, tokens: TensorId) -> Result<TensorId, GraphError> {
        let seen = graph.add(Mask, &[tokens])?;
        match self.attention {
            Attend::Eager => graph.add(Cast { to: self.dtype, cached: false }, &[seen]),
            _ => Ok(seen),
        }
    }

    fn tables(&self, graph: &mut Graph) -> Result<Tables, GraphError> {
        let (h, dtype) = (self.hidden, self.dtype);
        let words = graph.parameter("words", &[self.vocabulary, h], dtype)?;
        let positions = graph.parameter("positions", &[self.positions, h], dtype)?;
        let types = graph.parameter("types", &[2, h], dtype)?;
        let norm = graph.within("norm", |graph| self.norm_weights(graph))?;
        let numbers = graph.buffer("positions.numbers", &[1, self.positions], DType::I64)?;
        let zeros = graph.buffer("types.numbers", &[1, self.positions], DType::I64)?;
        Ok(Tables { words, positions, types, norm, numbers: [numbers, zeros] })
    }

    fn batch(&self, graph: &mut Graph, tables: &Tables) -> Result<Batch, GraphError> {
        let tokens = [self.batch, self.seq];
        let labels: &[u64] = match self.head {
            Head::Classify => &tokens[..1],
            Head::MaskedLm => &tokens,
        };
        graph.within("batch", |graph| {
            let words = graph.input("words", &tokens, DType::I64)?;
            let (types, mask) = match self.bare {
                true => {
                    let part = Slice { shape: vec![1, self.seq] };
                    let part = graph.add(part, &[tables.numbers[1]])?;
                    (graph.add(Copy { copies_back: false }, &[part])?, None)
                }
                false => (
                    graph.input("types", &tokens, DType::I64)?,
                    Some(graph.input("mask", &tokens, DType::I64)?),
                ),
            };
            let labels = match self.train && self.loss == Loss::CrossEntropy {
                true => Some(graph.input("labels", labels, DType::I64)?),
                false => None,
            };
            Ok(Batch { words, types, mask, labels })
        })
    }

    fn norm_weights(&self, graph: &mut Graph) -> Result<[TensorId; 2], GraphError> {
        let weight = graph.parameter("weight", &[self.hidden], self.dtype)?;
        Ok([weight, graph.parameter("bias", &[self.hidden], self.dtype)?])
    }

    fn embed(
        &self,
        graph: &mut Graph,
        tables: &Tables,
        batch: &Batch,
    ) -> Result<TensorId, GraphError> {
        let words = graph
            .within("words", |graph| graph.add(Embedding::ONCE, &[batch.words, tables.words]))?;
        let types = graph.within("types", |graph| {
            let times = if self.bare { self.batch } else { 1 };
            graph.add(Embedding { times }, &[batch.types, tables.types])
        })?;
        let sum = graph.add(F::Add, &[words, types])?;
        let positions = graph.within("positions", |graph| {
            let numbers = graph.add(Slice { shape: vec![1, self.seq] }, &[tables.numbers[0]])?;
            graph.add(Embedding::ONCE, &[numbers, tables.positions])
        })?;
        let total = graph.add(F::Add, &[sum, positions])?;
        let [weight, bias] = tables.norm;
        let y = graph.within("norm", |graph| graph.add(LayerNorm, &[total, weight, bias]))?;
        let x = self.dropout(graph, y)?;
        graph.hold(&[y, words, types, positions]);
        Ok(x)
    }

    fn dropout(&self, graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
        if self.train { graph.within("dropout", |graph| graph.add(Dropout, &[x])) } else { Ok(x) }
    }

    /// A dense layer of this name.
    fn dense(
        &self,
        graph: &mut Graph,
        name: &str,
        x: TensorId,
        [from, to]: [u64; 2],
    ) -> Result<TensorId, GraphError> {
        graph.within(name, |graph| dense(graph, x, from, to, self.dtype))
    }

    fn layer(
        &self,
        graph: &mut Graph,
        x: TensorId,
        mask: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let (h, f) = (self.hidden, self.ffn);
        let (y, scores) = graph.within("attention", |graph| {
            let (context, scores) = self.attend(graph, x, mask)?;
            let branch = self.dense(graph, "output", context, [h, h])?;
            let (y, dropped) = self.close_branch(graph, branch, x)?;
            graph.hold(&[dropped, context]);
            Ok::<_, GraphError>((y, scores))
        })?;
        graph.within("ffn", |graph| {
            let inner = self.dense(graph, "inner", y, [h, f])?;
            let inner = graph.add(F::Gelu, &[inner])?;
            let branch = self.dense(graph, "output", inner, [f, h])?;
            let (z, dropped) = self.close_branch(graph, branch, y)?;
            graph.hold(&[dropped, inner]);
            graph.hold(scores.as_slice());
            graph.hold(&[y, x]);
            Ok(z)
        })
    }

    /// Dropout of `branch`, sum with `before`, norm: the result, and the dropped branch.
    fn close_branch(
        &self,
        graph: &mut Graph,
        branch: TensorId,
        before: TensorId,
    ) -> Result<(TensorId, TensorId), GraphError> {
        let dropped = self.dropout(graph, branch)?;
        let sum = graph.add(F::Add, &[dropped, before])?;
        let y = graph.within("norm", |graph| {
            let [weight, bias] = self.norm_weights(graph)?;
            graph.add(LayerNorm, &[sum, weight, bias])
        })?;
        Ok((y, dropped))
    }
}
