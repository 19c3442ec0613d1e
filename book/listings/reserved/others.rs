//! The same workload a hundred times over, through other strategies.

use std::error::Error;

use vramlab_allocators::registry;
use vramlab_sim::device::profile;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Bytes, Setup, SimMachine, run};

// ANCHOR: program
const STRATEGIES: [&str; 4] =
    ["cuda.malloc", "classic.best_fit", "torch.caching", "torch.caching:expandable_segments=true"];

/// Prints a row for each strategy.
pub fn main() -> Result<(), Box<dyn Error>> {
    let device = profile::device("a100-80gb")?;
    let all_but_empty_cache = include_str!("workload.jsonl").split_inclusive('\n').take(13);
    let workload = all_but_empty_cache.collect::<String>().repeat(100);

    println!("costs: {}", device.cost_table_name());
    println!(
        "strategy                                peak reserved  overhead  cudaMalloc  cudaFree   time lost"
    );
    for spec in STRATEGIES {
        let mut source = JsonlSource::new(workload.as_bytes(), "workload.jsonl");
        let mut machine = SimMachine::new(device.options.clone());
        let mut strategies = [registry::build(&spec.parse()?)?];
        let mut setup = Setup::new(&mut machine, &mut strategies);
        setup.host_ns = device.host_ns(spec);
        let report = run(&mut source, setup)?;

        let figures = report.figures();
        println!(
            "{spec:<40}{:>13}{:>10.2}{:>12}{:>10}{:>12}",
            Bytes(figures.reserved.peak),
            figures.overhead().unwrap_or(1.0),
            report.driver_calls.get("cudaMalloc"),
            report.driver_calls.get("cudaFree"),
            report.stall_total,
        );
    }
    Ok(())
}
// ANCHOR_END: program
