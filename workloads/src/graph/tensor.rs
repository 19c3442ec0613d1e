//! Tensors: shape, type, role.

/// The type of a tensor's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // named as everywhere
pub enum DType {
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
    Bool,
}

impl DType {
    /// Bytes of a number.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::Bool => 1,
        }
    }

    /// As a device's file names it.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "fp32",
            DType::F16 => "fp16",
            DType::BF16 => "bf16",
            DType::I64 => "int64",
            DType::I32 => "int32",
            DType::I8 => "int8",
            DType::Bool => "bool",
        }
    }

    /// Can it have a gradient?
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// The type that a sum of the two has: the wider float.
    pub fn promoted(self, other: DType) -> DType {
        match (self.is_float(), other.is_float()) {
            (true, false) => self,
            (false, true) => other,
            _ if self == other => self,
            (true, true) => DType::F32,
            _ => self.min(other),
        }
    }
}

/// A number for a tensor of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

/// A number for a module path of one graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

/// What a tensor is to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Comes from the host with each batch.
    Input,
    /// Is trained.
    Parameter,
    /// Comes from another device with each batch, and its gradient goes back there.
    Received,
    /// Stays on the device, is not trained.
    Buffer,
    /// Was computed by the batch before: a cache.
    Carried,
    /// Is computed.
    Activation,
}

/// Shape and type of a tensor to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Type of its numbers.
    pub dtype: DType,
    /// May it have a gradient?
    pub differentiable: bool,
}

impl Spec {
    /// A result, which has a gradient if it is of floats.
    pub fn new(shape: impl Into<Vec<u64>>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype, differentiable: dtype.is_float() }
    }

    /// A by-product without gradient: a mask, statistics.
    pub fn aside(shape: impl Into<Vec<u64>>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype, differentiable: false }
    }
}

/// A tensor of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Type of its numbers.
    pub dtype: DType,
    /// What it is to the model.
    pub role: Role,
    /// The tensor whose storage this one is seen through, if it is a view.
    pub view_of: Option<TensorId>,
    /// Has it a gradient?
    pub gradient: bool,
    /// Where in the model it is made.
    pub scope: ScopeId,
}

/// Most numbers of a tensor, so that no size passes 2^63.
pub(super) const NUMBERS_MAX: u64 = 1 << 56;

impl Tensor {
    /// Numbers in it.
    pub fn numbers(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of them.
    pub fn bytes(&self) -> u64 {
        self.numbers() * self.dtype.bytes()
    }

    /// Rows of its innermost extent.
    pub fn rows(&self) -> u64 {
        self.shape.iter().rev().skip(1).product()
    }

    /// Its innermost extent (1, if it is a single number).
    pub fn width(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// `32x512x768`.
pub fn shape_text(shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    if extents.is_empty() { "1".to_owned() } else { extents.join("x") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wider_float_wins() {
        assert_eq!(DType::F16.promoted(DType::F32), DType::F32);
        assert_eq!(DType::F16.promoted(DType::BF16), DType::F32);
        assert_eq!(DType::I64.promoted(DType::F16), DType::F16);
        assert_eq!(DType::BF16.promoted(DType::BF16), DType::BF16);
        assert_eq!(DType::I32.promoted(DType::I64), DType::I64);
    }
}
