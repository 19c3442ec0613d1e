//! Where the blocks lie after the first six steps.

use std::error::Error;

use vramlab_allocators::registry;
use vramlab_sim::allocator::{BlockState, Notice, Reply};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Bytes, Setup, SimMachine, run};

// ANCHOR: program
/// Runs the first six steps, then draws every segment.
pub fn main() -> Result<(), Box<dyn Error>> {
    let workload = include_str!("workload.jsonl");
    let first_six: String = workload.split_inclusive('\n').take(6).collect();
    let mut source = JsonlSource::new(first_six.as_bytes(), "the first six steps");
    let mut machine = SimMachine::of_capacity(Bytes::gib(80).0);
    let mut strategies = [registry::build(&"torch.caching".parse()?)?];
    run(&mut source, Setup::new(&mut machine, &mut strategies))?;

    let layout = strategies[0].notice(&mut machine, Notice::Walk)?;
    let Reply::Layout(layout) = layout else {
        return Err("this strategy does not say what is where".into());
    };
    let mut drawings = Vec::new();
    for segment in layout.segments {
        let (mut bar, mut pieces, mut free) = (String::new(), String::new(), 0);
        for block in &segment.blocks {
            let is_free = block.state == BlockState::Free;
            let (mark, state) = if is_free { (".", "free") } else { ("#", "in use") };
            bar += &mark.repeat((block.size >> 19) as usize); // one for half a MiB
            pieces += &format!("    {:>6} {state}\n", Bytes(block.size));
            free += if is_free { block.size } else { 0 };
        }
        let (size, free) = (Bytes(segment.size), Bytes(free));
        drawings.push(format!("segment of {size}, of it {free} free\n    |{bar}|\n{pieces}"));
    }
    print!("{}", drawings.join("\n"));
    Ok(())
}
// ANCHOR_END: program
