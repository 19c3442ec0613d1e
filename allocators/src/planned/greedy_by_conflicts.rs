//! `planned.greedy_by_conflicts`: the buffers that meet most others are placed first.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `order` | by the number of buffers met, most first; then by size, largest first; then the latest (TVM: the last name in alphabetical order) | `greedy.cc`, GreedyConflicts |
//! | `on_top` | above the highest of the placed buffers that it meets; holes stay | `greedy.cc`, PostSortAllocation |
//!
//! Source: apache/tvm, `src/tir/usmp/algo/greedy.cc` at 08c3cb1. TVM's alignment is 1 B (`kDefaultWorkspaceAlignment`); memory of a GPU needs 256 B.
//! Pools with a size hint are left out: there is one, without a limit. Not checked against the real one yet.

use super::gaps::on_top;
use super::options::{ALIGNMENT, Common, RELEASE};
use super::plan::{Offsets, Spans};
use super::serve::{Planned, Planning};
use crate::options::OptionDoc;
use crate::registry::{Status, Strategy};

const OPTIONS: &[OptionDoc] = &[ALIGNMENT, RELEASE];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::ahead(
    "planned.greedy_by_conflicts",
    |options, future| {
        options.check("planned.greedy_by_conflicts", OPTIONS)?;
        let common = Common::parse(options)?;
        Planned::made(future, common, Planning::of(plan))
    },
    Status::Rules("TVM 08c3cb1"),
    OPTIONS,
    "planned ahead: buffers that meet most others first, each on top",
);

/// How many others each meets.
pub(super) fn meetings(spans: Spans<'_>) -> Vec<u32> {
    // by moment: how many began before its end, and how many were over at its beginning
    let mut began = vec![0_u32; spans.moments as usize + 1];
    let mut over = began.clone();
    for span in spans.list {
        began[span.begin as usize + 1] += 1;
        over[span.end as usize] += 1;
    }
    for at in 1..began.len() {
        began[at] += began[at - 1];
        over[at] += over[at - 1];
    }
    let met = spans.list.iter();
    met.map(|span| began[span.end as usize] - over[span.begin as usize] - 1).collect()
}

/// Both rules.
pub(crate) fn plan(spans: Spans<'_>) -> Offsets {
    let met = meetings(spans);
    let mut order: Vec<u32> = (0..spans.list.len() as u32).collect();
    order.sort_unstable_by_key(|&at| {
        std::cmp::Reverse((met[at as usize], spans.list[at as usize].units, at))
    });
    on_top(spans, &order)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Span;
    use super::super::plan::tests::{check_planner, random_spans};
    use super::*;

    #[test]
    fn meetings_are_counted() {
        for seed in 0..20 {
            let (list, moments) = random_spans(seed, 100);
            let met = meetings(Spans { list: &list, moments });
            for (span, met) in list.iter().zip(met) {
                let others = list.iter().filter(|other| span.meets(other)).count() - 1;
                assert_eq!(met as usize, others);
            }
        }
    }

    #[test]
    fn order_by_meetings_then_size_then_latest() {
        let span = |begin, end, units| Span { begin, end, units };
        let list = [span(0, 1, 9), span(0, 3, 1), span(1, 2, 2), span(2, 3, 2)];
        let got = plan(Spans { list: &list, moments: 3 });
        // the second meets all; the others lie on top of it
        assert_eq!(got, [1, 0, 1, 1]);
        let list = [span(0, 1, 2), span(0, 1, 3), span(0, 1, 3)];
        assert_eq!(plan(Spans { list: &list, moments: 1 }), [6, 3, 0]);
    }

    #[test]
    fn on_top_plans_are_valid() {
        check_planner(plan);
    }
}
