//! `pipeline`: the blocks are divided among stages; one stage is run.
//!
//! | word | what it says | source |
//! |---|---|---|
//! | `stages:S` | blocks are divided so that each stage has about as many operations | Huang et al. 2019, section 2.2 |
//! | `stage:s` | the stage that is run, from 0 |  |
//! | `micro:M` | a batch is run in M micro-batches, which divide it | the same |
//! | `schedule:gpipe` | all forward, then all backward: M micro-batches in flight | the same, section 2.3 |
//! | `schedule:1f1b` | one forward, one backward: at most S − s in flight | Narayanan et al. 2021, section 2.2 |
//!
//! A stage waits for the others (S − 1)/(M + S − 1) of a step in either schedule (Narayanan et al. 2021, section 2.2.1); that is in the time per step.
//! What is before the first block belongs to the first stage, what is after the last to the last.

use super::words::Words;
use super::{Pass, PassError, bad};
use crate::graph::network::Graph;
use crate::graph::plan::Plan;
use crate::graph::spread::{Pipeline, Schedule};

pub(super) const PASS: Pass = Pass {
    name: "pipeline",
    options: "stages:4/stage:0/micro:8/schedule:1f1b, or schedule:gpipe",
    summary: "one stage of a pipeline, with micro-batches",
    apply,
};

/// Most stages, and half the most micro-batches: a step of all of them is one program.
const MICRO_MAX: u64 = 512;

const MICRO_DEFAULT: u64 = 2;

/// Micro-batches of a batch.
pub(super) fn parts(option: &str) -> Result<u64, PassError> {
    Ok(read(option)?.micro)
}

fn read(option: &str) -> Result<Pipeline, PassError> {
    let mut words = Words::of(&PASS, option);
    let stages = words.number("stages", 4, 1..=MICRO_MAX)?;
    let stage = words.number("stage", 0, 0..=stages - 1)?;
    let micro = words.number("micro", MICRO_DEFAULT * stages, 1..=2 * MICRO_MAX)?;
    let schedule = match words.text("schedule") {
        None | Some("1f1b") => Schedule::OneForwardOneBackward,
        Some("gpipe") => Schedule::GPipe,
        Some(other) => return Err(bad(PASS.name, other, "schedule:gpipe or schedule:1f1b")),
    };
    words.end()?;
    Ok(Pipeline { stages, stage, micro, schedule })
}

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    if !plan.run.train {
        return Err(bad(PASS.name, "inference", "training"));
    }
    if plan.run.spread.pipeline.is_some() || plan.run.spread.loader.is_some() {
        return Err(bad(PASS.name, option, "no other pipeline, and no prefetch to the device"));
    }
    let pipeline = read(option)?;
    let Pipeline { stages, stage, micro, .. } = pipeline;
    let cuts = cuts(&plan.graph, stages as usize)?;
    let blocks = plan.graph.blocks().len();
    let (from, to) = (cuts[stage as usize], cuts[stage as usize + 1]);
    plan.graph = plan.graph.part(from..to)?;
    let inside = |range: &std::ops::Range<usize>| {
        (range.start >= from && range.end <= to).then(|| range.start - from..range.end - from)
    };
    plan.run.again = plan.run.again.iter().filter_map(inside).collect();
    plan.run.spread.pipeline = Some(pipeline);
    let parts = micro + stages - 1;
    Ok(format!(
        "stage {stage} of {stages} has {} of {blocks} blocks; {} of {micro} micro-batches of the batch in flight; it waits for other stages {} of {parts} parts of a step ({:.1} %)",
        plan.graph.blocks().len(),
        pipeline.in_flight(),
        stages - 1,
        100.0 * (stages - 1) as f64 / parts as f64,
    ))
}

/// Where stages begin, and the end: at blocks, about as many operations in each.
fn cuts(graph: &Graph, stages: usize) -> Result<Vec<usize>, PassError> {
    let starts: Vec<usize> = graph.blocks().iter().map(|block| block.start).collect();
    if starts.len() < stages {
        let found = format!("{stages} stages");
        return Err(bad(
            PASS.name,
            &found,
            &format!("at most one for each of {} blocks", starts.len()),
        ));
    }
    let mut before = vec![0.0];
    for node in graph.nodes() {
        before.push(before[before.len() - 1] + graph.flops(node));
    }
    let all = before[graph.nodes().len()];
    let mut cuts = vec![0];
    let mut first = 1;
    for stage in 1..stages {
        // as many blocks stay as stages follow
        let last = starts.len() - (stages - stage);
        let wanted = all * stage as f64 / stages as f64;
        let distance = |i: &usize| (before[starts[*i]] - wanted).abs();
        let nearest = (first..=last).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let chosen = nearest.unwrap_or(last);
        cuts.push(starts[chosen]);
        first = chosen + 1;
    }
    cuts.push(graph.nodes().len());
    Ok(cuts)
}
