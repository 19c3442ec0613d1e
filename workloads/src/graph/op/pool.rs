//! Pooling.
//!
//! | operator | forward makes | backward makes | saved | source |
//! |---|---|---|---|---|
//! | max pool | the result, then an int64 place for each of its numbers, also in inference | the input gradient | input and places | `aten/src/ATen/native/cuda/DilatedMaxPool2d.cu`, PyTorch 2.15; recordings |
//! | mean over the image | one number a channel | the input gradient | nothing | `adaptive_avg_pool2d` of 1×1, which is `mean`; recordings |

use super::image::{image, windows};
use super::{Backward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::DType;

/// Largest number of each window. Input: images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool {
    /// Height and width of a window.
    pub kernel: [u64; 2],
    /// Step between windows.
    pub stride: [u64; 2],
    /// Rows and columns around the image.
    pub pad: [u64; 2],
}

impl Operator for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [n, c, h, w] = image(x)?;
        let [h, w] = windows([h, w], self.kernel, self.stride, self.pad)?;
        Ok(vec![Spec::new([n, c, h, w], x.dtype), Spec::aside([n, c, h, w], DType::I64)])
    }

    fn saves(&self) -> Saves {
        Saves { inputs: vec![0], outputs: vec![1] }
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_one(at);
    }
}

impl From<MaxPool> for super::Kind {
    fn from(op: MaxPool) -> Self {
        Self::MaxPool(op)
    }
}

/// The mean of each channel. Input: images; makes images×channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeanPool;

impl Operator for MeanPool {
    fn name(&self) -> &'static str {
        "mean_pool"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [n, c, ..] = image(x)?;
        Ok(vec![Spec::new([n, c], x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_one(at);
    }
}

impl From<MeanPool> for super::Kind {
    fn from(op: MeanPool) -> Self {
        Self::MeanPool(op)
    }
}

/// One kernel from the gradient and all that was saved to the input gradient.
pub(super) fn give_one(at: &mut Backward<'_, '_>) {
    let mut reads = vec![at.gradient()];
    reads.extend(at.saved());
    let back = at.like_input(0);
    at.kernel(&reads, &[back]);
    at.give(0, back);
}
