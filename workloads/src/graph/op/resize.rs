//! Images made larger, cut, and seen as rows.
//!
//! | operator | forward makes | backward makes | source |
//! |---|---|---|---|
//! | upsample | every number `by` times down and across (nearest) | the input gradient | `aten/src/ATen/native/cuda/UpSampleNearest2d.cu`, PyTorch 2.15 |
//! | resample | images of another size | nothing | `crop`, `hflip`, `resize` of torchvision |
//! | rows | columns of images of one row as rows of channels, a copy | a copy | `permute` and `contiguous` |

use super::image::image;
use super::pool::give_one;
use super::{Backward, Operator, Spec, Tensor, expect};

/// Nearest neighbour upsampling. Input: images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upsample {
    /// Times, down and across.
    pub by: u64,
}

impl Operator for Upsample {
    fn name(&self) -> &'static str {
        "upsample"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [n, c, h, w] = image(x)?;
        match (h.checked_mul(self.by), w.checked_mul(self.by)) {
            (Some(h), Some(w)) if self.by > 0 => Ok(vec![Spec::new([n, c, h, w], x.dtype)]),
            _ => Err(format!("{h}x{w} cannot be made {} times as large", self.by)),
        }
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_one(at);
    }
}

impl From<Upsample> for super::Kind {
    fn from(op: Upsample) -> Self {
        Self::Upsample(op)
    }
}

/// Cut out, turned or scaled to another size. Input: images; not differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resample {
    /// Height and width of what it makes.
    pub size: [u64; 2],
}

impl Operator for Resample {
    fn name(&self) -> &'static str {
        "resample"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [n, c, ..] = image(x)?;
        let [h, w] = self.size;
        Ok(vec![Spec::aside([n, c, h, w], x.dtype)])
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Resample> for super::Kind {
    fn from(op: Resample) -> Self {
        Self::Resample(op)
    }
}

/// Columns as rows. Input: n×c×1×w; makes n×w×c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows;

impl Operator for Rows {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [x] = expect(inputs)?;
        let [n, c, h, w] = image(x)?;
        if h != 1 {
            return Err(format!("found images of {h} rows, expected 1"));
        }
        Ok(vec![Spec::new([n, w, c], x.dtype)])
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        give_one(at);
    }
}

impl From<Rows> for super::Kind {
    fn from(op: Rows) -> Self {
        Self::Rows(op)
    }
}
