//! GPT-2's layers. A layer returns with its input, both branches, the sum between them and the second norm's output in its hands.

use super::Decoder;
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{Embedding, F, LayerNorm, Split};
use crate::graph::tensor::{DType, TensorId};

impl Decoder {
    /// Words and places as one, what is held until the last norm is done, no rotary tables.
    #[allow(clippy::type_complexity)] // named in the line above
    pub(super) fn place_by_table(
        &self,
        graph: &mut Graph,
        words: TensorId,
        table: TensorId,
    ) -> Result<(TensorId, Vec<TensorId>, Option<[TensorId; 2]>), GraphError> {
        let numbers =
            graph.within("batch", |graph| graph.input("positions", &[1, self.seq], DType::I64))?;
        let places =
            graph.within("embedding", |graph| graph.add(Embedding::ONCE, &[numbers, table]))?;
        let sum = graph.within("embedding", |graph| graph.add(F::Add, &[words, places]))?;
        let x = self.dropout(graph, sum)?;
        Ok((x, vec![words, places], None))
    }

    pub(super) fn layer_norm(
        &self,
        graph: &mut Graph,
        x: TensorId,
    ) -> Result<TensorId, GraphError> {
        let weight = graph.parameter("weight", &[self.hidden], self.dtype)?;
        let bias = graph.parameter("bias", &[self.hidden], self.dtype)?;
        graph.add(LayerNorm, &[x, weight, bias])
    }

    pub(super) fn gpt2_layer(
        &self,
        graph: &mut Graph,
        layer: u64,
        x: TensorId,
        bias: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let (h, f) = (self.hidden, self.ffn);
        let y = graph.within("norm.1", |graph| self.layer_norm(graph, x))?;
        let (attended, scores) = graph.within("attention", |graph| {
            let joined = self.dense(graph, "qkv", y, [h, 3 * h])?;
            let parts = graph.node(Split { parts: vec![h; 3] }, &[joined])?;
            let mut rows = [joined; 3];
            for (row, part) in rows.iter_mut().zip(parts) {
                *row = self.by_heads(graph, part, self.heads)?;
            }
            let (context, scores) = self.attend(graph, layer, rows, bias)?;
            let attended = self.dense(graph, "output", context, [h, h])?;
            let attended = self.dropout(graph, attended)?;
            graph.hold(&[context, joined]);
            Ok::<_, GraphError>((attended, scores))
        })?;
        let sum = graph.add(F::Add, &[attended, x])?;
        graph.hold(&[y]);
        let y = graph.within("norm.2", |graph| self.layer_norm(graph, sum))?;
        let fed = graph.within("ffn", |graph| {
            let inner = self.dense(graph, "inner", y, [h, f])?;
            let active = gelu_in_steps(graph, inner)?;
            let fed = self.dense(graph, "output", active, [f, h])?;
            self.dropout(graph, fed)
        })?;
        let z = graph.add(F::Add, &[sum, fed])?;
        graph.hold(scores.as_slice());
        graph.hold(&[y, sum, attended, fed, x]);
        Ok(z)
    }
}

/// `0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, operator by operator.
fn gelu_in_steps(graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
    graph.within("gelu", |graph| {
        let half = graph.add(F::Scale, &[x])?;
        let cube = graph.add(F::Power, &[x])?;
        let scaled = graph.add(F::Scale, &[cube])?;
        let sum = graph.add(F::Add, &[x, scaled])?;
        let inner = graph.add(F::Scale, &[sum])?;
        let tanh = graph.add(F::Tanh, &[inner])?;
        let one_more = graph.add(F::Scale, &[tanh])?;
        let y = graph.add(F::Multiply, &[half, one_more])?;
        graph.hold(&[half, one_more, x]);
        Ok(y)
    })
}
