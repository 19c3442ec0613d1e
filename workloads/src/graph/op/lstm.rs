//! A stack of LSTM layers, one or two directions, in one cuDNN call.
//!
//! t steps, n sequences, h numbers of state, d directions, l layers.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `states` | first states are inputs (l·d×n×h, twice); last states are made beside the result | `aten/src/ATen/native/RNN.cpp`, PyTorch 2.15; recordings |
//! | `space` | temporary space: the gate inputs of one layer, t·n·d·4·h numbers | the recordings' rule |
//! | `reserve` | training keeps gates, cells and results of every layer: l·d·t·n·6·h numbers | `cudnnRNNForward` reserve, derived: what backward through time needs |
//! | `backward` | input gradient, then that of the flat weight, with the same space | `_cudnn_rnn_backward` |
//!
//! The weight is one flat buffer. Left out: dropout between layers, projections.

use super::{Autocast, Backward, Forward, Operator, Saves, Spec, Tensor, expect, one_float};
use crate::graph::tensor::{DType, shape_text};

const GATES: u64 = 4;
/// Gates, cell and result.
const RESERVED: u64 = GATES + 2;

/// Inputs: rows (n×t×i), first hidden state, first cell state, flat weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    /// Numbers of state.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// 1 or 2.
    pub directions: u64,
    /// Keeps what backward needs.
    pub training: bool,
}

impl Lstm {
    /// Numbers in the flat weight: per layer and direction, gates times (input, state, two biases).
    pub fn weights(&self, input: u64) -> u64 {
        let side = self.directions * self.hidden;
        let layer = |from: u64| self.directions * GATES * self.hidden * (from + self.hidden + 2);
        layer(input) + self.layers.saturating_sub(1) * layer(side)
    }

    /// Shape of a state for so many sequences.
    pub fn state(&self, sequences: u64) -> [u64; 3] {
        [self.layers * self.directions, sequences, self.hidden]
    }

    fn space(&self, rows: u64, dtype: DType) -> u64 {
        rows * self.directions * GATES * self.hidden * dtype.bytes()
    }
}

impl Operator for Lstm {
    fn name(&self) -> &'static str {
        "lstm"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x, hidden, cell, weight] = expect(inputs)?;
        let dtype = one_float(inputs)?;
        let [n, t, from] = x.shape[..] else {
            let found = shape_text(&x.shape);
            return Err(format!("found {found}, expected sequences x steps x numbers"));
        };
        for state in [hidden, cell] {
            if state.shape != self.state(n) {
                let (found, wanted) = (shape_text(&state.shape), shape_text(&self.state(n)));
                return Err(format!("a state of {found}, expected {wanted}"));
            }
        }
        let wanted = self.weights(from);
        if weight.numbers() != wanted {
            return Err(format!("a weight of {} numbers, expected {wanted}", weight.numbers()));
        }
        let mut made = vec![
            Spec::new([n, t, self.directions * self.hidden], dtype),
            Spec::aside(self.state(n), dtype),
            Spec::aside(self.state(n), dtype),
        ];
        if self.training {
            let reserve = self.layers * self.directions * t * n * RESERVED * self.hidden;
            made.push(Spec::aside([reserve], dtype));
        }
        Ok(made)
    }

    fn flops(&self, inputs: &[&Tensor], _outputs: &[&Tensor]) -> f64 {
        2.0 * inputs[0].rows() as f64 * inputs[3].numbers() as f64
    }

    fn saves(&self) -> Saves {
        let outputs = if self.training { vec![0, 3] } else { vec![0] };
        Saves { inputs: vec![0, 1, 2, 3], outputs }
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let x = at.tensor_in(0);
        let space = at.temporary(self.space(x.rows(), x.dtype), DType::I8, "space");
        at.run_with_scratch(&[space]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let mut reads = vec![at.gradient()];
        reads.extend(at.saved());
        let x = at.tensor_in(0);
        let flops = at.forward_flops();
        for i in [0, 3] {
            if at.wants(i) {
                let space = at.temporary(self.space(x.rows(), x.dtype), DType::I8, "space");
                let made = at.like_input(i);
                at.kernel_with(flops, &reads, &[made], &[space]);
                at.give(i, made);
            }
        }
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

impl From<Lstm> for super::Kind {
    fn from(op: Lstm) -> Self {
        Self::Lstm(op)
    }
}
