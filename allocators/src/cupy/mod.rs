//! CuPy's device memory pool.

mod limit;
pub mod pool;
#[cfg(test)]
mod tests;
