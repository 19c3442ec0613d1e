//! The tiered strategies under programs that announce their work: all uses are resident when work is queued, contents follow, nothing is lost,
//! and every access is ordered. Audits stand around the strategy, which moves buffers, and around the one that owns device addresses.
//!
//! `PROPTEST_CASES=10000 cargo test -p vramlab-allocators --test tiered` tries more.

mod tiered_model;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tiered_model::Model;
use vramlab_allocators::{Options, Spec, tiered};
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply, Request, Use};
use vramlab_sim::audit::Audit;
use vramlab_sim::device::{DeviceOptions, Link, Links};
use vramlab_sim::driver::{DriverError, DriverExt};
use vramlab_sim::future::{Future, Life, PlannedUse};
use vramlab_sim::machine::{Machine, Toucher};
use vramlab_sim::units::StreamId;

const CAPACITY: u64 = 48 << 20;
const ALIGN: u64 = 256;

/// Specs that the programs are run with; `inner` is put under audit.
const SPECS: &[&str] = &[
    "tiered.lru",
    "tiered.lru:inner=classic.best_fit,min_bytes=0",
    "tiered.lru:inner=cuda.malloc",
    "tiered.lru:inner='torch.caching:expandable_segments=true'",
    "tiered.lru:device_bytes=32MiB",
    "tiered.lru:host_bytes=0",
    "tiered.lru:host_bytes=40MiB,host_chunk=4MiB",
    "tiered.lru:compress=3:20",
    "tiered.lru:host_bytes=24MiB,host_chunk=1MiB,persistent=write_back",
    "tiered.lru:host_bytes=24MiB,persistent=write_back,compress=2:50",
    "tiered.lru:persistent=write_through",
    "tiered.lru:persistent=write_through,restart_at=40",
    "tiered.lru:host_bytes=24MiB,persistent=write_back,restart_at=40",
    "tiered.lru:restart_at=25",
    "tiered.next_use",
    "tiered.next_use:inner=classic.best_fit,prefetch_lead=4",
    "tiered.next_use:prefetch_lead=0,min_bytes=0",
    "tiered.next_use:host_bytes=30MiB,persistent=write_back,restart_at=60",
    "tiered.predicted:inner=classic.tlsf",
    "tiered.predicted:predictor=stride,persistent=write_through",
    "tiered.predicted:predictor=lstm",
    "tiered.adaptive:window=16,inner=classic.best_fit",
];

/// One op. A buffer is named by its number among the live ones (modulo how many there are).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Op {
    /// Size, stream, filled at once by work that names no buffers (its first named use is a read then).
    Alloc(u64, u32, bool),
    Free(usize),
    /// Stream, duration, uses: buffer, written.
    Work(u32, u64, Vec<(usize, bool)>),
    EmptyCache,
    Sync,
}
use Op::{Alloc, EmptyCache, Free, Sync, Work};

fn op() -> impl Strategy<Value = Op> {
    let stream = || prop_oneof![4 => Just(0_u32), 1 => 1_u32..3];
    let size =
        prop_oneof![6 => (1_u64 << 20)..(9 << 20), 2 => 1_u64..(1 << 20), 1 => Just(4 << 20)];
    let uses = prop::collection::vec((any::<usize>().prop_map(|at| at % 100), any::<bool>()), 1..5);
    prop_oneof![
        8 => (size, stream(), prop::bool::weighted(0.3))
            .prop_map(|(size, stream, filled)| Alloc(size, stream, filled)),
        5 => any::<usize>().prop_map(|at| Free(at % 100)),
        24 => (stream(), 0_u64..2_000_000, uses).prop_map(|(stream, ns, uses)| Work(stream, ns, uses)),
        1 => Just(EmptyCache),
        1 => Just(Sync),
    ]
}

/// Buffers made first, then a body that is done several times over: predictors have something to learn.
fn program() -> impl Strategy<Value = Vec<Op>> {
    let body = prop::collection::vec(op(), 1..60);
    let large = ((1_u64 << 20)..(9 << 20)).prop_map(|size| Alloc(size, 0, true));
    let first = prop::collection::vec(large, 0..12);
    (first, body, 1_usize..6).prop_map(|(first, body, times)| {
        let bodies = std::iter::repeat_n(body, times).flatten();
        first.into_iter().chain(bodies).collect()
    })
}

/// What the program will ask: as if nothing were ever refused.
fn future(program: &[Op]) -> Future {
    let (mut future, mut live) = (Future::default(), Vec::<u32>::new());
    for (op, at) in program.iter().zip(0_u64..) {
        match op {
            Alloc(size, stream, _) => {
                live.push(future.requests.len() as u32);
                let (size, stream) = (*size, StreamId(*stream));
                future.requests.push(Life { size, stream, born: at, freed: None, shared: false });
            }
            Free(which) if !live.is_empty() => {
                let ordinal = live.swap_remove(which % live.len());
                future.requests[ordinal as usize].freed = Some(at);
            }
            Work(_, _, uses) if !live.is_empty() => {
                future.uses.extend(uses.iter().map(|(which, write)| PlannedUse {
                    op: at,
                    ordinal: live[which % live.len()],
                    write: *write,
                }));
            }
            _ => {}
        }
    }
    future.ops = program.len() as u64;
    future
}

#[derive(Clone, Debug)]
struct Buffer {
    /// None: its request was refused.
    block: Option<Block>,
    address: u64,
    size: u64,
    /// How often it was written.
    writes: u64,
    /// Which of these it holds; None: it is lost.
    holds: Option<u64>,
    /// Filled, and not used since.
    filled: bool,
    announced: bool,
    /// Streams that used it, and that of its request.
    streams: Vec<u32>,
}

/// A program under way.
struct Run {
    strategy: Audit<Box<dyn Allocator>>,
    model: Model,
    buffers: Vec<Buffer>,
    /// Numbers of live buffers.
    live: Vec<usize>,
    ordinal: u64,
    /// The op under way, and the last that uses each buffer.
    at: u64,
    last_uses: Vec<u64>,
    works: u64,
    restart_at: Option<u64>,
    lost: u64,
    lost_maybe: u64,
    out_of_memory: u64,
}

type Done = Result<(), AllocError>;

fn wrong(what: String) -> AllocError {
    AllocError::Driver(DriverError::Failed { call: "test", what: what.into() })
}

impl Run {
    fn new(spec: &str, future: &Future) -> Self {
        let parsed: Spec = spec.parse().expect(spec);
        let options = &parsed.strategy().options;
        let inner = options.get("inner").unwrap_or("torch.caching");
        let inner = vramlab_allocators::build(&inner.parse().expect(spec)).expect(spec);
        let inner = Box::new(Audit::new(inner, ALIGN));
        let rest = Options::from_pairs(options.iter().filter(|(key, _)| *key != "inner"));
        let strategy = tiered::around(&parsed.strategy().name, &rest, inner, future).expect(spec);
        let link = |rate| Link { bytes_per_second: rate, latency_ns: 10_000 };
        let links = Links {
            host_to_device: link(12e9),
            device_to_host: link(10e9),
            disk: link(2e9),
            ..Links::INSTANT
        };
        let machine = SimMachine::new(DeviceOptions {
            capacity: CAPACITY,
            pack_small: true,
            links,
            ..DeviceOptions::default()
        });
        let mut last_uses = vec![0; future.requests.len()];
        future.uses.iter().for_each(|used| last_uses[used.ordinal as usize] = used.op);
        Self {
            at: 0,
            last_uses,
            strategy: Audit::of_mover(strategy, ALIGN),
            model: Model::new(machine),
            buffers: Vec::new(),
            live: Vec::new(),
            ordinal: 0,
            works: 0,
            restart_at: rest.get("restart_at").map(|text| text.parse().expect(spec)),
            lost: 0,
            lost_maybe: 0,
            out_of_memory: 0,
        }
    }

    fn alloc(&mut self, size: u64, stream: u32, filled: bool) -> Done {
        let request = Request { size, stream: StreamId(stream), ordinal: self.ordinal };
        self.ordinal += 1;
        let placed = match self.strategy.alloc(&mut self.model, &request) {
            Ok(placement) => Some(placement),
            Err(AllocError::OutOfMemory(_)) => None,
            Err(error) => return Err(error),
        };
        let id = self.buffers.len();
        self.live.push(id);
        let (block, address) = placed.map(|placed| (placed.block, placed.address)).unzip();
        if let Some(address) = address {
            self.model.born(address, size, Some((id, 0)));
            if filled {
                self.model.look(address, size, true, StreamId(stream))?;
                self.model.machine.launch(StreamId(stream), 1000)?;
                self.model.worked(address, size, StreamId(stream), Some((id, 1)));
            }
        }
        let writes = u64::from(filled);
        self.buffers.push(Buffer {
            block,
            address: address.unwrap_or_default(),
            size,
            writes,
            holds: Some(writes),
            filled,
            announced: false,
            streams: vec![stream],
        });
        Ok(())
    }

    fn free(&mut self, which: usize) -> Done {
        if self.live.is_empty() {
            return Ok(());
        }
        let id = self.live.swap_remove(which % self.live.len());
        match self.buffers[id].block {
            Some(block) => self.strategy.free(&mut self.model, block, None),
            None => Ok(()),
        }
    }

    /// The workload orders its own streams: what `stream` does next comes after all uses of the buffer.
    fn order(&mut self, id: usize, stream: u32) -> Done {
        let buffer = &mut self.buffers[id];
        for other in buffer.streams.iter().filter(|other| **other != stream) {
            let event = self.model.machine.event_create()?;
            self.model.machine.event_record(event, StreamId(*other))?;
            self.model.machine.wait_event(StreamId(stream), event)?;
            self.model.machine.event_destroy(event)?;
        }
        if let Some(block) = buffer.block.filter(|_| !buffer.streams.contains(&stream)) {
            buffer.streams.push(stream);
            let recorded = Notice::RecordStream { block, stream: StreamId(stream) };
            self.strategy.notice(&mut self.model, recorded)?;
        }
        Ok(())
    }

    fn work(&mut self, stream: u32, ns: u64, uses: &[(usize, bool)]) -> Done {
        if self.live.is_empty() {
            return Ok(());
        }
        let used: Vec<(usize, bool)> = uses
            .iter()
            .map(|(which, write)| (self.live[which % self.live.len()], *write))
            .filter(|(id, _)| self.buffers[*id].block.is_some())
            .map(|(id, write)| (id, write && !self.buffers[id].filled))
            .collect();
        for (id, _) in &used {
            self.order(*id, stream)?;
        }
        if self.restart_at == Some(self.works) {
            self.restart();
        }
        self.works += 1;
        let mut announced: Vec<Use> = used
            .iter()
            .map(|(id, write)| {
                let Buffer { block, address, size, .. } = self.buffers[*id];
                Use { block: block.expect("it was placed"), address, size, write: *write }
            })
            .collect();
        let stream = StreamId(stream);
        match self.strategy.before_work(&mut self.model, stream, &mut announced) {
            Err(AllocError::OutOfMemory(_)) => {
                self.out_of_memory += 1;
                return Ok(());
            }
            other => other?,
        }
        for (now, (id, write)) in announced.iter().zip(&used) {
            self.check_use(*now, *id, *write, stream)?;
        }
        self.model.machine.launch(stream, ns)?;
        for (now, (id, write)) in announced.iter().zip(&used) {
            let buffer = &mut self.buffers[*id];
            buffer.address = now.address;
            (buffer.filled, buffer.announced) = (false, true);
            if *write {
                buffer.writes += 1;
                buffer.holds = Some(buffer.writes);
            }
            let written = write.then_some((*id, buffer.writes));
            self.model.worked(now.address, buffer.size, stream, written);
        }
        self.strategy.after_work(&mut self.model, stream, &announced)
    }

    /// The buffer is on the device, and what was written last is there.
    fn check_use(&mut self, now: Use, id: usize, write: bool, stream: StreamId) -> Done {
        let Buffer { size, holds, .. } = self.buffers[id];
        self.model.machine.touch(now.address, size, write, Toucher::Device(stream))?;
        let found = self.model.look(now.address, size, write, stream)?;
        let expected = holds.map(|version| (id, version));
        // of one that was never written, or is lost, nothing is known
        if holds.is_some_and(|version| version > 0) && found != expected {
            return Err(wrong(format!("buffer {id} holds {found:?}, expected {expected:?}")));
        }
        Ok(())
    }

    /// Device and host are lost: buffers are what the file has of them.
    fn restart(&mut self) {
        self.model.wipe();
        for id in &self.live {
            let buffer = &mut self.buffers[*id];
            let kept = self.model.in_file(*id);
            let used_again = self.last_uses[*id] + 1 >= self.at;
            if buffer.announced && (buffer.writes == 0 || !used_again) {
                self.lost_maybe += buffer.size; // it held nothing, or nothing that is asked for again
            } else if buffer.announced && buffer.holds.is_some() && kept != buffer.holds {
                self.lost += buffer.size;
            }
            (buffer.holds, buffer.filled) = (kept, false);
        }
    }

    fn op(&mut self, op: &Op) -> Done {
        self.at += 1;
        match op {
            Alloc(size, stream, filled) => self.alloc(*size, *stream, *filled),
            Free(which) => self.free(*which),
            Work(stream, ns, uses) => self.work(*stream, *ns, uses),
            EmptyCache => self.strategy.notice(&mut self.model, Notice::EmptyCache).map(drop),
            Sync => Ok(self.model.machine.device_synchronize()?),
        }
    }

    /// The strategy's usage, the machine's count and the layout agree.
    fn check_books(&mut self) -> Result<(), String> {
        let (usage, held) = (self.strategy.usage(), self.model.machine.held());
        if usage.reserved != held.reserved {
            return Err(format!(
                "reserved {}, the machine holds {}",
                usage.reserved, held.reserved
            ));
        }
        let walked = self.strategy.notice(&mut self.model, Notice::Walk);
        walked.map(drop).map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        match self.strategy.notice(&mut self.model, Notice::Counters) {
            Ok(Reply::Counters(counters)) => counters,
            other => panic!("counters: {other:?}"),
        }
    }

    fn counter(&mut self, name: &str) -> u64 {
        let counters = self.counters();
        counters.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

/// Sums over all programs of a spec.
#[derive(Default)]
struct Sums {
    programs: Cell<u64>,
    ops: Cell<u64>,
    bytes: Cell<u64>,
    prefetches: Cell<u64>,
    out_of_memory: Cell<u64>,
}

fn run(spec: &str, program: &[Op], sums: &Sums) -> Result<(), String> {
    let mut run = Run::new(spec, &future(program));
    for (i, op) in program.iter().enumerate() {
        run.op(op).map_err(|error| format!("op {i}, {op:?}: {error}"))?;
        run.check_books().map_err(|error| format!("after op {i}, {op:?}: {error}"))?;
    }
    let names = ["bytes_to_host", "bytes_to_device", "bytes_to_file", "bytes_from_file"];
    let counted = names.map(|name| run.counter(name));
    if counted != run.model.copied {
        return Err(format!("{names:?}: counted {counted:?}, copied {:?}", run.model.copied));
    }
    let lost = run.counter("restart_lost_bytes");
    if !(run.lost..=run.lost + run.lost_maybe).contains(&lost) {
        return Err(format!("counted {lost} bytes lost, the model lost {}", run.lost));
    }
    let met = ["prefetch_hits", "prefetch_late", "prefetch_wasted"].map(|name| run.counter(name));
    let prefetches = run.counter("prefetches");
    if met.iter().sum::<u64>() > prefetches {
        return Err(format!("{prefetches} prefetches, of them hit, late, wasted: {met:?}"));
    }
    let add = |sum: &Cell<u64>, more| sum.set(sum.get() + more);
    add(&sums.programs, 1);
    add(&sums.ops, program.len() as u64);
    add(&sums.bytes, counted.iter().sum());
    add(&sums.prefetches, prefetches);
    add(&sums.out_of_memory, run.out_of_memory);
    finish(&mut run)
}

/// Everything is freed, and nothing is left.
fn finish(run: &mut Run) -> Result<(), String> {
    let ends = std::iter::repeat_n(Free(0), run.live.len());
    for op in ends.chain([Sync, Alloc(512, 0, false), Free(0), EmptyCache]) {
        run.op(&op).map_err(|error| format!("at the end, {op:?}: {error}"))?;
    }
    let (usage, host) = (run.strategy.usage(), run.model.machine.held().host);
    if usage.active != 0 || host != 0 || run.counter("resident") != 0 {
        return Err(format!("all is freed, but {usage:?}, and {host} bytes of host memory"));
    }
    Ok(())
}

fn try_random_programs(spec: &str) {
    let config = Config { failure_persistence: None, ..Config::default() };
    let config = match std::env::var("PROPTEST_CASES") {
        Ok(_) => config,
        Err(_) => Config { cases: 40, ..config },
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let sums = Sums::default();
    let tried = TestRunner::new_with_rng(config, rng)
        .run(&program(), |program| run(spec, &program, &sums).map_err(TestCaseError::fail));
    let Sums { programs, ops, bytes, prefetches, out_of_memory } = &sums;
    println!(
        "tiered: {spec}: {} programs, {} ops, {} MiB copied, {} prefetches, {} works out of memory",
        programs.get(),
        ops.get(),
        bytes.get() >> 20,
        prefetches.get(),
        out_of_memory.get()
    );
    if let Err(TestError::Fail(why, program)) = &tried {
        panic!("{spec}: {why}\nto paste: run({spec:?}, &{program:?})");
    }
    tried.unwrap_or_else(|error| panic!("{spec}: {error}"));
}

#[test]
fn random_works_find_their_buffers_and_what_was_written_last() {
    SPECS.iter().for_each(|spec| try_random_programs(spec));
}

/// Buffers that are read in turn, more than the device holds; saved ones that are used again in reverse order, and freed.
fn steps(times: usize) -> Vec<Op> {
    const WEIGHTS: usize = 10;
    let mut program: Vec<Op> = (0..WEIGHTS).map(|_| Alloc(3 << 20, 0, true)).collect();
    for _ in 0..times {
        for layer in 0..WEIGHTS {
            program.push(Alloc(4 << 20, 0, false));
            let saved = WEIGHTS + layer;
            let before = if layer == 0 { 0 } else { saved - 1 };
            program.push(Work(0, 900_000, vec![(layer, false), (before, false), (saved, true)]));
        }
        for layer in (0..WEIGHTS).rev() {
            let saved = WEIGHTS + layer;
            program.push(Work(0, 900_000, vec![(layer, false), (saved, false), (layer, true)]));
            program.push(Free(saved));
        }
    }
    program
}

#[test]
fn what_comes_again_is_foreseen() {
    for (spec, least) in [
        ("tiered.next_use:min_bytes=0,prefetch_lead=2", 100),
        ("tiered.predicted:prefetch_lead=2", 100),
        ("tiered.predicted:predictor=stride,prefetch_lead=2", 100),
        ("tiered.adaptive:window=16,prefetch_lead=2", 100),
        ("tiered.predicted:predictor=lstm,prefetch_lead=2", 1),
    ] {
        let sums = Sums::default();
        run(spec, &steps(60), &sums).unwrap_or_else(|error| panic!("{spec}: {error}"));
        let Sums { bytes, prefetches, .. } = &sums;
        println!("tiered: {spec}: {} MiB, {} prefetches", bytes.get() >> 20, prefetches.get());
        assert!(prefetches.get() >= least, "{spec}: {} prefetches", prefetches.get());
    }
}

/// The same program, whose `at`-th driver call is refused: out of memory is an answer, any other error ends the run. Was there such a call?
fn refused(spec: &str, program: &[Op], at: u64, room: bool) -> Result<bool, String> {
    let mut run = Run::new(spec, &future(program));
    run.model.refuse = Some((at, room));
    for (i, op) in program.iter().enumerate() {
        match run.op(op) {
            Ok(()) => {}
            Err(AllocError::Driver(DriverError::Failed { what, .. })) if *what == *"on cue" => {
                return Ok(true);
            }
            Err(error) => return Err(format!("op {i}, {op:?}: {error}")),
        }
        if run.model.refused {
            run.check_books().map_err(|error| format!("after op {i}, {op:?}: {error}"))?;
        }
    }
    if room {
        finish(&mut run)?;
    }
    Ok(run.model.refused)
}

#[test]
fn every_driver_call_may_be_refused_while_buffers_move() {
    let program = steps(2);
    for spec in [
        "tiered.lru:min_bytes=0",
        "tiered.next_use:host_bytes=20MiB,persistent=write_back,inner=classic.best_fit",
        "tiered.lru:persistent=write_through,restart_at=20,compress=2:30",
    ] {
        for room in [true, false] {
            let mut calls = 0;
            while refused(spec, &program, calls, room).unwrap_or_else(|error| {
                panic!("{spec}: call {calls} refused (room {room}): {error}")
            }) {
                calls += 1;
            }
            println!("{spec}: {calls} calls refused in turn (room {room})");
        }
    }
}
