//! Attention, in one kernel or eagerly.
//!
//! Queries, keys and values live until attention returns. Source: `sdpa_attention_forward` of transformers 5.24; for the eager way see
//! [`crate::graph::models::attention`].

use super::{Attend, Bert};
use crate::graph::models::attention::Eager;
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{Attention, Fused, View};
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
            Attend::Eager => {
                let (copied, dropout) = ([true; 3], self.train);
                let eager = Eager { copied, shared: 1, full: false, dropout };
                let [context, scores] = eager.attend(graph, [rows[0], rows[1], rows[2]], mask)?;
                (context, Some(scores))
            }
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
}
