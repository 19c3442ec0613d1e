//! The Paddle strategies and wrappers against recordings of PaddlePaddle's own code. What the ops and rows are: `tests/golden/paddle/README.md`.

mod golden_cases;

use std::collections::BTreeMap;

use golden_cases::{Case, Subject, golden};
use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec, build};
use vramlab_sim::Address;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::machine::Machine as _;
use vramlab_sim::testing::{LoggedCall, ScriptedMachine};
use vramlab_sim::units::StreamId;

/// The allocator of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    AutoGrowth,
    StreamSafe,
    Vmm,
    Buddy,
    Collector,
}

impl Kind {
    fn of(case: &Case) -> Option<Self> {
        Some(match case.text("allocator")? {
            "paddle/auto_growth" => Self::AutoGrowth,
            "paddle/stream_safe" => Self::StreamSafe,
            "paddle/vmm" => Self::Vmm,
            "paddle/buddy" => Self::Buddy,
            "paddle/auto_growth+gc" => Self::Collector,
            _ => return None,
        })
    }

    /// The strategy, with the case's settings as options.
    fn spec(self, case: &Case) -> Spec {
        let number =
            |path: &str, name: &str| Some((name.to_owned(), case.number(path)?.to_string()));
        let flag = |path: &str, name: &str| {
            Some((name.to_owned(), case.value(path)?.as_bool()?.to_string()))
        };
        // the fraction is used in single precision
        let fraction = case.value("config/flags/fraction").and_then(Value::as_f64);
        let fraction = fraction.map(|f| f64::from(f as f32).to_string());
        let options: Vec<Option<(String, String)>> = match self {
            Self::AutoGrowth | Self::StreamSafe | Self::Collector => vec![
                number("config/align", "alignment_size"),
                number("config/alignment", "alignment_size"),
                number("config/chunk", "chunk_size"),
                flag("config/allow", "allow_free_idle_chunk"),
                flag("config/flags/free_idle_chunk", "free_idle_chunk"),
                flag("config/flags/free_when_no_cache_hit", "free_when_no_cache_hit"),
            ],
            Self::Vmm => vec![number("config/align", "alignment_size")],
            Self::Buddy => vec![
                number("config/flags/init_mb", "initial_gpu_memory_in_mb"),
                number("config/flags/realloc_mb", "reallocate_gpu_memory_in_mb"),
                fraction.map(|share| ("fraction_of_gpu_memory_to_use".to_owned(), share)),
            ],
        };
        let name = match self {
            Self::Vmm => "paddle.vmm_auto_growth",
            Self::Buddy => "paddle.naive_best_fit",
            _ => "paddle.auto_growth",
        };
        let mut spec = Spec::new(name, Options::from_pairs(options.into_iter().flatten()));
        let wrapper = match self {
            Self::StreamSafe => Some("stream_safe:gpu_allocator_retry_time=0".to_owned()),
            Self::Collector => {
                let gb = case.value("config/eager_delete_tensor_gb").expect("a threshold");
                Some(format!("eager_deletion:eager_delete_tensor_gb={gb}"))
            }
            _ => None,
        };
        if let Some(wrapper) = wrapper {
            spec.parts.extend(wrapper.parse::<Spec>().expect("a wrapper").parts);
        }
        spec
    }
}

/// A case under way.
struct Run {
    kind: Kind,
    strategy: Box<dyn Allocator>,
    machine: ScriptedMachine,
    /// The lowest address of the device.
    base: Address,
    columns: Vec<String>,
    /// Live blocks by the case's id, and the bytes that each was granted.
    live: BTreeMap<u64, Block>,
    peak_allocated: u64,
    peak_reserved: u64,
    refused: u64,
}

impl Run {
    fn new(case: &Case) -> Option<Self> {
        let kind = Kind::of(case)?;
        let strategy = build(&kind.spec(case)).expect("the case's settings are options");
        let machine = ScriptedMachine::new(case.device());
        Some(Self {
            kind,
            strategy,
            machine,
            base: case.base(),
            columns: case.columns().into_iter().map(str::to_owned).collect(),
            live: BTreeMap::new(),
            peak_allocated: 0,
            peak_reserved: 0,
            refused: 0,
        })
    }

    fn notice(&mut self, notice: Notice<'_>) -> Reply {
        self.strategy.notice(&mut self.machine, notice).expect("the device does not fail")
    }

    fn alloc(&mut self, id: u64, size: u64, stream: u32) -> Vec<Value> {
        let request = Request { size, stream: StreamId(stream), ordinal: 0 };
        let before = self.strategy.usage();
        match self.strategy.alloc(&mut self.machine, &request) {
            Ok(placement) => {
                self.live.insert(id, placement.block);
                self.placed(placement, before)
            }
            Err(AllocError::OutOfMemory(_)) => {
                self.refused += 1;
                vec![json!("O")]
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Address, chunk, offset in it, block size.
    fn placed(&self, placement: Placement, before: Usage) -> Vec<Value> {
        let Placement { address, .. } = placement;
        let origin = self.machine.origin(address).expect("a placement lies in the driver's memory");
        let block = self.strategy.usage().allocated - before.allocated;
        let (address, chunk, offset) = match self.kind {
            Kind::Vmm => {
                let physical = self.machine.physical(address).expect("it is mapped");
                (origin.offset, physical.handle, physical.offset)
            }
            _ => (address - self.base, u64::from(origin.ordinal), origin.offset),
        };
        if self.kind == Kind::Collector {
            return vec![json!("A"), json!(address), json!(block)];
        }
        vec![json!("A"), json!(address), json!(chunk), json!(offset), json!(block)]
    }

    fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.machine, block, None).expect("the block is live");
    }

    /// The figures named in the case's columns.
    fn statistics(&mut self) -> Vec<Value> {
        let Reply::Counters(counters) = self.notice(Notice::Counters) else {
            panic!("counters are answered")
        };
        let Reply::Layout(layout) = self.notice(Notice::Walk) else { panic!("a walk is answered") };
        let counter = |name: &str| {
            let found = counters.iter().find(|(known, _)| *known == name);
            found.unwrap_or_else(|| panic!("expected a counter {name}, found {counters:?}")).1
        };
        let usage = self.strategy.usage();
        // a tensor in the collector is the collector's, which has it allocated
        let allocated = if self.kind == Kind::Collector { usage.active } else { usage.allocated };
        self.peak_allocated = self.peak_allocated.max(allocated);
        self.peak_reserved = self.peak_reserved.max(usage.reserved);
        let growths = if self.kind == Kind::Vmm { "growths" } else { "curr_chunks_num" };
        let figure = |column: &String| match column.as_str() {
            "allocated" => allocated,
            "reserved" => usage.reserved,
            "n_chunks" => counter(growths),
            "n_free_blocks" => counter("free_blocks_num"),
            "largest_free_block" => largest_free(&layout),
            "n_unfreed" => counter("unfreed_allocations"),
            other => counter(other),
        };
        self.columns.iter().map(figure).map(|value| json!(value)).collect()
    }
}

fn largest_free(layout: &Layout) -> u64 {
    let blocks = layout.segments.iter().flat_map(|segment| &segment.blocks);
    let free = blocks.filter(|block| block.state == BlockState::Free);
    free.map(|block| block.size).max().unwrap_or(0)
}

impl Subject for Run {
    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        let number = |at: usize| op.get(at).and_then(Value::as_u64).unwrap_or(0);
        let mut row = match op[0].as_str().expect("an op has a name") {
            "a" => self.alloc(number(1), number(2), number(3) as u32),
            "f" => match self.live.remove(&number(1)) {
                Some(block) => {
                    self.free(block);
                    vec![json!("F")]
                }
                None => return vec![json!("N")],
            },
            "r" => {
                let before = self.strategy.usage().reserved;
                self.notice(Notice::EmptyCache);
                vec![json!("R"), json!(before - self.strategy.usage().reserved)]
            }
            "s" => {
                if let Some(block) = self.live.get(&number(1)).copied() {
                    let stream = StreamId(number(2) as u32);
                    self.notice(Notice::RecordStream { block, stream });
                }
                vec![json!("S")]
            }
            "d" => {
                self.machine.complete(StreamId(number(1) as u32));
                vec![json!("D")]
            }
            "g" => {
                let ids = op[1].as_array().expect("a list of ids");
                for id in ids.iter().filter_map(Value::as_u64) {
                    if let Some(block) = self.live.remove(&id) {
                        self.free(block);
                    }
                }
                // the next operator's work ends the hand-over
                let work = self.strategy.before_work(&mut self.machine, StreamId(0), &mut []);
                work.expect("the device does not fail");
                vec![json!("G")]
            }
            "e" => {
                self.notice(Notice::Mark { name: "run" });
                vec![json!("E")]
            }
            other => panic!("op {other:?} is not known"),
        };
        row.extend(self.statistics());
        row
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        let done = |log: &[LoggedCall], names: [&str; 2]| {
            log.iter().filter(|row| row.ok && names.contains(&row.call)).count() as u64
        };
        let log: Vec<LoggedCall> = self.machine.drain_log().collect();
        let held = self.machine.held();
        let mut found = vec![
            ("peak_alloc", self.peak_allocated),
            ("peak_reserved", self.peak_reserved),
            ("oom", self.refused),
            ("nmalloc", done(&log, ["cudaMalloc", "cuMemCreate"])),
            ("nfree", done(&log, ["cudaFree", "cuMemRelease"])),
            ("dev_peak", held.peak_device_used),
        ];
        if let Reply::Counters(counters) = self.notice(Notice::Counters) {
            found.extend(counters.into_iter().filter(|(name, _)| *name == "max_chunk"));
        }
        found
    }

    /// The setting in bytes, which the strategy does not tell.
    fn leaves_out(&self, name: &str) -> bool {
        name == "threshold_bytes"
    }
}

#[test]
fn golden_paddle() {
    golden("paddle", |case| Some(Box::new(Run::new(case)?)));
}
