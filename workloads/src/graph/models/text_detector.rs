//! `text_detector`: a DB-style detector: an 18-layer residual backbone, a 256-channel pyramid and a binarising head.
//!
//! ```text
//! page 3×H×W ─▶ stem /4 ─▶ c2 /4 ─▶ c3 /8 ─▶ c4 /16 ─▶ c5 /32
//!                          └── 1×1 to 256, upsampled and summed from c5 up ──┐
//!            map 1×H×W ◀─ two transposed ◀─ 256 to 64 ◀─ concat at /4 ◀─ 4 × 64 channels
//! ```
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `backbone` | basic blocks of 64, 128, 256, 512 channels; sum and ReLU are new tensors | He et al. 2016; recordings |
//! | `pyramid` | lateral 1×1, nearest upsampling by 2, sums; each level smoothed to 64 channels and brought to /4 | Liao et al. 2020, figure 3 |
//! | `head` | 3×3 to 64, then 2×2 transposed to 64 and to 1, sigmoid | Liao et al. 2020, section 3.1 |
//! | `training` | a second head makes the threshold map; the soft binary map is a sigmoid of 50 times the difference; losses on all three | Liao et al. 2020, sections 3.2 to 3.4 |
//! | `locals` | features, sums and parts live until the map is there | Python's scopes; recordings |
//!
//! 12,176,513 weights without the threshold head, which only training has.

use super::layers::{COLOURS, Layers, Square};
use super::resnet::pooled;
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{BinaryCrossEntropy, Concat, Conv, F, MeanError, Upsample};
use crate::graph::tensor::{DType, TensorId};

/// Its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct TextDetector {
    /// Pages in a batch.
    pub batch: u64,
    /// Height and width of a page (px), multiples of 32.
    pub size: [u64; 2],
    /// Of weights and activations.
    pub dtype: DType,
    /// With a threshold head and losses.
    pub train: bool,
}

const CHANNELS: [u64; 4] = [64, 128, 256, 512];
const PYRAMID: u64 = 256;
const INNER: u64 = 64;

impl TextDetector {
    /// Its graph.
    ///
    /// # Errors
    /// When a page's sides are no multiples of 32, or a tensor is too large.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let [height, width] = self.size;
        if self.size.iter().any(|side| *side == 0 || side % 32 != 0) {
            let what = format!("a page of {height}x{width}, expected multiples of 32");
            return Err(graph.error(what));
        }
        let layers = Layers { dtype: self.dtype, train: self.train };
        let pages = layers.images(&mut graph, "pages", self.batch, self.size)?;
        let targets = match self.train {
            true => {
                let shape = [self.batch, 1, height, width];
                let mut map = |name| graph.input(name, &shape, self.dtype);
                Some((map("text")?, map("threshold")?))
            }
            false => None,
        };
        let features = graph.within("backbone", |graph| backbone(&layers, graph, pages))?;
        let (all, mut locals) = graph.within("neck", |graph| pyramid(&layers, graph, &features))?;
        let text = graph.within("head", |graph| head(&layers, graph, all))?;
        match targets {
            None => graph.result(text),
            Some(targets) => {
                let threshold = graph.within("threshold", |graph| head(&layers, graph, all))?;
                let loss =
                    graph.within("loss", |graph| losses(graph, [text, threshold], targets))?;
                graph.minimise(loss);
            }
        }
        locals.splice(0..0, [vec![all], features.into_iter().rev().collect()].concat());
        graph.hold(&locals);
        Ok(graph)
    }
}

fn backbone(
    layers: &Layers,
    graph: &mut Graph,
    pages: TensorId,
) -> Result<Vec<TensorId>, GraphError> {
    let first = [COLOURS, CHANNELS[0]];
    let y = layers.conv_norm_relu(graph, pages, ["conv1", "bn1"], first, Square::of(7, 2))?;
    let stem = pooled(graph, y)?;
    let (mut x, mut from) = (stem, CHANNELS[0]);
    let mut features = Vec::new();
    for (stage, to) in CHANNELS.into_iter().enumerate() {
        for index in 0..2 {
            let name = format!("layer{}.{index}", stage + 1);
            x = graph.block(&name, |graph| block(layers, graph, x, [from, to]))?;
            from = to;
        }
        features.push(x);
        if stage == 0 {
            graph.hold(&[stem]);
        }
    }
    Ok(features)
}

fn block(
    layers: &Layers,
    graph: &mut Graph,
    x: TensorId,
    [from, to]: [u64; 2],
) -> Result<TensorId, GraphError> {
    let stride = if from == to { 1 } else { 2 };
    let first = Square::of(3, stride);
    let y = layers.conv_norm_relu(graph, x, ["conv1", "bn1"], [from, to], first)?;
    let z = layers.conv_norm(graph, y, ["conv2", "bn2"], [to, to], Square::of(3, 1))?;
    let mut short = x;
    if from != to {
        let names = ["shortcut.0", "shortcut.1"];
        short = layers.conv_norm(graph, x, names, [from, to], Square::of(1, stride))?;
    }
    let sum = graph.within("add", |graph| graph.add(F::Add, &[z, short]))?;
    let y = graph.within("relu", |graph| graph.add(F::Relu, &[sum]))?;
    graph.hold(&[x]);
    Ok(y)
}

/// All levels at a quarter of the page's sides, channels together; and the local variables.
fn pyramid(
    layers: &Layers,
    graph: &mut Graph,
    features: &[TensorId],
) -> Result<(TensorId, Vec<TensorId>), GraphError> {
    let mut sums = Vec::new();
    for (level, (feature, from)) in features.iter().zip(CHANNELS).enumerate() {
        let lateral =
            |graph: &mut Graph| layers.conv(graph, *feature, [from, PYRAMID], Square::of(1, 1));
        sums.push(graph.within(&format!("in{}", level + 2), lateral)?);
    }
    for level in (0..sums.len() - 1).rev() {
        sums[level] = graph.within(&format!("sum{}", level + 2), |graph| {
            let up = graph.add(Upsample { by: 2 }, &[sums[level + 1]])?;
            let sum = graph.add(F::Add, &[sums[level], up])?;
            graph.hold(&[up, sums[level]]);
            Ok(sum)
        })?;
    }
    let mut parts = Vec::new();
    for (level, sum) in sums.iter().enumerate() {
        parts.push(graph.within(&format!("p{}", level + 2), |graph| {
            let y = layers.conv(graph, *sum, [PYRAMID, INNER], Square::of(3, 1))?;
            graph.add(Upsample { by: 1 << level }, &[y])
        })?);
    }
    parts.reverse();
    let all = graph.within("concat", |graph| graph.add(Concat { axis: 1 }, &parts))?;
    sums.reverse();
    Ok((all, [parts, sums].concat()))
}

fn head(layers: &Layers, graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
    let y =
        layers.conv_norm_relu(graph, x, ["conv", "norm"], [PYRAMID, INNER], Square::of(3, 1))?;
    let y = graph.within("up1", |graph| {
        let y = twice(layers, graph, y, INNER)?;
        let y = layers.norm(graph, y, INNER)?;
        graph.add_over(F::Relu, &[y])
    })?;
    let y = graph.within("up2", |graph| twice(layers, graph, y, 1))?;
    graph.within("sigmoid", |graph| graph.add(F::Sigmoid, &[y]))
}

/// A 2×2 transposed convolution of stride 2.
fn twice(layers: &Layers, graph: &mut Graph, x: TensorId, to: u64) -> Result<TensorId, GraphError> {
    let weight = graph.parameter("weight", &[INNER, to, 2, 2], layers.dtype)?;
    let bias = graph.parameter("bias", &[to], layers.dtype)?;
    let conv = Conv { stride: [2; 2], pad: [0; 2], groups: 1, transposed: true };
    graph.add(conv, &[x, weight, bias])
}

fn losses(
    graph: &mut Graph,
    [text, threshold]: [TensorId; 2],
    (text_target, threshold_target): (TensorId, TensorId),
) -> Result<TensorId, GraphError> {
    let difference = graph.add(F::Subtract, &[text, threshold])?;
    let steep = graph.add(F::Scale, &[difference])?;
    let binary = graph.add(F::Sigmoid, &[steep])?;
    let text = graph.add(BinaryCrossEntropy, &[text, text_target])?;
    let binary = graph.add(BinaryCrossEntropy, &[binary, text_target])?;
    let threshold = graph.add(MeanError { squared: false }, &[threshold, threshold_target])?;
    let sum = graph.add(F::Add, &[text, binary])?;
    graph.add(F::Add, &[sum, threshold])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::plan::{Plan, Run};
    use crate::graph::play::Player;
    use crate::graph::tensor::Role;
    use crate::live::live_peak;
    use crate::rates::Rates;
    use vramlab_sim::device::profile::device;

    fn detector(size: [u64; 2], train: bool) -> TextDetector {
        TextDetector { batch: 1, size, dtype: DType::F32, train }
    }

    #[test]
    fn weights_are_as_recorded() {
        let weights = |train| {
            let graph = detector([32, 32], train).graph().unwrap();
            graph.of_role(Role::Parameter).map(|id| graph.get(id).numbers()).sum::<u64>()
        };
        assert_eq!(weights(false), 12_176_513);
        let head = 256 * 64 * 9 + 2 * 64 + (64 * 64 * 4 + 64) + 2 * 64 + (64 * 4 + 1);
        assert_eq!(weights(true), 12_176_513 + head);
    }

    /// Recorded with PyTorch 2.15: with both models loaded the live sum goes from 96,127,848 B to 351,169,384 B for a page of 640×960.
    #[test]
    fn peak_above_the_weights_is_as_recorded() {
        let graph = detector([640, 960], false).graph().unwrap();
        let weights = graph.state_bytes();
        let run = Run { train: false, results_held: false, ..Run::default() };
        let rates = Rates::of(&device("a100-80gb").unwrap());
        let seen = live_peak(&mut Player::of(Plan { graph, run }, 1, rates).unwrap()).unwrap();
        assert_eq!(seen.bytes - weights, 351_169_384 - 96_127_848);
    }

    #[test]
    fn a_page_that_the_backbone_cannot_halve_is_refused() {
        let error = detector([640, 950], false).graph().unwrap_err().to_string();
        assert_eq!(error, "model: a page of 640x950, expected multiples of 32");
    }

    #[test]
    fn training_keeps_what_inference_drops() {
        let peak = |train| {
            let graph = detector([640, 640], train).graph().unwrap();
            let run = Run { train, ..Run::default() };
            let rates = Rates::of(&device("a100-80gb").unwrap());
            live_peak(&mut Player::of(Plan { graph, run }, 2, rates).unwrap()).unwrap().bytes
        };
        assert!(peak(true) > 2 * peak(false));
    }
}
