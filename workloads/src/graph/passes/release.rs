//! `release`: when dead storages are freed.
//!
//! | option | what it does |
//! |---|---|
//! | `immediate` | after their last use |
//! | `delayed:SIZE` | when the dead ones exceed SIZE (1 GB), all of them; Paddle's eager deletion with a threshold |
//! | `end` | when the batch is over |
//! | `planned` | storages that never live together share one, chosen ahead |

use std::str::FromStr;

use vramlab_sim::units::Bytes;

use super::{Pass, PassError, bad};
use crate::graph::plan::{Plan, Release};

pub(super) const PASS: Pass = Pass {
    name: "release",
    options: "immediate, delayed:SIZE, end, planned",
    summary: "when dead tensors are freed",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let refused = || bad("release", option, PASS.options);
    plan.run.release = match option.split_once(':').unwrap_or((option, "")) {
        ("" | "immediate", "") => Release::Immediate,
        ("end", "") => Release::AtEnd,
        ("planned", "") => Release::Planned,
        ("delayed", "") => Release::Delayed(1_000_000_000),
        ("delayed", size) => Release::Delayed(Bytes::from_str(size).map_err(|_| refused())?.0),
        _ => return Err(refused()),
    };
    Ok(match plan.run.release {
        Release::Immediate => "dead tensors are freed at once".to_owned(),
        Release::Delayed(bytes) => format!("dead tensors are freed when they exceed {bytes} B"),
        Release::AtEnd => "dead tensors are freed when the batch is over".to_owned(),
        Release::Planned => "tensors that never live together share a buffer".to_owned(),
    })
}
