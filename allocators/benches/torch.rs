//! `torch.caching`, ns per operation, on the large golden traces and on a churn of our own.
//!
//! ```text
//! cargo bench -p vramlab-allocators --bench torch
//! ```
//!
//! Each round replays a whole trace on a warm allocator with full statistics, ids resolved beforehand, and frees what is left. The driver
//! only counts: it gives out addresses in a row and completes events on cue, as the fake runtime does on which the real allocator is timed.
//! The golden traces come from the shared folder, as in the tests; without it they are skipped.
#![forbid(unsafe_code)]

#[path = "../tests/golden_format/mod.rs"]
mod golden_format;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use golden_format::shared_folder::{read_text, shared};
use golden_format::{TraceOp, read_trace};
use std::collections::HashMap;
use std::hint::black_box;

use vramlab_allocators::Options;
use vramlab_allocators::torch::Caching;
use vramlab_sim::allocator::{Allocator, Block, Notice, Request};
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, Families, Handle};
use vramlab_sim::units::{EventId, StreamId};

/// Bytes of the device: all traces fit.
const CAPACITY: u64 = 80 << 30;
const STREAMS: usize = 8;

/// An operation with its buffer as a dense slot.
#[derive(Clone, Copy)]
enum Step {
    Alloc { stream: u16, slot: u32, size: u64 },
    Free { slot: u32 },
    Record { stream: u16, slot: u32 },
    Complete { stream: u16 },
    CompleteAll,
    EmptyCache,
}
const _: () = assert!(size_of::<Step>() == 16, "a walk over many steps must not crowd the caches");

/// Slots are used again after a free, so that there are as many as buffers live at a time.
fn resolve(ops: &[TraceOp]) -> Vec<Step> {
    let (mut slots, mut vacant, mut next) = (HashMap::new(), Vec::new(), 0);
    let narrow = |stream: &u64| u16::try_from(*stream).expect("a stream number");
    let mut steps = Vec::new();
    for op in ops {
        steps.push(match op {
            TraceOp::Alloc { id, size, stream } => {
                let slot = vacant.pop().unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                slots.insert(*id, slot);
                Step::Alloc { stream: narrow(stream), slot, size: *size }
            }
            TraceOp::Free { id } => {
                let Some(slot) = slots.remove(id) else { continue };
                vacant.push(slot);
                Step::Free { slot }
            }
            TraceOp::RecordStream { id, stream } => {
                let Some(&slot) = slots.get(id) else { continue };
                Step::Record { stream: narrow(stream), slot }
            }
            TraceOp::Complete { stream } => Step::Complete { stream: narrow(stream) },
            TraceOp::CompleteAll => Step::CompleteAll,
            TraceOp::EmptyCache => Step::EmptyCache,
            _ => continue,
        });
    }
    steps
}

/// A device that counts bytes and nothing else.
#[derive(Default)]
struct Counter {
    next_address: u64,
    next_handle: u32,
    /// Stream of each event and when it was recorded.
    events: Vec<(u32, u64)>,
    moment: u64,
    completed: [u64; STREAMS],
}

impl Counter {
    fn range(&mut self, size: u64) -> Answer {
        let size = size.next_multiple_of(2 << 20);
        self.next_address += size;
        Answer::Address((1 << 40) + self.next_address - size)
    }

    fn complete(&mut self, stream: u16) {
        self.moment += 1;
        self.completed[usize::from(stream) % STREAMS] = self.moment;
    }
}

impl Driver for Counter {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        if let Call::EventQuery { event } = call {
            let (stream, recorded) = self.events[event.0 as usize];
            return Ok(Answer::Flag(recorded < self.completed[stream as usize % STREAMS]));
        }
        Ok(match call {
            Call::EventRecord { event, stream } => {
                self.moment += 1;
                self.events[event.0 as usize] = (stream.0, self.moment);
                Answer::Done
            }
            Call::EventCreate => {
                self.events.push((0, 0));
                Answer::Event(EventId(self.events.len() as u32 - 1))
            }
            Call::Malloc { size } | Call::Reserve { size } => self.range(size),
            Call::Create { .. } => {
                self.next_handle += 1;
                Answer::Handle(Handle(self.next_handle))
            }
            Call::MemInfo => Answer::Info { free: CAPACITY, total: CAPACITY },
            _ => Answer::Done,
        })
    }

    fn families(&self) -> Families {
        Families::ALL
    }
}

/// No strategy's token.
const NO_BLOCK: Block = Block(u64::MAX - 1);

struct Replay {
    caching: Box<dyn Allocator>,
    device: Counter,
    /// [`NO_BLOCK`] where there is none.
    blocks: Vec<Block>,
}

impl Replay {
    fn new(conf: &str, steps: &[Step]) -> Self {
        let options = Options::from_pairs([("conf", conf)]);
        let slots = steps.iter().map(|step| match step {
            Step::Alloc { slot, .. } => *slot as usize + 1,
            _ => 0,
        });
        Self {
            caching: Box::new(Caching::from_options(&options).expect("options that are accepted")),
            device: Counter::default(),
            blocks: vec![NO_BLOCK; slots.max().unwrap_or_default()],
        }
    }

    fn round(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
        (0..self.blocks.len()).for_each(|slot| self.free(slot));
    }

    fn free(&mut self, slot: usize) {
        let block = std::mem::replace(&mut self.blocks[slot], NO_BLOCK);
        if block != NO_BLOCK {
            self.caching.free(&mut self.device, block, None).expect("a live block");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc { stream, slot, size } => {
                let request = Request { size, stream: StreamId(stream.into()), ordinal: 0 };
                let placed = self.caching.alloc(&mut self.device, &request);
                self.blocks[slot as usize] = placed.map_or(NO_BLOCK, |placed| placed.block);
            }
            Step::Free { slot } => self.free(slot as usize),
            Step::Record { stream, slot } => {
                let block = self.blocks[slot as usize];
                if block != NO_BLOCK {
                    let notice = Notice::RecordStream { block, stream: StreamId(stream.into()) };
                    self.caching.notice(&mut self.device, notice).expect("a live block");
                }
            }
            Step::Complete { stream } => self.device.complete(stream),
            Step::CompleteAll => (0..STREAMS as u16).for_each(|s| self.device.complete(s)),
            Step::EmptyCache => {
                self.caching.notice(&mut self.device, Notice::EmptyCache).expect("done");
            }
        }
    }
}

fn bench(c: &mut Criterion, name: &str, conf: &str, steps: &[Step]) {
    let mut group = c.benchmark_group("torch");
    group.throughput(Throughput::Elements(steps.len() as u64));
    let mut replay = Replay::new(conf, steps);
    replay.round(steps);
    group.bench_function(name, |b| b.iter(|| replay.round(black_box(steps))));
    group.finish();
}

fn trace(name: &str) -> Result<Vec<Step>, String> {
    let folder = shared("golden/pytorch").ok_or("no shared folder")?;
    let text = read_text(&folder.join(format!("traces/{name}.jsonl.gz")))?;
    Ok(resolve(&read_trace(&text)?))
}

fn golden(c: &mut Criterion) {
    const EXPANDABLE: &str = "expandable_segments:True";
    for (name, conf) in [
        ("decoder_checkpoint", ""),
        ("comm_overlap", ""),
        ("bert_varlen", ""),
        ("churn_lognormal", ""),
        ("bert_varlen", EXPANDABLE),
        ("churn_lognormal", EXPANDABLE),
    ] {
        let label = if conf.is_empty() { name.to_owned() } else { format!("{name}_expandable") };
        match trace(name) {
            Ok(steps) => bench(c, &label, conf, &steps),
            Err(reason) => println!("torch/{label}: skipped, {reason}"),
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Bytes: the median is 60 kB, one in six is above 360 kB.
    fn size(&mut self) -> u64 {
        // A sum of twelve is nearly normal.
        let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        ((normal * 1.8 + 11.0).exp() as u64).clamp(256, 64 << 20)
    }
}

/// Fills up to `live` buffers, then frees one at random and asks for another, four times as often.
fn churn_steps(live: u32) -> Vec<Step> {
    let mut dice = Dice(1);
    let mut steps = Vec::new();
    let fill = |steps: &mut Vec<Step>, slot: u32, dice: &mut Dice| {
        steps.push(Step::Alloc { stream: 0, slot, size: dice.size() });
    };
    (0..live).for_each(|slot| fill(&mut steps, slot, &mut dice));
    for _ in 0..4 * live {
        let slot = (dice.next() % u64::from(live)) as u32;
        steps.push(Step::Free { slot });
        fill(&mut steps, slot, &mut dice);
    }
    steps
}

fn churn(c: &mut Criterion) {
    for (name, live) in [("churn_1k", 1_000), ("churn_10k", 10_000), ("churn_100k", 100_000)] {
        bench(c, name, "", &churn_steps(live));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = golden, churn
}
criterion_main!(benches);
