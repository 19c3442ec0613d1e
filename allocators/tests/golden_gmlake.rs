//! `stitch.gmlake` against the golden cases of the real allocator: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_cases;

use std::collections::HashMap;

use golden_cases::{Case, Subject, golden};
use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec};
use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Placement, Reply, Request};
use vramlab_sim::machine::{Machine, RangeKind};
use vramlab_sim::testing::{Reference, ScriptedMachine};
use vramlab_sim::units::StreamId;
use vramlab_sim::{Address, DeviceOptions};

/// Physical handles are this large.
const PIECE: u64 = 2 << 20;

struct GmLake {
    strategy: Box<dyn Allocator>,
    machine: ScriptedMachine,
    /// Work is complete before the next op.
    immediate: bool,
    live: HashMap<u64, Block>,
    /// Bytes of live reservations.
    reservations: u64,
    /// Most bytes allocated, reserved, used on the device, in reservations, after an op.
    peaks: [u64; 4],
    /// Requests that were refused, and placements in stitched blocks.
    refused: u64,
    stitched: u64,
    /// Numbers of the handles by place: range, and offset in it.
    mapped: HashMap<(u32, u64), u32>,
    /// Successful driver calls by name.
    calls: HashMap<&'static str, u64>,
    columns: Vec<String>,
}

impl GmLake {
    fn new(case: &Case) -> Self {
        let config = case.value("config").and_then(Value::as_object).expect("a case has a config");
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = |key: &str| match key {
            "PYTORCH_CUDA_ALLOC_CONF" => "conf".to_owned(),
            key => key.to_owned(),
        };
        // logs change nothing
        let given = config.iter().filter(|(key, _)| *key != "GMLAKE_INFO");
        let options = Options::from_pairs(given.map(|(key, v)| (name(key), text(v))));
        let capacity = case.number("device/capacity").expect("a case has a capacity");
        Self {
            strategy: vramlab_allocators::build(&Spec::new("stitch.gmlake", options))
                .unwrap_or_else(|error| panic!("{}: {error}", case.name)),
            machine: ScriptedMachine::new(DeviceOptions { capacity, ..DeviceOptions::default() }),
            immediate: case.text("device/gpu_work") == Some("immediate"),
            live: HashMap::new(),
            reservations: 0,
            peaks: [0; 4],
            refused: 0,
            stitched: 0,
            mapped: HashMap::new(),
            calls: HashMap::new(),
            columns: case.columns().into_iter().map(str::to_owned).collect(),
        }
    }

    fn notice(&mut self, notice: Notice<'_>) -> Reply {
        self.strategy.notice(&mut self.machine, notice).expect("no driver error")
    }

    fn alloc(&mut self, id: u64, size: u64) -> Vec<Value> {
        let request = Request { size, stream: StreamId(0), ordinal: 0 };
        match self.strategy.alloc(&mut self.machine, &request) {
            Ok(placement) => {
                self.live.insert(id, placement.block);
                self.head(&placement)
            }
            Err(AllocError::OutOfMemory(_)) => {
                self.refused += 1;
                vec![json!("O")]
            }
            Err(error) => panic!("a request for {size} bytes: {error}"),
        }
    }

    /// Kind, range, offset and pieces of a placement.
    fn head(&mut self, placement: &Placement) -> Vec<Value> {
        let Placement { address, size, .. } = *placement;
        let origin = self.machine.origin(address).expect("lies in a range of the driver");
        let kind = match origin.kind {
            RangeKind::Malloc => "m",
            RangeKind::Reserved if self.is_listed(address) => "p",
            RangeKind::Reserved => "s",
            other => panic!("found a range of kind {other:?}"),
        };
        self.note_calls();
        self.stitched += u64::from(kind == "s");
        let pieces = match kind {
            "m" => Vec::new(),
            _ => self.pieces(origin.ordinal, origin.offset, size),
        };
        vec![json!("A"), json!(kind), json!(origin.ordinal), json!(origin.offset), json!(pieces)]
    }

    /// Primitive blocks are in the layout, stitched ones are not.
    fn is_listed(&mut self, address: Address) -> bool {
        let Reply::Layout(layout) = self.notice(Notice::Walk) else { panic!("expected a layout") };
        let mut segments = layout.segments.iter();
        segments.any(|segment| (segment.address..segment.address + segment.size).contains(&address))
    }

    /// Runs of handles under a part of a reserved range.
    fn pieces(&self, range: u32, offset: u64, size: u64) -> Vec<[u32; 2]> {
        let mut runs: Vec<[u32; 2]> = Vec::new();
        for at in (offset..offset + size).step_by(PIECE as usize) {
            let handle = self.mapped[&(range, at)];
            match runs.last_mut() {
                Some([first, count]) if *first + *count == handle => *count += 1,
                _ => runs.push([handle, 1]),
            }
        }
        runs
    }

    fn note_calls(&mut self) {
        for call in self.machine.drain_log().filter(|call| call.ok) {
            *self.calls.entry(call.call).or_default() += 1;
            match call.call {
                "cuMemMap" => {
                    let (Some((_, range)), Some(Reference::Handle(handle))) =
                        (call.segment, call.reference)
                    else {
                        panic!("expected a place and a handle, found {call}")
                    };
                    self.mapped.insert((range, call.offset), handle.0);
                }
                "cuMemAddressReserve" => self.reservations += call.size,
                "cuMemAddressFree" => self.reservations -= call.size,
                _ => {}
            }
        }
    }

    fn statistics(&mut self) -> Vec<Value> {
        self.note_calls();
        let Reply::Counters(counters) = self.notice(Notice::Counters) else {
            panic!("expected counters")
        };
        let counter = |name: &str| counters.iter().find(|(n, _)| *n == name).map(|(_, n)| *n);
        let bytes = |name| counter(name).unwrap_or_default();
        let (allocated, reserved) = (bytes("allocated_bytes"), bytes("reserved_bytes"));
        let now = [allocated, reserved, self.machine.held().device_used, self.reservations];
        for (peak, now) in self.peaks.iter_mut().zip(now) {
            *peak = now.max(*peak);
        }
        let calls = |name: &str| self.calls.get(name).copied().unwrap_or_default();
        let columns = self.columns.iter().map(|column| match column.as_str() {
            "allocated" => counter("allocated_bytes"),
            "reserved" => counter("reserved_bytes"),
            "active" => counter("active_bytes"),
            "inactive_split" => counter("inactive_split_bytes"),
            "segments" => counter("segment"),
            "retries" => counter("num_alloc_retries"),
            "device_used" => Some(self.machine.held().device_used),
            "va_reserved" => Some(self.reservations),
            "n_malloc" => Some(calls("cudaMalloc")),
            "n_create" => Some(calls("cuMemCreate")),
            "n_reserve" => Some(calls("cuMemAddressReserve")),
            "n_map" => Some(calls("cuMemMap")),
            "n_addrfree" => Some(calls("cuMemAddressFree")),
            _ => None,
        });
        columns.map(|number| json!(number)).collect()
    }
}

impl Subject for GmLake {
    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        if self.immediate {
            self.machine.complete_all();
        }
        let number = |at: usize| op[at].as_u64().expect("a number");
        let mut row = match op[0].as_str() {
            Some("a") => self.alloc(number(1), number(2)),
            Some("f") => match self.live.remove(&number(1)) {
                None => vec![json!("N")],
                Some(block) => {
                    self.strategy.free(&mut self.machine, block, None).expect("it is live");
                    vec![json!("F")]
                }
            },
            Some("e") => {
                self.notice(Notice::EmptyCache);
                vec![json!("E")]
            }
            Some("c") => {
                self.machine.complete_all();
                vec![json!("C")]
            }
            other => panic!("expected a, f, e or c, found {other:?}"),
        };
        row.extend(self.statistics());
        row
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        let calls = |name: &str| self.calls.get(name).copied().unwrap_or_default();
        let [allocated, reserved, device, addresses] = self.peaks;
        vec![
            ("peak_allocated", allocated),
            ("peak_reserved", reserved),
            ("peak_device", device),
            ("peak_va", addresses),
            ("oom", self.refused),
            ("stitched_allocs", self.stitched),
            ("creates", calls("cuMemCreate")),
            ("reserves", calls("cuMemAddressReserve")),
            ("maps", calls("cuMemMap")),
        ]
    }
}

#[test]
fn golden_gmlake() {
    golden("gmlake", |case| Some(Box::new(GmLake::new(case))));
}
