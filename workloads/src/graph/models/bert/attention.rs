//! Attention, in one kernel or eagerly.
//!
//! Eager: copies of q, k and v by heads; scores, scaled, softmax, dropped; context by heads and its copy as rows. Backward copies the gradients of q, k and
//! v as rows. Queries, keys and values live until attention returns. Source: `eager_attention_forward`, `sdpa_attention_forward` of transformers 5.24.

use super::{Attend, Bert};
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{Attention, Copy, F, Fused, MatMul, Softmax, View};
use crate::graph::tensor::TensorId;

impl Bert {
    /// The context, and the scores that the layer returns beside it.
    pub(super) fn attend(
        &self,
        graph: &mut Graph,
        x: TensorId,
        mask: Option<TensorId>,
    ) -> Result<(TensorId, Option<TensorId>), GraphError> {
        let (h, n) = (self.hidden, self.heads);
        if n == 0 || !h.is_multiple_of(n) {
            return Err(graph.error(format!("{n} heads do not divide a width of {h}")));
        }
        let eager = self.attention == Attend::Eager;
        let by_heads = View { shape: vec![self.batch, n, self.seq, h / n], copies_back: eager };
        let mut rows = Vec::with_capacity(3);
        for name in ["query", "key", "value"] {
            let y = self.dense(graph, name, x, [h, h])?;
            rows.push(graph.within(name, |graph| graph.add(by_heads.clone(), &[y]))?);
        }
        let (context, scores) = match self.attention {
            Attend::Eager => self.attend_eagerly(graph, &rows)?,
            way => {
                let way = if way == Attend::Flash { Fused::Flash } else { Fused::Efficient };
                let op = Attention {
                    way,
                    chosen: self.attention == Attend::Chosen,
                    masked: mask.is_some(),
                    causal: false,
                    dropout: self.train,
                };
                rows.extend(mask);
                (graph.add(op, &rows)?, None)
            }
        };
        graph.hold(&rows[..3]);
        let shape = vec![self.batch, self.seq, h];
        Ok((graph.add(View { shape, copies_back: false }, &[context])?, scores))
    }

    fn attend_eagerly(
        &self,
        graph: &mut Graph,
        rows: &[TensorId],
    ) -> Result<(TensorId, Option<TensorId>), GraphError> {
        let copy = Copy { copies_back: false };
        let q = graph.within("query", |graph| graph.add(copy, &rows[..1]))?;
        let k = graph.within("key", |graph| graph.add(copy, &rows[1..2]))?;
        let (scores, dropped) = graph.within("scores", |graph| {
            let scores = graph.add(MatMul { transposed: true }, &[q, k])?;
            let scaled = graph.add(F::Scale, &[scores])?;
            let softmax = graph.add(Softmax { full: false }, &[scaled])?;
            Ok::<_, GraphError>((softmax, self.dropout(graph, softmax)?))
        })?;
        let v = graph.within("value", |graph| graph.add(copy, &rows[2..3]))?;
        let held = if self.train { dropped } else { scores };
        graph.within("context", |graph| {
            let by_heads = graph.add(MatMul { transposed: false }, &[dropped, v])?;
            Ok((graph.add(Copy { copies_back: true }, &[by_heads])?, Some(held)))
        })
    }
}
