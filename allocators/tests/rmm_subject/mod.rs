//! RMM's resources as a subject of golden cases: rows, statistics, construction and totals.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use std::collections::HashMap;

use serde_json::{Value, json};
use vramlab_allocators::Options;
use vramlab_allocators::rmm::construct;
use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply, Request};
use vramlab_sim::device::SimMachine;
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, Families};
use vramlab_sim::machine::Machine;
use vramlab_sim::units::{EventId, StreamId};

use crate::golden_cases::{Case, Subject, origin};

/// The device, and what the resource asks of it.
struct Spy {
    machine: SimMachine,
    /// The stream of the op under way: an event is made for it.
    current: StreamId,
    /// Streams of events.
    events: HashMap<EventId, StreamId>,
    /// Streams that were waited for in this op.
    waited: Vec<StreamId>,
    /// Mallocs that were refused.
    refused: u64,
}

impl Driver for Spy {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let answer = self.machine.call(call);
        match (call, &answer) {
            (Call::EventCreate, Ok(Answer::Event(event))) => {
                self.events.insert(*event, self.current);
            }
            (Call::EventRecord { event, stream }, _) => assert_eq!(self.events[&event], stream),
            (Call::WaitEvent { event, .. }, _) => self.waited.push(self.events[&event]),
            (Call::Malloc { .. }, Err(_)) => self.refused += 1,
            _ => {}
        }
        answer
    }

    fn families(&self) -> Families {
        self.machine.families()
    }
}

pub(crate) struct Rmm {
    columns: Vec<String>,
    /// Address of the device's first byte.
    base: u64,
    spy: Spy,
    made: Result<Box<dyn Allocator>, AllocError>,
    live: HashMap<u64, Block>,
    refused: u64,
    peak_allocated: u64,
    event_records: bool,
}

impl Rmm {
    /// None for a case of another allocator.
    pub(crate) fn new(case: &Case, version: &str) -> Option<Self> {
        let allocator = case.text("allocator")?;
        let name = allocator.replace('/', ".");
        if !["rmm.pool", "rmm.arena", "rmm.binning"].contains(&name.as_str()) {
            return None;
        }
        let mut options = vec![];
        for (option, path) in [
            ("initial_pool_size", "config/initial"),
            ("maximum_pool_size", "config/maximum"),
            ("arena_size", "config/arena_size"),
            ("min_size_exponent", "config/min_exp"),
            ("max_size_exponent", "config/max_exp"),
        ] {
            let given = case.value(path).filter(|value| !value.is_null());
            options.extend(given.map(|value| (option, value.to_string())));
        }
        if name != "rmm.arena" {
            options.push(("version", version.to_owned()));
        }
        let mut spy = Spy {
            machine: case.machine(),
            current: StreamId(0),
            events: HashMap::new(),
            waited: Vec::new(),
            refused: 0,
        };
        let made = construct(&name, &Options::from_pairs(options), &mut spy);
        Some(Self {
            columns: case.columns().into_iter().map(str::to_owned).collect(),
            base: case.base(),
            spy,
            made,
            live: HashMap::new(),
            refused: 0,
            peak_allocated: 0,
            event_records: version == "26.06",
        })
    }

    fn strategy(&mut self) -> (&mut dyn Allocator, &mut Spy) {
        (&mut **self.made.as_mut().expect("it was made"), &mut self.spy)
    }

    fn statistics(&mut self) -> Vec<Value> {
        let (strategy, spy) = self.strategy();
        let usage = strategy.usage();
        assert_eq!(usage.reserved, spy.machine.held().reserved);
        assert_eq!(usage.active, usage.allocated);
        let counters: HashMap<&str, u64> = match strategy.notice(spy, Notice::Counters) {
            Ok(Reply::Counters(counters)) => counters.into_iter().collect(),
            other => panic!("expected counters, found {other:?}"),
        };
        self.peak_allocated = self.peak_allocated.max(usage.allocated);
        let calls = self.spy.machine.calls();
        let column = |name: &String| match name.as_str() {
            "allocated" => json!(usage.allocated),
            "reserved" => json!(usage.reserved),
            "n_chunks" => json!(calls.get("cudaMalloc") - self.spy.refused),
            "n_free_blocks" => json!(counters["free_blocks"]),
            "largest_free_block" => {
                json!(counters.get("max_block").unwrap_or_else(|| &counters["max_free"]))
            }
            "n_lists" => json!(counters["free_lists"]),
            "n_dev_failed" => json!(self.spy.refused),
            "waited_streams" => self.spy.waited.iter().map(|stream| json!(stream.0)).collect(),
            "n_bin_free" => json!(counters["bin_free_blocks"]),
            "n_waits" => json!(counters["stream_waits"] + counters["bin_stream_waits"]),
            "n_global_superblocks" => json!(counters["global_superblocks"]),
            "n_stream_superblocks" => json!(counters["stream_superblocks"]),
            "n_stream_syncs" => json!(calls.get("cudaStreamSynchronize")),
            "n_device_syncs" => json!(calls.get("cudaDeviceSynchronize")),
            other => panic!("the statistic {other:?} is not known"),
        };
        self.columns.iter().map(column).collect()
    }

    fn alloc(&mut self, id: u64, size: u64) -> Vec<Value> {
        let request = Request { size, stream: self.spy.current, ordinal: 0 };
        let (strategy, spy) = self.strategy();
        match strategy.alloc(spy, &request) {
            Ok(placement) if placement.address == 0 => vec![json!("Z")],
            Ok(placement) => {
                let (_, ordinal, offset) = origin(&spy.machine, placement.address);
                self.live.insert(id, placement.block);
                let address = placement.address - self.base;
                vec![
                    json!("A"),
                    json!(address),
                    json!(ordinal),
                    json!(offset),
                    json!(placement.size),
                ]
            }
            Err(AllocError::OutOfMemory(_)) => {
                self.refused += 1;
                vec![json!("O")]
            }
            Err(other) => panic!("a request for {size} bytes: {other}"),
        }
    }
}

impl Subject for Rmm {
    fn init(&mut self) -> Option<Vec<Value>> {
        let mut row = match &self.made {
            Ok(_) => vec![json!("I")],
            Err(AllocError::OutOfMemory(_)) => {
                return Some(vec![json!("X"), json!("out_of_memory")]);
            }
            Err(AllocError::BadSetting(_)) => return Some(vec![json!("X"), json!("logic_error")]),
            Err(other) => panic!("{other}"),
        };
        // the case says nothing of what was waited for while it was made
        self.spy.waited.clear();
        row.extend(self.statistics());
        Some(row)
    }

    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        let number = |at: usize| op[at].as_u64().expect("a number");
        let (id, last) = (number(1), op.len() - 1);
        self.spy.current = StreamId(number(last) as u32);
        self.spy.waited.clear();
        let mut row = match op[0].as_str() {
            Some("a") => self.alloc(id, number(2)),
            Some("f") => {
                let Some(block) = self.live.remove(&id) else { return vec![json!("N")] };
                let stream = self.spy.current;
                let (strategy, spy) = self.strategy();
                strategy.free(spy, block, Some(stream)).expect("the block is live");
                vec![json!("F")]
            }
            other => panic!("the op {other:?} is not known"),
        };
        row.extend(self.statistics());
        row
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        let (calls, held) = (self.spy.machine.calls(), self.spy.machine.held());
        let mut totals = vec![("dev_failed", self.spy.refused)];
        if self.made.is_err() {
            return totals;
        }
        totals.extend([
            ("peak_alloc", self.peak_allocated),
            ("peak_reserved", held.peak_reserved),
            ("dev_peak", held.peak_device_used),
            ("nmalloc", calls.get("cudaMalloc") - self.spy.refused),
            ("nfree", calls.get("cudaFree")),
            ("oom", self.refused),
            ("waits", calls.get("cudaStreamWaitEvent")),
            ("stream_syncs", calls.get("cudaStreamSynchronize")),
            ("device_syncs", calls.get("cudaDeviceSynchronize")),
        ]);
        if self.event_records {
            totals.push(("event_records", calls.get("cudaEventRecord")));
        }
        totals
    }

    /// 26.08 records other events.
    fn leaves_out(&self, name: &str) -> bool {
        name == "event_records" && !self.event_records
    }
}
