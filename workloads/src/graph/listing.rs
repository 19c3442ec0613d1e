//! A plan's programs in tables: what runs, what it takes, how long.

use std::collections::BTreeMap;

use vramlab_sim::machine::Direction;
use vramlab_sim::units::StreamId;

use super::compile::idle_ns;
use super::fixed::Numbers;
use super::lower::{Phase, lower};
use super::network::GraphError;
use super::plan::Plan;
use super::program::{Program, Step};
use crate::rates::Rates;

/// A kernel of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// `forward`, `backward`, `optimizer`…
    pub phase: String,
    /// The operator's name.
    pub name: &'static str,
    /// Where in the model.
    pub scope: String,
    /// New storage that it asks for (B), without workspaces.
    pub made_bytes: u64,
    /// Workspaces (B).
    pub scratch_bytes: u64,
    /// Bytes that it reads and writes.
    pub moved_bytes: u64,
    /// Floating-point operations.
    pub flops: f64,
    /// Duration (ns).
    pub ns: u64,
    /// Parts of a batch that all run it: its figures are of one.
    pub times: u64,
}

impl Line {
    const NOTHING: Self = Self {
        phase: String::new(),
        name: "",
        scope: String::new(),
        made_bytes: 0,
        scratch_bytes: 0,
        moved_bytes: 0,
        flops: 0.0,
        ns: 0,
        times: 1,
    };
}

/// What operators of one name add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Kernels.
    pub kernels: u64,
    /// New storage (B).
    pub made_bytes: u64,
    /// Bytes read and written.
    pub moved_bytes: u64,
    /// Floating-point operations.
    pub flops: f64,
    /// Duration (ns).
    pub ns: u64,
}

/// A program of a step, and how many parts of the batch run it.
struct Part {
    phase: Phase,
    program: Program,
    times: u64,
}

/// The programs of a second step (the first makes what later ones find). Parts between the first and the last are as the second.
fn step(plan: &Plan) -> Result<Vec<Part>, GraphError> {
    plan.check()?;
    let numbers = Numbers::of(plan);
    let mut live = vec![false; numbers.count()];
    let mut phases = vec![(Phase::Batch(0), 1)];
    if plan.run.train {
        let parts = plan.run.accumulation;
        phases.extend((parts > 2).then(|| (Phase::Batch(1), parts - 2)));
        phases.extend((parts > 1).then(|| (Phase::Batch(parts - 1), 1)));
        phases.push((Phase::Optimizer, 1));
    }
    lower(plan, &numbers, Phase::Load, false, &mut live);
    for (phase, _) in &phases {
        lower(plan, &numbers, *phase, false, &mut live);
    }
    let part = |(phase, times)| {
        let program = lower(plan, &numbers, phase, false, &mut live);
        Part { phase, program, times }
    };
    Ok(phases.into_iter().map(part).collect())
}

/// The kernels of a second step.
///
/// # Errors
/// When the plan cannot be run.
pub fn lines(plan: &Plan, rates: &Rates) -> Result<Vec<Line>, GraphError> {
    let mut lines = Vec::new();
    for Part { phase, program, times } in step(plan)? {
        let first = lines.len();
        of_program(plan, &program, rates, &mut lines);
        let all = format!("micro 1 to {times} ");
        for line in &mut lines[first..] {
            line.times = times;
            if phase == Phase::Batch(1) && times > 1 {
                line.phase = line.phase.replacen("micro 1 ", &all, 1);
            }
        }
    }
    Ok(lines)
}

/// Bytes that one device hears from the others in a second step.
///
/// # Errors
/// When the plan cannot be run.
pub fn exchanged(plan: &Plan) -> Result<u64, GraphError> {
    let heard = |step: &Step| match step {
        Step::Copy { to: Some(_), bytes, direction: Direction::PeerToPeer, .. } => *bytes,
        _ => 0,
    };
    let of_part = |part: Part| {
        let heard = part.program.steps.iter().map(heard).fold(0, u64::saturating_add);
        part.times.saturating_mul(heard)
    };
    Ok(step(plan)?.into_iter().map(of_part).fold(0, u64::saturating_add))
}

fn of_program(plan: &Plan, program: &Program, rates: &Rates, lines: &mut Vec<Line>) {
    let mut there: Vec<bool> = program.storages.iter().map(|storage| storage.found).collect();
    let (mut phase, mut busy_ns) = (String::new(), 0);
    for step in &program.steps {
        let kernel = match step {
            Step::Idle { parts, of } => {
                let ns = idle_ns(busy_ns, *parts, *of);
                lines.push(Line {
                    phase: phase.clone(),
                    name: "wait for stages",
                    ns,
                    ..Line::NOTHING
                });
                continue;
            }
            Step::Mark { text, .. } => {
                phase.clone_from(text);
                continue;
            }
            Step::Run(kernel) => kernel,
            _ => continue,
        };
        let bytes = |ids: &[super::program::StorageId]| -> u64 {
            ids.iter().map(|id| program.get(*id).bytes).sum()
        };
        let new =
            kernel.writes.iter().filter(|id| !std::mem::replace(&mut there[id.0 as usize], true));
        let made_bytes = new.map(|id| program.get(*id).bytes).sum();
        let moved_bytes = program.moved(kernel);
        let ns = rates.duration(kernel.flops, kernel.math, moved_bytes);
        busy_ns += if kernel.stream == StreamId(0) { ns } else { 0 };
        lines.push(Line {
            phase: phase.clone(),
            name: kernel.name,
            scope: plan.graph.scope_text(kernel.scope).to_owned(),
            made_bytes,
            scratch_bytes: bytes(&kernel.scratch),
            moved_bytes,
            flops: kernel.flops,
            ns,
            times: 1,
        });
    }
}

/// Lines of one phase and name added up, by phase in order and name.
pub fn by_name(lines: &[Line]) -> Vec<(String, &'static str, Sum)> {
    let mut phases: Vec<&str> = lines.iter().map(|line| line.phase.as_str()).collect();
    phases.dedup();
    let mut sums: BTreeMap<(usize, &'static str), Sum> = BTreeMap::new();
    for line in lines {
        let phase = phases.iter().position(|phase| *phase == line.phase).unwrap_or_default();
        let sum = sums.entry((phase, line.name)).or_default();
        sum.kernels += line.times;
        sum.made_bytes = sum.made_bytes.saturating_add(line.times.saturating_mul(line.made_bytes));
        sum.moved_bytes =
            sum.moved_bytes.saturating_add(line.times.saturating_mul(line.moved_bytes));
        sum.flops += line.times as f64 * line.flops;
        sum.ns = sum.ns.saturating_add(line.times.saturating_mul(line.ns));
    }
    sums.into_iter().map(|((phase, name), sum)| (phases[phase].to_owned(), name, sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::models::mlp::Mlp;
    use crate::graph::op::F;
    use crate::graph::tensor::DType;

    /// All of 4,000 parts took half a minute and 80,000 rows.
    #[test]
    fn parts_that_are_alike_are_listed_once() {
        let model = Mlp {
            batch: 2,
            widths: vec![4, 4],
            activation: F::Relu,
            dtype: DType::F32,
            train: true,
        };
        let phases = |parts| {
            let graph = model.graph().unwrap();
            let mut plan = Plan { graph, ..Plan::default() };
            plan.run.accumulation = parts;
            let mut all: Vec<String> =
                lines(&plan, &Rates::free()).unwrap().into_iter().map(|line| line.phase).collect();
            all.dedup();
            all.retain(|phase| phase.ends_with("forward"));
            all
        };
        assert_eq!(phases(1), ["forward"]);
        assert_eq!(phases(2), ["micro 0 forward", "micro 1 forward"]);
        let three = ["micro 0 forward", "micro 1 to 998 forward", "micro 999 forward"];
        assert_eq!(phases(1000), three);
    }

    #[test]
    fn sums_are_of_all_parts() {
        let model = Mlp {
            batch: 64,
            widths: vec![64; 4],
            activation: F::Relu,
            dtype: DType::F32,
            train: true,
        };
        let ns = |parts| {
            let mut plan = Plan { graph: model.graph().unwrap(), ..Plan::default() };
            plan.run.accumulation = parts;
            let lines = lines(&plan, &Rates::free()).unwrap();
            by_name(&lines).iter().map(|(.., sum)| sum.moved_bytes).sum::<u64>()
        };
        let one_more = ns(3) - ns(2);
        assert_eq!(ns(6) - ns(3), 3 * one_more);
    }
}
