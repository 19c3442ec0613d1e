//! The rules of serving.

use std::sync::Arc;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::future::{Future, Life};
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

const MIB: u64 = 1 << 20;

/// What a workload does.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Number of the buffer, bytes.
    Alloc(usize, u64),
    Free(usize),
    Mark(&'static str),
}
use Op::{Alloc, Free, Mark};

/// The future of these ops on stream 0.
fn future(ops: &[Op]) -> Future {
    let (mut future, mut live) = (Future::default(), std::collections::HashMap::new());
    for (at, op) in (0..).zip(ops) {
        match *op {
            Alloc(id, size) => {
                live.insert(id, future.requests.len());
                let stream = StreamId(0);
                future.requests.push(Life { size, stream, born: at, freed: None, shared: false });
            }
            Free(id) => future.requests[live[&id]].freed = Some(at),
            Mark(text) => future.marks.push((at, text.into())),
        }
    }
    future
}

/// Weights of 8 MiB; then three steps of 4 MiB and 2 MiB at once, and 3 MiB after them.
fn steps() -> Vec<Op> {
    let step = |name| {
        [
            Mark(name),
            Alloc(1, 4 * MIB),
            Alloc(2, 2 * MIB),
            Free(1),
            Free(2),
            Alloc(3, 3 * MIB),
            Alloc(9, 100),
            Free(9),
            Free(3),
        ]
    };
    let mut ops = vec![Alloc(0, 8 * MIB)];
    ["step 0", "step 1", "step 2", "step 3"].iter().for_each(|name| ops.extend(step(*name)));
    ops
}

struct Probe {
    strategy: Audit<Box<dyn Allocator>>,
    machine: ScriptedMachine,
    ordinal: u64,
    live: std::collections::HashMap<usize, Block>,
}

impl Probe {
    fn new(options: &str, future: Future, capacity: u64) -> Self {
        let spec = format!("stitch.stalloc:{options}").parse().expect("a spec");
        let strategy = crate::registry::build_ahead(&spec, &Arc::new(future)).expect("builds");
        Self {
            strategy: Audit::new(strategy, 256),
            machine: ScriptedMachine::of_capacity(capacity),
            ordinal: 0,
            live: std::collections::HashMap::new(),
        }
    }

    fn try_alloc(&mut self, size: u64, stream: u32) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(stream), ordinal: self.ordinal };
        self.ordinal += 1;
        self.strategy.alloc(&mut self.machine, &request)
    }

    /// Range, and offset in MiB.
    fn origin(&self, placement: &Placement) -> (u32, u64) {
        let origin = self.machine.origin(placement.address).expect("lies in a range");
        (origin.ordinal, origin.offset / MIB)
    }

    /// Does the ops; says where the allocs went.
    fn play(&mut self, ops: &[Op]) -> Vec<(u32, u64)> {
        let mut places = Vec::new();
        for op in ops {
            match *op {
                Alloc(id, size) => {
                    let placement = self.try_alloc(size, 0).expect("there is room");
                    self.live.insert(id, placement.block);
                    places.push(self.origin(&placement));
                }
                Free(id) => {
                    let block = self.live.remove(&id).expect("is live");
                    self.strategy.free(&mut self.machine, block, None).expect("is live");
                }
                Mark(name) => {
                    self.notice(Notice::Mark { name });
                }
            }
            assert_eq!(self.strategy.usage().reserved, self.machine.held().reserved);
        }
        places
    }

    fn notice(&mut self, notice: Notice<'_>) -> Reply {
        self.strategy.notice(&mut self.machine, notice).expect("no driver error")
    }

    fn counter(&mut self, name: &str) -> u64 {
        let Reply::Counters(counters) = self.notice(Notice::Counters) else {
            panic!("expected counters")
        };
        counters.iter().find(|(n, _)| *n == name).expect("is counted").1
    }
}

#[test]
fn static_area_is_one_malloc_and_the_cells_another() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    let places = probe.play(&steps());
    // weights, then the layers of 4 and 2; the 3 fit above nothing in the layer of 4
    let step = [(0, 8), (0, 12), (0, 8), (1, 0)];
    let mut want = vec![(0, 0)];
    (0..4).for_each(|_| want.extend(step));
    assert_eq!(places, want);
    assert_eq!(probe.machine.calls().get("cudaMalloc"), 2);
    assert_eq!((probe.counter("static_bytes"), probe.counter("var_bytes")), (14 * MIB, 1024));
    assert_eq!((probe.counter("as_planned"), probe.counter("mismatches")), (13, 0));
}

#[test]
fn by_order_the_second_list_comes_again_and_again() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    probe.play(&steps());
    for _ in 0..3 {
        // beyond what was known
        assert_eq!(probe.play(&steps()[1..10]), [(0, 8), (0, 12), (0, 8), (1, 0)]);
    }
    assert_eq!(probe.counter("mismatches"), 0);
}

#[test]
fn exact_size_or_the_caching_allocator_and_the_entry_is_used_up() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    let mut ops = steps();
    ops[2] = Alloc(1, 4 * MIB - 512);
    let places = probe.play(&ops);
    assert_eq!(places[1..4], [(2, 0), (0, 12), (0, 8)]);
    assert_eq!(probe.counter("mismatches"), 1);
    // one request more shifts all that follow
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    ops = steps();
    ops.splice(2..2, [Alloc(7, 5 * MIB), Free(7)]);
    let places = probe.play(&ops);
    assert!(places[1..4].iter().all(|(range, _)| *range > 1), "{places:?}");
}

#[test]
fn still_taken_places_go_to_the_caching_allocator() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    let mut ops = steps();
    ops.truncate(10);
    ops.remove(4); // the 4 stay
    let places = probe.play(&ops);
    assert_eq!(places[1..4], [(0, 8), (0, 12), (2, 0)]);
}

#[test]
fn evaluation_takes_the_smallest_free_range() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    let mut ops = steps();
    ops.extend([Mark("eval"), Alloc(4, MIB), Alloc(5, 5 * MIB), Alloc(6, 20 * MIB)]);
    let places = probe.play(&ops);
    assert_eq!(places[17..], [(0, 8), (0, 9), (2, 0)]);
}

#[test]
fn experts_go_to_the_caching_allocator_or_reuse_the_static_area() {
    let step = |name| {
        [
            Mark(name),
            Alloc(1, 4 * MIB),
            Free(1),
            Mark("layers.0.moe F"),
            Alloc(2, 3 * MIB),
            Free(2),
            Mark("layers.0 end"),
            Alloc(3, 4 * MIB),
            Free(3),
        ]
    };
    let ops: Vec<Op> = ["step 0", "step 1", "step 2"].into_iter().flat_map(step).collect();
    for (options, want) in [
        // planned as any other
        ("", (0, 0)),
        ("STALLOC_DYNAMIC=1", (1, 0)),
        ("STALLOC_DYNAMIC=1,STALLOC_REUSE_STATIC=1", (0, 0)),
    ] {
        let mut probe = Probe::new(options, future(&ops), 1 << 30);
        let places = probe.play(&ops);
        assert_eq!((places[0], places[1], places[2]), ((0, 0), want, (0, 0)), "{options}");
        assert_eq!(probe.counter("mismatches"), 0, "{options}");
    }
}

#[test]
fn no_plan_fits_a_small_device_and_none_is_made_of_one_iteration() {
    let mut probe = Probe::new("", future(&steps()), 10 * MIB);
    let refused = probe.try_alloc(8 * MIB, 0);
    let Err(AllocError::OutOfMemory(numbers)) = refused else { panic!("found {refused:?}") };
    assert_eq!((numbers.asked, numbers.device_free), (14 * MIB, 10 * MIB));
    assert_eq!(probe.strategy.usage(), Usage::default());

    let mut probe = Probe::new("", future(&steps()[..10]), 1 << 30);
    let places = probe.play(&steps()[..10]);
    assert_eq!(probe.counter("static_bytes"), 0);
    assert_eq!(places[0], (0, 0), "the caching allocator's segment");
}

#[test]
fn no_release_of_what_the_plug_in_holds() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    probe.play(&steps());
    let usage = probe.strategy.usage();
    assert_eq!(probe.notice(Notice::EmptyCache), Reply::Unsupported);
    assert_eq!(probe.notice(Notice::Trim { keep: 0 }), Reply::Unsupported);
    assert_eq!(probe.strategy.usage(), usage);
}

#[test]
fn streams_wait_for_each_other_and_deferred_frees_for_the_device() {
    let mut probe = Probe::new("", future(&steps()), 1 << 30);
    probe.play(&steps()[..5]); // the 4 are freed, the 2 are not
    let events = |probe: &Probe| probe.machine.calls().get("cudaStreamWaitEvent");
    let other = probe.try_alloc(100, 3).expect("there is room");
    probe.strategy.free(&mut probe.machine, other.block, None).expect("is live");
    assert_eq!(events(&probe), 0, "a cell that nobody had");
    let large = probe.try_alloc(3 * MIB, 3).expect("there is room").block;
    assert_eq!(events(&probe), 1, "where the 4 were");
    let small = probe.try_alloc(100, 0).expect("there is room");
    assert_eq!((small.address, events(&probe)), (other.address, 2));

    for block in [small.block, large] {
        probe.notice(Notice::FreeDeferred { block });
    }
    let usage = probe.strategy.usage();
    assert_eq!(usage.active - usage.allocated, 3 * MIB + 512);
    probe.try_alloc(MIB, 0).expect("there is room");
    let usage = probe.strategy.usage();
    assert_eq!(usage.active, usage.allocated);
}

#[test]
fn inert_options_are_said() {
    let said = |spec: &str| {
        let spec: crate::Spec = spec.parse().expect(spec);
        super::inert(&spec.strategy().options).len()
    };
    assert_eq!(said("stitch.stalloc:STALLOC_DYNAMIC=1"), 0);
    assert_eq!(said("stitch.stalloc:STALLOC_REUSE_STATIC=1,STALLOC_STATIC_FALLBACK=1"), 2);
}
