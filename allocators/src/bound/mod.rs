//! Yardsticks: what no strategy can go below, and what reuse is worth.

pub mod best_static;
pub mod live_floor;
pub mod never_reuse;
