//! PaddlePaddle.
//!
//! | option | there since | default |
//! |---|---|---|
//! | `FLAGS_allocator_strategy` | 1.2 | `naive_best_fit` before 2.0, `auto_growth` since |
//! | `FLAGS_fraction_of_gpu_memory_to_use` | 1.0; of `naive_best_fit` only | 0.92 |
//! | `FLAGS_gpu_memory_limit_mb` | 1.7 | 0: none |
//! | `FLAGS_use_cuda_managed_memory` | 2.3 | false |
//!
//! Source: PaddlePaddle's documentation of FLAGS, memory management; `paddle/fluid/platform/flags.cc`.

use super::{Advice, Case, advice};
use crate::explain::judge::Limit;
use crate::explain::judge::Verdict::{Shortage, Unknown};
use crate::explain::message::shown;

const FLAGS: &str = "PaddlePaddle documentation, FLAGS, memory management";

pub(super) const ADVICE: &[Advice] = &[
    advice(
        |case| case.is(Unknown),
        |_| {
            "restart the process, and look at the card with nvidia-smi: figures beyond any card mean that a counter or the device itself is in an error".to_owned()
        },
        "the figures of the message",
    ),
    advice(limited, |_| "raise or remove the limit FLAGS_gpu_memory_limit_mb".to_owned(), FLAGS),
    advice(
        |_| true,
        |case| {
            let gpu = case.message.figures.count("gpu").map(|gpu| format!(" of GPU {gpu}"));
            let held = case
                .bytes("allocated_bytes")
                .map(|taken| format!("Paddle itself holds {}; ", shown(taken)));
            format!(
                "{}see with nvidia-smi who holds the rest{}, and end what is not needed or choose another card with CUDA_VISIBLE_DEVICES",
                held.unwrap_or_default(),
                gpu.unwrap_or_default()
            )
        },
        "the message's own first hint",
    ),
    advice(
        naive,
        |_| {
            "export FLAGS_allocator_strategy=auto_growth: memory is taken as it is needed, not as one large piece at the start".to_owned()
        },
        FLAGS,
    ),
    advice(
        |case| case.is(Shortage),
        |case| {
            format!(
                "make room for {}: a smaller batch or image, recompute, or mixed precision (paddle.amp)",
                case.missing()
            )
        },
        "the message's own second hint",
    ),
    advice(
        |case| {
            case.is(Shortage)
                && case.may_have("paddle", (2, 3))
                && case
                    .environment
                    .setting("FLAGS_use_cuda_managed_memory")
                    .is_none_or(|v| !v.eq_ignore_ascii_case("true"))
        },
        |_| {
            "if time matters less, export FLAGS_use_cuda_managed_memory=true: the card then pages to host memory".to_owned()
        },
        "PaddlePaddle documentation, FLAGS_use_cuda_managed_memory; since 2.3",
    ),
    advice(
        |case| {
            case.environment.setting("FLAGS_allocator_strategy").is_none()
                && !case.has("paddle", (2, 0))
                && !naive(case)
        },
        |_| {
            "before 2.0, export FLAGS_allocator_strategy=auto_growth: the old default takes one large piece at the start".to_owned()
        },
        FLAGS,
    ),
];

/// A limit is set, or the figures look like one.
fn limited(case: &Case<'_>) -> bool {
    let set = case.environment.setting("FLAGS_gpu_memory_limit_mb").is_some_and(|mb| mb != "0");
    set || case.finding.limit == Some(Limit::Flag)
}

/// The old strategy is in force: by its phrasing, or by its flag.
fn naive(case: &Case<'_>) -> bool {
    match case.environment.setting("FLAGS_allocator_strategy") {
        Some(strategy) => strategy == "naive_best_fit",
        None => case.message.era.contains("naive best fit"),
    }
}
