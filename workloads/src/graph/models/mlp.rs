//! `mlp`: dense layers with an activation between them, and a classifier: the smallest model there is, and the one to copy.

use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{CrossEntropy, F, Linear};
use crate::graph::tensor::{DType, TensorId};

/// Its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Rows in a batch.
    pub batch: u64,
    /// Widths, from the input's to the number of classes.
    pub widths: Vec<u64>,
    /// Between layers.
    pub activation: F,
    /// Of weights and activations.
    pub dtype: DType,
    /// With a loss.
    pub train: bool,
}

impl Mlp {
    /// Its graph.
    ///
    /// # Errors
    /// When there are fewer than two widths, or a tensor is too large.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let Some(first) = self.widths.first().filter(|_| self.widths.len() > 1) else {
            return Err(graph.error("found fewer than two widths, expected input and classes"));
        };
        let mut x = graph.input("batch", &[self.batch, *first], self.dtype)?;
        let labels = match self.train {
            true => Some(graph.input("labels", &[self.batch], DType::I64)?),
            false => None,
        };
        let layers = self.widths.len() - 1;
        for (i, pair) in self.widths.windows(2).enumerate() {
            x = graph.block(&format!("layer.{i}"), |graph| {
                let y = dense(graph, x, pair[0], pair[1], self.dtype)?;
                if i + 1 < layers { graph.add(self.activation, &[y]) } else { Ok(y) }
            })?;
        }
        graph.result(x);
        if let Some(labels) = labels {
            let loss = graph.within("loss", |graph| graph.add(CrossEntropy, &[x, labels]))?;
            graph.minimise(loss);
        }
        Ok(graph)
    }
}

/// A dense layer with bias at the place at hand.
pub(super) fn dense(
    graph: &mut Graph,
    x: TensorId,
    from: u64,
    to: u64,
    dtype: DType,
) -> Result<TensorId, GraphError> {
    let weight = graph.parameter("weight", &[to, from], dtype)?;
    let bias = graph.parameter("bias", &[to], dtype)?;
    graph.add(Linear, &[x, weight, bias])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::plan::Plan;
    use crate::graph::play::Player;
    use crate::live::live_peak;
    use crate::rates::Rates;
    use vramlab_sim::device::profile::device;

    fn mlp(widths: &[u64]) -> Mlp {
        let widths = widths.to_vec();
        Mlp { batch: 64, widths, activation: F::Relu, dtype: DType::F32, train: true }
    }

    #[test]
    fn a_step_leaves_weights_moments_and_the_last_batch() {
        let graph = mlp(&[100, 200, 10]).graph().unwrap();
        let weights = 4 * (100 * 200 + 200 + 200 * 10 + 10);
        assert_eq!(graph.state_bytes(), weights);
        let rates = Rates::of(&device("a100-80gb").unwrap());
        let mut player = Player::of(Plan { graph, ..Plan::default() }, 3, rates).unwrap();
        let seen = live_peak(&mut player).unwrap();
        let batch = 64 * 100 * 4 + 64 * 8;
        let results = 64 * 10 * 4 + 4;
        assert_eq!(seen.bytes_at_end, 3 * weights + batch + results);
    }

    #[test]
    fn layers_that_do_not_fit_are_named() {
        let mut graph = Graph::new();
        let x = graph.input("batch", &[8, 30], DType::F32).unwrap();
        let error = graph
            .within("layer.3", |graph| dense(graph, x, 31, 5, DType::F32))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "layer.3: linear: a weight of 5x31 does not fit an input of 8x30");
        assert!(mlp(&[7]).graph().unwrap_err().to_string().contains("fewer than two widths"));
        let huge = mlp(&[1 << 40, 1 << 40]).graph().unwrap_err().to_string();
        assert!(huge.contains("layer.0.weight: a tensor of 1099511627776x1099511627776"), "{huge}");
    }
}
