//! The two heads, and the loss.

use super::{Bert, Head};
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{CrossEntropy, F, LayerNorm, Linear, Slice, Sum};
use crate::graph::tensor::TensorId;

impl Bert {
    /// Scores of the last hidden state `x`; `first` is the embeddings' output, `words` the word table.
    pub(super) fn head(
        &self,
        graph: &mut Graph,
        x: TensorId,
        first: TensorId,
        words: TensorId,
    ) -> Result<TensorId, GraphError> {
        match self.head {
            Head::Classify => self.classify(graph, x, first),
            Head::MaskedLm => {
                graph.hold(&[first]);
                self.mask_lm(graph, x, words)
            }
        }
    }

    fn classify(
        &self,
        graph: &mut Graph,
        x: TensorId,
        first: TensorId,
    ) -> Result<TensorId, GraphError> {
        let h = self.hidden;
        let pooled = graph.within("pooler", |graph| {
            let token = graph.add(Slice { shape: vec![self.batch, h] }, &[x])?;
            let y = super::dense(graph, token, h, h, self.dtype)?;
            let pooled = graph.add(F::Tanh, &[y])?;
            graph.hold(&[y, first, x]);
            Ok(pooled)
        })?;
        let dropped = self.dropout(graph, pooled)?;
        self.dense(graph, "output", dropped, [h, self.labels])
    }

    fn mask_lm(
        &self,
        graph: &mut Graph,
        x: TensorId,
        words: TensorId,
    ) -> Result<TensorId, GraphError> {
        let h = self.hidden;
        let bias = graph.parameter("output.bias", &[self.vocabulary], self.dtype)?;
        let y = self.dense(graph, "transform", x, [h, h])?;
        let y = graph.within("transform", |graph| graph.add(F::Gelu, &[y]))?;
        let y = graph.within("norm", |graph| {
            let [weight, bias] = self.norm_weights(graph)?;
            graph.add(LayerNorm, &[y, weight, bias])
        })?;
        let scores = graph.within("output", |graph| graph.add(Linear, &[y, words, bias]))?;
        graph.hold(&[y, x]);
        Ok(scores)
    }

    pub(super) fn minimise(
        &self,
        graph: &mut Graph,
        scores: TensorId,
        labels: Option<TensorId>,
    ) -> Result<(), GraphError> {
        if !self.train {
            return Ok(());
        }
        let loss = graph.within("loss", |graph| match labels {
            Some(labels) => graph.add(CrossEntropy, &[scores, labels]),
            None => graph.add(Sum, &[scores]),
        })?;
        graph.minimise(loss);
        Ok(())
    }
}
