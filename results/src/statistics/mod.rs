//! What runs say of the expected values behind their figures: intervals, warm-up, steady state.
//!
//! | module | holds |
//! |---|---|
//! | `interval` | 95 % confidence intervals of independent values |
//! | `warm_up` | how many requests of a run are left out before it is in its steady state |
//! | [`steady`] | the latencies of one run in its steady state, with intervals from batches of its requests |

mod interval;
pub mod steady;
mod warm_up;

pub use interval::{Interval, TOLD_MIN, tells};
pub use steady::{Estimate, Estimates, Steady};
pub use warm_up::WarmUp;
