//! The classic strategies beside three anchors, on the same pairs of an alloc and a free.
//!
//! ```text
//! cargo bench -p vramlab-allocators --bench classic                     all; pages in target/criterion/report
//! cargo bench -p vramlab-allocators --bench classic -- tlsf --quick     a quick look at one
//! cargo bench -p vramlab-allocators --bench classic -- --fastest [NAME] a table of the fastest of many short stretches, for a busy machine
//! cargo bench -p vramlab-allocators --bench classic -- --test           each body once
//! ```
//!
//! | group | a pair is |
//! |---|---|
//! | `lifo` | one of 256 blocks that are allocated and then freed in reverse order |
//! | `churn/N` | with N blocks live, a random one is freed and another of random size allocated |
//!
//! Sizes: 1 to 2048 units of 512 B, every power of two as likely as the others; 32 GiB in one arena where a strategy has one. Inputs are made
//! beforehand from a fixed seed. Anchors: best fit on std's ordered sets; the crates `offset-allocator` (akin to TLSF) and `buddy_system_allocator`.
//! Ours run as the engine runs them: behind `dyn Allocator`, with the driver at hand.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use vramlab_sim::allocator::{Allocator, Block, Request};
use vramlab_sim::testing::Dice;
use vramlab_sim::units::StreamId;
use vramlab_sim::{DeviceOptions, SimMachine};

#[path = "baselines/subjects.rs"]
#[allow(dead_code, reason = "where they place what is asked by another bench")]
mod subjects;
use subjects::{BestFit, Frames, Offset, Subject};

/// Bytes of a unit.
const UNIT: u64 = 512;
/// Units of an arena: 32 GiB.
const ARENA: u32 = 1 << 26;
/// Pairs of one measured call.
const PAIRS: usize = 1024;
const LIFO_DEPTH: usize = 256;
const LIVE: [u32; 3] = [1_000, 10_000, 100_000];

const OURS: &[&str] = &[
    "classic.first_fit:arena=32GiB",
    "classic.next_fit:arena=32GiB",
    "classic.best_fit:arena=32GiB",
    "classic.worst_fit:arena=32GiB",
    "classic.tlsf:arena=32GiB",
    "classic.buddy:max_order=26",
    "classic.segregated:arena=32GiB",
    "classic.slab",
];

struct Ours {
    strategy: Box<dyn Allocator>,
    machine: SimMachine,
}

impl Ours {
    fn new(spec: &str) -> Self {
        let strategy = vramlab_allocators::build(&spec.parse().expect(spec)).expect(spec);
        let options = DeviceOptions { capacity: 256 << 30, ..DeviceOptions::default() };
        Self { strategy, machine: SimMachine::new(options) }
    }
}

impl Subject for Ours {
    type Token = Block;
    #[inline]
    fn alloc(&mut self, units: u32) -> Block {
        let request = Request { size: u64::from(units) * UNIT, stream: StreamId(0), ordinal: 0 };
        self.strategy.alloc(&mut self.machine, &request).expect("there is room").block
    }
    #[inline]
    fn free(&mut self, token: Block) {
        self.strategy.free(&mut self.machine, token, None).expect("is live");
    }
}

fn units(dice: &mut Dice) -> u32 {
    let top = 1 << dice.below(11);
    (top + dice.below(top + 1)) as u32
}

/// Sizes and victims, made beforehand.
struct Input {
    sizes: Vec<u32>,
    victims: Vec<u32>,
}

impl Input {
    fn new(live: u32) -> Self {
        let mut dice = Dice::new(1);
        let sizes = (0..1 << 16).map(|_| units(&mut dice)).collect();
        Self { sizes, victims: (0..1 << 18).map(|_| dice.below(live.into()) as u32).collect() }
    }
}

struct Lifo<S: Subject> {
    subject: S,
    input: Input,
    stack: Vec<S::Token>,
    at: usize,
}

impl<S: Subject> Lifo<S> {
    fn new(subject: S) -> Self {
        Self { subject, input: Input::new(1), stack: Vec::with_capacity(LIFO_DEPTH), at: 0 }
    }

    /// [`LIFO_DEPTH`] pairs.
    fn stretch(&mut self) {
        for _ in 0..LIFO_DEPTH {
            self.at = (self.at + 1) % self.input.sizes.len();
            self.stack.push(self.subject.alloc(black_box(self.input.sizes[self.at])));
        }
        while let Some(token) = self.stack.pop() {
            self.subject.free(token);
        }
    }
}

struct Churn<S: Subject> {
    subject: S,
    input: Input,
    tokens: Vec<S::Token>,
    at: usize,
}

impl<S: Subject> Churn<S> {
    /// With holes as they will be.
    fn new(mut subject: S, live: u32) -> Self {
        let input = Input::new(live);
        let sizes = input.sizes.iter().cycle().take(live as usize);
        let tokens = sizes.map(|size| subject.alloc(*size)).collect();
        let mut churn = Self { subject, input, tokens, at: 0 };
        (0..4 * live).for_each(|_| churn.pair());
        churn
    }

    #[inline]
    fn pair(&mut self) {
        self.at += 1;
        let Input { sizes, victims } = &self.input;
        let token = &mut self.tokens[victims[self.at % victims.len()] as usize];
        self.subject.free(*token);
        *token = self.subject.alloc(black_box(sizes[self.at % sizes.len()]));
    }

    /// [`PAIRS`] pairs.
    fn stretch(&mut self) {
        (0..PAIRS).for_each(|_| self.pair());
    }
}

/// Calls a generic function with every subject.
macro_rules! with_each {
    ($visit:ident, $argument:expr) => {{
        $visit($argument, "plain_btree_best_fit", || BestFit::new(ARENA));
        $visit($argument, "offset_allocator", || Offset::new(ARENA));
        $visit($argument, "buddy_system_allocator", || Frames::new(ARENA));
        for spec in OURS {
            let name = spec.split_once(':').map_or(*spec, |(name, _)| name);
            $visit($argument, name, || Ours::new(spec));
        }
    }};
}

fn measure<S: Subject>(criterion: &mut Criterion, name: &str, make: impl Fn() -> S) {
    let mut group = criterion.benchmark_group("lifo");
    group.throughput(Throughput::Elements(LIFO_DEPTH as u64));
    group.bench_function(name, |bencher| {
        let mut lifo = Lifo::new(make());
        bencher.iter(|| lifo.stretch());
    });
    group.finish();
    let mut group = criterion.benchmark_group("churn");
    group.throughput(Throughput::Elements(PAIRS as u64));
    for live in LIVE {
        group.bench_function(BenchmarkId::new(name, live), |bencher| {
            let mut churn = Churn::new(make(), live);
            bencher.iter(|| churn.stretch());
        });
    }
    group.finish();
}

/// ns a pair in the fastest of many stretches of `pairs` pairs.
fn fastest(pairs: usize, mut stretch: impl FnMut()) -> f64 {
    let (begin, mut best) = (Instant::now(), u128::MAX);
    while begin.elapsed() < Duration::from_millis(400) {
        let start = Instant::now();
        stretch();
        best = best.min(start.elapsed().as_nanos());
    }
    best as f64 / pairs as f64
}

fn row<S: Subject>(only: Option<&str>, name: &str, make: impl Fn() -> S) {
    if only.is_some_and(|only| !name.contains(only)) {
        return;
    }
    let mut lifo = Lifo::new(make());
    let mut cells = vec![fastest(LIFO_DEPTH, || lifo.stretch())];
    for live in LIVE {
        let mut churn = Churn::new(make(), live);
        cells.push(fastest(PAIRS, || churn.stretch()));
    }
    let cells: Vec<String> = cells.iter().map(|ns| format!("{ns:8.1}")).collect();
    println!("{name:24} {}", cells.join(" "));
}

fn classic(criterion: &mut Criterion) {
    with_each!(measure, criterion);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = classic
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--fastest");
    if arguments.next().is_none() {
        benches();
        return Criterion::default().configure_from_args().final_summary();
    }
    let only = arguments.find(|argument| !argument.starts_with('-'));
    println!("{:24} {:>8} {:>8} {:>8} {:>8}   ns per pair", "", "lifo", "1k", "10k", "100k");
    with_each!(row, only.as_deref());
}
