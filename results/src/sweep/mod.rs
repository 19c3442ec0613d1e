//! Sweeps: every combination of the values in a grid, on all cores of one machine or as shards on many.
//!
//! ```text
//! GRID.toml ─▶ Grid (axes, counted) ─▶ Plan (checked, recordings decoded, cells numbered)
//!                                        │ cell by cell, in order
//!                                        ▼
//!                       Store (parts, one Parquet file per shard) ─▶ merge (one frame, each cell once)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`axis`] | the values of an axis, counted without being built |
//! | [`grid`] | what a grid's file says |
//! | `identity` | which grid it is: a hash of all that decides about its cells |
//! | [`recordings`] | recordings, decoded once and shared |
//! | [`plan`] | cells by their numbers |
//! | [`run`] | many cells at a time, handed over in order |
//! | [`shard`] | a part of a sweep |
//! | [`sheet`] | the Parquet file of a part or of the whole |
//! | [`store`] | parts while a shard runs; going on after an interruption |
//! | [`merge`] | shards joined and checked |
//!
#![doc = include_str!("grid.md")]

pub mod axis;
pub mod grid;
mod identity;
pub mod merge;
pub mod plan;
pub mod recordings;
pub mod run;
pub mod shard;
pub mod sheet;
pub mod store;
mod text;

pub use grid::Grid;
pub use merge::Shards;
pub use plan::Plan;
pub use recordings::{Files, Recordings};
pub use shard::Shard;
pub use store::{Begun, Ended, Store};
