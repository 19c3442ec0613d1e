//! A plan's programs in tables: what runs, what it takes, how long.

use std::collections::BTreeMap;

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

/// The kernels of a second step (the first makes what later ones find).
///
/// # Errors
/// When the plan cannot be run.
pub fn lines(plan: &Plan, rates: &Rates) -> Result<Vec<Line>, GraphError> {
    plan.check()?;
    let numbers = Numbers::of(&plan.graph);
    let mut live = vec![false; numbers.count()];
    let mut phases = vec![Phase::Batch(0)];
    if plan.run.train {
        // parts between the first and the last are as the one before them
        let parts = plan.run.accumulation;
        phases.extend(
            [1, parts - 1].into_iter().filter(|part| (1..parts).contains(part)).map(Phase::Batch),
        );
        phases.dedup();
        phases.push(Phase::Optimizer);
    }
    lower(plan, &numbers, Phase::Load, false, &mut live);
    for phase in &phases {
        lower(plan, &numbers, *phase, false, &mut live);
    }
    let mut lines = Vec::new();
    for phase in phases {
        let program = lower(plan, &numbers, phase, false, &mut live);
        of_program(plan, &program, rates, &mut lines);
    }
    Ok(lines)
}

fn of_program(plan: &Plan, program: &Program, rates: &Rates, lines: &mut Vec<Line>) {
    let mut there: Vec<bool> = program.storages.iter().map(|storage| storage.found).collect();
    let mut phase = String::new();
    for step in &program.steps {
        let kernel = match step {
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
        lines.push(Line {
            phase: phase.clone(),
            name: kernel.name,
            scope: plan.graph.scope_text(kernel.scope).to_owned(),
            made_bytes,
            scratch_bytes: bytes(&kernel.scratch),
            moved_bytes,
            flops: kernel.flops,
            ns: rates.duration(kernel.flops, kernel.math, moved_bytes),
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
        sum.kernels += 1;
        sum.made_bytes += line.made_bytes;
        sum.moved_bytes += line.moved_bytes;
        sum.flops += line.flops;
        sum.ns += line.ns;
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
        let three = ["micro 0 forward", "micro 1 forward", "micro 999 forward"];
        assert_eq!(phases(1000), three);
    }
}
