//! The CUDA driver's own calls.

pub(crate) mod malloc;
