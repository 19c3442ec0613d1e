//! Best fit with coalescing, as TensorFlow wrote it and others took it over: what `tensorflow.bfc` and `onnxruntime.arena` share.
//!
//! | part | what it holds |
//! |---|---|
//! | [`chunks`] | chunks in regions: rounding, splitting, joining, regions without a live chunk |
//! | [`growth`] | the size of the next region, and smaller ones where the device refuses |
//! | [`arena`] | the seam of an [`arena::Arena`]'s rules: counts, peaks, chunks as blocks. What is around it is [`super::shell`] |

pub(crate) mod arena;
pub(crate) mod chunks;
pub(crate) mod growth;
