//! vLLM.
//!
//! `--kv-cache-dtype` is there since 0.3, with `fp8_e5m2` alone (vllm-project/vllm#2279); `fp8` since 0.4.
//!
//! Source: vLLM documentation, engine arguments and conserving memory; `vllm/v1/core/kv_cache_utils.py`, which says what would fit.

use super::{Advice, Case, advice};
use crate::explain::message::{Kind, shown};

const ARGUMENTS: &str = "vLLM documentation, engine arguments";
const CONSERVE: &str = "vLLM documentation, conserving memory";
/// Above this share contexts and libraries have no room.
const SHARE_MAX: f64 = 0.95;

pub(super) const ADVICE: &[Advice] = &[
    advice(
        |case| case.message.kind == Kind::NotFree,
        |_| {
            "see with nvidia-smi who holds the card, and end what is not needed (an earlier server that did not end is common)".to_owned()
        },
        "the message's own hint",
    ),
    advice(
        |case| case.message.kind == Kind::NotFree && fitting_share(case).is_some(),
        |case| {
            format!(
                "or take less: --gpu-memory-utilization {:.2} is what is free now",
                fitting_share(case).unwrap_or(0.0)
            )
        },
        ARGUMENTS,
    ),
    advice(
        |case| case.message.kind == Kind::CacheTooSmall && length(case).is_some(),
        |case| {
            format!(
                "--max-model-len {}: the longest that the cache holds now",
                length(case).unwrap_or(0)
            )
        },
        "the figures of the message",
    ),
    advice(
        |case| {
            matches!(case.message.kind, Kind::CacheTooSmall | Kind::NoCache | Kind::Preempted)
                && share(case) < SHARE_MAX
        },
        |case| {
            let now = share(case);
            let more = case.bytes("total_bytes").map(|total| {
                format!(", {} more for the cache", shown((total as f64 * (SHARE_MAX - now)) as u64))
            });
            format!(
                "--gpu-memory-utilization {SHARE_MAX:.2} instead of {now:.2}{}, if nothing else runs on the card",
                more.unwrap_or_default()
            )
        },
        ARGUMENTS,
    ),
    advice(
        |case| matches!(case.message.kind, Kind::NoCache | Kind::Preempted),
        |_| {
            "less beside the cache: --max-num-batched-tokens and --max-num-seqs lower the peak of activations, --enforce-eager leaves out CUDA graphs".to_owned()
        },
        CONSERVE,
    ),
    advice(
        |case| {
            matches!(case.message.kind, Kind::CacheTooSmall | Kind::Preempted)
                && may_shrink_tokens(case)
        },
        |case| {
            let since = if case.has("vllm", (0, 4)) { "" } else { "(0.4 or later) " };
            format!(
                "{since}--kv-cache-dtype fp8 halves what a token needs, on cards and with back-ends that have it"
            )
        },
        "vLLM documentation, quantized KV cache",
    ),
    advice(
        |case| matches!(case.message.kind, Kind::CacheTooSmall | Kind::NoCache | Kind::Preempted),
        |_| {
            "more cards (--tensor-parallel-size), or a quantised model: the weights then leave more for the cache".to_owned()
        },
        CONSERVE,
    ),
    advice(
        |case| case.message.kind == Kind::State,
        |_| "nothing failed in this text; give the lines around the error too".to_owned(),
        "the text",
    ),
];

/// Keys and values are not in eight bits yet, and this version can keep them so.
fn may_shrink_tokens(case: &Case<'_>) -> bool {
    let dtype = case.environment.setting("kv_cache_dtype");
    dtype.is_none_or(|dtype| !dtype.starts_with("fp8")) && case.may_have("vllm", (0, 4))
}

/// The share in force: as the text has it, or as it is set; 0.9 by default.
fn share(case: &Case<'_>) -> f64 {
    let set = || case.environment.setting("gpu_memory_utilization")?.parse().ok();
    case.message.figures.ratio("utilization").or_else(set).unwrap_or(0.9)
}

/// The share of the card that is free, in hundredths.
fn fitting_share(case: &Case<'_>) -> Option<f64> {
    let total = case.bytes("total_bytes").filter(|total| *total > 0)?;
    let hundredths = u128::from(case.bytes("free_bytes")?) * 100 / u128::from(total);
    (hundredths > 0).then_some(hundredths as f64 / 100.0)
}

/// Tokens of the longest request that fits.
fn length(case: &Case<'_>) -> Option<u64> {
    let figures = &case.message.figures;
    let stated = figures.count("kv_tokens").or(figures.count("estimated_max_len"));
    stated.or(case.finding.derived.count("fitting_tokens")).filter(|tokens| *tokens > 0)
}
