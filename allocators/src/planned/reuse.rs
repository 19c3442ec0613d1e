//! `planned.reuse`: buffers share whole slots, as variables share memory in Paddle's inference (`enable_memory_optim`).
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `life_cycle` | a variable lives from the first op that touches it to the last; with `release=free` (ours, the default) to the workload's free, so that nothing is held short; `release=last_use` is Paddle's static release point | CollectLifeCycle |
//! | `by_size` | variables are looked at by size, largest first; equal ones by birth (Paddle: in no order) | MakeSimpleReusePlan |
//! | `cluster` | one that meets no member of an earlier cluster joins the first such cluster, which is as large as its first member, so same-sized or larger; else it begins one | MakeSimpleReusePlan |
//! | `one_buffer` | ours: Paddle allocates each cluster's variable by itself; here clusters lie side by side in one range | |
//!
//! Source: PaddlePaddle/Paddle, `paddle/fluid/inference/analysis/passes/memory_optimize_pass.cc` at 0ab580b. Left out: variables that are never
//! reused (feeds, parameters, those of control-flow ops), since a workload does not tell them apart; a buffer that is never freed shares with
//! none after it. Not checked against the real one yet.

use super::gaps::in_slots;
use super::options::{ALIGNMENT, Common, RELEASE};
use super::plan::{Offsets, Spans};
use super::serve::{Planned, Planning};
use crate::options::OptionDoc;
use crate::registry::{Status, Strategy};

const OPTIONS: &[OptionDoc] = &[ALIGNMENT, RELEASE];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::ahead(
    "planned.reuse",
    |options, future| {
        options.check("planned.reuse", OPTIONS)?;
        let common = Common::parse(options)?;
        Planned::made(future, common, Planning::of(plan))
    },
    Status::Rules("Paddle 0ab580b"),
    OPTIONS,
    "planned ahead: whole slots shared by buffers that never meet",
);

/// Rules `by_size` and `cluster`.
pub(crate) fn plan(spans: Spans<'_>) -> Offsets {
    let mut order: Vec<u32> = (0..spans.list.len() as u32).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(spans.list[at as usize].units));
    in_slots(spans, &order)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Span;
    use super::super::plan::tests::{check_planner, random_spans};
    use super::*;

    #[test]
    fn cluster_is_the_first_whose_members_it_does_not_meet() {
        let span = |begin, end, units| Span { begin, end, units };
        // 9 begins a cluster; 8 and 7 meet it and each other; 6 joins the first, 5 the second
        let list = [span(0, 2, 9), span(0, 3, 8), span(1, 4, 7), span(2, 4, 6), span(3, 4, 5)];
        let got = plan(Spans { list: &list, moments: 4 });
        assert_eq!(got, [0, 9, 17, 0, 9]);
    }

    /// Cluster after cluster over all that are left, as the source does it.
    #[test]
    fn by_size_agrees_with_filling_one_cluster_after_the_other() {
        for seed in 0..20 {
            let (list, moments) = random_spans(seed, 120);
            let mut left: Vec<usize> = (0..list.len()).collect();
            left.sort_by_key(|at| std::cmp::Reverse(list[*at].units));
            let (mut want, mut begin) = (vec![0; list.len()], 0);
            while !left.is_empty() {
                let mut members: Vec<usize> = Vec::new();
                left.retain(|&at| {
                    let meets = members.iter().any(|member| list[*member].meets(&list[at]));
                    if !meets {
                        members.push(at);
                        want[at] = begin;
                    }
                    meets
                });
                begin += list[members[0]].units;
            }
            assert_eq!(plan(Spans { list: &list, moments }), want);
        }
    }

    #[test]
    fn one_buffer_plans_are_valid() {
        check_planner(plan);
    }
}
