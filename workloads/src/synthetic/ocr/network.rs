//! The layers that detector and recogniser are built of, in inference: what each allocates and how long it lives.
//!
//! n images of c channels, h×w; a number takes 4 bytes (fp32) or 2 (fp16).
//!
//! | layer | allocates |
//! |---|---|
//! | convolution | out; workspace for the call: bytes of input + output + filter unless 1×1 with stride 1 (`workspace=transpose`), or none |
//! | batch norm | out; the convolution's output is dropped after it |
//! | ReLU, sigmoid | in place after a norm; out elsewhere |
//! | max pool | out, and 64-bit indices that are dropped at once |
//! | sum, upsampling, concatenation | out |
//!
//! With `fused` convolution, norm and ReLU are one kernel with one output. With `free=late` nothing is freed before the request
//! ends. Source: PyTorch 2.15 over cuDNN's older interface, as recorded; the workspace rule is a stand-in for cuDNN's choice, which only a
//! real device knows. Left out: autotuning, channels-last copies.

use vramlab_sim::units::BufferId;

use crate::synthetic::emit::Out;

/// A tensor of images.
#[derive(Clone, Copy)]
pub(super) struct Map {
    pub(super) id: BufferId,
    pub(super) images: u64,
    pub(super) channels: u64,
    pub(super) height: u64,
    pub(super) width: u64,
}

impl Map {
    fn numbers(&self) -> u64 {
        self.images * self.channels * self.height * self.width
    }
}

/// A convolution with what follows it.
pub(super) struct Conv {
    weight: BufferId,
    bias: Option<BufferId>,
    /// Weight, bias, mean, variance.
    norm: Option<[BufferId; 4]>,
    channels: u64,
    kernel: [u64; 2],
    stride: u64,
    pad: [u64; 2],
    transposed: bool,
}

/// How networks are run.
pub(super) struct Runner {
    /// Bytes of a number.
    pub(super) number: u64,
    pub(super) fused: bool,
    pub(super) late: bool,
    pub(super) workspace: bool,
    /// Buffers that wait for the request's end.
    pub(super) garbage: Vec<BufferId>,
}

impl Runner {
    /// Loads a weight of so many numbers.
    pub(super) fn weight(&self, out: &mut Out, site: &'static str, numbers: u64) -> BufferId {
        out.alloc(site, numbers * self.number)
    }

    /// Loads a square convolution with norm.
    pub(super) fn conv(
        &self,
        out: &mut Out,
        [from, to]: [u64; 2],
        kernel: u64,
        stride: u64,
    ) -> Conv {
        let pad = [kernel / 2; 2];
        let mut conv = self.bare_conv(out, [from, to], [kernel; 2], pad);
        conv.stride = stride;
        conv.norm = Some(self.norm(out, to));
        conv
    }

    /// Loads a convolution without norm or bias.
    pub(super) fn bare_conv(
        &self,
        out: &mut Out,
        [from, to]: [u64; 2],
        kernel: [u64; 2],
        pad: [u64; 2],
    ) -> Conv {
        let weight = self.weight(out, "conv.weight", from * to * kernel[0] * kernel[1]);
        let channels = to;
        Conv { weight, bias: None, norm: None, channels, kernel, stride: 1, pad, transposed: false }
    }

    /// Loads a 2×2 transposed convolution of stride 2.
    pub(super) fn deconv(&self, out: &mut Out, [from, to]: [u64; 2], norm: bool) -> Conv {
        let mut conv = self.bare_conv(out, [from, to], [2; 2], [0; 2]);
        conv.bias = Some(self.weight(out, "conv.bias", to));
        conv.norm = norm.then(|| self.norm(out, to));
        (conv.stride, conv.transposed) = (2, true);
        conv
    }

    /// Loads a convolution with bias and no norm.
    pub(super) fn biased_conv(&self, out: &mut Out, channels: [u64; 2], kernel: [u64; 2]) -> Conv {
        let mut conv = self.bare_conv(out, channels, kernel, [0; 2]);
        conv.bias = Some(self.weight(out, "conv.bias", channels[1]));
        conv
    }

    fn norm(&self, out: &mut Out, channels: u64) -> [BufferId; 4] {
        let norm = [(); 4].map(|()| self.weight(out, "norm", channels));
        // batches seen, a 64-bit count
        out.alloc("norm.batches", 8);
        norm
    }

    /// Convolution of `x` (not consumed), then norm if it has one.
    pub(super) fn run(&mut self, out: &mut Out, conv: &Conv, x: Map) -> Map {
        let [height, width] = if conv.transposed {
            [x.height * 2, x.width * 2]
        } else {
            [0, 1].map(|i| {
                let side = [x.height, x.width][i];
                (side + 2 * conv.pad[i]).saturating_sub(conv.kernel[i]) / conv.stride + 1
            })
        };
        let y = self.map(out, "conv", Map { channels: conv.channels, height, width, ..x });
        let size = out.size(x.id) + out.size(y.id) + out.size(conv.weight);
        if self.workspace && !(conv.kernel == [1, 1] && conv.stride == 1) {
            out.scratch("conv.workspace", size);
        }
        // a transposed convolution does its products at the input's places
        let places =
            if conv.transposed { x.numbers() / x.channels } else { y.numbers() / y.channels };
        let kernel = conv.kernel[0] * conv.kernel[1];
        let flops = 2.0 * (places * kernel) as f64 * (x.channels * conv.channels) as f64;
        let mut reads = vec![x.id, conv.weight];
        reads.extend(conv.bias);
        let Some(norm) = conv.norm else {
            out.work(flops, &reads, &[y.id]);
            return y;
        };
        if self.fused {
            reads.extend(norm);
            out.work(flops, &reads, &[y.id]);
            return y;
        }
        out.work(flops, &reads, &[y.id]);
        let z = self.map(out, "norm", y);
        let mut reads = vec![y.id];
        reads.extend(norm);
        out.work(0.0, &reads, &[z.id]);
        self.drop(out, y);
        z
    }

    /// Convolution, norm, ReLU in place.
    pub(super) fn run_relu(&mut self, out: &mut Out, conv: &Conv, x: Map) -> Map {
        let y = self.run(out, conv, x);
        if !self.fused {
            out.work(0.0, &[], &[y.id]);
        }
        y
    }

    /// Something computed number by number from tensors of the same size.
    pub(super) fn pointwise(&mut self, out: &mut Out, site: &'static str, xs: &[Map]) -> Map {
        let y = self.map(out, site, xs[0]);
        let reads: Vec<BufferId> = xs.iter().map(|x| x.id).collect();
        out.work(0.0, &reads, &[y.id]);
        y
    }

    /// Max pool of `x` (not consumed).
    pub(super) fn max_pool(&mut self, out: &mut Out, x: Map, kernel: u64, stride: [u64; 2]) -> Map {
        let pad = (kernel - 1) / 2;
        let [height, width] =
            [[x.height, stride[0]], [x.width, stride[1]]].map(|[side, stride]| {
                if stride == 1 { side } else { (side + 2 * pad - kernel) / stride + 1 }
            });
        let y = self.map(out, "pool", Map { height, width, ..x });
        let indices = out.alloc("pool.indices", y.numbers() * 8);
        out.work(0.0, &[x.id], &[y.id, indices]);
        out.release(indices);
        y
    }

    /// Nearest upsampling of `x` (not consumed).
    pub(super) fn upsample(&mut self, out: &mut Out, x: Map, by: u64) -> Map {
        let y = self.map(out, "upsample", Map { height: x.height * by, width: x.width * by, ..x });
        out.work(0.0, &[x.id], &[y.id]);
        y
    }

    /// Channels of all, one after another.
    pub(super) fn concat(&mut self, out: &mut Out, xs: &[Map]) -> Map {
        let channels = xs.iter().map(|x| x.channels).sum();
        let y = self.map(out, "concat", Map { channels, ..xs[0] });
        let reads: Vec<BufferId> = xs.iter().map(|x| x.id).collect();
        out.work(0.0, &reads, &[y.id]);
        y
    }

    /// A new tensor of this shape.
    pub(super) fn map(&self, out: &mut Out, site: &'static str, shape: Map) -> Map {
        Map { id: out.alloc(site, shape.numbers() * self.number), ..shape }
    }

    /// Drops a tensor: now, or with the request.
    pub(super) fn drop(&mut self, out: &mut Out, x: Map) {
        self.drop_id(out, x.id);
    }

    /// Drops a buffer: now, or with the request.
    pub(super) fn drop_id(&mut self, out: &mut Out, id: BufferId) {
        if self.late {
            self.garbage.push(id);
        } else {
            out.release(id);
        }
    }
}
