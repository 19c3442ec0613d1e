//! Functions of the numbers at one place: activations, sums, products.
//!
//! | function | saved for backward | may write over its input |
//! |---|---|---|
//! | relu, tanh, sigmoid, rsqrt | its output | yes: backward reads the output only |
//! | gelu, silu, power | its input | no: backward needs the old value |
//! | scale | nothing | yes |
//! | add, subtract | nothing | the first: yes |
//! | multiply, divide | both inputs | no |
//!
//! Two inputs of different types give the wider float; the gradient is cast back where it is delivered. An input of fewer extents, or of
//! extents of 1, is repeated, and its gradient is a sum, which may be split (`aten/src/ATen/native/cuda/Reduce.cuh`). A gradient that goes
//! through a sum unchanged is the same storage for both.

use super::{Backward, Operator, Saves, Spec, Tensor};
use crate::graph::tensor::shape_text;

/// A function of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as everywhere
pub enum F {
    Relu,
    Tanh,
    Sigmoid,
    Gelu,
    Silu,
    Power,
    Rsqrt,
    Scale,
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl F {
    fn arity(self) -> usize {
        match self {
            F::Add | F::Subtract | F::Multiply | F::Divide => 2,
            _ => 1,
        }
    }

    /// Is its gradient that of its result, unchanged?
    fn passes(self) -> bool {
        self == F::Add
    }
}

/// One function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elementwise(pub F);

impl Operator for Elementwise {
    fn name(&self) -> &'static str {
        match self.0 {
            F::Relu => "relu",
            F::Tanh => "tanh",
            F::Sigmoid => "sigmoid",
            F::Gelu => "gelu",
            F::Silu => "silu",
            F::Power => "power",
            F::Rsqrt => "rsqrt",
            F::Scale => "scale",
            F::Add => "add",
            F::Subtract => "subtract",
            F::Multiply => "multiply",
            F::Divide => "divide",
        }
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let wanted = self.0.arity();
        if inputs.len() != wanted {
            return Err(format!("found {} inputs, expected {wanted}", inputs.len()));
        }
        let mut shape = inputs[0].shape.clone();
        let mut dtype = inputs[0].dtype;
        if let [a, b] = inputs {
            shape = broadcast(&a.shape, &b.shape).ok_or_else(|| {
                let (a, b) = (shape_text(&a.shape), shape_text(&b.shape));
                format!("found {a} and {b}, expected equal extents, or 1")
            })?;
            dtype = a.dtype.promoted(b.dtype);
        }
        Ok(vec![Spec::new(shape, dtype)])
    }

    fn saves(&self) -> Saves {
        match self.0 {
            F::Relu | F::Tanh | F::Sigmoid | F::Rsqrt => Saves::outputs([0]),
            F::Gelu | F::Silu | F::Power => Saves::inputs([0]),
            F::Scale | F::Add | F::Subtract => Saves::nothing(),
            F::Multiply | F::Divide => Saves::inputs([0, 1]),
        }
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let g = at.gradient();
        let saved = at.saved();
        for i in 0..self.0.arity() {
            if !at.wants(i) {
                continue;
            }
            let same_shape = at.tensor_in(i).shape == at.tensor_out().shape;
            let mut mine = g;
            let unchanged = self.0.passes() || (self.0 == F::Subtract && i == 0);
            if !unchanged {
                mine = if same_shape { at.like_input(i) } else { at.like_output() };
                let mut reads = vec![g];
                reads.extend(&saved);
                at.kernel(&reads, &[mine]);
            }
            if !same_shape {
                let sum = at.like_input(i);
                let columns = at.tensor_in(i).numbers();
                let rows = at.tensor_out().numbers() / columns.max(1);
                at.column_sum(rows, columns, mine, sum);
                mine = sum;
            }
            at.give(i, mine);
        }
    }

    fn overwrites(&self) -> Option<usize> {
        Some(0)
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

impl From<F> for super::Kind {
    fn from(function: F) -> Self {
        Self::Elementwise(Elementwise(function))
    }
}

/// The shape of a function of two tensors, or none.
fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let count = a.len().max(b.len());
    let at = |shape: &[u64], i: usize| {
        (i + shape.len()).checked_sub(count).map_or(1, |place| shape[place])
    };
    let extent = |i| match (at(a, i), at(b, i)) {
        (x, y) if x == y => Some(x),
        (1, y) => Some(y),
        (x, 1) => Some(x),
        _ => None,
    };
    (0..count).map(extent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_repeated_from_the_right() {
        assert_eq!(broadcast(&[2, 3, 4], &[3, 4]), Some(vec![2, 3, 4]));
        assert_eq!(broadcast(&[1, 3, 4], &[2, 1, 4]), Some(vec![2, 3, 4]));
        assert_eq!(broadcast(&[2, 3], &[2]), None);
    }
}
