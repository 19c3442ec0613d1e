//! TensorFlow's BFC allocator.
//!
//! | option | there since | does nothing |
//! |---|---|---|
//! | `TF_FORCE_GPU_ALLOW_GROWTH=true` | 1.12 | for one process that needs the whole card |
//! | `TF_GPU_ALLOCATOR=cuda_malloc_async` | 2.5 | where not even all free bytes are enough |
//! | `set_logical_device_configuration(memory_limit=…)` | 2.0 | |
//!
//! Source: TensorFlow guide, Use a GPU, limiting GPU memory growth; release notes of 2.5; `gpu_process_state.cc`.

use super::{Advice, advice};
use crate::explain::judge::Verdict::{Fragmentation, OtherProcess, Shortage, Unknown};
use crate::explain::message::shown;

const GUIDE: &str = "TensorFlow guide, Use a GPU: limiting GPU memory growth";

pub(super) const ADVICE: &[Advice] = &[
    advice(
        |case| case.is(OtherProcess),
        |_| {
            "see with nvidia-smi who held the card before this process began, and end it or choose another card with CUDA_VISIBLE_DEVICES".to_owned()
        },
        GUIDE,
    ),
    advice(
        |case| {
            case.is(Fragmentation)
                && case.environment.setting("TF_GPU_ALLOCATOR").is_none()
                && case.may_have("tensorflow", (2, 5))
                && !case.message.era.starts_with("0.8 or later")
        },
        |case| {
            let since = if case.has("tensorflow", (2, 5)) {
                ""
            } else {
                "with TensorFlow 2.5 or later and CUDA 11.2: "
            };
            format!(
                "{since}export TF_GPU_ALLOCATOR=cuda_malloc_async: the driver's pool puts free pieces together"
            )
        },
        "TensorFlow release notes 2.5: TF_GPU_ALLOCATOR=cuda_malloc_async",
    ),
    advice(
        |case| case.is(Fragmentation),
        |_| {
            "let the largest shapes come first, or pad to a few sizes, so that the regions are cut into pieces that serve all that follows".to_owned()
        },
        "tensorflow/core/common_runtime/bfc_allocator.cc: best fit, chunks are split",
    ),
    advice(
        |case| {
            case.bytes("limit_bytes").is_some()
                && case.is(Shortage)
                && case.bytes("available_bytes").is_none_or(|left| left == 0)
        },
        |case| {
            format!(
                "the allocator's limit is {}: where the card has more, raise memory_limit or per_process_gpu_memory_fraction, and see with nvidia-smi what others hold",
                shown(case.bytes("limit_bytes").unwrap_or(0))
            )
        },
        GUIDE,
    ),
    advice(
        |case| case.is(Shortage) && case.bytes("available_bytes").is_some_and(|left| left > 0),
        |_| {
            "see with nvidia-smi who holds the card: the allocator may grow by its limit, and the driver has nothing left for it".to_owned()
        },
        GUIDE,
    ),
    advice(
        |_| true,
        |case| {
            format!(
                "make room for {}: a smaller batch, mixed precision, or tf.recompute_grad",
                case.missing()
            )
        },
        "TensorFlow documentation, tf.recompute_grad, mixed precision",
    ),
    advice(
        |case| case.bytes("chunks_free_bytes").is_none() && case.any(&[Shortage, Unknown]),
        |_| {
            "give vramlab explain the whole log: the dump below the message (bins, chunks, Limit, InUse) tells pieces from shortage".to_owned()
        },
        "tensorflow/core/common_runtime/bfc_allocator.cc: DumpMemoryLog",
    ),
    advice(
        |case| {
            case.environment
                .setting("TF_FORCE_GPU_ALLOW_GROWTH")
                .is_none_or(|v| !v.eq_ignore_ascii_case("true"))
                && case.is(OtherProcess)
        },
        |_| {
            "let processes that share the card take memory as they need it: export TF_FORCE_GPU_ALLOW_GROWTH=true for each".to_owned()
        },
        GUIDE,
    ),
    advice(
        |case| case.bytes("chunks_free_bytes").is_some(),
        |_| "see what lies where: vramlab inspect shows the dump by size".to_owned(),
        "vramlab inspect",
    ),
    advice(
        |case| case.bytes("limit_bytes").is_none(),
        |_| {
            "see with nvidia-smi what others hold: TensorFlow takes nearly all that is free when it begins, and no more later".to_owned()
        },
        GUIDE,
    ),
];
