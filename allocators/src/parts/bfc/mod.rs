//! Best fit with coalescing, as TensorFlow wrote it and others took it over: what `tensorflow.bfc` and `onnxruntime.arena` share.
//!
//! | part | what it holds |
//! |---|---|
//! | [`chunks`] | chunks in regions: rounding, splitting, joining, regions without a live chunk |
//! | [`growth`] | the size of the next region, and smaller ones where the device refuses |
//! | [`front`] | tokens, streams, deferred frees, sums: everything around the rules of an [`front::Arena`] |

pub(crate) mod chunks;
pub(crate) mod front;
pub(crate) mod growth;
