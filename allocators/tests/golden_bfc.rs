//! `tensorflow.bfc` against the golden cases of TensorFlow's allocator: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_cases;

use golden_cases::{Case, Subject, golden, origin};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec};
use vramlab_sim::allocator::{AllocError, Allocator, Block, BlockState, Notice, Reply, Request};
use vramlab_sim::device::SimMachine;
use vramlab_sim::machine::Machine as _;
use vramlab_sim::units::StreamId;

struct Bfc {
    strategy: Box<dyn Allocator>,
    machine: SimMachine,
    live: FxHashMap<u64, Block>,
    /// The device's first address, known since the first placement.
    base: Option<u64>,
    /// Requests that were served, and that were not.
    allocs: u64,
    refused: u64,
    /// Bytes of the largest chunk that was handed out.
    largest: u64,
    peak_in_use: u64,
}

impl Bfc {
    fn for_case(case: &Case) -> Option<Box<dyn Subject>> {
        let config = |name: &str| case.value(&format!("config/{name}")).map(Value::to_string);
        let options = [
            ("memory_limit", config("memory_limit")),
            ("allow_growth", config("allow_growth")),
            ("garbage_collection", config("garbage_collection")),
            ("fragmentation_fraction", config("fragmentation_fraction")),
            ("coalesce_regions", config("coalesce_regions")),
            ("timestamped_allocator", config("timing")),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let spec = Spec::new("tensorflow.bfc", Options::from_pairs(given));
        let strategy = vramlab_allocators::build(&spec).expect("the case's options are accepted");
        Some(Box::new(Self {
            strategy,
            machine: case.machine(),
            live: FxHashMap::default(),
            base: None,
            allocs: 0,
            refused: 0,
            largest: 0,
            peak_in_use: 0,
        }))
    }

    fn set(&mut self, key: &str, value: u64) {
        let notice = Notice::Set { key, value: &value.to_string() };
        let reply = self.strategy.notice(&mut self.machine, notice);
        assert_eq!(reply, Ok(Reply::Done), "{key}");
    }

    fn alloc(&mut self, id: u64, size: u64) -> Vec<Value> {
        let request = Request { size, stream: StreamId(0), ordinal: 0 };
        let placement = match self.strategy.alloc(&mut self.machine, &request) {
            // the real one's null is no allocation to the recorder
            Ok(placement) => Some(placement).filter(|placement| placement.address != 0),
            Err(AllocError::OutOfMemory(_)) => None,
            Err(other) => panic!("a request for {size} bytes: {other}"),
        };
        let Some(placement) = placement else {
            self.refused += 1;
            return vec![json!("O")];
        };
        self.allocs += 1;
        self.largest = self.largest.max(placement.size);
        self.live.insert(id, placement.block);
        let (_, chunk, offset) = origin(&self.machine, placement.address);
        let base = *self.base.get_or_insert(placement.address - offset);
        let address = placement.address - base;
        vec![json!("A"), json!(address), json!(chunk), json!(offset), json!(placement.size)]
    }

    /// bytes_in_use, pool_bytes, n_regions, n_free_chunks, largest_free_chunk, next_region_bytes
    fn statistics(&mut self) -> [u64; 6] {
        let usage = self.strategy.usage();
        self.peak_in_use = self.peak_in_use.max(usage.active);
        let notice = |this: &mut Self, notice| {
            this.strategy.notice(&mut this.machine, notice).expect("is answered")
        };
        let Reply::Layout(layout) = notice(self, Notice::Walk) else { panic!("expected a layout") };
        let Reply::Counters(counters) = notice(self, Notice::Counters) else {
            panic!("expected counters")
        };
        let blocks = layout.segments.iter().flat_map(|segment| &segment.blocks);
        let free = blocks.filter(|b| b.state == BlockState::Free).map(|block| block.size);
        let next = counters.iter().find(|(name, _)| *name == "curr_region_allocation_bytes");
        [
            usage.active,
            usage.reserved,
            layout.segments.len() as u64,
            free.clone().count() as u64,
            free.max().unwrap_or(0),
            next.expect("a counter").1,
        ]
    }
}

impl Subject for Bfc {
    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        let number = |at: usize| op.get(at).and_then(Value::as_u64);
        let first = number(1).expect("an id or a count");
        let mut row = match op[0].as_str() {
            Some("a") => {
                if let Some(count) = number(3) {
                    self.set("freed_by_count", count);
                }
                self.alloc(first, number(2).expect("a size"))
            }
            Some("f") => match self.live.remove(&first) {
                None => return vec![json!("N")],
                Some(block) => {
                    self.strategy.free(&mut self.machine, block, None).expect("is live");
                    vec![json!("F")]
                }
            },
            Some("t") => {
                self.set("safe_frontier", first);
                vec![json!("T")]
            }
            other => panic!("expected a, f or t, found {other:?}"),
        };
        row.extend(self.statistics().map(Value::from));
        row
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        let (calls, refused) = (self.machine.calls(), self.machine.refused());
        let done = |call| calls.get(call) - refused.get(call);
        vec![
            ("peak_bytes_in_use", self.peak_in_use),
            ("peak_pool_bytes", self.machine.held().peak_reserved),
            ("num_allocs", self.allocs),
            ("largest_alloc_size", self.largest),
            ("device_allocs", done("cudaMalloc")),
            ("device_frees", done("cudaFree")),
            ("device_fails", refused.get("cudaMalloc")),
            ("oom", self.refused),
        ]
    }
}

#[test]
fn golden_bfc() {
    golden("bfc", Bfc::for_case);
}
