//! `allreduce`: gradients are summed over N devices in buckets; one device is run.
//!
//! | word | what it says | source |
//! |---|---|---|
//! | `devices:N` | how many devices |  |
//! | `bucket:SIZE` | a bucket goes when it is full, while backward goes on | Li et al. 2020, section 3.2.3 |
//! | `view` | gradients live in their buckets; without it buckets are beside them, as much again | `gradient_as_bucket_view`, PyTorch 2.15; pytorch/pytorch#41954 |
//! | `sync` | all gradients go at the end of backward, in one buffer | the same, section 3.2.1 |

use super::words::{MANY, Words};
use super::{Pass, PassError, bad, needs_training};
use crate::graph::plan::Plan;
use crate::graph::spread::Sink;

pub(super) const PASS: Pass = Pass {
    name: "allreduce",
    options: "devices:8/bucket:25MiB, with /view, or devices:8/sync",
    summary: "gradients summed over several devices, overlapped with backward or after it",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let mut words = Words::of(&PASS, option);
    let devices = words.number("devices", 8, 1..=MANY)?;
    let bucket = words.bytes("bucket", 25 << 20)?;
    let [sync, view] = ["sync", "view"].map(|word| words.flag(word));
    words.end()?;
    needs_training(plan, PASS.name, "gradients")?;
    let spread = &mut plan.run.spread;
    if spread.sink != Sink::Stays {
        return Err(bad(PASS.name, option, "no other pass that moves gradients"));
    }
    let whole = sync || bucket == 0;
    if whole && view {
        return Err(bad(PASS.name, option, "view with buckets, or sync without it"));
    }
    (spread.sink, spread.bucket) = (Sink::Sums(devices), if sync { 0 } else { bucket });
    spread.in_buckets = view;
    let summed = format!("gradients are summed over {devices} devices");
    Ok(match (whole, view) {
        (true, _) => format!("{summed} after backward"),
        (false, false) => format!("{summed} in buckets of {bucket} B, which stay beside them"),
        (false, true) => format!("{summed} in buckets of {bucket} B, in which they live"),
    })
}
