//! Llama's layers, and those with experts.

use super::Decoder;
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{Cast, Combine, F, Gather, Linear, Mean, Rotate, Softmax, View};
use crate::graph::tensor::{DType, TensorId};

impl Decoder {
    /// Cosines and sines of the places (1×1×l×d), as they come with the batch.
    pub(super) fn rotary(&self, graph: &mut Graph) -> Result<[TensorId; 2], GraphError> {
        let shape = [1, 1, self.seq, self.width()];
        Ok([graph.input("cosines", &shape, self.dtype)?, graph.input("sines", &shape, self.dtype)?])
    }

    /// Root mean square norm, in fp32 inside.
    pub(super) fn rms_norm(&self, graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
        let weight = graph.parameter("weight", &[self.hidden], self.dtype)?;
        let full = match self.dtype {
            DType::F32 => x,
            _ => graph.add(Cast { to: DType::F32, cached: false }, &[x])?,
        };
        let squares = graph.add(F::Power, &[full])?;
        let mean = graph.add(Mean, &[squares])?;
        let shifted = graph.add(F::Scale, &[mean])?;
        let root = graph.add(F::Rsqrt, &[shifted])?;
        let y = graph.add(F::Multiply, &[full, root])?;
        let y = match self.dtype {
            DType::F32 => y,
            low => graph.add(Cast { to: low, cached: false }, &[y])?,
        };
        graph.add(F::Multiply, &[weight, y])
    }

    fn rotated(
        &self,
        graph: &mut Graph,
        x: TensorId,
        [cosines, sines]: [TensorId; 2],
    ) -> Result<TensorId, GraphError> {
        let straight = graph.add(F::Multiply, &[x, cosines])?;
        let turned = graph.add(Rotate, &[x])?;
        let turned = graph.add(F::Multiply, &[turned, sines])?;
        graph.add(F::Add, &[straight, turned])
    }

    pub(super) fn llama_layer(
        &self,
        graph: &mut Graph,
        layer: u64,
        x: TensorId,
        rotary: [TensorId; 2],
        bias: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let (h, kv) = (self.hidden, self.kv_heads * self.width());
        let y = graph.within("norm.1", |graph| self.rms_norm(graph, x))?;
        let (attended, scores) = graph.within("attention", |graph| {
            let q = self.dense(graph, "query", y, [h, h])?;
            let q = self.by_heads(graph, q, self.heads)?;
            let k = self.dense(graph, "key", y, [h, kv])?;
            let k = self.by_heads(graph, k, self.kv_heads)?;
            let v = self.dense(graph, "value", y, [h, kv])?;
            let v = self.by_heads(graph, v, self.kv_heads)?;
            let q = graph.within("query", |graph| self.rotated(graph, q, rotary))?;
            let k = graph.within("key", |graph| self.rotated(graph, k, rotary))?;
            let (context, scores) = self.attend(graph, layer, [q, k, v], bias)?;
            let attended = self.dense(graph, "output", context, [h, h])?;
            graph.hold(&[q, k, v, context, y]);
            Ok::<_, GraphError>((attended, scores))
        })?;
        let sum = graph.add(F::Add, &[x, attended])?;
        let y = graph.within("norm.2", |graph| self.rms_norm(graph, sum))?;
        let fed = graph.within("ffn", |graph| match self.experts {
            0 => self.gated(graph, y),
            _ => self.experts(graph, y),
        })?;
        let z = graph.add(F::Add, &[sum, fed])?;
        graph.hold(scores.as_slice());
        graph.hold(&[sum, x]);
        Ok(z)
    }

    /// `down(silu(gate(x))·up(x))`.
    fn gated(&self, graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
        let (h, f) = (self.hidden, self.ffn);
        let gate = self.dense(graph, "gate", x, [h, f])?;
        let gate = graph.within("gate", |graph| graph.add(F::Silu, &[gate]))?;
        let up = self.dense(graph, "up", x, [h, f])?;
        let both = graph.add(F::Multiply, &[gate, up])?;
        self.dense(graph, "down", both, [f, h])
    }

    /// Each token through its experts: chosen rows, weighted, added up.
    fn experts(&self, graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
        let (h, tokens) = (self.hidden, self.batch * self.seq);
        let shape = graph.get(x).shape.clone();
        let flat = graph.add(View { shape: vec![tokens, h], copies_back: false }, &[x])?;
        let weights = graph.within("router", |graph| {
            let weight = graph.parameter("weight", &[self.experts, h], self.dtype)?;
            let scores = graph.add(Linear, &[flat, weight])?;
            graph.add(Softmax { full: true }, &[scores])
        })?;
        let rows = (tokens * self.active).div_ceil(self.experts);
        let mut parts = Vec::with_capacity(self.experts as usize);
        for i in 0..self.experts {
            let part = graph.within(&format!("expert.{i}"), |graph| {
                let chosen = graph.buffer("rows", &[rows], DType::I64)?;
                let mine = graph.add(Gather { rows }, &[flat, chosen])?;
                let share = graph.add(Gather { rows }, &[weights, chosen])?;
                let share = graph.add(Mean, &[share])?;
                let y = self.gated(graph, mine)?;
                graph.add(F::Multiply, &[y, share])
            })?;
            parts.push(part);
        }
        let all = graph.add(Combine { rows: tokens }, &parts)?;
        let all = match graph.get(all).dtype == self.dtype {
            true => all,
            false => graph.add(Cast { to: self.dtype, cached: false }, &[all])?,
        };
        graph.add(View { shape, copies_back: false }, &[all])
    }
}
