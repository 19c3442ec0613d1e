//! The tiered strategies under programs that announce their work: all uses are resident when work is queued, contents follow, nothing is lost,
//! and every access is ordered. Audits stand around the strategy, which moves buffers, and around the one that owns device addresses.
//!
//! `PROPTEST_CASES=10000 cargo test -p vramlab-allocators --test tiered` tries more.

mod programs;
mod tiered_model;

use std::cell::Cell;

use programs::programs;
use tiered_model::program::Op::{self, Alloc, EmptyCache, Free, Sync};
use tiered_model::program::{future, program, steps};
use tiered_model::run::Run;
use vramlab_sim::allocator::{AllocError, Allocator};
use vramlab_sim::driver::DriverError;
use vramlab_sim::machine::Machine;

/// Specs that the programs are run with; `inner` is put under audit.
const SPECS: &[&str] = &[
    "tiered.lru",
    "tiered.lru:inner=classic.best_fit,min_bytes=0",
    "tiered.lru:inner=cuda.malloc",
    "tiered.lru:inner='torch.caching:expandable_segments=true'",
    "tiered.lru:device_bytes=32MiB",
    "tiered.lru:host_bytes=0",
    "tiered.lru:host_bytes=40MiB,host_chunk=4MiB",
    "tiered.lru:compress=3:20",
    "tiered.lru:host_bytes=24MiB,host_chunk=1MiB,persistent=write_back",
    "tiered.lru:host_bytes=24MiB,persistent=write_back,compress=2:50",
    "tiered.lru:persistent=write_through",
    "tiered.lru:persistent=write_through,restart_at=40",
    "tiered.lru:host_bytes=24MiB,persistent=write_back,restart_at=40",
    "tiered.lru:restart_at=25",
    "tiered.next_use",
    "tiered.next_use:inner=classic.best_fit,prefetch_lead=4",
    "tiered.next_use:prefetch_lead=0,min_bytes=0",
    "tiered.next_use:host_bytes=30MiB,persistent=write_back,restart_at=60",
    "tiered.predicted:inner=classic.tlsf",
    "tiered.predicted:predictor=stride,persistent=write_through",
    "tiered.predicted:predictor=lstm",
    "tiered.adaptive:window=16,inner=classic.best_fit",
];

/// Sums over all programs of a spec.
#[derive(Default)]
struct Sums {
    programs: Cell<u64>,
    ops: Cell<u64>,
    bytes: Cell<u64>,
    prefetches: Cell<u64>,
    out_of_memory: Cell<u64>,
}

fn run(spec: &str, program: &[Op], sums: &Sums) -> Result<(), String> {
    let mut run = Run::new(spec, &future(program));
    for (i, op) in program.iter().enumerate() {
        run.op(op).map_err(|error| format!("op {i}, {op:?}: {error}"))?;
        run.check_books().map_err(|error| format!("after op {i}, {op:?}: {error}"))?;
    }
    let names = ["bytes_to_host", "bytes_to_device", "bytes_to_file", "bytes_from_file"];
    let counted = names.map(|name| run.counter(name));
    if counted != run.model.copied {
        return Err(format!("{names:?}: counted {counted:?}, copied {:?}", run.model.copied));
    }
    let lost = run.counter("restart_lost_bytes");
    if !(run.lost..=run.lost + run.lost_maybe).contains(&lost) {
        return Err(format!("counted {lost} bytes lost, the model lost {}", run.lost));
    }
    let met = ["prefetch_hits", "prefetch_late", "prefetch_wasted"].map(|name| run.counter(name));
    let prefetches = run.counter("prefetches");
    if met.iter().sum::<u64>() > prefetches {
        return Err(format!("{prefetches} prefetches, of them hit, late, wasted: {met:?}"));
    }
    let add = |sum: &Cell<u64>, more| sum.set(sum.get() + more);
    add(&sums.programs, 1);
    add(&sums.ops, program.len() as u64);
    add(&sums.bytes, counted.iter().sum());
    add(&sums.prefetches, prefetches);
    add(&sums.out_of_memory, run.out_of_memory);
    finish(&mut run)
}

/// Everything is freed, and nothing is left.
fn finish(run: &mut Run) -> Result<(), String> {
    let ends = std::iter::repeat_n(Free(0), run.live.len());
    for op in ends.chain([Sync, Alloc(512, 0, false), Free(0), EmptyCache]) {
        run.op(&op).map_err(|error| format!("at the end, {op:?}: {error}"))?;
    }
    let (usage, host) = (run.strategy.usage(), run.model.machine.held().host);
    if usage.active != 0 || host != 0 || run.counter("resident") != 0 {
        return Err(format!("all is freed, but {usage:?}, and {host} bytes of host memory"));
    }
    Ok(())
}

fn try_random_programs(spec: &str) {
    let sums = Sums::default();
    programs(spec, 40, &program(), |program| run(spec, program, &sums));
    let Sums { programs, ops, bytes, prefetches, out_of_memory } = &sums;
    println!(
        "tiered: {spec}: {} programs, {} ops, {} MiB copied, {} prefetches, {} works out of memory",
        programs.get(),
        ops.get(),
        bytes.get() >> 20,
        prefetches.get(),
        out_of_memory.get()
    );
}

#[test]
fn random_works_find_their_buffers_and_what_was_written_last() {
    SPECS.iter().for_each(|spec| try_random_programs(spec));
}

#[test]
fn what_comes_again_is_foreseen() {
    for (spec, least) in [
        ("tiered.next_use:min_bytes=0,prefetch_lead=2", 100),
        ("tiered.predicted:prefetch_lead=2", 100),
        ("tiered.predicted:predictor=stride,prefetch_lead=2", 100),
        ("tiered.adaptive:window=16,prefetch_lead=2", 100),
        ("tiered.predicted:predictor=lstm,prefetch_lead=2", 1),
    ] {
        let sums = Sums::default();
        run(spec, &steps(60), &sums).unwrap_or_else(|error| panic!("{spec}: {error}"));
        let Sums { bytes, prefetches, .. } = &sums;
        println!("tiered: {spec}: {} MiB, {} prefetches", bytes.get() >> 20, prefetches.get());
        assert!(prefetches.get() >= least, "{spec}: {} prefetches", prefetches.get());
    }
}

/// The same program, whose `at`-th driver call is refused: out of memory is an answer, any other error ends the run. Was there such a call?
fn refused(spec: &str, program: &[Op], at: u64, room: bool) -> Result<bool, String> {
    let mut run = Run::new(spec, &future(program));
    run.model.refuse = Some((at, room));
    for (i, op) in program.iter().enumerate() {
        match run.op(op) {
            Ok(()) if run.model.refused && !room => {
                return Err(format!("op {i}, {op:?}: the failed call is not answered"));
            }
            Ok(()) => {}
            Err(AllocError::Driver(DriverError::Failed { what, .. })) if *what == *"on cue" => {
                return Ok(true);
            }
            Err(error) => return Err(format!("op {i}, {op:?}: {error}")),
        }
        if run.model.refused {
            run.check_books().map_err(|error| format!("after op {i}, {op:?}: {error}"))?;
        }
    }
    if room {
        finish(&mut run)?;
    }
    Ok(run.model.refused)
}

#[test]
fn every_driver_call_may_be_refused_while_buffers_move() {
    let program = steps(2);
    for spec in [
        "tiered.lru:min_bytes=0",
        "tiered.next_use:host_bytes=20MiB,persistent=write_back,inner=classic.best_fit",
        "tiered.lru:persistent=write_through,restart_at=20,compress=2:30",
    ] {
        for room in [true, false] {
            let mut calls = 0;
            while refused(spec, &program, calls, room).unwrap_or_else(|error| {
                panic!("{spec}: call {calls} refused (room {room}): {error}")
            }) {
                calls += 1;
            }
            assert!(calls > 0, "{spec}: no call was refused (room {room})");
            println!("{spec}: {calls} calls refused in turn (room {room})");
        }
    }
}
