//! `accumulate=N`: each step's batch is run in N parts, one after the other, whose gradients are added up.
//!
//! The model is built with a batch of one part, so the effective batch stays what it was.

use super::{PARTS_MAX, Pass, PassError, bad, needs_training};
use crate::graph::plan::Plan;

pub(super) const PASS: Pass = Pass {
    name: "accumulate",
    options: "2, or how many parts a batch has",
    summary: "gradient accumulation: the batch in parts",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let parts = parts(option)?;
    needs_training(plan, PASS.name, "gradients to add up")?;
    plan.run.accumulation *= parts;
    Ok(format!("{parts} parts of a batch for each step"))
}

pub(super) fn parts(option: &str) -> Result<u64, PassError> {
    let text = if option.is_empty() { "2" } else { option };
    let parts = text.parse().ok().filter(|parts| (1..=PARTS_MAX).contains(parts));
    parts.ok_or_else(|| bad("accumulate", option, &format!("a whole number from 1 to {PARTS_MAX}")))
}
