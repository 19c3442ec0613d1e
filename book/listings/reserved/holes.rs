//! Where the blocks lie after the first six ops.

use std::error::Error;

use vramlab_allocators::registry;
use vramlab_sim::allocator::{BlockState, Notice, Reply};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Bytes, Setup, SimMachine, run};

/// Runs the first six ops, then draws every segment, one character for half a MiB.
pub fn main() -> Result<(), Box<dyn Error>> {
    let workload: String = include_str!("workload.jsonl").split_inclusive('\n').take(6).collect();
    let mut source = JsonlSource::new(workload.as_bytes(), "the first six ops");
    let mut machine = SimMachine::of_capacity(Bytes::gib(80).0);
    let mut strategies = [registry::build(&"torch.caching".parse()?)?];
    run(&mut source, Setup::new(&mut machine, &mut strategies))?;

    let Reply::Layout(layout) = strategies[0].notice(&mut machine, Notice::Walk)? else {
        return Err("this strategy does not say what is where".into());
    };
    for segment in layout.segments {
        println!("segment of {} ({} pool)", Bytes(segment.size), segment.pool);
        let mut bar = String::new();
        for block in &segment.blocks {
            let (mark, state) = match block.state {
                BlockState::Free => (".", "free"),
                BlockState::Allocated | BlockState::Pending => ("#", "in use"),
            };
            bar += &mark.repeat((block.size >> 19) as usize);
            println!("    {:>7} {state}", Bytes(block.size));
        }
        println!("    |{bar}|\n");
    }
    Ok(())
}
