//! `offload`: what is not needed at once waits on the host.
//!
//! | word | what it says | source |
//! |---|---|---|
//! | `optimizer` | gradients go to the host as buckets of them are complete, which keeps the states and updates the weights | Ren et al. 2021 (ZeRO-Offload) |
//! | `weights` | weights come for each block, forward and backward | Rajbhandari et al. 2021 (ZeRO-Infinity) |
//! | `activations` | what backward needs of a block waits on the host | Rhu et al. 2016 (vDNN) |
//! | `limit:K` | of activations: the host is at most K blocks ahead of their copies; of weights as for `zero`; 0: it never waits | torchtune's `OffloadActivations` |
//! | `ahead:K`, `bucket:SIZE` | as for `zero` |  |
//!
//! What is on its way to the host is still there, and cannot be used again before its copy is done; what comes back is asked for on the carrying stream, whose free
//! blocks a caching allocator gives to no other stream. So more is reserved than the peak of requests says, without a limit far more.
//!
//! The host's memory and its time for the update are left out.

use super::words::{MANY, Words};
use super::{Pass, PassError, bad, needs_training};
use crate::graph::plan::{Plan, Rule};
use crate::graph::spread::{Home, Keeper, Sink};

pub(super) const PASS: Pass = Pass {
    name: "offload",
    options: "optimizer, weights, activations, or several as optimizer/activations, with /ahead:1/limit:2/bucket:25MiB",
    summary: "optimizer states, weights or activations wait on the host",
    apply,
};

/// Without an optimizer there is nothing to be updated on the host.
///
/// # Errors
/// Its states are to wait on the host, nothing else, and there is none.
pub(super) fn check(plan: &Plan) -> Result<(), PassError> {
    let run = &plan.run;
    let update_only = run.spread.keeper == Keeper::Host && run.spread.home == Home::Device;
    if run.train && update_only && run.optimizer.rule == Rule::None {
        let expected = "one (sgd, momentum, adam, adamw), or offload=activations";
        return Err(bad(PASS.name, "no optimizer", expected));
    }
    Ok(())
}

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let mut words = Words::of(&PASS, option);
    let [mut optimizer, weights, activations] =
        ["optimizer", "weights", "activations"].map(|word| words.flag(word));
    optimizer |= weights || !activations;
    let ahead = words.number("ahead", 1, 0..=MANY)?;
    let limit = words.number("limit", 2, 0..=MANY)?;
    let bucket = words.bytes("bucket", 25 << 20)?;
    words.end()?;
    if activations || !weights {
        needs_training(plan, PASS.name, "optimizer states and activations that are kept")?;
    }
    let spread = &mut plan.run.spread;
    if optimizer {
        if (spread.sink, spread.keeper, spread.home) != (Sink::Stays, Keeper::Device, Home::Device)
        {
            return Err(bad(PASS.name, option, "no other pass that moves gradients or states"));
        }
        (spread.sink, spread.keeper, spread.bucket) = (Sink::Host, Keeper::Host, bucket);
    }
    if weights {
        (spread.home, spread.ahead, spread.run_ahead) = (Home::Host, ahead, limit);
    }
    if activations {
        (spread.activations_on_host, spread.copies_in_flight) = (true, limit);
    }
    let moved = [
        (
            optimizer && plan.run.train,
            if plan.run.has_states() { "optimizer states" } else { "gradients and the update" },
        ),
        (weights, "weights"),
        (activations, "activations"),
    ];
    let moved: Vec<&str> = moved.iter().filter(|(on, _)| *on).map(|(_, what)| *what).collect();
    let mut changed = format!("{} wait on the host", moved.join(", "));
    if activations {
        changed += &match limit {
            0 => "; the host never waits for copies".to_owned(),
            1 => "; the host is at most one block ahead of their copies".to_owned(),
            _ => format!("; the host is at most {limit} blocks ahead of their copies"),
        };
        changed +=
            "; reserved holds what is on its way too, there and back in pools of two streams";
    }
    Ok(changed)
}
