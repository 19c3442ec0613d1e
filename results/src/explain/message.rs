//! What was read off a text: a message with its figures.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use vramlab_sim::units::Bytes;
use vramlab_workloads::readers::states::Quantity;

use super::tokens::{Like, Token, find};

/// Programs that print such messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Framework {
    Pytorch,
    PytorchRocm,
    PytorchXpu,
    PytorchMps,
    Paddle,
    Tensorflow,
    Jax,
    Vllm,
    Rmm,
    Cupy,
    OnnxRuntime,
}

impl Framework {
    /// As records have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::PytorchRocm => "pytorch-rocm",
            Self::PytorchXpu => "pytorch-xpu",
            Self::PytorchMps => "pytorch-mps",
            Self::Paddle => "paddle",
            Self::Tensorflow => "tensorflow",
            Self::Jax => "jax",
            Self::Vllm => "vllm",
            Self::Rmm => "rmm",
            Self::Cupy => "cupy",
            Self::OnnxRuntime => "onnxruntime",
        }
    }

    /// As people call it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pytorch => "PyTorch (CUDA)",
            Self::PytorchRocm => "PyTorch (ROCm)",
            Self::PytorchXpu => "PyTorch (XPU)",
            Self::PytorchMps => "PyTorch (MPS)",
            Self::Paddle => "PaddlePaddle",
            Self::Tensorflow => "TensorFlow",
            Self::Jax => "JAX",
            Self::Vllm => "vLLM",
            Self::Rmm => "RMM",
            Self::Cupy => "CuPy",
            Self::OnnxRuntime => "ONNX Runtime",
        }
    }

    /// Does PyTorch's caching allocator print it?
    pub const fn is_torch(self) -> bool {
        matches!(self, Self::Pytorch | Self::PytorchRocm | Self::PytorchXpu)
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Bytes, and how exactly they were printed.
    Bytes(Quantity),
    /// A count.
    Count(u64),
    /// A ratio.
    Ratio(f64),
    /// A word.
    Text(String),
}

impl Value {
    /// Exactly so many bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self::Bytes(Quantity { bytes, step: 1 })
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(quantity) => serializer.serialize_u64(quantity.bytes),
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Ratio(ratio) => serializer.serialize_f64(*ratio),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// Figures by name; sizes have names that end with `_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<&'static str, Value>);

impl Figures {
    /// Keeps a figure, unless there is one of that name.
    pub fn keep(&mut self, name: &'static str, value: Value) {
        self.0.entry(name).or_insert(value);
    }

    /// Keeps a figure, in place of one of that name.
    pub fn replace(&mut self, name: &'static str, value: Value) {
        self.0.insert(name, value);
    }

    /// The figure of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The size of this name, as printed.
    pub fn size(&self, name: &str) -> Option<Quantity> {
        match self.get(name) {
            Some(Value::Bytes(quantity)) => Some(*quantity),
            _ => None,
        }
    }

    /// The size of this name (B).
    pub fn bytes(&self, name: &str) -> Option<u64> {
        self.size(name).map(|size| size.bytes)
    }

    /// The count of this name.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    /// The ratio of this name.
    pub fn ratio(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(Value::Ratio(ratio)) => Some(*ratio),
            _ => None,
        }
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Are all of them in another list, as exactly as they are printed?
    pub fn within(&self, other: &Self) -> bool {
        self.iter().all(|(name, value)| match (value, other.get(name)) {
            (Value::Bytes(a), Some(Value::Bytes(b))) => {
                a.bytes.abs_diff(b.bytes) <= a.step.max(b.step)
            }
            (value, found) => Some(value) == found,
        })
    }

    /// Keeps what a pattern finds: the token at `figure` of it.
    pub(super) fn read(
        &mut self,
        name: &'static str,
        tokens: &[Token<'_>],
        pattern: &[Like],
        figure: usize,
    ) {
        match find(tokens, pattern, figure) {
            Some(Token::Size(size)) => self.keep(name, Value::Bytes(*size)),
            Some(Token::Number(number)) => {
                if let Some(count) = number.whole() {
                    self.keep(name, Value::Count(count));
                }
            }
            _ => {}
        }
    }

    /// Keeps what a pattern finds as a ratio.
    pub(super) fn read_ratio(
        &mut self,
        name: &'static str,
        tokens: &[Token<'_>],
        pattern: &[Like],
        figure: usize,
    ) {
        if let Some(Token::Number(number)) = find(tokens, pattern, figure)
            && let Some(value) = number.value()
        {
            self.keep(name, Value::Ratio(value));
        }
    }
}

/// Major and minor number of a version.
pub type Version = (u32, u32);
/// Least version, and the first that is too new.
pub type Versions = (Option<Version>, Option<Version>);

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who printed it.
    pub framework: Framework,
    /// Phrasing, and with it the versions that print so.
    pub era: &'static str,
    /// Least version (major, minor) that prints so, and the first that does not.
    pub versions: Versions,
    /// What went wrong, where the figures do not tell it.
    pub kind: Kind,
    /// As stated.
    pub figures: Figures,
    /// Line on which it begins, from 1.
    pub line: u64,
}

/// What went wrong, where the figures do not tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A request was refused.
    #[default]
    Refused,
    /// The driver itself refused, without figures.
    Driver,
    /// A pool may not grow beyond its limit.
    PoolLimit,
    /// A pool was not allowed to grow by what it tried.
    Growth,
    /// A figure says that free memory is in pieces.
    Pieces,
    /// The cache of a server is too small for one request.
    CacheTooSmall,
    /// Nothing is left for the cache of a server.
    NoCache,
    /// The device is not free enough when a server starts.
    NotFree,
    /// Running requests of a server lost their cache.
    Preempted,
    /// A state, of which nothing failed in this text.
    State,
}

impl Message {
    /// Without figures yet.
    pub fn new(framework: Framework, era: &'static str) -> Self {
        Self {
            framework,
            era,
            versions: (None, None),
            kind: Kind::Refused,
            figures: Figures::default(),
            line: 0,
        }
    }

    /// Is it the same message again, elsewhere in a log?
    pub fn same(&self, other: &Self) -> bool {
        let parts = |message: &Self| (message.framework, message.era, message.kind);
        parts(self) == parts(other) && self.figures == other.figures
    }
}

/// A size for people: exact to a hundredth of its unit.
pub fn shown(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
