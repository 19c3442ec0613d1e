//! Workloads that are computed, not recorded: models and servers as generators of ops.
//!
//! | module | holds |
//! |---|---|
//! | `emit` | what all share: a queue of ops, live buffers, and the [`vramlab_sim::Source`] around a script |
//! | [`bert`], [`varlen`] | the graph of BERT ([`crate::graph`]) at one length or at many |
//! | [`ocr`] | a server that reads pages |
//! | [`churn`], [`fragment`] | allocator exercises without a model |
//!
//! All stream: a script writes a bounded piece of its ops (a layer, a page), which are handed out before the next piece is
//! written, so memory grows with live buffers, never with the number of ops. No threads, files or clocks.

pub mod bert;
pub mod churn;
pub(crate) mod emit;
pub mod fragment;
pub mod ocr;
pub mod varlen;
pub mod vision;
