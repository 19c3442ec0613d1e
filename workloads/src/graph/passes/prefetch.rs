//! `prefetch`: batches come ahead of the step that uses them.
//!
//! | word | what it says |
//! |---|---|
//! | `device` (or nothing) | the next batch is copied to the device, on a stream of its own, while the step at hand runs |
//! | `host` | batches wait on the host only |
//! | `workers:N/ms:T` | N workers, each of which takes T ms for a batch: one is ready every T/N |
//!
//! Source: `torch/utils/data/dataloader.py`, PyTorch 2.15; recordings of two streams.

use super::words::{MANY, Words};
use super::{Pass, PassError, bad};
use crate::graph::plan::Plan;
use crate::graph::spread::{Loader, Workers};
use crate::graph::tensor::Role;

pub(super) const PASS: Pass = Pass {
    name: "prefetch",
    options: "device or host, with /workers:4/ms:0",
    summary: "batches come ahead: to the device, or to the host by several workers",
    apply,
};

const NS_PER_MS: u64 = 1_000_000;

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let mut words = Words::of(&PASS, option);
    let host = words.flag("host");
    words.flag("device");
    let workers = words.number("workers", 1, 1..=MANY)?;
    let ms = words.number("ms", 0, 0..=3_600_000)?;
    words.end()?;
    let spread = &mut plan.run.spread;
    spread.workers = (ms > 0).then_some(Workers { count: workers, batch_ns: ms * NS_PER_MS });
    let graph = &plan.graph;
    let sizes: Vec<u64> = graph.of_role(Role::Input).map(|id| graph.get(id).bytes()).collect();
    let bytes: u64 = sizes.iter().sum();
    if host {
        let every = ms as f64 / workers as f64;
        return Ok(format!("{workers} workers have a batch ready every {every:.3} ms"));
    }
    if spread.pipeline.is_some() {
        return Err(bad(PASS.name, option, "no pipeline, or prefetch=host"));
    }
    spread.loader = Some(Loader { next: sizes, last_is_made: false });
    Ok(format!("the next batch, {bytes} B, is on the device beside the one at hand"))
}
