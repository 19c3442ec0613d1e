//! RMM, CuPy and ONNX Runtime.
//!
//! Source: RMM's README and documentation of memory resources; rapidsai/rmm#1957 (a pool that grows cannot become its maximum), NVIDIA/cudf#17789; CuPy's
//! documentation of its memory pool, cupy/cupy#7678; ONNX Runtime's documentation of the CUDA execution provider.

use super::{Advice, advice};
use crate::explain::judge::Limit;
use crate::explain::message::{Kind, shown};

const RMM_DOCS: &str = "RMM documentation, memory resources";
const CUPY_DOCS: &str = "CuPy documentation, memory management";
const ORT_DOCS: &str = "ONNX Runtime documentation, CUDA execution provider";

pub(super) const RMM: &[Advice] = &[
    advice(
        |case| case.finding.limit == Some(Limit::Pool),
        |_| {
            "raise maximum_pool_size, and begin with the whole of it (initial_pool_size equal): a pool that grows takes separate pieces, and no buffer can span two".to_owned()
        },
        "rapidsai/rmm#1957, #1664",
    ),
    advice(
        |case| case.message.kind == Kind::Driver,
        |_| {
            "see with nvidia-smi what the card has left: a pool that grows by doubling asks for more than the request; give it a maximum_pool_size below the card".to_owned()
        },
        "rapidsai/rmm#496",
    ),
    advice(
        |_| true,
        |_| {
            "let the driver pool instead: rmm.mr.CudaAsyncMemoryResource() gives pieces back and puts free ones together".to_owned()
        },
        RMM_DOCS,
    ),
    advice(
        |_| true,
        |_| {
            "log what is asked for (rmm.enable_logging(\"rmm.csv\")) and give it to vramlab replay: it says which pool would have served it".to_owned()
        },
        RMM_DOCS,
    ),
];

pub(super) const CUPY: &[Advice] = &[
    advice(
        |case| case.finding.limit == Some(Limit::Pool),
        |case| {
            format!(
                "the limit is {}: raise it by {} (CUPY_GPU_MEMORY_LIMIT, or set_limit), or take it away with set_limit(size=0)",
                shown(case.bytes("limit_bytes").unwrap_or(0)),
                case.missing()
            )
        },
        CUPY_DOCS,
    ),
    advice(
        |case| case.finding.limit == Some(Limit::Pool),
        |_| {
            "cupy.get_default_memory_pool().free_all_blocks() before the request: idle blocks count against the limit".to_owned()
        },
        "cupy/cupy#7678",
    ),
    advice(
        |case| case.finding.limit.is_none(),
        |_| {
            "see with nvidia-smi what others hold of the card, and delete arrays that are not needed before the request; the pool gives idle blocks back by itself when it fails".to_owned()
        },
        "cupy/cuda/memory.pyx: free_all_blocks before the last try",
    ),
    advice(
        |_| true,
        |_| {
            "compute in parts, in float32 or smaller; or page to host memory with cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)".to_owned()
        },
        CUPY_DOCS,
    ),
];

pub(super) const ONNX_RUNTIME: &[Advice] = &[
    advice(
        |case| case.finding.limit == Some(Limit::Pool),
        |case| {
            format!(
                "raise gpu_mem_limit by {} or more (of the arena only: weights of other providers and workspaces are not in it)",
                case.missing()
            )
        },
        ORT_DOCS,
    ),
    advice(
        |case| {
            case.bytes("tried_bytes")
                .is_some_and(|bytes| bytes > crate::explain::judge::CARD_BYTES_MAX)
        },
        |_| {
            "look at the shapes that the node gets: a size of that kind comes from a wrong or overflown dimension".to_owned()
        },
        "the figures of the message",
    ),
    advice(
        |_| true,
        |_| {
            "arena_extend_strategy=kSameAsRequested: the arena then grows by what is asked for, not by powers of two".to_owned()
        },
        ORT_DOCS,
    ),
    advice(
        |_| true,
        |_| {
            "cudnn_conv_algo_search=HEURISTIC (or DEFAULT) and cudnn_conv_use_max_workspace=0: less workspace for convolutions".to_owned()
        },
        ORT_DOCS,
    ),
    advice(
        |_| true,
        |_| "a smaller batch, or fixed shapes: each new shape keeps pieces of the arena".to_owned(),
        ORT_DOCS,
    ),
];
