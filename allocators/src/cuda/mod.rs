//! The CUDA driver's own calls.

pub mod malloc;
