//! The same workload on a device that is too small for it.

use std::error::Error;

use vramlab_allocators::registry;
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Bytes, Op, Setup, SimMachine, run};

// ANCHOR: program
/// Runs the workload on a device of 38 MiB and prints what is refused.
pub fn main() -> Result<(), Box<dyn Error>> {
    let workload = include_str!("workload.jsonl");
    let mut source = JsonlSource::new(workload.as_bytes(), "workload.jsonl");
    let capacity = Bytes::mib(38);
    let mut machine = SimMachine::of_capacity(capacity.0);
    let mut strategies = [registry::build(&"torch.caching".parse()?)?];

    println!("a device of {capacity}");
    let mut refusals = Refusals;
    let mut setup = Setup::new(&mut machine, &mut strategies);
    setup.observer = Some(&mut refusals);
    let report = run(&mut source, setup)?;
    println!("refused: {} of {} requests", report.ooms, report.allocs);
    Ok(())
}

/// Prints each refusal.
struct Refusals;

impl Observer for Refusals {
    fn after(&mut self, seen: &Seen<'_>) {
        if let (Op::Alloc { size, .. }, Outcome::Refused(why)) = (seen.op, seen.outcome) {
            println!("step {} asked for {}", seen.index + 1, Bytes(*size));
            println!("{}", why.to_string().replace("; ", ";\n  "));
        }
    }
}
// ANCHOR_END: program
