//! PyTorch's caching allocator on CUDA, ROCm and XPU.
//!
//! | phrasing | printed by | figures |
//! |---|---|---|
//! | `(GPU 0; … total capacity; … already allocated; … free; … cached)` | 1.0 to 1.3 | `cached` is what is reserved and not allocated |
//! | `… reserved in total by PyTorch)` | 1.4 to 1.9 | |
//! | the same with the hint on `max_split_size_mb` | 1.10 to 2.0 | |
//! | `GPU 0 has a total capacty of … of which … is free.` | 2.1 | `Process N has …`, `this process has …`, `allowed`, reserved but unallocated |
//! | `… a total capacity of …`, with the hint on `expandable_segments` | 2.2 to 2.8 | and private pools |
//! | the same with `PYTORCH_ALLOC_CONF` | since 2.9 | |
//! | `memory allocation failed with OOM on device 0 while trying to allocate N bytes (free: N, total: N)` | newest, in the log before the error | |
//! | `CUDA error: out of memory`, `CUBLAS_STATUS_ALLOC_FAILED` | all: the driver refused outside of the caching allocator | none |
//!
//! `Tried to allocate` is what the driver was asked for, a segment, not the tensor (`alloc_size` in the source): 2 MiB for requests up to 1 MiB, 20 MiB below 10 MiB.
//!
//! | rule | what it says |
//! |---|---|
//! | `own_process` | in a container a process sees its own memory as that of a `Process N` (its number differs outside). So without `this process has`, the one of these whose memory is nearest above what PyTorch reserved is this process, if all of them and the reserved memory together would pass the card |
//!
//! Source: pytorch/pytorch, `c10/cuda/CUDACachingAllocator.cpp`, 1.0 to 2.11; the messages in public issues.

use vramlab_workloads::readers::states::Quantity;

use crate::explain::message::{Figures, Framework, Kind, Message, Value};
use crate::explain::tokens::{
    Like::{Number, Size, Word},
    Token, places, tokens,
};

const OLD: &str = "1.0 to 1.3 (cached)";
const RESERVED: &str = "1.4 to 1.9 (reserved in total)";
const SPLIT_HINT: &str = "1.10 to 2.0 (reserved in total, max_split_size_mb hint)";
const PROCESS: &str = "2.1 (per process, max_split_size_mb hint)";
const EXPANDABLE_HINT: &str = "2.2 to 2.8 (per process, expandable_segments hint)";
const ALLOC_CONF: &str = "2.9 or later (per process, PYTORCH_ALLOC_CONF)";
const PROCESS_CUT: &str = "2.1 or later (per process)";
const CUT: &str = "cut";
const WARNING: &str = "2.10 or later (warning of the allocator)";
const DRIVER: &str = "any (the driver's own error)";

/// Does a message begin with this line, in small letters?
pub(super) fn begins(lower: &str) -> bool {
    let has = |words: &str| lower.contains(words);
    let device = has("cuda") || has("hip out") || has("hip error") || has("xpu");
    has("out of memory") && (device || has("tried to allocate"))
        || has("tried to allocate") && (has("capac") || has("gpu"))
        || has("memory allocation failed with oom on device")
        || has("cublas_status_alloc_failed")
        || has("cudaerrormemoryallocation")
        || has("hiperroroutofmemory")
}

/// Is all there that it may say?
pub(super) fn complete(lower: &str) -> bool {
    let has = |words: &str| lower.contains(words);
    has("reserved by pytorch but unallocated") && (has("alloc_conf") || lower.len() > 900)
        || (has("reserved in total") || has("cached)")) && has(")")
        || has("cuda error: out of memory")
        || has("cublas_status_alloc_failed")
}

/// Reads one message, or several in one text.
pub(super) fn read(text: &str) -> Vec<Message> {
    pieces(text).into_iter().filter_map(one).collect()
}

/// One piece for each failure: a further one begins at its `out of memory`, or where it tries again.
fn pieces(text: &str) -> Vec<&str> {
    let lower = text.to_ascii_lowercase();
    let tries: Vec<usize> = lower.match_indices("tried to allocate").map(|(at, _)| at).collect();
    let begin = |tries: &usize| {
        let words = lower[..*tries].rfind("out of memory").filter(|words| tries - words < 40);
        // with the word before it, which says on what
        words.map_or(*tries, |words| lower[..words].trim_end().rfind(' ').map_or(0, |at| at + 1))
    };
    let mut begins: Vec<usize> = tries.iter().skip(1).map(begin).collect();
    begins.insert(0, 0);
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    begins.iter().zip(ends).map(|(begin, end)| &text[*begin..end]).collect()
}

fn one(text: &str) -> Option<Message> {
    let lower = text.to_ascii_lowercase();
    let has = |words: &str| lower.contains(words);
    let framework =
        if has("hip out of memory") || has("hip error") || has("hiperror") || has("_hip_") {
            Framework::PytorchRocm
        } else if has("xpu out of memory") {
            Framework::PytorchXpu
        } else {
            Framework::Pytorch
        };
    let tokens = tokens(text);
    let figures = figures(&tokens);
    let (era, from, before) = era(&lower, &figures);
    let mut message = Message { versions: (from, before), figures, ..Message::new(framework, era) };
    if message.figures.is_empty() {
        message.kind = Kind::Driver;
        // the beginning of a message that is cut is no error of the driver
        let own_error =
            ["error: out of memory", "alloc_failed", "erroroutofmemory", "errormemoryallocation"];
        let cut = ["cuda", "hip", "xpu"].iter().any(|on| has(&format!("{on} out of memory")))
            || has("tried to allocate");
        if !own_error.iter().any(|words| has(words)) && !cut {
            return None;
        }
        if cut {
            (message.kind, message.era) = (Kind::Refused, CUT);
        }
    }
    Some(message)
}

fn figures(tokens: &[Token<'_>]) -> Figures {
    let mut figures = Figures::default();
    // `(free: N, total: N)`: whole bytes without a unit
    if let Some(at) = places(tokens, &[Word("free"), Number, Word("total"), Number]).next() {
        for (name, token) in [("free_bytes", &tokens[at + 1]), ("capacity_bytes", &tokens[at + 3])]
        {
            if let Token::Number(number) = token
                && let Some(bytes) = number.whole()
            {
                figures.keep(name, Value::bytes(bytes));
            }
        }
    }
    for (name, pattern, figure) in [
        ("tried_bytes", &[Word("tried"), Word("to"), Word("allocate"), Size][..], 3),
        ("tried_bytes", &[Word("trying"), Word("to"), Word("allocate"), Size], 3),
        ("gpu", &[Word("gpu"), Number], 1),
        ("gpu", &[Word("device"), Number], 1),
        ("capacity_bytes", &[Size, Word("total"), Word("capacity")], 0),
        ("capacity_bytes", &[Word("total"), Word("capacity"), Word("of"), Size], 3),
        ("allocated_bytes", &[Size, Word("already"), Word("allocated")], 0),
        ("allocated_bytes", &[Size, Word("is"), Word("allocated"), Word("by")], 0),
        ("free_bytes", &[Size, Word("free")], 0),
        ("free_bytes", &[Size, Word("is"), Word("free")], 0),
        ("cached_bytes", &[Size, Word("cached")], 0),
        ("reserved_bytes", &[Size, Word("reserved"), Word("in")], 0),
        ("reserved_unallocated_bytes", &[Size, Word("is"), Word("reserved"), Word("by")], 0),
        ("process_bytes", &[Word("this"), Word("process"), Word("has"), Size], 3),
        ("allowed_bytes", &[Size, Word("allowed")], 0),
        ("private_pool_bytes", &[Size, Word("allocated"), Word("in"), Word("private")], 0),
    ] {
        figures.read(name, tokens, pattern, figure);
    }
    keep_processes(&mut figures, processes(tokens));
    figures
}

/// Memory of each `Process N has …`.
fn processes(tokens: &[Token<'_>]) -> Vec<Quantity> {
    let pattern = [Word("process"), Number, Word("has"), Size];
    let sizes = places(tokens, &pattern).filter_map(|at| match &tokens[at + 3] {
        Token::Size(size) => Some(*size),
        _ => None,
    });
    sizes.collect()
}

/// Names of the first of several other processes' memory.
const OTHERS: [&str; 4] = ["other_1_bytes", "other_2_bytes", "other_3_bytes", "other_4_bytes"];

/// Tells this process from the others (rule `own_process`).
fn keep_processes(figures: &mut Figures, mut processes: Vec<Quantity>) {
    let size = |name: &str| figures.bytes(name);
    let allocated = size("allocated_bytes").unwrap_or(0);
    let idle = size("reserved_unallocated_bytes").unwrap_or(0);
    let own = size("reserved_bytes").unwrap_or(allocated.saturating_add(idle));
    let sum = |sizes: &[Quantity]| {
        sizes.iter().copied().fold(Quantity::default(), |a, b| Quantity {
            bytes: a.bytes.saturating_add(b.bytes),
            step: a.step.saturating_add(b.step),
        })
    };
    let named = sum(&processes);
    let (capacity, free) = (size("capacity_bytes"), size("free_bytes").unwrap_or(0));
    let too_much = |capacity| {
        named.bytes.saturating_add(own).saturating_add(free) > named.step.saturating_add(capacity)
    };
    if figures.get("process_bytes").is_none() && own > 0 && capacity.is_some_and(too_much) {
        let holds = |size: &&Quantity| size.bytes.saturating_add(size.step) >= own;
        let mine = processes.iter().filter(holds).min_by_key(|size| size.bytes).copied();
        if let Some(mine) = mine {
            figures.keep("process_bytes", Value::Bytes(mine));
            let at = processes.iter().position(|size| *size == mine);
            at.map(|at| processes.remove(at));
        }
    }
    if processes.len() > 1 {
        for (name, size) in OTHERS.iter().zip(&processes) {
            figures.keep(name, Value::Bytes(*size));
        }
    }
    if !processes.is_empty() {
        figures.keep("other_process_bytes", Value::Bytes(sum(&processes)));
    }
}

type Version = Option<(u32, u32)>;

/// The phrasing, and the versions that have it.
fn era(lower: &str, figures: &Figures) -> (&'static str, Version, Version) {
    let has = |words: &str| lower.contains(words);
    if has("with oom on device") {
        (WARNING, Some((2, 10)), None)
    } else if figures.get("cached_bytes").is_some() {
        (OLD, Some((1, 0)), Some((1, 4)))
    } else if figures.get("reserved_bytes").is_some() {
        match has("max_split_size_mb") {
            true => (SPLIT_HINT, Some((1, 10)), Some((2, 1))),
            // a hint may have been cut off
            false => (RESERVED, Some((1, 4)), Some((2, 1))),
        }
    } else if has("has a total capac") || has("allocated by pytorch") || has("this process has") {
        let new_name = has("pytorch_alloc_conf=") || has("pytorch_alloc_conf ");
        if new_name {
            (ALLOC_CONF, Some((2, 9)), None)
        } else if has("expandable_segments") {
            (EXPANDABLE_HINT, Some((2, 2)), None)
        } else if has("max_split_size_mb") {
            (PROCESS, Some((2, 1)), Some((2, 2)))
        } else {
            (PROCESS_CUT, Some((2, 1)), None)
        }
    } else if figures.is_empty() {
        (DRIVER, None, None)
    } else {
        (CUT, None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Message {
        let mut all = read(text);
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    }

    #[test]
    fn the_numbered_process_is_this_one_where_both_would_not_fit() {
        let text = "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Process 77 has 14.50 GiB memory in use. Of the allocated memory 13.00 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated.";
        let message = only(text);
        assert_eq!(message.figures.bytes("process_bytes"), Some(15_569_256_448));
        assert_eq!(message.figures.get("other_process_bytes"), None);
        let beside = text.replace("13.00 GiB is", "0.10 GiB is").replace("1.20 GiB", "0.10 GiB");
        let figures = only(&beside).figures;
        assert_eq!(figures.bytes("other_process_bytes"), Some(15_569_256_448));
        assert_eq!(figures.get("process_bytes"), None);
    }

    #[test]
    fn each_failure_in_one_text_is_a_message() {
        let text = "a: CUDA out of memory. Tried to allocate 1.00 GiB. b: HIP out of memory. Tried to allocate 2.00 GiB.";
        let found: Vec<_> =
            read(text).iter().map(|m| (m.framework, m.figures.bytes("tried_bytes"))).collect();
        assert_eq!(
            found,
            [(Framework::Pytorch, Some(1 << 30)), (Framework::PytorchRocm, Some(2 << 30))]
        );
    }

    #[test]
    fn the_driver_refuses_without_figures() {
        let message = only("RuntimeError: CUDA error: out of memory");
        assert_eq!((message.kind, message.era), (Kind::Driver, DRIVER));
        assert_eq!(read("we never ran out of memory on cuda"), []);
        let warning = only(
            "memory allocation failed with OOM on device 2 while trying to allocate 1024 bytes (free: 7, total: 4096)",
        );
        let figure = |name| warning.figures.bytes(name);
        assert_eq!(
            [figure("tried_bytes"), figure("free_bytes"), figure("capacity_bytes")],
            [Some(1024), Some(7), Some(4096)]
        );
    }
}
