//! Models as graphs of operators: from shapes to allocations, kernels and times.
//!
//! ```text
//! model ──▶ Graph ──passes──▶ Plan ──lower──▶ Program ──compile──▶ ops ──play──▶ engine
//!           tensors,          graph and       kernels with          ids, frees,
//!           operators         how it is run   what they read,       durations
//!                                             write and borrow
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`tensor`], [`network`] | tensors; the forward graph and its builder |
//! | [`op`] | operators, one file each: shapes, FLOPs, what is saved, kernels forward and backward |
//! | [`plan`] | a graph and how it is run: what passes change |
//! | [`lower`] | the programs of a run: load, forward and backward of a batch, optimizer |
//! | [`spread`] | pipelines, shards, offloading, loaders: what one device of many does |
//! | [`program`] | kernels and storages |
//! | [`fixed`] | numbers of what outlives a program |
//! | [`passes`] | changes to a plan |
//! | `compile` | liveness, ids, durations |
//! | `programs` | a model's programs, each compiled once |
//! | [`play`] | the [`vramlab_sim::Source`] |
//! | [`kernels`] | workspaces |
//! | [`listing`] | programs as tables |
//! | [`models`] | models |
//!
//! **To add a model**: a file in `models`, which builds a [`Graph`] with [`Graph::parameter`], [`Graph::add`] and [`Graph::block`]
//! ([`models::mlp`] is the one to copy), and a line in the registry. Parameters are loaded in the order in which they are made. Where the real program keeps a
//! local variable longer than its last use, say so with [`Graph::hold`].
//!
//! **To add an operator**: a file in `op` with a struct that is an [`op::Operator`]; a variant and a line in [`op::Kind`]. By-products (masks, statistics) are further
//! outputs. What backward reads must be in `saves`: an input or output that is not is an error in tests.
//!
//! **To add a pass**: a file in `passes` with a [`passes::Pass`], whose `apply` changes a [`Plan`] and says what it changed (a changed graph is written with
//! [`passes::Rewrite`]; results that may no longer be written over an input find room of their own after each pass, see `network/over.rs`); a line in
//! [`passes::PASSES`].

pub(crate) mod compile;
pub mod fixed;
pub mod kernels;
pub mod listing;
pub mod lower;
pub mod models;
pub mod network;
pub mod op;
pub mod passes;
pub mod plan;
pub mod play;
pub mod program;
pub(crate) mod programs;
pub mod spread;
pub mod tensor;

pub use network::{Graph, GraphError, Node};
pub use plan::{Plan, Run};
pub use play::Player;
pub use tensor::{DType, Role, Spec, Tensor, TensorId};
