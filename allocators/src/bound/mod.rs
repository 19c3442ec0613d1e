//! Yardsticks: what no strategy can go below, and what reuse is worth.

pub(crate) mod live_floor;
pub(crate) mod never_reuse;
