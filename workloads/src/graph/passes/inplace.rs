//! `inplace`: results are written over an input that nobody needs any more.
//!
//! | refused when | because |
//! |---|---|
//! | the operator saves that input | its backward needs the old value |
//! | the operator that made it saved its output | that one's backward needs the old value |
//! | another operator reads or saves it, through any view | it would see the new value |
//! | it is a weight, an input, a result of the step, or what a range up to there begins from that is recomputed | it is needed later |
//! | shape or type differ | it has no room |
//!
//! A result in place has no storage of its own: it is a view of its input's, and is counted once. Source: PyTorch's version counters
//! (`torch/csrc/autograd/saved_variable.cpp`), which refuse at run time what is refused here ahead.

use std::collections::BTreeMap;

use super::reach::Readers;
use super::{Pass, PassError, Rewrite, bad};
use crate::graph::op::Kind;
use crate::graph::plan::Plan;
use crate::graph::tensor::{Role, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "inplace",
    options: "",
    summary: "results are written over inputs that nobody needs any more",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !option.is_empty() {
        return Err(bad("inplace", option, "no option"));
    }
    let graph = &plan.graph;
    let readers = Readers::of(graph);
    let uses = uses(plan, &readers);
    let mut copy = Rewrite::new(graph, |leaf| leaf.dtype)?;
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut done, mut already, mut bytes) = (0, 0, 0);
    for (index, node) in graph.nodes().iter().enumerate() {
        copy.begin();
        let inputs = copy.inputs(node);
        let over = node.kind.operator().overwrites();
        copy.replace(node, node.kind.clone(), &inputs)?;
        if node.over.is_some() {
            already += 1;
            continue;
        }
        let verdict = over.map(|i| refusal(plan, &readers, &uses, index, node.inputs[i]));
        match (over, verdict) {
            (Some(i), Some(None)) => {
                copy.new.write_over(i);
                done += 1;
                bytes += graph.get(node.outputs[0]).bytes();
            }
            (_, Some(Some(why))) => {
                *refused.entry(format!("{}: {why}", node.kind.operator().name())).or_default() += 1;
            }
            _ => {}
        }
    }
    let refused: Vec<String> = refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
    let mut changed = format!("{done} results in place, {bytes} B less made");
    if already > 0 {
        changed += &format!("; {already} were in place already");
    }
    if !refused.is_empty() {
        changed += &format!("; refused: {}", refused.join("; "));
    }
    copy.finish().put(plan);
    Ok(changed)
}

/// What is asked of a storage before something is written over it: operators that read or save it, through any view.
#[derive(Clone, Default)]
struct Uses {
    is_result: bool,
    /// The first operator whose backward reads an output there.
    saved_output: Option<usize>,
    /// The first operator that saved an input there, and those that read one; holds and views read nothing.
    saved_input: Option<usize>,
    readers: Vec<usize>,
}

/// Of each storage.
fn uses(plan: &Plan, readers: &Readers) -> Vec<Uses> {
    let graph = &plan.graph;
    let mut all = vec![Uses::default(); graph.tensors().count()];
    let base = |id: TensorId| graph.storage(id).0 as usize;
    for (id, _) in graph.tensors() {
        all[base(id)].is_result |= readers.is_result(id);
    }
    for (at, node) in graph.nodes().iter().enumerate() {
        let operator = node.kind.operator();
        let saves = operator.saves();
        let saved = plan.run.train && graph.is_trained(node);
        for i in saves.outputs.iter().filter(|_| saved) {
            all[base(node.outputs[*i])].saved_output.get_or_insert(at);
        }
        if matches!(node.kind, Kind::Hold(_)) || operator.is_view() {
            continue;
        }
        for i in saves.inputs.iter().filter(|_| saved) {
            all[base(node.inputs[*i])].saved_input.get_or_insert(at);
        }
        for id in &node.inputs {
            all[base(*id)].readers.push(at);
        }
    }
    all
}

/// Why operator `index` may not write over `input`; none if it may.
fn refusal(
    plan: &Plan,
    readers: &Readers,
    uses: &[Uses],
    index: usize,
    input: TensorId,
) -> Option<&'static str> {
    let graph = &plan.graph;
    let node = &graph.nodes()[index];
    let (tensor, result) = (graph.get(input), graph.get(node.outputs[0]));
    if tensor.shape != result.shape || tensor.dtype != result.dtype {
        return Some("its result has another shape or type");
    }
    let base = graph.storage(input);
    if graph.get(base).role != Role::Activation {
        return Some("it reads a weight or an input");
    }
    let uses = &uses[base.0 as usize];
    if uses.is_result {
        return Some("its input is a result of the step");
    }
    let begins = |range: &std::ops::Range<usize>| {
        let made = readers.maker(base).is_some_and(|maker| range.contains(&maker));
        let reads = uses.readers.iter().any(|at| *at <= index && range.contains(at));
        reads && !made
    };
    if plan.run.again.iter().any(begins) {
        return Some("a recomputed range begins from its input");
    }
    let own = node.kind.operator().saves().inputs;
    let saves = |i: &usize| graph.storage(node.inputs[*i]) == base;
    if plan.run.train && graph.is_trained(node) && own.iter().any(saves) {
        return Some("its backward needs the old value");
    }
    let later = uses.readers.get(uses.readers.partition_point(|at| *at <= index)).copied();
    [
        (uses.saved_output, "the operator that made its input saved it"),
        (uses.saved_input, "another operator saved its input"),
        (later, "its input is read later"),
    ]
    .into_iter()
    .filter_map(|(at, why)| Some((at?, why)))
    .min_by_key(|(at, _)| *at)
    .map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use crate::graph::models::resnet::ResNet;
    use crate::graph::passes::{self, parse};
    use crate::graph::plan::{Plan, Run};
    use crate::graph::tensor::DType;

    fn residual(text: &str) -> (Vec<String>, usize) {
        let graph = ResNet::of_depth(50, 1, DType::F32).unwrap().graph().unwrap();
        let mut plan = Plan { graph, run: Run::default() };
        let reports = passes::apply(&mut plan, &parse(text).unwrap()).unwrap();
        let over = plan.graph.nodes().iter().filter(|node| node.over.is_some()).count();
        (reports.into_iter().map(|report| report.changed).collect(), over)
    }

    /// The ReLUs of a residual network were said to be refused, since they had saved what they were written over.
    #[test]
    fn what_is_in_place_already_is_not_refused() {
        let (told, over) = residual("inplace");
        assert_eq!(over, 65, "{told:?}");
        assert_eq!(told, ["0 results in place, 0 B less made; 65 were in place already"]);
    }

    #[test]
    fn a_fused_chain_writes_in_place_what_its_parts_did() {
        // of 33 ReLUs in place and 16 sums in place, 16 are a kernel of both
        assert_eq!(residual("fusion").1, residual("none").1 - 16);
    }
}
