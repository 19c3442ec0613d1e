//! The line recogniser: seven convolutions, two bidirectional LSTM layers, scores for every column (the shape of CRNN).
//!
//! 48 rows of pixels become one; four columns become one. 11,842,081 weights with 6,625 classes. Source: Shi et al. 2015; order and
//! lifetimes as recorded with PyTorch; the LSTM's temporary space is taken to be the gate inputs of one layer. Left out: decoding, which
//! runs on the host.

use vramlab_sim::units::BufferId;

use super::network::{Conv, Map, Runner};
use crate::graph::kernels::BLAS_WORKSPACE;
use crate::synthetic::emit::Out;

/// Rows of a line as it comes in (px).
pub(super) const HEIGHT: u64 = 48;
const CHANNELS: [u64; 6] = [64, 128, 256, 256, 512, 512];
const HIDDEN: u64 = 256;
const LAYERS: u64 = 2;
const DIRECTIONS: u64 = 2;
const GATES: u64 = 4;
const CLASSES: u64 = 6625;

/// Its weights.
pub(super) struct Recogniser {
    convs: Vec<Conv>,
    last: Conv,
    lstm: BufferId,
    dense: [BufferId; 2],
}

impl Recogniser {
    pub(super) fn load(out: &mut Out, net: &Runner) -> Self {
        let mut from = 3;
        let convs = CHANNELS
            .iter()
            .map(|&to| {
                let conv = net.conv(out, [from, to], 3, 1);
                from = to;
                conv
            })
            .collect();
        let last = net.biased_conv(out, [from, 2 * HIDDEN], [3, 1]);
        // both layers read 512 numbers: the last convolution's, or two directions of 256
        let side = DIRECTIONS * HIDDEN;
        let gates = GATES * HIDDEN;
        let flat = LAYERS * DIRECTIONS * (gates * side + gates * HIDDEN + 2 * gates);
        let lstm = net.weight(out, "lstm.weight", flat);
        let dense = [side * CLASSES, CLASSES].map(|n| net.weight(out, "dense.weight", n));
        Self { convs, last, lstm, dense }
    }

    /// Scores of a group of `lines` (not consumed): one row per four columns.
    pub(super) fn run(&self, out: &mut Out, net: &mut Runner, lines: Map) -> Map {
        let mut x: Option<Map> = None;
        for (index, conv) in self.convs.iter().enumerate() {
            let input = x.unwrap_or(lines);
            let y = net.run_relu(out, conv, input);
            if let Some(input) = x {
                net.drop(out, input);
            }
            // after the first two in both directions, then every second time in height only
            let stride = match index {
                0 | 1 => Some([2, 2]),
                3 | 5 => Some([2, 1]),
                _ => None,
            };
            x = Some(match stride {
                Some(stride) => {
                    let pooled = net.max_pool(out, y, 2, stride);
                    net.drop(out, y);
                    pooled
                }
                None => y,
            });
        }
        let input = x.unwrap_or(lines);
        let y = net.run_relu(out, &self.last, input);
        net.drop(out, input);
        let rows = self.lstm(out, net, y);
        self.scores(out, net, rows)
    }

    /// Rows of 512 numbers, one a column; `x` is consumed.
    fn lstm(&self, out: &mut Out, net: &mut Runner, x: Map) -> Map {
        let state = LAYERS * DIRECTIONS * x.images * HIDDEN * net.number;
        let start = ["lstm.hidden", "lstm.cell"].map(|site| out.alloc(site, state));
        let rows = net.pointwise(out, "lstm.rows", &[x]);
        let y = net.map(out, "lstm", rows);
        let end = ["lstm.hidden", "lstm.cell"].map(|site| out.alloc(site, state));
        let columns = x.width * x.images;
        let space = columns * DIRECTIONS * GATES * HIDDEN * net.number;
        let space = out.alloc("lstm.space", space);
        let weights = (LAYERS * DIRECTIONS * GATES * HIDDEN * 3 * HIDDEN) as f64;
        let reads = [rows.id, start[0], start[1], self.lstm];
        out.work(2.0 * columns as f64 * weights, &reads, &[y.id, end[0], end[1], space]);
        out.release(space);
        net.drop(out, rows);
        for id in start {
            net.drop_id(out, id);
        }
        net.drop(out, x);
        for id in end {
            net.drop_id(out, id);
        }
        y
    }

    /// Softmax over the classes of every row; `rows` is consumed.
    fn scores(&self, out: &mut Out, net: &mut Runner, rows: Map) -> Map {
        let input = net.pointwise(out, "dense.rows", &[rows]);
        let shape = Map { channels: CLASSES, height: 1, ..rows };
        let scores = net.map(out, "dense", shape);
        out.scratch("blas.workspace", BLAS_WORKSPACE);
        let columns = (rows.images * rows.width) as f64;
        let flops = 2.0 * columns * (DIRECTIONS * HIDDEN * CLASSES) as f64;
        out.work(flops, &[input.id, self.dense[0], self.dense[1]], &[scores.id]);
        net.drop(out, input);
        let softmax = net.pointwise(out, "softmax", &[scores]);
        net.drop(out, scores);
        net.drop(out, rows);
        softmax
    }
}
