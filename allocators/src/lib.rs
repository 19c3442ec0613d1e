//! Allocator strategies of vramlab: one file, or one folder, each; one line in the [`registry`].
//!
//! | family | models |
//! |---|---|
//! | [`bound`] | yardsticks that no real system reaches or would want |
//! | [`cuda`] | the CUDA driver's own calls |
//! | [`classic`] | the allocators of the textbooks |
//! | [`serving`] | caches of keys and values of language model servers |
//! | [`paddle`] | PaddlePaddle's GPU allocators and its collector of dead tensors |
//! | [`torch`] | PyTorch's CUDA caching allocator |
//! | [`tensorflow`] | TensorFlow's best-fit allocator, and XLA's use of it |
//! | [`rmm`] | RAPIDS Memory Manager's memory resources |
//! | [`cupy`] | CuPy's memory pool |
//! | [`onnxruntime`] | ONNX Runtime's arena |
//! | [`host`] | the host process: CPython's objects, and its cycle collector in front of a device's allocator |
//! | [`planned`] | plans made ahead: an offset for each buffer before the first request |
//! | [`stitch`] | memory put together from pieces, and memory planned from one iteration for the next |
//! | [`tiered`] | offload between device, pinned host memory and a file |
//!
//! [`fit`] says whether a strategy fits an input, and makes what a run of the two needs.
//!
//! A strategy never reads a workload or a file, and never depends on `vramlab-workloads`.
#![forbid(unsafe_code)]

pub mod bound;
pub mod classic;
pub mod cuda;
pub mod cupy;
pub mod fit;
pub mod host;
pub mod onnxruntime;
pub mod options;
pub mod paddle;
pub mod parts;
pub mod planned;
pub mod registry;
pub mod rmm;
pub mod serving;
pub mod stitch;
pub mod tensorflow;
pub mod tiered;
pub mod torch;

pub use options::{OptionDoc, OptionError, Options, Spec};
pub use registry::{STRATEGIES, Strategy, build, find};
