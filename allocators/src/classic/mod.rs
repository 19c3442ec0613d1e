//! The allocators of the textbooks, as suballocators of memory from `cudaMalloc`.
//!
//! | strategy | which free memory serves a request |
//! |---|---|
//! | [`first_fit`], [`next_fit`] | the first piece in address order, from the beginning or from where the last search ended |
//! | [`best_fit`], [`worst_fit`] | the smallest, or the largest piece |
//! | [`tlsf`] | a piece of the next larger size class: a good fit in constant time |
//! | [`buddy`] | halves of halves |
//! | [`segregated`] | a block of the same size class that was freed before; nothing is split or joined |
//! | [`slab`] | an object of a slab of its size class |
//!
//! All have one pool for all streams; what they do about streams, growth and out of memory is in `pool`.

pub mod best_fit;
pub mod buddy;
pub mod first_fit;
pub mod next_fit;
pub(crate) mod options;
mod pool;
mod rule;
pub mod segregated;
pub mod slab;
mod tagged;
#[cfg(test)]
pub(crate) mod testing;
pub mod tlsf;
pub mod worst_fit;
