//! Cases about CPython's small objects: so many are allocated, and some of them freed, in phases.

use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec, build};
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{Allocator, Block, Notice, Reply, Request};
use vramlab_sim::driver::DriverExt;
use vramlab_sim::units::StreamId;

use super::Tally;

struct Process {
    strategy: Box<dyn Allocator>,
    machine: SimMachine,
    /// By number of the object; none once it is freed.
    objects: Vec<Option<Block>>,
    size: u64,
}

impl Process {
    fn allocate_all(&mut self, count: usize) {
        self.objects.clear();
        let request = Request { size: self.size, stream: StreamId(0), ordinal: 0 };
        for _ in 0..count {
            let placement =
                self.strategy.alloc(&mut self.machine, &request).expect("there is room");
            self.objects.push(Some(placement.block));
        }
    }

    fn free_all_but(&mut self, stays: impl Fn(usize) -> bool) {
        for (number, object) in self.objects.iter_mut().enumerate() {
            if let Some(block) = object.take_if(|_| !stays(number)) {
                self.strategy.free(&mut self.machine, block, None).expect("is live");
            }
        }
    }

    fn phase(&mut self, name: &str, count: usize) -> Result<(), String> {
        match name {
            "allocate all" | "allocate all again" => self.allocate_all(count),
            "free all but every 100th" => self.free_all_but(|number| number % 100 == 0),
            "free the rest" => self.free_all_but(|_| false),
            "free all but the first 1 %" => self.free_all_but(|number| number < count / 100),
            other => return Err(format!("phase {other:?} is not known")),
        }
        Ok(())
    }

    fn counter(&mut self, name: &str) -> u64 {
        let Ok(Reply::Counters(all)) = self.strategy.notice(&mut self.machine, Notice::Counters)
        else {
            panic!("expected counters")
        };
        all.iter().find(|(known, _)| *known == name).expect("is counted").1
    }

    fn found(&mut self, field: &str) -> Option<Value> {
        Some(json!(match field {
            "pools_used" => self.counter("pools_in_use"),
            "arenas_used" | "arenas_left" | "arenas_left_max" => {
                self.counter("arenas_allocated_current")
            }
            "arenas_released" => self.counter("arenas_reclaimed"),
            "blocks_per_pool" => {
                let before = self.counter("pools_in_use");
                let request = Request { size: self.size, stream: StreamId(0), ordinal: 0 };
                let mut blocks = 0;
                while self.counter("pools_in_use") <= before + 1 {
                    self.strategy.alloc(&mut self.machine, &request).ok()?;
                    blocks += 1;
                }
                blocks - 1
            }
            _ => return None,
        }))
    }
}

fn process(size: u64) -> Process {
    let strategy = build(&Spec::new("host.pymalloc", Options::default())).expect("builds");
    let mut machine = SimMachine::of_capacity(0);
    // arenas do not begin at a pool's boundary, as where these cases were measured
    machine.malloc_host(1, false).expect("there is room");
    Process { strategy, machine, objects: Vec::new(), size }
}

pub(crate) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let number = |key: &str| input[key].as_u64().ok_or(format!("no {key}"));
    let (size, count) = (number("object_bytes")?, number("count")? as usize);
    let mut running = process(size);
    let phases = input["phases"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for (phase, last) in phases.clone().zip(phases.skip(1).map(Some).chain([None])) {
        running.phase(phase, count)?;
        for check in checks {
            let at = check["at"].as_str();
            let here = at == Some(phase) || at == Some("end") && last.is_none();
            let field = check["field"].as_str().unwrap_or_default();
            if here {
                // what no phase decides is asked of a process of its own
                let fresh = &mut process(size);
                let of = if at == Some("end") { fresh } else { &mut running };
                match of.found(field) {
                    Some(found) if field.ends_with("_max") => {
                        let mut at_most = (*check).clone();
                        at_most["cmp"] = json!("le");
                        tally.check(id, &at_most, &found);
                    }
                    Some(found) => tally.check(id, check, &found),
                    None => tally.skip(id, format!("{field}: not known to this runner")),
                }
            }
        }
    }
    Ok(())
}
