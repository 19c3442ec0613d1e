//! The same workload through other strategies.

use std::error::Error;

use vramlab_allocators::registry;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Bytes, Setup, SimMachine, run};

// ANCHOR: program
const STRATEGIES: [&str; 4] =
    ["bound.live_floor", "cuda.malloc", "classic.best_fit", "torch.caching"];

/// Prints a row for each strategy.
pub fn main() -> Result<(), Box<dyn Error>> {
    println!("strategy            peak reserved   overhead   cudaMalloc   cudaFree");
    for spec in STRATEGIES {
        let workload = include_str!("workload.jsonl");
        let mut source = JsonlSource::new(workload.as_bytes(), "workload.jsonl");
        let mut machine = SimMachine::of_capacity(Bytes::gib(80).0);
        let mut strategies = [registry::build(&spec.parse()?)?];
        let report = run(&mut source, Setup::new(&mut machine, &mut strategies))?;

        let figures = report.figures();
        println!(
            "{spec:<18}{:>15}{:>11.2}{:>13}{:>11}",
            Bytes(figures.reserved.peak),
            figures.overhead().unwrap_or(1.0),
            report.driver_calls.get("cudaMalloc"),
            report.driver_calls.get("cudaFree"),
        );
    }
    Ok(())
}
// ANCHOR_END: program
