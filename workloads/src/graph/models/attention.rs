//! Attention operator by operator, as BERT and the decoders run it eagerly.
//!
//! Contiguous copies of q, k and v by heads (of keys and values that several heads share, one for each head); scores, scaled, with the mask's bias added if
//! there is one, softmax, dropped; context by heads and its copy as rows. Scores of l² numbers are kept for backward, which copies the gradients of q, k
//! and v as rows. Source: `eager_attention_forward` and `repeat_kv` of transformers 5.24.

use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{Cast, Copy, Dropout, F, MatMul, Repeat, Softmax};
use crate::graph::tensor::{DType, TensorId};

/// How it is run.
pub(super) struct Eager {
    /// Which of q, k and v are copied: those whose numbers stand in another order.
    pub(super) copied: [bool; 3],
    /// How many heads of queries share one of keys and values.
    pub(super) shared: u64,
    /// Softmax makes fp32, which is cast back.
    pub(super) full: bool,
    /// Scores are dropped.
    pub(super) dropout: bool,
}

impl Eager {
    /// The context by heads, copied as rows, and the scores that the caller still has in its hands.
    pub(super) fn attend(
        &self,
        graph: &mut Graph,
        [q, k, v]: [TensorId; 3],
        bias: Option<TensorId>,
    ) -> Result<[TensorId; 2], GraphError> {
        let q = self.row(graph, "query", q, self.copied[0], 1)?;
        let k = self.row(graph, "key", k, self.copied[1], self.shared)?;
        let scores = graph.within("scores", |graph| self.scores(graph, q, k, bias))?;
        let v = self.row(graph, "value", v, self.copied[2], self.shared)?;
        graph.within("context", |graph| {
            let by_heads = graph.add(MatMul { transposed: false }, &[scores, v])?;
            Ok([graph.add(Copy { copies_back: true }, &[by_heads])?, scores])
        })
    }

    fn row(
        &self,
        graph: &mut Graph,
        name: &str,
        row: TensorId,
        copied: bool,
        times: u64,
    ) -> Result<TensorId, GraphError> {
        graph.within(name, |graph| match (times, copied) {
            (2.., _) => graph.add(Repeat { times }, &[row]),
            (_, true) => graph.add(Copy { copies_back: false }, &[row]),
            _ => Ok(row),
        })
    }

    fn scores(
        &self,
        graph: &mut Graph,
        q: TensorId,
        k: TensorId,
        bias: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let low = graph.get(q).dtype;
        let scores = graph.add(MatMul { transposed: true }, &[q, k])?;
        let mut scaled = graph.add(F::Scale, &[scores])?;
        if let Some(bias) = bias {
            scaled = graph.add(F::Add, &[scaled, bias])?;
        }
        let mut softmax = graph.add(Softmax { full: self.full }, &[scaled])?;
        if self.full && low != DType::F32 {
            softmax = graph.add(Cast { to: low, cached: false }, &[softmax])?;
        }
        if self.dropout {
            softmax = graph.within("dropout", |graph| graph.add(Dropout, &[softmax]))?;
        }
        Ok(softmax)
    }
}
