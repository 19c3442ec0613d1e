//! Plans made ahead, from all that a workload will ask: each buffer gets an offset in one range before the first request.
//!
//! ```text
//!  future ─▶ lives ─▶ planner: order, and where in it ─▶ offsets, by ordinal         (`plan`)
//!  request n ─▶ as planned? ─▶ the n-th offset of the range
//!                    └ no ──▶ a dynamic best fit beside it                           (`serve`)
//! ```
//! The planners differ in the order of buffers and in where one goes: in the smallest hole (`busy` finds holes), on top of what it meets, or in
//! a slot of its own kind. What they share, with its rules, stands in `plan` and `serve`.

pub(crate) mod busy;
pub(crate) mod gaps;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod serve;

pub mod best_gap;
pub mod greedy_by_conflicts;
pub mod greedy_by_size;
pub mod reuse;

#[cfg(test)]
mod tests;
