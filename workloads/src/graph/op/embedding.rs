//! Rows of a table, by index.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `few` | up to 3,072 indices: the gradient of the table is summed without sorting | `aten/src/ATen/native/cuda/Embedding.cu`, PyTorch 2.15 |
//! | `sorted` | else indices are sorted (two lists of 64-bit numbers that live until the end), equal ones make segments, at most min(indices, rows) | `EmbeddingBackwardKernel.cu` |
//! | `partial` | segments are summed by tens: indices/10 + segments partial rows of fp32, as wide as a row (as the table is high, if that is less: recorded for a table of two rows), and their offsets | the same, recordings |
//!
//! Equal rows of indices are written out for the look-up, and dropped. Left out: cub's sorting space.

use super::{Backward, Forward, Operator, Saves, Spec, Tensor, expect};
use crate::graph::tensor::{DType, shape_text};

/// Up to so many indices the gradient is summed without sorting.
const SORT_MIN: u64 = 3072;
/// Rows that one thread sums before it writes a partial row.
const ROWS_PER_THREAD: u64 = 10;

/// Inputs: indices (any shape) and table (R×W).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// The indices (1×…) stand for so many equal rows.
    pub times: u64,
}

impl Embedding {
    /// Of indices as they are.
    pub const ONCE: Self = Self { times: 1 };
}

impl Operator for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let [indices, table] = expect(inputs)?;
        let [_, width] = table.shape[..] else {
            let found = shape_text(&table.shape);
            return Err(format!("a table of {found}, expected rows x width"));
        };
        let mut shape = indices.shape.clone();
        if self.times > 1 {
            if shape.first() != Some(&1) {
                let found = shape_text(&shape);
                return Err(format!("indices of {found}, expected one row to repeat"));
            }
            shape[0] = self.times;
        }
        shape.push(width);
        Ok(vec![Spec::new(shape, table.dtype)])
    }

    fn saves(&self) -> Saves {
        Saves::inputs([0])
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        let mut reads = vec![at.input(0), at.input(1)];
        if self.times > 1 {
            let rows = at.temporary(at.tensor_in(0).bytes() * self.times, DType::I64, "indices");
            at.kernel(&[reads[0]], &[rows]);
            reads[0] = rows;
        }
        let bytes = 2 * at.tensor_out(0).bytes() + at.tensor_in(0).bytes();
        at.kernel_moving(bytes, &reads, &[at.output(0)]);
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let (count, g) = (at.tensor_in(0).numbers() * self.times, at.gradient());
        if count <= SORT_MIN {
            let sum = at.like_input(1);
            at.kernel(&[g, at.input(0)], &[sum]);
            at.give(1, sum);
            return;
        }
        let table = at.tensor_in(1);
        let list = |at: &mut Backward<'_, '_>, length: u64| {
            at.temporary(length * 8, DType::I64, "grad.sorted")
        };
        let (sorted, origin) = (list(at, count), list(at, count));
        at.kernel(&[at.input(0)], &[sorted, origin]);
        let sum = at.like_input(1);
        let segments = list(at, count);
        at.kernel(&[], &[sum]);
        at.kernel(&[sorted], &[segments]);
        let most = count.min(table.shape[0]);
        let partial = count / ROWS_PER_THREAD + most;
        let width = table.width().min(table.shape[0]);
        let space = [
            list(at, most),
            list(at, partial),
            at.temporary(partial * width * 4, DType::F32, "grad.partial"),
        ];
        at.kernel_with(0.0, &[g, origin, sorted, segments], &[sum], &space);
        at.hold(&[segments, origin, sorted]);
        at.give(1, sum);
    }
}

impl From<Embedding> for super::Kind {
    fn from(op: Embedding) -> Self {
        Self::Embedding(op)
    }
}
