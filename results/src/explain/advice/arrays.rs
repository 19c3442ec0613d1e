//! JAX: XLA's pool takes three quarters of the card at the start.
//!
//! | variable | default |
//! |---|---|
//! | `XLA_PYTHON_CLIENT_PREALLOCATE` | true |
//! | `XLA_CLIENT_MEM_FRACTION`, by its old name, which is still read, `XLA_PYTHON_CLIENT_MEM_FRACTION` | 0.75 |
//! | `XLA_PYTHON_CLIENT_ALLOCATOR` | the BFC pool; `platform` takes and gives back each buffer, slowly |
//!
//! Source: JAX documentation (jax-ml/jax, `docs/gpu_memory_allocation.rst`), GPU memory allocation; gradient checkpointing; buffer donation. On a TPU these variables do nothing.

use super::{Advice, Case, advice};
use crate::explain::judge::Verdict::{Fragmentation, OtherProcess, Shortage};

const MEMORY: &str = "JAX documentation, GPU memory allocation";
const FRACTIONS: [&str; 2] = ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"];

pub(super) const ADVICE: &[Advice] = &[
    advice(
        |case| case.is(OtherProcess) && !tpu(case),
        |_| {
            "see with nvidia-smi who holds the card: another process of JAX takes three quarters of it at its start; end it, or choose another card with CUDA_VISIBLE_DEVICES".to_owned()
        },
        MEMORY,
    ),
    advice(
        |case| case.is(OtherProcess) && !tpu(case) && !off(case),
        |_| {
            "where processes share a card, export XLA_PYTHON_CLIENT_PREALLOCATE=false for each, or give each a XLA_PYTHON_CLIENT_MEM_FRACTION".to_owned()
        },
        MEMORY,
    ),
    advice(
        |case| case.is(OtherProcess),
        |_| {
            "see which arrays this process still references: jax.live_arrays(), or jax.profiler.save_device_memory_profile(\"m.prof\")".to_owned()
        },
        "JAX documentation, device memory profiling",
    ),
    advice(
        |case| case.is(Shortage) && results(case) && !donates_nothing(case),
        |_| {
            "donate the arguments that the results replace (jax.jit(…, donate_argnums=…)): parameters and results then share memory".to_owned()
        },
        "JAX documentation, buffer donation",
    ),
    advice(
        |case| case.is(Shortage),
        |case| {
            format!(
                "make room for {}: jax.checkpoint around layers, a smaller batch, or bfloat16; temporaries are what a program needs beside its inputs and results",
                case.missing()
            )
        },
        "JAX documentation, gradient checkpointing",
    ),
    advice(
        |case| {
            case.is(Shortage)
                && !tpu(case)
                && case.environment.first_set(&FRACTIONS).is_none()
                && !off(case)
        },
        |_| {
            "if nothing else runs on the card, export XLA_PYTHON_CLIENT_MEM_FRACTION=.95 instead of .75".to_owned()
        },
        MEMORY,
    ),
    advice(
        |case| case.is(Fragmentation),
        |_| {
            "let the largest shapes come first, and pad to a few: pieces of many sizes are what splits the pool".to_owned()
        },
        "the figures of the message",
    ),
    advice(
        |case| !tpu(case) && case.environment.setting("XLA_PYTHON_CLIENT_ALLOCATOR").is_none(),
        |_| {
            "to see what is needed at least, run once with XLA_PYTHON_CLIENT_ALLOCATOR=platform: nothing is pooled, and it is slow".to_owned()
        },
        MEMORY,
    ),
];

fn tpu(case: &Case<'_>) -> bool {
    case.message.era.contains("TPU")
}

fn off(case: &Case<'_>) -> bool {
    let setting = case.environment.setting("XLA_PYTHON_CLIENT_PREALLOCATE");
    setting.is_some_and(|value| value.eq_ignore_ascii_case("false"))
}

/// Results are a large part of the program.
fn results(case: &Case<'_>) -> bool {
    let size = |name| case.bytes(name).unwrap_or(0);
    size("live_out_bytes") > 0 && size("live_out_bytes").saturating_mul(4) >= size("total_bytes")
}

/// There are no parameters of any size that results could take the place of.
fn donates_nothing(case: &Case<'_>) -> bool {
    let size = |name| case.bytes(name).unwrap_or(0);
    size("parameter_bytes").saturating_mul(20) < size("total_bytes")
}
