//! What each op of a small workload does to the four counts of memory.

use std::error::Error;

use vramlab_allocators::registry;
use vramlab_sim::engine::{Observer, Seen};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Bytes, Op, Setup, SimMachine, run};

/// Runs the workload with PyTorch's rules and prints a row for each op.
pub fn main() -> Result<(), Box<dyn Error>> {
    let workload = include_str!("workload.jsonl");
    let mut source = JsonlSource::new(workload.as_bytes(), "workload.jsonl");
    let mut machine = SimMachine::of_capacity(Bytes::gib(80).0);
    let mut strategies = [registry::build(&"torch.caching".parse()?)?];

    println!("step                requested  allocated     active   reserved");
    let mut rows = Rows;
    let mut setup = Setup::new(&mut machine, &mut strategies);
    setup.observer = Some(&mut rows);
    run(&mut source, setup)?;
    Ok(())
}

/// Prints a row after each op.
struct Rows;

impl Observer for Rows {
    fn after(&mut self, seen: &Seen<'_>) {
        let op = match *seen.op {
            Op::Alloc { id, size, .. } => {
                format!("alloc {}, {}", seen.source.name(id), Bytes(size))
            }
            Op::Free { id, .. } => format!("free {}", seen.source.name(id)),
            ref other => other.name().to_owned(),
        };
        let step = seen.index + 1;
        let requested = Bytes(seen.requested);
        let allocated = Bytes(seen.usage.allocated);
        let active = Bytes(seen.usage.active);
        let reserved = Bytes(seen.held.reserved);
        println!("{step:>2} {op:<15}{requested:>11}{allocated:>11}{active:>11}{reserved:>11}");
    }
}
