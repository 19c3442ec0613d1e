//! The planners on the published placement instances of the shared folder (`traces/static_plans`): valid, never below the bound, and how far above.
//!
//! `cargo test -p vramlab-allocators --test static_plans -- --nocapture` prints a line for each.
#![forbid(unsafe_code)]

mod shared_folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use vramlab_allocators::registry::build_ahead;
use vramlab_allocators::{STRATEGIES, Spec};
use vramlab_sim::allocator::{Allocator, Notice, Reply, Request};
use vramlab_sim::audit::Audit;
use vramlab_sim::future::{Future, Life};
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

/// Sizes are rounded to this.
const UNIT: u64 = 256;

/// Buffers as (lower, upper, bytes). Sizes of the small instances, which rounding would change, are taken in units.
fn load(path: &Path) -> Vec<[u64; 3]> {
    let text = shared_folder::read_text(path).unwrap_or_else(|error| panic!("{error}"));
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(',').skip(1).filter_map(|n| n.parse().ok()).collect();
        <[u64; 3]>::try_from(numbers).unwrap_or_else(|_| panic!("{}: {line}", path.display()))
    };
    let mut buffers: Vec<[u64; 3]> = text.lines().skip(1).map(row).collect();
    if path.to_string_lossy().contains("minimalloc") {
        buffers.iter_mut().for_each(|[_, _, size]| *size *= UNIT);
    }
    buffers
}

/// An op of a run: a buffer ends (first of all at its time), or begins.
fn ops(buffers: &[[u64; 3]]) -> Vec<(u64, bool, usize)> {
    let all = buffers.iter().enumerate();
    let mut ops: Vec<_> =
        all.flat_map(|(at, [lower, upper, _])| [(*lower, true, at), (*upper, false, at)]).collect();
    ops.sort_unstable();
    ops
}

fn future(buffers: &[[u64; 3]], ops: &[(u64, bool, usize)]) -> (Future, Vec<u64>) {
    let (mut future, mut ordinals) = (Future::default(), vec![0; buffers.len()]);
    for (op, (_, begins, at)) in (0..).zip(ops) {
        if *begins {
            ordinals[*at] = future.requests.len() as u64;
            let (size, stream) = (buffers[*at][2], StreamId(0));
            future.requests.push(Life { size, stream, born: op, freed: None, shared: false });
        } else {
            future.requests[ordinals[*at] as usize].freed = Some(op);
        }
    }
    (future, ordinals)
}

/// Runs a strategy over an instance under audit; gives the plan's bytes and the bound.
fn run(spec: &Spec, buffers: &[[u64; 3]]) -> (u64, u64) {
    let ops = ops(buffers);
    let (future, ordinals) = future(buffers, &ops);
    let strategy = build_ahead(spec, &Arc::new(future)).expect("builds");
    let mut strategy = Audit::new(strategy, UNIT);
    let mut machine = ScriptedMachine::of_capacity(1 << 46);
    let mut blocks = vec![None; buffers.len()];
    for (_, begins, at) in ops {
        if begins {
            let (size, ordinal) = (buffers[at][2], ordinals[at]);
            let request = Request { size, stream: StreamId(0), ordinal };
            let placement = strategy.alloc(&mut machine, &request);
            let placement = placement.unwrap_or_else(|e| panic!("{spec}: buffer {at}: {e}"));
            blocks[at] = Some(placement.block);
        } else if let Some(block) = blocks[at].take() {
            strategy.free(&mut machine, block, None).expect("is live");
        }
    }
    let Ok(Reply::Counters(counters)) = strategy.notice(&mut machine, Notice::Counters) else {
        panic!("expected counters")
    };
    let counter =
        |name: &str| counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| count / UNIT);
    assert_eq!(counter("deviations"), 0, "{spec}: all is as planned");
    (counter("plan_bytes"), counter("lower_bound"))
}

#[test]
fn static_plans() {
    let Some(folder) = shared_folder::shared("traces/static_plans") else {
        return println!("static_plans: skipped, no shared folder");
    };
    let listed = std::fs::read_dir(&folder).expect("the folder can be read");
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.to_string_lossy().contains(".csv"));
    files.sort();
    assert!(!files.is_empty(), "expected instances in {}", folder.display());
    for path in files {
        let buffers = load(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for strategy in STRATEGIES.iter().filter(|s| s.plans_ahead()) {
            if strategy.options.iter().all(|option| option.name != "alignment") {
                continue; // it plans steps, of which there are none
            }
            let begun = Instant::now();
            let (bytes, bound) = run(&strategy.name.parse().expect("a name is a spec"), &buffers);
            assert!(bytes >= bound, "{}: {bytes} below {bound}", strategy.name);
            println!(
                "static_plans: {name}: {}: {} buffers, {:.2} % above the bound, {:.2} s",
                strategy.name,
                buffers.len(),
                (bytes - bound) as f64 * 100.0 / bound as f64,
                begun.elapsed().as_secs_f64()
            );
        }
    }
}
