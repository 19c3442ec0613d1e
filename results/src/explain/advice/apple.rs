//! PyTorch on Apple's devices.
//!
//! The watermark is the ratio times what Metal recommends; the ratio is 1.7 unless it is set, and at most 2.0 (0: no limit). A ratio that is just enough is the one in
//! force times what is needed over what is allowed. Source: pytorch/pytorch, `aten/src/ATen/mps/MPSAllocator.h`; the documentation of MPS environment variables.

use super::{Advice, Case, advice};
use crate::explain::judge::Verdict::Shortage;
use crate::explain::message::shown;

const VARIABLE: &str = "PYTORCH_MPS_HIGH_WATERMARK_RATIO";
const RATIO: f64 = 1.7;
const RATIO_MAX: f64 = 2.0;

pub(super) const ADVICE: &[Advice] = &[
    advice(
        |case| case.climbs,
        |_| {
            "look for what is kept from step to step: losses summed up without .item(), tensors in lists".to_owned()
        },
        "PyTorch documentation, FAQ",
    ),
    advice(
        |case| case.is(Shortage),
        |case| {
            format!(
                "make room for {}: a smaller batch, image or context, or the model in half precision",
                case.missing()
            )
        },
        "the figures of the message",
    ),
    advice(
        |case| {
            case.bytes("other_bytes").is_some_and(|other| {
                other.saturating_mul(4) > case.bytes("max_allowed_bytes").unwrap_or(u64::MAX)
            })
        },
        |case| {
            format!(
                "free what this process holds outside of PyTorch's allocator ({}): compiled graphs go with a new process, other libraries on Metal have switches of their own",
                shown(case.bytes("other_bytes").unwrap_or(0))
            )
        },
        "aten/src/ATen/mps/MPSAllocator.mm: other allocations",
    ),
    advice(
        |case| case.is(Shortage),
        |_| {
            "call torch.mps.empty_cache() between phases (after loading, between images): cached buffers count against the watermark".to_owned()
        },
        "PyTorch documentation, torch.mps.empty_cache; since 2.0",
    ),
    advice(
        |case| enough(case).is_some(),
        |case| {
            format!(
                "if the Mac has memory to spare, export {VARIABLE}={:.2}: just enough for this request; 0.0 takes the limit away, and the system may swap or fail",
                enough(case).unwrap_or(RATIO)
            )
        },
        "PyTorch documentation, MPS environment variables",
    ),
];

/// The least ratio with which the request would have passed, in steps of 0.05, if it is a legal one above what is in force.
fn enough(case: &Case<'_>) -> Option<f64> {
    let now = match case.environment.setting(VARIABLE) {
        Some(text) => text.parse().ok().filter(|ratio| *ratio > 0.0)?,
        None => RATIO,
    };
    let size = |name| case.bytes(name);
    let needed = size("allocated_bytes")?
        .checked_add(size("other_bytes")?)?
        .checked_add(size("tried_bytes")?)?;
    let ratio = now * needed as f64 / size("max_allowed_bytes").filter(|most| *most > 0)? as f64;
    let step = (ratio * 20.0).ceil() / 20.0;
    let step = if step <= now { now + 0.05 } else { step };
    (case.is(Shortage) && step <= RATIO_MAX).then_some(step)
}
