//! How each program says that memory ran out: one file a program.
//!
//! | module | reads |
//! |---|---|
//! | `torch` | PyTorch's caching allocator on CUDA, ROCm and XPU, in all its phrasings |
//! | `mps` | PyTorch on Apple's devices |
//! | `paddle` | PaddlePaddle 1.6 to 3 |
//! | `tensorflow` | TensorFlow's BFC allocator, its dump and the error of an operator |
//! | `jax` | XLA's errors in JAX |
//! | `vllm` | vLLM's start-up figures and errors |
//! | `rmm`, `cupy`, `onnxruntime` | the pools of these |
//! | `table` | PyTorch's `memory_summary()` |

mod cupy;
mod jax;
mod mps;
mod onnxruntime;
mod paddle;
mod rmm;
mod table;
mod tensorflow;
mod torch;
mod vllm;

pub use self::table::Table;
pub use self::tensorflow::Dump;
pub use self::vllm::Server;

use super::message::Message;
use super::tokens::tokens;

/// What a line begins a message of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// PyTorch's caching allocator.
    Torch,
    /// PyTorch on Apple's devices.
    Mps,
    /// PaddlePaddle.
    Paddle,
    /// An operator of TensorFlow.
    Tensorflow,
    /// JAX.
    Jax,
    /// RMM.
    Rmm,
    /// CuPy.
    Cupy,
    /// ONNX Runtime.
    OnnxRuntime,
}

/// Whose message begins with this line, which is in small letters. Who says most exactly who it is comes first.
pub fn begins(lower: &str) -> Option<Begins> {
    let has = |words: &str| lower.contains(words);
    if has("mps backend out of memory") {
        return Some(Begins::Mps);
    }
    if has("out of memory error on gpu") || has("cannot allocate") && has("memory on gpu") {
        return Some(Begins::Paddle);
    }
    if has("out of memory allocating") && (has("bytes") || has("cupy")) && !has("exhausted")
        || has("out of memory to allocate")
    {
        return Some(Begins::Cupy);
    }
    if has("oom when allocating tensor") {
        return Some(Begins::Tensorflow);
    }
    if jax::begins(lower) {
        return Some(Begins::Jax);
    }
    if has("bfcarena") && (has("failed to allocate") || has("is smaller than requested"))
        || has("onnxruntime") && has("out of memory")
    {
        return Some(Begins::OnnxRuntime);
    }
    if rmm::begins(lower) {
        return Some(Begins::Rmm);
    }
    torch::begins(lower).then_some(Begins::Torch)
}

impl Begins {
    /// Most lines of such a message, if it does not end before.
    pub const fn lines(self) -> u32 {
        match self {
            Self::Jax => 60,
            Self::Paddle => 25,
            _ => 16,
        }
    }

    /// Does an empty line end it?
    pub const fn ends_at_blank(self) -> bool {
        !matches!(self, Self::Jax | Self::Paddle)
    }

    /// Is this line, in small letters, surely a further one of it?
    pub fn goes_on(self, lower: &str) -> bool {
        self == Self::Jax && lower.contains("bufferassignment") && !lower.contains("exhausted")
    }

    /// Is all there that it may say?
    pub fn complete(self, text: &str) -> bool {
        let lower = || text.to_ascii_lowercase();
        match self {
            Self::Torch => torch::complete(&lower()),
            Self::Mps => lower().contains("tried to allocate") && lower().contains(" pool"),
            Self::Paddle | Self::Jax => false,
            Self::Tensorflow | Self::Rmm | Self::Cupy | Self::OnnxRuntime => text.len() > 2000,
        }
    }

    /// Reads it.
    pub fn read(self, text: &str) -> Vec<Message> {
        let tokens = tokens(text);
        let one = match self {
            Self::Torch => return torch::read(text),
            Self::Mps => mps::read(&tokens),
            Self::Paddle => paddle::read(text, &tokens),
            Self::Tensorflow => tensorflow::read(text),
            Self::Jax => jax::read(text, &tokens),
            Self::Rmm => rmm::read(text, &tokens),
            Self::Cupy => cupy::read(&tokens),
            Self::OnnxRuntime => onnxruntime::read(text, &tokens),
        };
        one.into_iter().collect()
    }
}
