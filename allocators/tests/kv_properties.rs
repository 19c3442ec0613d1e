//! Random programs of sequences with shared beginnings, run by every cache beside a model of its memory. A failure is printed as the shortest
//! program found, ready to paste into [`the_shortest_programs_that_once_failed`].
//!
//! Seeds are fixed. `PROPTEST_CASES=10000 cargo test -p vramlab-allocators --test kv_properties` tries more.
#![forbid(unsafe_code)]

mod kv_model;
mod programs;

use std::cell::Cell;

use kv_model::Subject;
use programs::programs;
use proptest::prelude::*;
use vramlab_sim::allocator::Notice;
use vramlab_sim::kv::{KeyRun, NewSequence};

const CAPACITY: u64 = 64 << 20;

/// Small caches, so that there is not always room.
const SPECS: &[&str] = &[
    "serving.paged:block_size=4,num_gpu_blocks_override=40",
    "serving.paged:block_size=1,num_gpu_blocks_override=100,watermark=0.1",
    "serving.paged:block_size=16,num_gpu_blocks_override=12,max_model_len=150",
    "serving.paged:enable_prefix_caching=false,block_size=3,num_gpu_blocks_override=50",
    "serving.paged:arena=classic.tlsf,token_bytes=1048576",
    "serving.radix:max_total_tokens=120",
    "serving.radix:page_size=4,max_total_tokens=163",
    "serving.radix:page_size=16,context_length=100,token_bytes=65536,mem_fraction_static=0.5",
    "serving.elastic_pages:num_layers=1,num_kv_buffers=1,block_size=4,token_bytes=131072,max_cached_tokens=40",
    "serving.elastic_pages:num_layers=2,num_kv_buffers=1,block_size=3,token_bytes=262144,max_cached_tokens=-1,min_reserved_pages=1,max_reserved_pages=0",
    "serving.elastic_pages:num_layers=1,block_size=1,token_bytes=65536,max_cached_tokens=0,num_blocks=200,page_prealloc_enabled=false",
    "serving.vattention:num_layers=1,token_bytes=524288,max_batch_size=6,max_context_length=120",
    "serving.vattention:num_layers=2,token_bytes=1048576,max_batch_size=9,max_context_length=40,megacache=true,deferred_reclaim=false",
    "serving.contiguous_max:max_model_len=100,token_bytes=65536",
    "serving.contiguous_pow2:token_bytes=65536",
    "serving.contiguous_pow2:token_bytes=1000,arena=classic.buddy",
    "torch.caching",
];

/// One op of a program. A sequence is named by its number among the live ones (modulo how many there are).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// Tokens of a shared text, tokens of its own, tokens that no key tells, chunk, headroom, watermark.
    New(u64, u64, u64, u64, Option<u64>, Option<u64>, bool),
    /// Prompt tokens that wait, at most so many.
    Prefill(usize, usize),
    /// New tokens of its own.
    Decode(usize, u64),
    Fork(usize),
    End(usize),
    Reset,
    Mark,
}
use Op::{Decode, End, Fork, Mark, New, Prefill, Reset};

fn op() -> impl Strategy<Value = Op> {
    let at = || any::<usize>().prop_map(|at| at % 100);
    let some = |most: u64| prop_oneof![2 => Just(None), 1 => (0..most).prop_map(Some)];
    let new = (0_u64..3, 0_u64..60, 0_u64..20, 0_u64..4, some(30), some(40), any::<bool>());
    prop_oneof![
        20 => new.prop_map(|(text, shared, own, unknown, chunk, headroom, watermark)| {
            New(text, shared, own, if unknown == 3 { 5 } else { 0 }, chunk, headroom, watermark)
        }),
        8 => (at(), 0_usize..40).prop_map(|(at, most)| Prefill(at, most)),
        25 => (at(), 0_u64..10).prop_map(|(at, count)| Decode(at, count)),
        3 => at().prop_map(Fork),
        15 => at().prop_map(End),
        1 => Just(Reset),
        2 => Just(Mark),
    ]
}

fn step(subject: &mut Subject, op: Op) -> Result<(), String> {
    let count = subject.live.len();
    match op {
        New(text, shared, own, unknown, chunk, headroom, watermark) => {
            let mine = subject.new_text();
            let keys = [
                KeyRun { stream: text, first: 0, count: shared },
                KeyRun { stream: mine, first: 0, count: own },
            ];
            let tokens = shared + own + unknown;
            let new = NewSequence {
                tokens,
                keys: &keys,
                chunk,
                headroom,
                watermark,
                ..Default::default()
            };
            subject.begin(&new)?;
        }
        Reset => {
            let reset = Notice::Set { key: "reset_prefix_cache", value: "true" };
            subject.call(|cache, below| cache.notice(below, reset)).map_err(|e| e.to_string())?;
        }
        Mark => {
            let mark = Notice::Mark { name: "step" };
            subject.call(|cache, below| cache.notice(below, mark)).map_err(|e| e.to_string())?;
        }
        _ if count == 0 => {}
        Prefill(at, most) => {
            let at = at % count;
            let waiting = subject.live[at].waiting.clone();
            let (now, rest) = waiting.split_at(most.min(waiting.len()));
            if subject.more(at, now)? {
                subject.live[at].waiting = rest.to_vec();
            }
        }
        Decode(at, tokens) => {
            let (at, first) = (at % count, subject.live[at % count].tokens());
            let stream = subject.new_text();
            subject.more(at, &kv_model::each(&[KeyRun { stream, first, count: tokens }]))?;
        }
        Fork(at) => drop(subject.fork(at % count)?),
        End(at) => subject.end(at % count)?,
    }
    subject.check()
}

/// Runs a program; then all sequences end, and nothing may be in use.
fn run(spec: &str, program: &[Op]) -> Result<(), String> {
    let mut subject = Subject::new(spec, CAPACITY);
    for (i, op) in program.iter().enumerate() {
        step(&mut subject, *op).map_err(|error| format!("op {i}, {op:?}: {error}"))?;
    }
    while !subject.live.is_empty() {
        step(&mut subject, End(0)).map_err(|error| format!("at the end: {error}"))?;
    }
    let usage = subject.usage();
    if (usage.used, usage.tokens, usage.filled, usage.allocated) != (0, 0, 0, 0) {
        return Err(format!("all sequences ended, but {usage:?}"));
    }
    Ok(())
}

/// Gives the number of programs and of ops.
fn try_random_programs(spec: &str) -> (u64, u64) {
    let tried = Cell::new((0, 0));
    programs(spec, 150, &prop::collection::vec(op(), 1..150), |program| {
        let (programs, ops) = tried.get();
        tried.set((programs + 1, ops + program.len() as u64));
        run(spec, program)
    });
    tried.get()
}

#[test]
fn random_programs_keep_every_promise() {
    let (mut programs, mut ops) = (0, 0);
    for spec in SPECS {
        let tried = try_random_programs(spec);
        (programs, ops) = (programs + tried.0, ops + tried.1);
    }
    println!("kv_properties: {programs} programs, {ops} ops");
}

#[test]
fn every_cache_is_among_them() {
    kv_model::for_every_cache(|strategy| {
        let of_it = |spec: &&&str| spec.split(':').next() == Some(strategy.name);
        assert!(SPECS.iter().any(|spec| of_it(&spec)), "{}", strategy.name);
    });
}

/// Paste here what a failure printed, with a word on what was wrong.
#[test]
fn the_shortest_programs_that_once_failed() -> Result<(), String> {
    run(
        "serving.paged:block_size=4,num_gpu_blocks_override=40",
        &[New(0, 1, 0, 0, None, None, false), Fork(0), Decode(0, 1)],
    )
}
