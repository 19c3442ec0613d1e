//! The text detector: an 18-layer residual backbone, a 256-channel pyramid and a binarising head (the shape of DBNet).
//!
//! ```text
//! page 3×H×W ─▶ stem /4 ─▶ c2 /4 ─▶ c3 /8 ─▶ c4 /16 ─▶ c5 /32
//!                          └── 1×1 to 256, upsampled and summed from c5 up ──┐
//!            map 1×H×W ◀─ two transposed ◀─ 256 to 64 ◀─ concat at /4 ◀─ 4 × 64 channels
//! ```
//!
//! 12,176,513 weights. Source: He et al. 2016 (backbone), Liao et al. 2020 (pyramid and head); order and lifetimes as recorded with
//! PyTorch. Left out: the adaptive threshold branch, which only training uses.

use super::network::{Conv, Map, Runner};
use crate::synthetic::emit::Out;

struct Block {
    first: Conv,
    second: Conv,
    shortcut: Option<Conv>,
}

/// Its weights.
pub(super) struct Detector {
    stem: Conv,
    stages: Vec<[Block; 2]>,
    laterals: Vec<Conv>,
    smooths: Vec<Conv>,
    reduce: Conv,
    grow: Conv,
    last: Conv,
}

const CHANNELS: [u64; 4] = [64, 128, 256, 512];
const PYRAMID: u64 = 256;
const INNER: u64 = 64;

impl Detector {
    pub(super) fn load(out: &mut Out, net: &Runner) -> Self {
        let stem = net.conv(out, [3, CHANNELS[0]], 7, 2);
        let mut from = CHANNELS[0];
        let stages = CHANNELS
            .iter()
            .map(|&to| {
                let stride = if to == from { 1 } else { 2 };
                let first = net.conv(out, [from, to], 3, stride);
                let second = net.conv(out, [to, to], 3, 1);
                let shortcut = (to != from).then(|| net.conv(out, [from, to], 1, stride));
                let next = Block {
                    first: net.conv(out, [to, to], 3, 1),
                    second: net.conv(out, [to, to], 3, 1),
                    shortcut: None,
                };
                from = to;
                [Block { first, second, shortcut }, next]
            })
            .collect();
        let mut conv =
            |channels, kernel: u64| net.bare_conv(out, channels, [kernel; 2], [kernel / 2; 2]);
        let laterals = CHANNELS.iter().map(|&from| conv([from, PYRAMID], 1)).collect();
        let smooths = CHANNELS.iter().map(|_| conv([PYRAMID, INNER], 3)).collect();
        Self {
            stem,
            stages,
            laterals,
            smooths,
            reduce: net.conv(out, [PYRAMID, INNER], 3, 1),
            grow: net.deconv(out, [INNER, INNER], true),
            last: net.deconv(out, [INNER, 1], false),
        }
    }

    /// The map of text probability of `page` (not consumed).
    pub(super) fn run(&self, out: &mut Out, net: &mut Runner, page: Map) -> Map {
        let features = self.backbone(out, net, page);
        let sums = self.pyramid(out, net, &features);
        let parts: Vec<Map> = self
            .smooths
            .iter()
            .zip(&sums)
            .enumerate()
            .map(|(level, (smooth, sum))| {
                let y = net.run(out, smooth, *sum);
                if level == 0 {
                    return y;
                }
                let up = net.upsample(out, y, 1 << level);
                net.drop(out, y);
                up
            })
            .rev()
            .collect();
        let all = net.concat(out, &parts);
        let map = self.head(out, net, all);
        net.drop(out, all);
        for x in features.into_iter().rev().chain(parts).chain(sums.into_iter().rev()) {
            net.drop(out, x);
        }
        map
    }

    fn backbone(&self, out: &mut Out, net: &mut Runner, page: Map) -> Vec<Map> {
        let y = net.run_relu(out, &self.stem, page);
        let mut x = net.max_pool(out, y, 3, [2, 2]);
        net.drop(out, y);
        let mut features = Vec::new();
        for (level, [first, second]) in self.stages.iter().enumerate() {
            let y = first.run(out, net, x);
            let z = second.run(out, net, y);
            net.drop(out, y);
            // each level's last map is kept for the pyramid
            if level == 0 {
                net.drop(out, x);
            }
            features.push(z);
            x = z;
        }
        features
    }

    /// 256 channels at each level, summed from the deepest up; finest first.
    fn pyramid(&self, out: &mut Out, net: &mut Runner, features: &[Map]) -> Vec<Map> {
        let mut sums: Vec<Map> = self
            .laterals
            .iter()
            .zip(features)
            .map(|(lateral, feature)| net.run(out, lateral, *feature))
            .collect();
        for level in (0..sums.len() - 1).rev() {
            let up = net.upsample(out, sums[level + 1], 2);
            let sum = net.pointwise(out, "pyramid.sum", &[sums[level], up]);
            net.drop(out, up);
            net.drop(out, sums[level]);
            sums[level] = sum;
        }
        sums
    }

    fn head(&self, out: &mut Out, net: &mut Runner, x: Map) -> Map {
        let y = net.run_relu(out, &self.reduce, x);
        let z = net.run_relu(out, &self.grow, y);
        net.drop(out, y);
        let last = net.run(out, &self.last, z);
        net.drop(out, z);
        let map = net.pointwise(out, "sigmoid", &[last]);
        net.drop(out, last);
        map
    }
}

impl Block {
    /// `x` is not consumed.
    fn run(&self, out: &mut Out, net: &mut Runner, x: Map) -> Map {
        let y = net.run_relu(out, &self.first, x);
        let z = net.run(out, &self.second, y);
        net.drop(out, y);
        let short = self.shortcut.as_ref().map(|conv| net.run(out, conv, x));
        let sum = net.pointwise(out, "block.sum", &[z, short.unwrap_or(x)]);
        net.drop(out, z);
        if let Some(short) = short {
            net.drop(out, short);
        }
        let y = net.pointwise(out, "relu", &[sum]);
        net.drop(out, sum);
        y
    }
}
