//! The CUDA driver's own calls.
