//! Allocator strategies of vramlab: one file, or one folder, each; one line in the [`registry`].
//!
//! | family | models |
//! |---|---|
//! | [`bound`] | yardsticks that no real system reaches or would want |
//! | [`cuda`] | the CUDA driver's own calls |
//! | [`classic`] | the allocators of the textbooks |
//! | [`torch`] | PyTorch's CUDA caching allocator |
//! | [`planned`] | plans made ahead: an offset for each buffer before the first request |
//! | [`stitch`] | memory put together from pieces, and memory planned from one iteration for the next |
//!
//! A strategy never reads a workload or a file, and never depends on `vramlab-workloads`.
#![forbid(unsafe_code)]

pub mod bound;
pub mod classic;
pub mod cuda;
pub mod options;
pub mod parts;
pub mod planned;
pub mod registry;
pub mod stitch;
pub mod torch;

pub use options::{OptionDoc, OptionError, Options, Spec};
pub use registry::{STRATEGIES, Strategy, build, find};
