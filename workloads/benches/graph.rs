//! How fast generators yield ops: millions of ops per second of wall time. `-- --test` runs each once; `-- NAME` only those of this name.
//!
//! `all` counts everything from the first op on, with the making of programs; `fastest` is the fastest of many stretches, for a busy machine.

use std::time::Instant;

use vramlab_sim::device::profile::device;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

/// What is run: workload, parameters.
const RUNS: [(&str, &str); 13] = [
    ("bert", "steps=100000"),
    ("bert", "steps=100000,passes=amp+checkpoint"),
    ("varlen", "steps=100000"),
    ("gpt2", "steps=100000"),
    ("gpt2", "phase=inference,steps=1000000"),
    ("llama", "steps=100000,passes=checkpoint"),
    ("resnet", "steps=100000"),
    ("resnet", "steps=100000,passes=zero=3+offload=activations"),
    ("mlp", "steps=1000000"),
    ("ocr", "pages=100000"),
    ("ocr", "pages=100000,fixed_shape=true,streams=2,on_oom=retry"),
    ("churn", "allocs=10000000"),
    ("fragment", "rounds=10000000"),
];
/// Ops of a stretch.
const OPS: u64 = 1_000_000;
/// Stretches of a run.
const STRETCHES: u64 = 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let stretches = if args.iter().any(|arg| arg == "--test") { 1 } else { STRETCHES };
    let wanted = args.iter().find(|arg| !arg.starts_with("--"));
    let rates = Rates::of(&device("a100-80gb").expect("built in"));
    println!("{:>8} {:>8}  M ops/s", "all", "fastest");
    for (name, text) in RUNS.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name)) {
        let mut source = find(name)
            .and_then(|workload| workload.source(text, 0, &rates))
            .unwrap_or_else(|error| panic!("{name} {text}: {error}"));
        let (mut seconds, mut fastest) = (0.0, f64::INFINITY);
        for _ in 0..stretches {
            let begun = Instant::now();
            assert!(stretch(&mut *source) >= OPS, "{name} {text} is over too early");
            let stretch = begun.elapsed().as_secs_f64();
            seconds += stretch;
            fastest = stretch.min(fastest);
        }
        let rate = |stretches: f64, seconds: f64| stretches * OPS as f64 / seconds / 1e6;
        println!(
            "{:>8.1} {:>8.1}  {name} {text}",
            rate(stretches as f64, seconds),
            rate(1.0, fastest)
        );
    }
}

/// Walks one stretch; a number that depends on all its ops, and is as large as their count.
fn stretch(source: &mut dyn Source) -> u64 {
    let (mut ops, mut uses) = (0, 0);
    while ops < OPS {
        match source.next(Nanos(0), Answered::Done) {
            Ok(Step::Op(_)) => {
                ops += 1;
                uses += source.uses().len() as u64;
            }
            Ok(Step::WaitUntil(_)) => {}
            _ => break,
        }
    }
    if ops == OPS { ops + uses } else { 0 }
}
