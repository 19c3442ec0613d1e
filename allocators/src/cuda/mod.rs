//! The CUDA driver's own calls.

pub mod async_pool;
pub mod malloc;
pub mod managed;
