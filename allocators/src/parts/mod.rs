//! What two strategies or more share.

pub use vramlab_sim::free_set;

pub(crate) mod area;
pub(crate) mod bfc;
pub(crate) mod direct;
pub(crate) mod free_lists;
#[cfg(test)]
pub(crate) mod lab;
pub(crate) mod last_uses;
pub(crate) mod limit;
pub(crate) mod max_heap;
pub(crate) mod max_tree;
pub(crate) mod nulls;
pub(crate) mod owned_pieces;
pub(crate) mod past;
pub(crate) mod pieces;
pub(crate) mod resource;
pub(crate) mod room;
pub(crate) mod shell;
pub(crate) mod size_order;
pub(crate) mod stream_numbers;
pub(crate) mod stream_pool;
pub(crate) mod tokens;
pub(crate) mod two_level;
