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
    println!("                                            peak            cuda   cuMem   cuda");
    println!(
        "strategy                                reserved  overhead  Malloc  Create   Free   time lost"
    );
    for spec in STRATEGIES {
        let mut source = JsonlSource::new(workload.as_bytes(), "workload.jsonl");
        let mut machine = SimMachine::new(device.options.clone());
        let mut strategies = [registry::build(&spec.parse()?)?];
        let mut setup = Setup::new(&mut machine, &mut strategies);
        setup.host_ns = device.host_ns(spec);
        let report = run(&mut source, setup)?;

        let figures = report.total;
        let calls = |name| report.driver_calls.get(name);
        println!(
            "{spec:<40}{:>8}{:>10.2}{:>8}{:>8}{:>7}{:>12}",
            Bytes(figures.reserved.peak),
            figures.overhead().unwrap_or(1.0),
            calls("cudaMalloc"),
            calls("cuMemCreate"),
            calls("cudaFree"),
            report.stall_total,
        );
    }
    Ok(())
}
// ANCHOR_END: program
