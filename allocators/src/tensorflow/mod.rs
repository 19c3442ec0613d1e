//! TensorFlow's allocator of GPU memory, which XLA and JAX use too: best fit with coalescing.

pub mod bfc;
mod limit;
mod options;
#[cfg(test)]
mod tests;
mod timestamps;
pub mod xla;
