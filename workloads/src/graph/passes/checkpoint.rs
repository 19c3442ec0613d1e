//! `checkpoint`: blocks keep their inputs only, and are computed again in backward.
//!
//! | option | what it does | source |
//! |---|---|---|
//! | `all` | each block by itself | `torch/utils/checkpoint.py`, PyTorch 2.15, as transformers uses it |
//! | `every:K` | K blocks together: one input kept for K | Chen et al. 2016, section 3 |
//! | `sqrt` | as many together as the square root of their number | the same |
//! | `first:K` | the first K, each by itself |  |
//! | `budget:SIZE` | as few operations again as can be, while what blocks keep stays under SIZE | `budget` |
//!
//! The cost is one more forward pass of what is recomputed.

use std::ops::Range;
use std::str::FromStr;

use vramlab_sim::units::Bytes;

use super::budget::{self, Block};
use super::{Pass, PassError, bad, needs_training};
use crate::graph::plan::Plan;

pub(super) const PASS: Pass = Pass {
    name: "checkpoint",
    options: "all, sqrt, every:K, first:K, budget:SIZE",
    summary: "blocks are computed again in backward instead of kept",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    needs_training(plan, PASS.name, "a backward pass to compute them again in")?;
    if let Some(size) = option.strip_prefix("budget:") {
        return under_budget(plan, option, size);
    }
    let blocks = plan.graph.blocks();
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n > 0);
    let (count, together) = match option.split_once(':').unwrap_or((option, "")) {
        ("" | "all", "") => (blocks.len(), Some(1)),
        ("sqrt", "") => (blocks.len(), Some((blocks.len() as u64).isqrt().max(1) as usize)),
        ("every", k) => (blocks.len(), number(k)),
        ("first", k) => (number(k).unwrap_or(0), number(k).map(|_| 1)),
        _ => (0, None),
    };
    let together = together.ok_or_else(|| bad("checkpoint", option, PASS.options))?;
    let chosen = &blocks[..count.min(blocks.len())];
    let again = chosen.chunks(together).filter_map(whole).collect::<Vec<_>>();
    let changed = format!(
        "{} of {} blocks are computed again, {} at a time",
        chosen.len(),
        blocks.len(),
        together
    );
    plan.run.again = again;
    Ok(changed)
}

fn under_budget(plan: &mut Plan, option: &str, size: &str) -> Result<String, PassError> {
    let refused = |expected: &str| bad("checkpoint", option, expected);
    let budget = Bytes::from_str(size).map_err(|_| refused(PASS.options))?.0;
    let ranges = plan.graph.blocks();
    let blocks: Vec<Block> = ranges.iter().map(|range| Block::of(&plan.graph, range)).collect();
    let groups = budget::choose(&blocks, budget).map_err(|least| {
        let least = Bytes(least);
        refused(&format!(
            "{} B ({least}) at least: every group's input, and the largest group",
            least.0
        ))
    })?;
    let sum = |blocks: &[Block]| blocks.iter().map(|block| block.work).sum::<f64>();
    let again: f64 = groups.iter().map(|group| sum(&blocks[group.clone()])).sum();
    let changed = format!(
        "{} of {} blocks are computed again in {} groups: blocks keep {} B at most, {:.0} % of their forward is done again",
        groups.iter().map(ExactSizeIterator::len).sum::<usize>(),
        blocks.len(),
        groups.len(),
        budget::kept(&blocks, &groups),
        100.0 * again / sum(&blocks).max(1.0)
    );
    let again = groups.iter().filter_map(|group| whole(&ranges[group.clone()])).collect();
    plan.run.again = again;
    Ok(changed)
}

/// The range that begins with the first block and ends with the last.
fn whole(blocks: &[Range<usize>]) -> Option<Range<usize>> {
    Some(blocks.first()?.start..blocks.last()?.end)
}
