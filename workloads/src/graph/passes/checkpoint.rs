//! `checkpoint`: blocks keep their inputs only, and are computed again in backward.
//!
//! | option | what it does | source |
//! |---|---|---|
//! | `all` | each block by itself | `torch/utils/checkpoint.py`, PyTorch 2.15, as transformers uses it |
//! | `every:K` | K blocks together: one input kept for K | Chen et al. 2016, section 3 |
//! | `sqrt` | as many together as the square root of their number | the same |
//! | `first:K` | the first K, each by itself |  |
//!
//! The cost is one more forward pass of what is recomputed.

use std::ops::Range;

use super::{Pass, PassError, bad};
use crate::graph::plan::Plan;

pub(super) const PASS: Pass = Pass {
    name: "checkpoint",
    options: "all, sqrt, every:K, first:K",
    summary: "blocks are computed again in backward instead of kept",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
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

/// The range that begins with the first block and ends with the last.
fn whole(blocks: &[Range<usize>]) -> Option<Range<usize>> {
    Some(blocks.first()?.start..blocks.last()?.end)
}
