//! PyTorch's caching allocator.
//!
//! | option | there since | does nothing |
//! |---|---|---|
//! | `max_split_size_mb` | 1.10 (pull request 44742) | for requests that are no larger than it, at least 20 MiB; with expandable segments or another back-end |
//! | `garbage_collection_threshold` | 1.12 (pull request 74261) | for a request that fails: all whole idle segments were given back already; so it is never advised |
//! | `expandable_segments` | 2.1 (pull request 96995); XPU 2.10 (166292); ROCm 2.12, with ROCm 7.0 (173330, 177974, 179930) | on Windows, with another back-end; memory of other streams and of private pools stays where it is |
//! | `empty_cache()` | 0.1.12 | at a failure: the allocator has done the same and tried again |
//! | `set_per_process_memory_fraction` | 1.8 | |
//!
//! Variables: see [`conf`]. Source: the CUDA notes of PyTorch's documentation, and `c10/cuda/CUDACachingAllocator.cpp`.

use super::{Advice, Case, advice, conf, lists_processes};
use crate::explain::judge::Limit;
use crate::explain::judge::Verdict::{
    Combined, Fragmentation, OtherProcess, OverCapacity, Shortage, Unknown,
};
use crate::explain::message::{Framework, Kind, shown};

/// Requests from here on can be larger than `max_split_size_mb` (B).
const SPLIT_REQUEST_MIN: u64 = 64 << 20;
/// Largest value of it that is proposed (MiB).
const SPLIT_MIB_MAX: u64 = 512;

const NOTES: &str = "PyTorch documentation, CUDA semantics, memory management";
const UNREAD: &str = "pytorch/pytorch#183387; c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h of 2.9.1 and 2.10.0";
const EXPANDABLE: &str =
    "PyTorch documentation, CUDA semantics: expandable_segments; since 2.1 (pytorch/pytorch#96995)";
const SPLIT: &str =
    "PyTorch documentation, CUDA semantics: max_split_size_mb; since 1.10 (pytorch/pytorch#44742)";

pub(super) const ADVICE: &[Advice] = &[
    advice(
        |case| {
            case.bytes("tried_bytes") > case.bytes("capacity_bytes")
                && case.bytes("capacity_bytes").is_some()
        },
        |case| {
            let size = |name| shown(case.bytes(name).unwrap_or(0));
            format!(
                "find the line that asked for {}: the card has {} in all, so a shape, an index or a dtype is wrong, or the whole must be computed in parts",
                size("tried_bytes"),
                size("capacity_bytes")
            )
        },
        "the figures of the message",
    ),
    advice(
        |case| case.finding.limit == Some(Limit::Fraction),
        |case| {
            let (allowed, capacity) = (case.bytes("allowed_bytes"), case.bytes("capacity_bytes"));
            let of = capacity.map(|card| format!(" of {}", shown(card))).unwrap_or_default();
            format!(
                "raise or remove the limit of {}{of}: torch.cuda.set_per_process_memory_fraction(…)",
                shown(allowed.unwrap_or(0))
            )
        },
        "torch.cuda.memory.set_per_process_memory_fraction, since 1.8",
    ),
    advice(
        |case| case.climbs,
        |_| {
            "look for what is kept from step to step: losses summed up without .item(), tensors in lists, graphs kept by retain_graph; keep numbers, or .detach() them".to_owned()
        },
        "PyTorch documentation, FAQ: my model reports out of memory",
    ),
    advice(
        |case| case.is(OtherProcess) || case.message.kind == Kind::Driver,
        |case| {
            let gpu = case.message.figures.count("gpu");
            let which = gpu.map(|gpu| format!(" of GPU {gpu}")).unwrap_or_default();
            let others = match case.derived("others_bytes") {
                0 => "memory".to_owned(),
                bytes => shown(bytes),
            };
            format!(
                "see who holds {others}{which} with {}, and end what is not needed (a crashed run, a notebook, another framework that takes all at its start)",
                lists_processes(case.message.framework)
            )
        },
        "NVIDIA documentation, nvidia-smi; AMD documentation, rocm-smi",
    ),
    advice(
        |case| case.is(OtherProcess) || case.message.kind == Kind::Driver,
        |case| {
            let variable = match case.message.framework {
                Framework::PytorchRocm => "HIP_VISIBLE_DEVICES",
                Framework::PytorchXpu => "ZE_AFFINITY_MASK",
                _ => "CUDA_VISIBLE_DEVICES",
            };
            format!(
                "or run on another card: export {variable}=N, with the number of a card that is free"
            )
        },
        "CUDA programming guide, environment variables",
    ),
    advice(
        |case| case.is(OverCapacity),
        |case| {
            let size = |name| case.bytes(name).unwrap_or(0);
            let reserved = case.bytes("reserved_bytes").unwrap_or(
                size("allocated_bytes").saturating_add(size("reserved_unallocated_bytes")),
            );
            let over = reserved.saturating_sub(size("capacity_bytes"));
            format!(
                "bring the run below the card: at least {} and the request are too much (smaller batch, model in half precision or quantised, parts of it on the host)",
                shown(over)
            )
        },
        "the figures of the message",
    ),
    advice(
        |case| case.is(OverCapacity),
        |_| {
            "to fail at the card's real limit instead of paging slowly, set CUDA - Sysmem Fallback Policy to Prefer No Sysmem Fallback in the driver's control panel (Windows)".to_owned()
        },
        "NVIDIA support article 5490 (driver 536.40 and later)",
    ),
    advice(
        |case| {
            case.is(Unknown)
                && case.bytes("free_bytes").is_some()
                && case.bytes("free_bytes") >= case.bytes("tried_bytes")
        },
        |case| {
            format!(
                "look for a limit that the message does not show: set_per_process_memory_fraction in the code, a MIG slice, a container or job limit; and watch {} while it fails, since the free figure may be from after it",
                lists_processes(case.message.framework)
            )
        },
        "c10/cuda/CUDACachingAllocator.cpp: free memory is read after the failure",
    ),
    advice(
        |case| {
            case.is(Unknown)
                && case.bytes("tried_bytes").is_some()
                && case.finding.derived.get("reserved_unallocated_bytes").is_none()
        },
        |_| {
            "paste the whole message: what PyTorch has reserved and not allocated stands at its end, and decides between fragmentation and shortage".to_owned()
        },
        "the phrasing of the message",
    ),
    advice(
        |case| pieces(case) && conf::unread(case).is_some(),
        |case| {
            format!(
                "{}: this version does not read PYTORCH_ALLOC_CONF for CUDA, so what it says was not in force",
                conf::unread(case).unwrap_or_default()
            )
        },
        UNREAD,
    ),
    advice(
        |case| {
            pieces(case) && expandable_helps(case) && !conf::unread_has(case, "expandable_segments")
        },
        |case| {
            let rocm = case.message.framework == Framework::PytorchRocm;
            let since = match case.has("torch", (2, 1)) {
                _ if rocm => "with ROCm 7.0 or later: ",
                true => "",
                false => "with PyTorch 2.1 or later: ",
            };
            format!(
                "{since}{}: segments grow in place, so idle pieces can serve a larger request",
                conf::export(case, "expandable_segments:True")
            )
        },
        EXPANDABLE,
    ),
    advice(
        |case| pieces(case) && conf::flag(case, "expandable_segments"),
        |_| {
            "expandable segments are on already: what lies idle belongs to other streams or to private pools; use fewer side streams, and share one pool between CUDA graphs".to_owned()
        },
        "c10/cuda/CUDACachingAllocator.cpp: blocks are searched by pool and stream",
    ),
    advice(
        |case| pieces(case) && split_helps(case),
        |case| {
            let instead = if expandable_helps(case) { "or, instead of it, " } else { "" };
            let since =
                if case.has("torch", (1, 10)) { "" } else { "with PyTorch 1.10 or later: " };
            format!(
                "{instead}{since}{}: blocks above that are no longer cut up by small requests",
                conf::export(case, &format!("max_split_size_mb:{}", split_mib(case)))
            )
        },
        SPLIT,
    ),
    advice(
        |case| {
            pieces(case)
                && case.bytes("private_pool_bytes").is_some_and(|private| {
                    private.saturating_mul(4) >= case.bytes("allocated_bytes").unwrap_or(u64::MAX)
                })
        },
        |case| {
            format!(
                "{} are in private pools of CUDA graphs, which nobody else can use: capture fewer sizes, or give all graphs one pool",
                shown(case.bytes("private_pool_bytes").unwrap_or(0))
            )
        },
        "PyTorch documentation, CUDA semantics: CUDA graphs, private pools",
    ),
    advice(
        |case| case.is(Fragmentation) && !expandable_helps(case),
        |_| {
            "let the largest shapes come first (longest batch, biggest image), or pad to a few sizes: the pieces that are cut then are large enough for all that follows".to_owned()
        },
        "PyTorch performance tuning guide: preallocate memory for variable input length",
    ),
    advice(
        |case| serves(case) && case.any(&[Shortage, Combined, Fragmentation]),
        |case| {
            let now = case.environment.setting("gpu_memory_utilization");
            let now = now.map(|share| format!(" (now {share})")).unwrap_or_default();
            format!(
                "in vLLM, lower --gpu-memory-utilization{now}, or --max-num-seqs and --max-num-batched-tokens: the cache of keys and values is made to fill that share, and what runs beside it needs room"
            )
        },
        "vLLM documentation, conserving memory",
    ),
    advice(
        |case| {
            case.any(&[Shortage, Combined])
                || case.is(OtherProcess) && case.derived("shortfall_bytes") > 0
        },
        |case| {
            format!(
                "make room for {}: a smaller batch with gradient accumulation, activation checkpointing, or half precision",
                case.missing()
            )
        },
        "PyTorch documentation, torch.utils.checkpoint, torch.amp",
    ),
    advice(
        |case| case.message.kind == Kind::State && case.derived("releasable_bytes") > 0,
        |case| {
            format!(
                "torch.cuda.empty_cache() gives back {}: it helps other processes and libraries, not this allocator's own requests",
                shown(case.derived("releasable_bytes"))
            )
        },
        NOTES,
    ),
    advice(
        |case| {
            case.message.framework == Framework::Pytorch
                && case.may_have("torch", (2, 1))
                && !case.any(&[OtherProcess, OverCapacity])
        },
        |case| {
            let since = if case.has("torch", (2, 1)) { "" } else { "(PyTorch 2.1 or later) " };
            format!(
                "{since}record what happens: torch.cuda.memory._record_memory_history(), at the failure torch.cuda.memory._dump_snapshot(\"s.pickle\"), then vramlab advise s.pickle"
            )
        },
        "PyTorch documentation, Understanding CUDA memory usage",
    ),
    advice(
        |case| {
            case.message.framework.is_torch()
                && !case.may_have("torch", (2, 1))
                && !case.is(OtherProcess)
        },
        |_| {
            "update to PyTorch 2.1 or later: it has expandable segments, and records of what holds memory that vramlab can replay".to_owned()
        },
        EXPANDABLE,
    ),
    advice(
        |case| case.message.kind != Kind::State && case.may_have("torch", (1, 4)),
        |_| {
            "print torch.cuda.memory_summary() just before the failing step, and give it to vramlab explain".to_owned()
        },
        "PyTorch documentation, torch.cuda.memory.memory_summary; since 1.4",
    ),
];

/// Is it vLLM's server that failed?
fn serves(case: &Case<'_>) -> bool {
    let environment = case.environment;
    environment.version("vllm").is_some() || environment.setting("gpu_memory_utilization").is_some()
}

/// Is idle memory in pieces what is in the way?
fn pieces(case: &Case<'_>) -> bool {
    let lies_idle =
        case.derived("reserved_unallocated_bytes") >= case.bytes("tried_bytes").unwrap_or(u64::MAX);
    case.any(&[Fragmentation, Combined]) || case.is(Unknown) && lies_idle
}

/// Do settings of the native back-end reach these requests?
fn native(case: &Case<'_>) -> bool {
    let other = conf::option(case, "backend").is_some_and(|name| name != "native");
    let off = case.environment.setting("PYTORCH_NO_CUDA_MEMORY_CACHING").is_some_and(|v| v != "0");
    !other && !off
}

fn expandable_helps(case: &Case<'_>) -> bool {
    let supported = match case.message.framework {
        Framework::Pytorch => case.may_have("torch", (2, 1)),
        Framework::PytorchRocm => case.has("torch", (2, 12)),
        Framework::PytorchXpu => case.has("torch", (2, 10)),
        _ => false,
    };
    let environment = case.environment;
    let on = conf::flag(case, "expandable_segments");
    supported && !on && !environment.windows && !environment.no_expandable && native(case)
}

fn split_helps(case: &Case<'_>) -> bool {
    let large = case.bytes("tried_bytes").is_none_or(|tried| tried >= SPLIT_REQUEST_MIN);
    large
        && matches!(case.message.framework, Framework::Pytorch | Framework::PytorchRocm)
        && case.may_have("torch", (1, 10))
        && (case.has("torch", (1, 10)) || case.message.versions.0.is_none())
        && conf::option(case, "max_split_size_mb").is_none()
        && !conf::flag(case, "expandable_segments")
        && native(case)
}

/// A power of two below half of the request (MiB).
fn split_mib(case: &Case<'_>) -> u64 {
    let tried = case.bytes("tried_bytes").unwrap_or(SPLIT_MIB_MAX << 21);
    let half = (tried >> 21).clamp(32, SPLIT_MIB_MAX);
    1 << half.ilog2()
}
