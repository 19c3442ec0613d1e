//! How fast graphs yield ops: ops per second of wall time, the fastest of many stretches; `-- --test` runs each once.

use std::time::Instant;

use vramlab_sim::device::profile::device;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

/// What is run: workload, parameters, ops of a stretch.
const RUNS: [(&str, &str, u64); 6] = [
    ("bert", "steps=100000", 1_000_000),
    ("bert", "steps=100000,passes=amp+checkpoint", 1_000_000),
    ("varlen", "steps=100000", 1_000_000),
    ("resnet", "steps=100000", 1_000_000),
    ("resnet", "steps=100000,passes=zero=3+offload=activations", 1_000_000),
    ("ocr", "pages=100000", 1_000_000),
];

fn main() {
    let once = std::env::args().any(|argument| argument == "--test");
    let rates = Rates::of(&device("a100-80gb").expect("built in"));
    for (name, text, ops) in RUNS {
        let workload = find(name).expect("a workload");
        let begun = Instant::now();
        let mut source = workload.source(text, 0, &rates).expect("good parameters");
        let built = begun.elapsed();
        let stretches = if once { 1 } else { 20 };
        let mut fastest = f64::INFINITY;
        for _ in 0..stretches {
            let begun = Instant::now();
            let sum = stretch(&mut *source, ops);
            fastest = fastest.min(begun.elapsed().as_secs_f64() / ops as f64);
            assert!(sum > 0);
        }
        println!("{name} {text}: {:.1} M ops/s, built in {built:.1?}", 1e-6 / fastest);
    }
}

/// Walks so many ops; a number that depends on all of them.
fn stretch(source: &mut dyn Source, ops: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..ops {
        match source.next(Nanos(0), Answered::Done) {
            Ok(Step::Op(_)) => sum += source.uses().len() as u64 + 1,
            Ok(Step::WaitUntil(_)) => {}
            _ => return sum,
        }
    }
    sum
}
