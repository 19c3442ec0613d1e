//! `text_recogniser`: a CRNN-style recogniser of text lines: seven convolutions, two bidirectional LSTM layers, scores for every column.
//!
//! 48 rows of pixels become one; four columns become one.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `convolutions` | six of 3×3 with norm and ReLU to 64, 128, 256, 256, 512, 512 channels, pooled after the first two in both directions, after the fourth and sixth in height only; the last of 3×1 without padding, with bias | Shi et al. 2015, table 1, with rows of 48; recordings |
//! | `rows` | columns become rows of 512 numbers | recordings |
//! | `states` | first states are zeros; last ones live until the scores are there | Python's scopes; recordings |
//! | `scores` | a copy that makes the rows of several lines contiguous, a dense layer, softmax | recordings |
//! | `training` | log-softmax and the CTC loss | Shi et al. 2015, section 2.3 |
//!
//! 11,842,081 weights with 6,625 classes. Decoding runs on the host: best class and score of each column are copied there.

use super::layers::{COLOURS, Layers, Square};
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{
    Conv, Copy, Ctc, Decode, F, Linear, LogSoftmax, Lstm, MaxPool, Rows, Zeros,
};
use crate::graph::tensor::{DType, TensorId};

/// Its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct TextRecogniser {
    /// Lines in a batch.
    pub batch: u64,
    /// Width of a line (px).
    pub width: u64,
    /// Classes of characters.
    pub classes: u64,
    /// Symbols of the longest text (training).
    pub symbols: u64,
    /// Of weights and activations.
    pub dtype: DType,
    /// With a loss.
    pub train: bool,
}

/// Rows of a line as it comes in (px).
pub const HEIGHT: u64 = 48;
/// Classes of the recorded model.
pub const CLASSES: u64 = 6625;
const CHANNELS: [u64; 6] = [64, 128, 256, 256, 512, 512];
const HIDDEN: u64 = 256;

impl TextRecogniser {
    /// Its graph.
    ///
    /// # Errors
    /// When a line is too narrow for its windows, or a tensor is too large.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let layers = Layers { dtype: self.dtype, train: self.train };
        let lines = layers.images(&mut graph, "lines", self.batch, [HEIGHT, self.width])?;
        let texts = match self.train {
            true => Some(graph.input("texts", &[self.batch, self.symbols], DType::I64)?),
            false => None,
        };
        let mut x = lines;
        let mut from = COLOURS;
        for (index, to) in CHANNELS.into_iter().enumerate() {
            let name = format!("conv.{index}");
            x = graph.block(&name, |graph| {
                let y = layers.conv_norm_relu(
                    graph,
                    x,
                    ["conv", "norm"],
                    [from, to],
                    Square::of(3, 1),
                )?;
                pool(graph, index, y)
            })?;
            from = to;
        }
        let x = graph.within("last", |graph| last(&layers, graph, x, from))?;
        let (rows, states) = graph.within("lstm", |graph| self.lstm(graph, x))?;
        let scores = graph.within("dense", |graph| self.dense(graph, rows))?;
        let likely = graph.within("softmax", |graph| graph.add(LogSoftmax, &[scores]))?;
        graph.hold(&[scores]);
        graph.hold(&[vec![rows], states].concat());
        match texts {
            Some(texts) => {
                let loss = graph.within("loss", |graph| graph.add(Ctc, &[likely, texts]))?;
                graph.minimise(loss);
            }
            None => {
                graph.result(likely);
                graph.within("decode", |graph| {
                    graph.add(Decode { values: false }, &[likely])?;
                    graph.add(Decode { values: true }, &[likely])
                })?;
            }
        }
        Ok(graph)
    }

    /// Rows of numbers, one a column, and the last states.
    fn lstm(
        &self,
        graph: &mut Graph,
        x: TensorId,
    ) -> Result<(TensorId, Vec<TensorId>), GraphError> {
        let lstm = Lstm { hidden: HIDDEN, layers: 2, directions: 2, training: self.train };
        let state = lstm.state(self.batch).to_vec();
        let weights = lstm.weights(2 * HIDDEN);
        let weight = graph.parameter("weight", &[weights], self.dtype)?;
        let mut zeros = || graph.add(Zeros { shape: state.clone(), dtype: self.dtype }, &[]);
        let (hidden, cell) = (zeros()?, zeros()?);
        let rows = graph.add(Rows, &[x])?;
        let made = graph.node(lstm, &[rows, hidden, cell, weight])?;
        graph.hold(&[rows, hidden, cell, x]);
        Ok((made[0], vec![made[2], made[1]]))
    }

    fn dense(&self, graph: &mut Graph, rows: TensorId) -> Result<TensorId, GraphError> {
        let weight = graph.parameter("weight", &[self.classes, 2 * HIDDEN], self.dtype)?;
        let bias = graph.parameter("bias", &[self.classes], self.dtype)?;
        // the rows of one line are contiguous as they are
        let input = match self.batch {
            1 => rows,
            _ => graph.add(Copy { copies_back: false }, &[rows])?,
        };
        let scores = graph.add(Linear, &[input, weight])?;
        graph.add_over(F::Add, &[scores, bias])
    }
}

/// The pool after a convolution, if there is one.
fn pool(graph: &mut Graph, index: usize, x: TensorId) -> Result<TensorId, GraphError> {
    let stride = match index {
        0 | 1 => [2, 2],
        3 | 5 => [2, 1],
        _ => return Ok(x),
    };
    let pool = MaxPool { kernel: stride, stride, pad: [0; 2] };
    graph.within("pool", |graph| graph.add(pool, &[x]))
}

/// The three rows that are left become one.
fn last(
    layers: &Layers,
    graph: &mut Graph,
    x: TensorId,
    from: u64,
) -> Result<TensorId, GraphError> {
    let weight = graph.parameter("weight", &[2 * HIDDEN, from, 3, 1], layers.dtype)?;
    let bias = graph.parameter("bias", &[2 * HIDDEN], layers.dtype)?;
    let conv = Conv { stride: [1; 2], pad: [0; 2], groups: 1, transposed: false };
    let y = graph.add(conv, &[x, weight, bias])?;
    graph.add_over(F::Relu, &[y])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::plan::{Inputs, Plan, Run};
    use crate::graph::play::Player;
    use crate::graph::tensor::Role;
    use crate::live::live_peak;
    use crate::rates::Rates;
    use vramlab_sim::device::profile::device;

    fn recogniser(batch: u64, width: u64, train: bool) -> TextRecogniser {
        let (classes, symbols, dtype) = (CLASSES, 25, DType::F32);
        TextRecogniser { batch, width, classes, symbols, dtype, train }
    }

    #[test]
    fn weights_are_as_recorded() {
        let graph = recogniser(1, 320, false).graph().unwrap();
        let weights: u64 = graph.of_role(Role::Parameter).map(|id| graph.get(id).numbers()).sum();
        assert_eq!(weights, 11_842_081);
    }

    /// Recorded with PyTorch 2.15: six lines of 320 px take 73,902,664 B beside what was there before them.
    #[test]
    fn peak_above_the_weights_is_as_recorded() {
        let graph = recogniser(6, 320, false).graph().unwrap();
        let weights = graph.state_bytes();
        let run = Run { train: false, inputs: Inputs::Replaced, ..Run::default() };
        let rates = Rates::of(&device("a100-80gb").unwrap());
        let seen = live_peak(&mut Player::of(Plan { graph, run }, 1, rates).unwrap()).unwrap();
        // the input is 1,105,920 B of it; request 0 began with 96,127,848 B
        assert_eq!(seen.bytes - weights, 145_532_520 - 96_127_848);
    }

    #[test]
    fn a_line_without_columns_is_refused() {
        let error = recogniser(6, 3, false).graph().unwrap_err().to_string();
        assert!(error.starts_with("conv.1.pool: max_pool: a kernel of 2x2"), "{error}");
        let mut long = recogniser(6, 80, true);
        long.symbols = 21;
        assert_eq!(
            long.graph().unwrap_err().to_string(),
            "loss: ctc: 6 texts of 21 symbols do not fit 6 lines of 20 steps"
        );
    }
}
