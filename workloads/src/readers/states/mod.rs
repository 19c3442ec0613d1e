//! States of an allocator that a program printed or exported: sums and layouts at a moment, or sums over time, without requests.
//!
//! | module | reads |
//! |---|---|
//! | `bfc` | what TensorFlow's BFC allocator logs when it runs out of memory |
//! | `summary` | the table of PyTorch's `memory_summary()` |
//! | `timeline` | the memory timeline that PyTorch's profiler exports |

pub mod bfc;
mod numbers;
mod quantity;
pub mod summary;
pub mod timeline;

pub use quantity::Quantity;
