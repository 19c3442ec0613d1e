//! `zero`: optimizer states, gradients and weights in parts on N devices; one device is run.
//!
//! Ψ weights, K bytes of optimizer state for each, N devices; 16-bit weights and gradients (Rajbhandari et al. 2020, figure 1):
//!
//! | stage | in parts | bytes that stay |
//! |---|---|---|
//! | none |  | (2 + 2 + K)Ψ |
//! | 1 | states | (2 + 2)Ψ + KΨ/N |
//! | 2 | states, gradients | 2Ψ + (2 + K)Ψ/N |
//! | 3 | states, gradients, weights | (2 + 2 + K)Ψ/N |
//!
//! | word | what it says |
//! |---|---|
//! | `1`, `2`, `3` | the stage |
//! | `devices:N` | how many devices |
//! | `bucket:SIZE` | gradients are exchanged when so many bytes are complete (stage 1: at the end, unless given) |
//! | `ahead:K` | weights of the next K blocks are gathered early (stage 3) |
//! | `limit:K` | the host runs at most K blocks ahead of the device; 0: as far as it can (stage 3) |

use super::words::{MANY, Words};
use super::{Pass, PassError, bad, needs_training};
use crate::graph::plan::Plan;
use crate::graph::spread::{Home, Keeper, Sink};

pub(super) const PASS: Pass = Pass {
    name: "zero",
    options: "1, 2 or 3, with /devices:8/bucket:25MiB/ahead:1/limit:2",
    summary: "states, gradients and weights in parts on several devices (ZeRO 1 to 3)",
    apply,
};

/// States that there are none of are in no parts: which weights have masters, other passes may say later.
///
/// # Errors
/// Stage 1 of an optimizer without states.
pub(super) fn check(plan: &Plan) -> Result<(), PassError> {
    let spread = &plan.run.spread;
    let states_only = matches!(spread.sink, Sink::Shares(_)) && spread.home == Home::Device;
    if states_only && !plan.run.has_states() {
        let expected = "one that has some (momentum, adam, adamw), or stage 2 or 3";
        return Err(bad(PASS.name, "an optimizer without states", expected));
    }
    Ok(())
}

const BUCKET: u64 = 25 << 20;

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let mut words = Words::of(&PASS, option);
    let stage = (1..=3).find(|stage| words.flag(&stage.to_string())).unwrap_or(1);
    let devices = words.number("devices", 8, 1..=MANY)?;
    let bucket = words.bytes("bucket", if stage == 1 { 0 } else { BUCKET })?;
    let ahead = words.number("ahead", 1, 0..=MANY)?;
    let limit = words.number("limit", 2, 0..=MANY)?;
    words.end()?;
    if stage < 3 {
        needs_training(plan, PASS.name, "states and gradients")?;
    }
    let spread = &mut plan.run.spread;
    if (spread.sink, spread.keeper, spread.home) != (Sink::Stays, Keeper::Device, Home::Device) {
        return Err(bad(
            PASS.name,
            option,
            "no other pass that moves gradients, states or weights",
        ));
    }
    spread.keeper = Keeper::Devices(devices);
    spread.sink = if stage == 1 { Sink::Shares(devices) } else { Sink::Parts(devices) };
    spread.bucket = bucket;
    if stage == 3 {
        (spread.home, spread.ahead, spread.run_ahead) = (Home::Devices(devices), ahead, limit);
    }
    let parts = ["states", "states and gradients", "states, gradients and weights"];
    let divided = if plan.run.train { parts[stage as usize - 1] } else { "weights" };
    Ok(format!("{divided} in parts on {devices} devices"))
}
