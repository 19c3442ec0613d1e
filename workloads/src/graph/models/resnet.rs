//! `resnet`: residual networks for images (He et al. 2016): ResNet-18 of basic blocks, ResNet-50 of bottlenecks.
//!
//! ```text
//! n×3×s×s ─▶ 7×7/2, norm, ReLU ─▶ pool 3×3/2 ─▶ four stages of blocks, each but the first halves the image ─▶ mean ─▶ classes
//! ```
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `blocks` | 2, 2, 2, 2 basic or 3, 4, 6, 3 bottleneck blocks, of 64, 128, 256, 512 channels; a bottleneck makes four times as many | He et al. 2016, table 1 |
//! | `stride` | a bottleneck halves the image in its 3×3 convolution | torchvision's variant (v1.5), which the recordings have |
//! | `in_place` | ReLU writes over its input, the sum over the block's last norm | `inplace=True`; recordings |
//! | `locals` | a block's last value is held until the next norm is done, its input and shortcut until it returns | Python's scopes; recordings |
//! | `loss` | scores are dropped when the loss is there, since nobody keeps them | `loss_fn(model(x), y)`; recordings |

use super::layers::{COLOURS, Layers, Square};
use crate::graph::network::{Graph, GraphError};
use crate::graph::op::{CrossEntropy, F, MaxPool, MeanPool};
use crate::graph::tensor::{DType, TensorId};

/// How a block is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Two convolutions of 3×3.
    Basic,
    /// 1×1, 3×3, and 1×1 to four times the channels.
    Bottleneck,
}

impl Block {
    fn grows(self) -> u64 {
        match self {
            Block::Basic => 1,
            Block::Bottleneck => 4,
        }
    }
}

/// Its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ResNet {
    /// Images in a batch.
    pub batch: u64,
    /// Height and width of an image (px).
    pub size: [u64; 2],
    /// Kind of its blocks.
    pub block: Block,
    /// Blocks of each stage.
    pub stages: Vec<u64>,
    /// Channels of the first stage.
    pub width: u64,
    /// Classes.
    pub classes: u64,
    /// Of weights and activations.
    pub dtype: DType,
    /// With a loss, and statistics of the batch.
    pub train: bool,
}

impl ResNet {
    /// The usual one of so many layers: 18, 34, 50, 101 or 152; none of another number.
    pub fn of_depth(depth: u64, batch: u64, dtype: DType) -> Option<Self> {
        let (block, stages) = match depth {
            18 => (Block::Basic, [2, 2, 2, 2]),
            34 => (Block::Basic, [3, 4, 6, 3]),
            50 => (Block::Bottleneck, [3, 4, 6, 3]),
            101 => (Block::Bottleneck, [3, 4, 23, 3]),
            152 => (Block::Bottleneck, [3, 8, 36, 3]),
            _ => return None,
        };
        let stages = stages.to_vec();
        let size = [224; 2];
        Some(Self { batch, size, block, stages, width: 64, classes: 1000, dtype, train: true })
    }

    /// Its graph.
    ///
    /// # Errors
    /// When an image is too small for its windows, or a tensor is too large.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let layers = Layers { dtype: self.dtype, train: self.train };
        let images = layers.images(&mut graph, "images", self.batch, self.size)?;
        let labels = match self.train {
            true => Some(graph.input("labels", &[self.batch], DType::I64)?),
            false => None,
        };
        let first = [COLOURS, self.width];
        let names = ["conv1", "bn1"];
        let x = layers.conv_norm_relu(&mut graph, images, names, first, Square::of(7, 2))?;
        let mut x = pooled(&mut graph, x)?;
        let mut from = self.width;
        for (stage, blocks) in self.stages.iter().enumerate() {
            let to = self.width << stage;
            for index in 0..*blocks {
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                x = graph.block(&format!("layer{}.{index}", stage + 1), |graph| {
                    block(&layers, graph, self.block, x, [from, to], stride)
                })?;
                from = to * self.block.grows();
            }
        }
        let pooled = graph.within("avgpool", |graph| graph.add(MeanPool, &[x]))?;
        let scores = graph.within("fc", |graph| {
            super::mlp::dense(graph, pooled, from, self.classes, self.dtype)
        })?;
        match labels {
            Some(labels) => {
                let loss =
                    graph.within("loss", |graph| graph.add(CrossEntropy, &[scores, labels]))?;
                graph.minimise(loss);
            }
            None => graph.result(scores),
        }
        Ok(graph)
    }
}

/// The pool after the first layer.
pub(super) fn pooled(graph: &mut Graph, x: TensorId) -> Result<TensorId, GraphError> {
    let pool = MaxPool { kernel: [3; 2], stride: [2; 2], pad: [1; 2] };
    graph.within("maxpool", |graph| graph.add(pool, &[x]))
}

/// A residual block; the first of a stage halves the image.
fn block(
    layers: &Layers,
    graph: &mut Graph,
    block: Block,
    x: TensorId,
    [from, to]: [u64; 2],
    stride: u64,
) -> Result<TensorId, GraphError> {
    let made = to * block.grows();
    let convs: &[(u64, u64, u64)] = match block {
        Block::Basic => &[(3, stride, to), (3, 1, to)],
        Block::Bottleneck => &[(1, 1, to), (3, stride, to), (1, 1, made)],
    };
    let (mut y, mut width) = (x, from);
    for (i, (kernel, stride, channels)) in convs.iter().enumerate() {
        let names = [&*format!("conv{}", i + 1), &*format!("bn{}", i + 1)];
        let square = Square::of(*kernel, *stride);
        let channels = [width, *channels];
        let z = match i + 1 < convs.len() {
            true => layers.conv_norm_relu(graph, y, names, channels, square)?,
            false => layers.conv_norm(graph, y, names, channels, square)?,
        };
        graph.hold(&[y]);
        (y, width) = (z, channels[1]);
    }
    let mut short = x;
    if stride > 1 || from != made {
        let names = ["downsample.0", "downsample.1"];
        short = layers.conv_norm(graph, x, names, [from, made], Square::of(1, stride))?;
    }
    let sum = graph.within("add", |graph| graph.add_over(F::Add, &[y, short]))?;
    let y = graph.within("relu", |graph| graph.add_over(F::Relu, &[sum]))?;
    graph.hold(&[short]);
    graph.hold(&[x]);
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::tensor::Role;

    fn weights(depth: u64) -> u64 {
        let graph = ResNet::of_depth(depth, 1, DType::F32).unwrap().graph().unwrap();
        graph.of_role(Role::Parameter).map(|id| graph.get(id).numbers()).sum()
    }

    /// The figures that torchvision publishes for its models.
    #[test]
    fn weights_are_as_published() {
        assert_eq!(
            [18, 34, 50, 101, 152].map(weights),
            [11_689_512, 21_797_672, 25_557_032, 44_549_160, 60_192_808]
        );
        assert!(ResNet::of_depth(51, 1, DType::F32).is_none());
    }

    /// 4.1 G multiply-adds for ResNet-50 at 224×224, 1.8 for ResNet-18.
    #[test]
    fn operations_are_as_published() {
        let flops = |depth| {
            let graph = ResNet::of_depth(depth, 1, DType::F32).unwrap().graph().unwrap();
            let of = |ids: &[TensorId]| ids.iter().map(|id| graph.get(*id)).collect::<Vec<_>>();
            let each = |node: &crate::graph::Node| {
                node.kind.operator().flops(&of(&node.inputs), &of(&node.outputs))
            };
            graph.nodes().iter().map(each).sum::<f64>() / 2e9
        };
        assert!((flops(50) - 4.09).abs() < 0.01, "{}", flops(50));
        assert!((flops(18) - 1.81).abs() < 0.01, "{}", flops(18));
    }

    #[test]
    fn an_image_that_is_too_small_is_refused_with_the_layer() {
        let mut net = ResNet::of_depth(18, 2, DType::F32).unwrap();
        net.size = [0, 224];
        let error = net.graph().unwrap_err().to_string();
        assert_eq!(
            error,
            "conv1: conv: a kernel of 7x7 (stride 2x2, padding 3x3) does not fit 0x224"
        );
    }
}
