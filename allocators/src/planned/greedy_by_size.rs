//! `planned.greedy_by_size`: the largest buffers are placed first.
//!
//! | rule | `system` | what it says | source |
//! |---|---|---|---|
//! | `order` | `tflite` | buffers that are there from the beginning to the end; then by size, largest first; equal ones by birth | `arena_planner.cc`, CreateTensorAllocationVector |
//! | `smallest_gap` | `tflite` | of the holes between buffers alive at the same time the smallest that fits, of equal ones the lowest; else above them | `simple_memory_arena.cc`, Allocate |
//! | `order_tvm` | `tvm` | by size, largest first; then by the number of buffers met, most first; then the latest (TVM: the last name in alphabetical order) | `greedy.cc`, GreedySize |
//! | `on_top` | `tvm` | above the highest of the placed buffers that it meets; holes stay | `greedy.cc`, PostSortAllocation |
//! | `shared_objects` | `executorch` | by size; an object has the size of its first buffer; a buffer goes to the beginning of the first object that is free all its life, else on top of what it meets in the first object with room for it, else it makes a new object | `exir/memory_planning.py`, greedy, pick_shared_obj |
//!
//! Sources: tensorflow/tensorflow `tensorflow/lite/` at 0406598 and 0e44793; apache/tvm `src/tir/usmp/algo/` at 08c3cb1;
//! pytorch/executorch 1.5.0 at cff6f4d. The method is that of Y. Pisarchyk, J. Lee, "Efficient memory management for deep neural net inference",
//! arXiv 2001.03288. The real alignments are 64, 1 and 16 B; memory of a GPU needs 256 B. Whatever is around a plan (several memories, inputs
//! and outputs that the caller owns) is left out. Not checked against the real ones yet.

use super::gaps::{in_shared_objects, in_smallest_gap, on_top};
use super::greedy_by_conflicts::meetings;
use super::options::{ALIGNMENT, Common, RELEASE};
use super::plan::{Offsets, Planner, Spans};
use super::serve::{Planned, Planning};
use crate::options::{OptionDoc, OptionError, Options};
use crate::registry::{Status, Strategy};

const SYSTEM: OptionDoc = OptionDoc {
    name: "system",
    default: "tflite",
    help: "whose order and placement: tflite, tvm (greedy_by_size of its USMP) or executorch (greedy)",
};
const OPTIONS: &[OptionDoc] = &[SYSTEM, ALIGNMENT, RELEASE];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::ahead(
    "planned.greedy_by_size",
    |options, future| {
        let (common, planner) = parse(options)?;
        Planned::made(future, common, Planning::of(planner))
    },
    Status::Rules("TFLite 0406598, TVM 08c3cb1 or ExecuTorch 1.5.0"),
    OPTIONS,
    "planned ahead: largest buffers first, each in the smallest hole",
);

fn parse(options: &Options) -> Result<(Common, Planner), OptionError> {
    options.check(STRATEGY.name, OPTIONS)?;
    let planner: Planner = match options.get(SYSTEM.name).unwrap_or(SYSTEM.default) {
        "tflite" => tflite,
        "tvm" => tvm,
        "executorch" => executorch,
        other => {
            return Err(OptionError(format!(
                "option system={other}: expected tflite, tvm or executorch"
            )));
        }
    };
    Ok((Common::parse(options)?, planner))
}

/// Rules `order` and `smallest_gap`.
pub(crate) fn tflite(spans: Spans<'_>) -> Offsets {
    in_smallest_gap(spans, &by_size(spans))
}

/// Rules `order_tvm` and `on_top`.
pub(crate) fn tvm(spans: Spans<'_>) -> Offsets {
    let met = meetings(spans);
    let mut order: Vec<u32> = (0..spans.list.len() as u32).collect();
    order.sort_unstable_by_key(|&at| {
        std::cmp::Reverse((spans.list[at as usize].units, met[at as usize], at))
    });
    on_top(spans, &order)
}

/// Rule `shared_objects`.
pub(crate) fn executorch(spans: Spans<'_>) -> Offsets {
    let mut order: Vec<u32> = (0..spans.list.len() as u32).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(spans.list[at as usize].units));
    in_shared_objects(spans, &order)
}

/// Rule `order`.
fn by_size(spans: Spans<'_>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..spans.list.len() as u32).collect();
    order.sort_by_key(|&at| {
        let span = spans.list[at as usize];
        let always = span.begin == 0 && span.end == spans.moments;
        (!always, std::cmp::Reverse(if always { 0 } else { span.units }))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::super::plan::Span;
    use super::super::plan::tests::check_planner;
    use super::*;

    fn offsets(planner: Planner, list: &[(u32, u32, u32)]) -> Vec<u32> {
        let span = |&(begin, end, units): &(u32, u32, u32)| Span { begin, end, units };
        let list: Vec<Span> = list.iter().map(span).collect();
        let moments = list.iter().map(|span| span.end).max().unwrap_or(0);
        planner(Spans { list: &list, moments })
    }

    #[test]
    fn order_has_what_is_always_there_first_then_the_largest() {
        let list = [(0, 9, 1), (0, 2, 8), (0, 9, 2), (1, 3, 8), (2, 4, 9)];
        assert_eq!(offsets(tflite, &list), [0, 3, 1, 12, 3]);
    }

    #[test]
    fn smallest_gap_is_taken() {
        let got =
            offsets(tflite, &[(0, 1, 9), (0, 3, 8), (0, 1, 7), (0, 3, 6), (1, 3, 5), (3, 4, 1)]);
        assert_eq!(got, [0, 9, 17, 24, 17, 0], "the hole of 7 fits better than that of 9");
    }

    #[test]
    fn on_top_leaves_holes() {
        let got = offsets(tvm, &[(0, 1, 9), (0, 3, 8), (1, 3, 5)]);
        assert_eq!(got, [0, 9, 17]);
    }

    #[test]
    fn order_tvm_has_more_meetings_first_then_the_latest() {
        let got = offsets(tvm, &[(0, 1, 4), (0, 3, 4), (1, 2, 4)]);
        assert_eq!(got, [4, 0, 4]);
        assert_eq!(offsets(tvm, &[(0, 1, 4), (0, 1, 4)]), [4, 0]);
    }

    #[test]
    fn shared_objects_are_shared_at_the_beginning_or_above_what_is_alive() {
        // the first makes an object of 10; the second, later, shares it; the third lies above the second; the fourth makes an object
        let got = offsets(executorch, &[(0, 1, 10), (1, 3, 6), (1, 3, 4), (1, 3, 3)]);
        assert_eq!(got, [0, 0, 6, 10]);
        // at the beginning of a later object rather than above in an earlier one
        let got = offsets(executorch, &[(0, 9, 9), (0, 1, 8), (2, 3, 7), (2, 3, 6)]);
        assert_eq!(got, [0, 9, 9, 17]);
    }

    #[test]
    fn plans_are_valid() {
        [tflite, tvm, executorch].into_iter().for_each(|planner| check_planner(planner));
    }

    #[test]
    fn an_unknown_system_is_refused() {
        let refused = parse(&Options::from_pairs([("system", "onnx")])).expect_err("unknown");
        assert_eq!(refused.0, "option system=onnx: expected tflite, tvm or executorch");
    }
}
