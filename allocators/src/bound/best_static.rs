//! `bound.best_static`: the best plan of all planners at hand for this workload.
//!
//! | rule | what it says |
//! |---|---|
//! | `all` | every planner of the family `planned`, with each of its systems, makes a plan, and so do two more orders with the smallest hole: by size times life (`by_area`), by life (`by_length`); the smallest is served |
//! | `bound` | the counter `lower_bound` is the most that is alive of what is planned: no plan can be smaller. A counter for each planner has the bytes of its plan |
//! | the rest | as in the family `planned`: units, what is planned, and what the rest goes to |
//!
//! An upper bound of the best static plan there is, not the best itself: to find that is NP-hard (M. Garey, D. Johnson, 1979, problem SR2).

use crate::options::OptionDoc;
use crate::planned::gaps::in_smallest_gap;
use crate::planned::options::{ALIGNMENT, Common};
use crate::planned::plan::{Offsets, Planner, Span, Spans};
use crate::planned::serve::{Planned, Planning};
use crate::planned::{best_gap, greedy_by_conflicts, greedy_by_size, reuse};
use crate::registry::{Status, Strategy};

const OPTIONS: &[OptionDoc] = &[ALIGNMENT];

/// Of plans of one size the first here is served.
const PLANNERS: &[(&str, Planner)] = &[
    ("greedy_by_size", greedy_by_size::tflite),
    ("greedy_by_size_tvm", greedy_by_size::tvm),
    ("greedy_by_size_executorch", greedy_by_size::executorch),
    ("greedy_by_conflicts", greedy_by_conflicts::plan),
    ("best_gap", best_gap::plan),
    ("reuse", reuse::plan),
    ("by_area", |spans| by(spans, |span| u64::from(span.end - span.begin) * u64::from(span.units))),
    ("by_length", |spans| by(spans, |span| (span.end - span.begin, span.units))),
];

/// In falling order of `key`.
fn by<K: Ord>(spans: Spans<'_>, key: impl Fn(&Span) -> K) -> Offsets {
    let mut order: Vec<u32> = (0..spans.list.len() as u32).collect();
    order.sort_by_cached_key(|at| std::cmp::Reverse(key(&spans.list[*at as usize])));
    in_smallest_gap(spans, &order)
}

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::ahead(
    "bound.best_static",
    |options, future| {
        options.check("bound.best_static", OPTIONS)?;
        Planned::made(future, Common::parse(options)?, Planning::best_of(PLANNERS))
    },
    Status::Model,
    OPTIONS,
    "the smallest of all static plans at hand for this workload",
);
