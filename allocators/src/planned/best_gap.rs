//! `planned.best_gap`: buffers are placed in the order in which they are asked for, each in the smallest hole.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `in_time` | buffers are placed in the order of their requests; one that is over makes a hole | TraceAllocation, TraceFree |
//! | `best_gap` | of the holes between buffers alive the smallest that fits, of equal ones the lowest; else above them | TraceAllocation |
//!
//! Source: microsoft/onnxruntime, `onnxruntime/core/framework/mem_pattern_planner.h` at 00ca168, which says that part of it is TensorFlow's: the
//! arena of TFLite placed like this before it ordered by size. What is kept of a pattern for inputs of other shapes is left out. The real
//! alignment is the arena's, 256 B. Not checked against the real one yet.

use super::gaps::in_smallest_gap;
use super::options::{ALIGNMENT, Common, RELEASE};
use super::plan::{Offsets, Spans};
use super::serve::{Planned, Planning};
use crate::options::OptionDoc;
use crate::registry::{Status, Strategy};

const OPTIONS: &[OptionDoc] = &[ALIGNMENT, RELEASE];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::ahead(
    "planned.best_gap",
    |options, future| {
        options.check("planned.best_gap", OPTIONS)?;
        let common = Common::parse(options)?;
        Planned::made(future, common, Planning::of(plan))
    },
    Status::Rules("ONNX Runtime 00ca168"),
    OPTIONS,
    "planned ahead: in the order of requests, each in the smallest hole",
);

/// Both rules.
pub(crate) fn plan(spans: Spans<'_>) -> Offsets {
    let order: Vec<u32> = (0..spans.list.len() as u32).collect();
    in_smallest_gap(spans, &order)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Span;
    use super::super::plan::tests::check_planner;
    use super::*;

    #[test]
    fn in_time_a_later_buffer_does_not_change_where_earlier_ones_lie() {
        let span = |begin, end, units| Span { begin, end, units };
        let mut list = vec![span(0, 1, 4), span(0, 2, 1), span(0, 1, 2), span(0, 2, 1)];
        list.push(span(1, 2, 2));
        let got = plan(Spans { list: &list, moments: 3 });
        assert_eq!(got, [0, 4, 5, 7, 5], "the hole of 2 fits better than that of 4");
        list.push(span(1, 3, 4));
        list.push(span(2, 3, 99));
        assert_eq!(plan(Spans { list: &list, moments: 3 }), [0, 4, 5, 7, 5, 0, 4]);
    }

    #[test]
    fn best_gap_plans_are_valid() {
        check_planner(plan);
    }
}
