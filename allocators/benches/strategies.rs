//! Every strategy of the registry on the same two loads, beside plain baselines, in one run and one table.
//!
//! ```text
//! cargo bench -p vramlab-allocators --bench strategies                 all, then the table
//! cargo bench -p vramlab-allocators --bench strategies -- torch        those whose name contains it
//! cargo bench -p vramlab-allocators --bench strategies -- --test       each body once
//! ```
//!
//! | load | is |
//! |---|---|
//! | `step` | a training step, repeated: activations of 24 layers with workspaces between them, freed in reverse with gradients between them |
//! | `churn_1k`, `churn_10k`, `churn_100k` | with so many blocks live, a random one is freed and another of random size allocated |
//! | `churn_1m` | the same with a million, for those whose time is not to grow ([`CONSTANT`]) and the baselines |
//!
//! What is measured is the whole run as `vramlab replay` makes it: engine, strategy behind `dyn Allocator`, simulated device (costs zero), full
//! accounting after every op. Sizes of the churn: 512 B to 1 MiB, every power of two as likely as the others. Inputs are made beforehand from a fixed
//! seed. The table shows the fastest round of each: wall time on a shared machine is worth little, so compare within one table.
//!
//! Baselines, with nothing of streams, statistics or segments: best fit on std's ordered sets; the crates `offset-allocator` (akin to TLSF) and
//! `buddy_system_allocator`; and places of one size, which search nothing: their time is that of engine and accounting, and grows with live blocks by
//! cache misses alone.
#![forbid(unsafe_code)]

mod baselines;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use vramlab_allocators::registry::Make;
use vramlab_allocators::{STRATEGIES, Spec, build};
use vramlab_sim::machine::Memory;
use vramlab_sim::op::{NameId, TouchRange};
use vramlab_sim::testing::Dice;
use vramlab_sim::{
    Allocator, Answered, BufferId, BufferUse, DeviceOptions, Nanos, Op, Setup, SimMachine, Source,
    SourceError, Step, StreamId, run,
};

/// Specs beside the registry's bare names.
const WITH_OPTIONS: &[&str] = &[
    "torch.caching:expandable_segments=true",
    "paddle.auto_growth+stream_safe",
    "paddle.auto_growth+stream_safe+eager_deletion",
];

/// What a million live blocks are tried on, beside the baselines.
const CONSTANT: [&str; 4] =
    ["bound.live_floor", "classic.tlsf", "classic.buddy", "classic.segregated"];

const KIB: u64 = 1 << 10;

/// Exchanges of a churn, and at least one for each live block.
const EXCHANGES: u32 = 60_000;

/// A fixed list of ops, which frees all that it allocates.
struct Ops<'a> {
    ops: &'a [Op],
    at: usize,
}

impl Source for Ops<'_> {
    fn next(&mut self, _: Nanos, _: Answered) -> Result<Step, SourceError> {
        let op = self.ops.get(self.at);
        self.at += 1;
        Ok(op.map_or(Step::End, |op| Step::Op(*op)))
    }

    fn uses(&self) -> &[BufferUse] {
        &[]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, _: NameId) -> &str {
        ""
    }

    fn name(&self, id: BufferId) -> u64 {
        u64::from(id.0)
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        0
    }
}

fn alloc(slot: u32, size: u64) -> Op {
    Op::Alloc { id: BufferId(slot), stream: StreamId(0), site: NameId(0), size }
}

fn free(slot: u32) -> Op {
    Op::Free { id: BufferId(slot), stream: None }
}

/// Twenty training steps.
fn step() -> Vec<Op> {
    const LAYERS: u32 = 24;
    const SAVED: [u64; 6] = [3072 * KIB, 9216 * KIB, 1536 * KIB, 12288 * KIB, 3 * KIB, 12 * KIB];
    let saved = SAVED.len() as u32;
    let workspace = LAYERS * saved;
    let mut ops = Vec::new();
    for _ in 0..20 {
        for slot in 0..LAYERS * saved {
            ops.extend([alloc(workspace, 8192 * KIB), alloc(slot, SAVED[(slot % saved) as usize])]);
            ops.push(free(workspace));
        }
        for slot in (0..LAYERS * saved).rev() {
            ops.extend([alloc(workspace, SAVED[(slot % saved) as usize]), free(slot)]);
            ops.push(free(workspace));
        }
    }
    ops
}

/// Fills up to `live` blocks, exchanges [`EXCHANGES`] times or more, and drains.
fn churn(live: u32) -> Vec<Op> {
    let mut dice = Dice::new(1);
    let mut size = || {
        let top = (512 << dice.below(11)) as u64;
        top + dice.below(top + 1)
    };
    let mut ops: Vec<Op> = (0..live).map(|slot| alloc(slot, size())).collect();
    let mut pick = Dice::new(2);
    for _ in 0..EXCHANGES.max(live) {
        let slot = pick.below(live.into()) as u32;
        ops.extend([free(slot), alloc(slot, size())]);
    }
    ops.extend((0..live).map(free));
    ops
}

/// Fastest round of each pair of subject and load: ns per op.
type Table = BTreeMap<(usize, String), BTreeMap<&'static str, f64>>;

fn measure(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    name: &str,
    load: &'static str,
    ops: &[Op],
    memory: Memory,
    mut make: impl FnMut() -> Box<dyn Allocator>,
) -> Option<f64> {
    let (mut fastest, mut served): (Option<f64>, bool) = (None, true);
    group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
        let options = DeviceOptions { capacity: 512 << 30, ..DeviceOptions::default() };
        let mut machine = SimMachine::new(options);
        let mut strategies = [make()];
        let mut round = || {
            let mut source = Ops { ops, at: 0 };
            let setup = Setup { memory, ..Setup::new(&mut machine, &mut strategies) };
            let report = run(&mut source, setup).expect("the ops are valid");
            report.ooms
        };
        if round() > 0 {
            // warm by now
            println!("{name} on {load}: 512 GiB are not enough, left out of the table");
            served = false;
        }
        bencher.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for _ in 0..rounds {
                let start = Instant::now();
                round();
                let took = start.elapsed();
                let ns = took.as_nanos() as f64 / ops.len() as f64;
                fastest = Some(fastest.map_or(ns, |before| before.min(ns)));
                total += took;
            }
            total
        });
    });
    fastest.filter(|_| served)
}

fn print(table: &Table, loads: &[&'static str]) {
    print!("\nns per op, fastest round (M ops/s)\n{:<44}", "strategy");
    loads.iter().for_each(|load| print!("{load:>18}"));
    println!();
    for ((_, name), row) in table {
        print!("{name:<44}");
        for load in loads {
            match row.get(load) {
                Some(ns) => print!("{:>18}", format!("{ns:.1} ({:.1})", 1e3 / ns)),
                None => print!("{:>18}", "-"),
            }
        }
        println!();
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    let plain = STRATEGIES.iter().filter(|s| matches!(s.make, Make::Plain(_)) && !s.accesses);
    let specs: Vec<&str> = plain.map(|s| s.name).chain(WITH_OPTIONS.iter().copied()).collect();
    let loads = [
        ("step", step()),
        ("churn_1k", churn(1_000)),
        ("churn_10k", churn(10_000)),
        ("churn_100k", churn(100_000)),
        ("churn_1m", churn(1_000_000)),
    ];
    let mut table = Table::new();
    for (load, ops) in &loads {
        let mut group = criterion.benchmark_group(*load);
        group.throughput(Throughput::Elements(ops.len() as u64));
        let mut note = |at: usize, name: &str, ns: Option<f64>| {
            if let Some(ns) = ns {
                table.entry((at, name.to_owned())).or_default().insert(*load, ns);
            }
        };
        for (at, spec) in specs.iter().enumerate() {
            if *load == "churn_1m" && !CONSTANT.contains(spec) {
                continue;
            }
            let parsed: Spec = spec.parse().expect(spec);
            let memory = vramlab_allocators::find(&parsed.strategy().name).expect(spec).memory;
            let make = || build(&parsed).expect(spec);
            note(at, spec, measure(&mut group, spec, load, ops, memory, make));
        }
        for (at, (name, make)) in baselines::ALL.iter().enumerate() {
            note(
                specs.len() + at,
                name,
                measure(&mut group, name, load, ops, Memory::Device, make),
            );
        }
        group.finish();
    }
    print(&table, &loads.map(|(load, _)| load));
    criterion.final_summary();
}
