//! The rules of serving a plan.

use std::sync::Arc;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::driver::DriverError;
use vramlab_sim::future::{Future, Life, PlannedUse};
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

const MIB: u64 = 1 << 20;

struct Probe {
    strategy: Audit<Box<dyn Allocator>>,
    machine: ScriptedMachine,
    ordinal: u64,
}

/// Requests of (MiB, born, freed) on stream 0.
fn future(lives: &[(u64, u64, u64)]) -> Future {
    let life = |&(mib, born, freed): &(u64, u64, u64)| Life {
        size: mib * MIB,
        stream: StreamId(0),
        born,
        freed: Some(freed),
        shared: false,
    };
    Future { requests: lives.iter().map(life).collect(), ..Future::default() }
}

impl Probe {
    fn new(spec: &str, future: Future, capacity: u64) -> Self {
        let spec = spec.parse().expect("a spec");
        let strategy = crate::registry::build_ahead(&spec, &Arc::new(future)).expect("builds");
        Self {
            strategy: Audit::new(strategy, 256),
            machine: ScriptedMachine::of_capacity(capacity),
            ordinal: 0,
        }
    }

    fn try_alloc(&mut self, mib: u64) -> Result<Placement, AllocError> {
        let (stream, ordinal) = (StreamId(0), self.ordinal);
        self.ordinal += 1;
        let request = Request { size: mib * MIB, stream, ordinal };
        self.strategy.alloc(&mut self.machine, &request)
    }

    fn alloc(&mut self, mib: u64) -> Placement {
        self.try_alloc(mib).expect("there is room")
    }

    /// Range and offset in MiB of a new block.
    fn place(&mut self, mib: u64) -> (Block, u32, u64) {
        let Placement { block, address, .. } = self.alloc(mib);
        let origin = self.machine.origin(address).expect("lies in a range");
        (block, origin.ordinal, origin.offset / MIB)
    }

    fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.machine, block, None).expect("is live");
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

    fn reserved(&self) -> u64 {
        let reserved = self.strategy.usage().reserved;
        assert_eq!(reserved, self.machine.held().reserved);
        reserved / MIB
    }
}

const SPEC: &str = "planned.greedy_by_size";
/// 8 and 4 meet, then 8 and 6.
const LIVES: [(u64, u64, u64); 3] = [(8, 0, 9), (4, 1, 2), (6, 3, 9)];

#[test]
fn one_malloc_of_the_planned_size_and_offsets_by_ordinal() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 1 << 30);
    assert_eq!(probe.reserved(), 0);
    let (a, range, offset) = probe.place(8);
    assert_eq!((range, offset, probe.reserved()), (0, 0, 14));
    let (b, range, offset) = probe.place(4);
    assert_eq!((range, offset), (0, 8));
    probe.free(b);
    let (c, range, offset) = probe.place(6);
    assert_eq!((range, offset), (0, 8));
    [a, c].into_iter().for_each(|block| probe.free(block));
    assert_eq!((probe.counter("as_planned"), probe.counter("deviations")), (3, 0));
    assert_eq!((probe.counter("plan_bytes"), probe.counter("lower_bound")), (14 * MIB, 14 * MIB));
    assert_eq!(probe.machine.calls().get("cudaMalloc"), 1);
}

#[test]
fn one_malloc_of_what_there_is_on_a_device_without_room() {
    // never more than 14 MiB are alive, but TVM puts the third on top of the second
    let lives = [(8, 0, 5), (6, 3, 9), (4, 6, 9)];
    let mut probe = Probe::new("planned.greedy_by_size:system=tvm", future(&lives), 15 * MIB);
    let (a, range, _) = probe.place(8);
    assert_eq!((probe.counter("plan_bytes"), probe.reserved()), (18 * MIB, 14), "whole granules");
    assert_eq!(probe.place(6).1, range);
    probe.free(a);
    let refused = probe.try_alloc(4);
    assert!(matches!(refused, Err(AllocError::OutOfMemory(_))), "it lies beyond: {refused:?}");
}

#[test]
fn deviates_in_size_or_number_and_goes_to_the_fallback() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 1 << 30);
    let (_, range, _) = probe.place(7);
    assert_eq!(range, 0, "the fallback's segment came first");
    probe.place(5);
    let (_, range, offset) = probe.place(6);
    assert_eq!(offset, 8, "the third is as planned");
    let (_, beyond, _) = probe.place(6);
    assert_ne!(beyond, range, "the fourth is not planned");
    assert_eq!((probe.counter("as_planned"), probe.counter("deviations")), (1, 3));
}

#[test]
fn deviates_where_the_place_is_still_taken() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 1 << 30);
    let (_, range, _) = probe.place(8);
    probe.place(4);
    let (_, other, _) = probe.place(6);
    assert_ne!(other, range, "the second was not freed as planned");
}

#[test]
fn streams_wait_for_each_other_where_memory_goes_from_one_to_another() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 1 << 30);
    let (_, range, _) = probe.place(8);
    let (b, _, _) = probe.place(4);
    probe.notice(Notice::RecordStream { block: b, stream: StreamId(5) });
    probe.free(b);
    let (_, same, offset) = probe.place(6);
    assert_eq!((same, offset), (range, 8));
    assert_eq!(probe.counter("stream_waits"), 1);
}

#[test]
fn deferred_frees_hold_their_place() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 1 << 30);
    let (a, range, _) = probe.place(8);
    let (b, _, _) = probe.place(4);
    probe.notice(Notice::FreeDeferred { block: b });
    let usage = probe.strategy.usage();
    assert_eq!((usage.allocated, usage.active), (8 * MIB, 12 * MIB));
    let (c, other, _) = probe.place(6);
    assert_ne!(other, range, "its place is still taken");
    [a, c].into_iter().for_each(|block| probe.free(block));
    probe.notice(Notice::EmptyCache);
    assert_eq!(probe.strategy.usage(), Usage::default());
}

#[test]
fn empty_cache_gives_an_idle_range_back_until_it_is_needed() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 1 << 30);
    let (a, _, _) = probe.place(8);
    probe.notice(Notice::EmptyCache);
    assert_eq!(probe.reserved(), 14, "a block lies in it");
    probe.free(a);
    probe.notice(Notice::Trim { keep: 14 * MIB });
    assert_eq!(probe.reserved(), 14);
    probe.notice(Notice::Trim { keep: 13 * MIB });
    assert_eq!(probe.reserved(), 0);
    assert_eq!((probe.place(4).2, probe.reserved()), (8, 14));
}

#[test]
fn out_of_memory_gives_an_idle_range_back_first() {
    let mut probe = Probe::new(SPEC, future(&LIVES), 20 * MIB);
    let (a, _, _) = probe.place(8);
    let refused = probe.try_alloc(10);
    let Err(AllocError::OutOfMemory(numbers)) = refused else { panic!("found {refused:?}") };
    assert_eq!((numbers.reserved, numbers.active), (14 * MIB, 8 * MIB));
    probe.free(a);
    let b = probe.alloc(10).block;
    assert_eq!(probe.reserved(), 10);
    probe.free(b);
    let error = DriverError::Failed { call: "cudaMalloc", what: "on cue".into() };
    probe.machine.fail_on("cudaMalloc", 0, error.clone());
    assert_eq!(probe.try_alloc(50), Err(AllocError::Driver(error)));
}

/// The audit would have it that a block's bytes are its own until it is freed, so this one goes without.
#[test]
fn release_after_the_last_use_makes_room_before_the_free() {
    let used = |op, ordinal| PlannedUse { op, ordinal, write: false };
    let known = Future {
        uses: vec![used(2, 0), used(3, 1)],
        ..future(&[(8, 0, 9), (4, 1, 10), (8, 4, 11)])
    };
    let spec = "planned.reuse:release=last_use".parse().expect("a spec");
    let mut strategy = crate::registry::build_ahead(&spec, &Arc::new(known)).expect("builds");
    let mut machine = ScriptedMachine::of_capacity(1 << 30);
    let mut alloc = |strategy: &mut Box<dyn Allocator>, mib: u64, ordinal| {
        let request = Request { size: mib * MIB, stream: StreamId(0), ordinal };
        strategy.alloc(&mut machine, &request).expect("there is room")
    };
    let a = alloc(&mut strategy, 8, 0);
    let b = alloc(&mut strategy, 4, 1);
    let c = alloc(&mut strategy, 8, 2);
    assert_eq!(a.address, c.address);
    assert_eq!(strategy.usage().allocated, 8 * MIB, "the second is over too");
    for block in [a, b, c].map(|placement| placement.block) {
        strategy.free(&mut machine, block, None).expect("is live");
        let again = strategy.free(&mut machine, block, None);
        assert_eq!(again, Err(AllocError::UnknownBlock(block)));
    }
    assert_eq!(strategy.usage().allocated, 0);
}

#[test]
fn best_static_serves_the_smallest_plan_and_names_them_all() {
    let lives = [(9, 0, 1), (8, 0, 9), (7, 0, 1), (6, 0, 9), (5, 2, 9), (9, 3, 9)];
    let mut probe = Probe::new("bound.best_static", future(&lives), 1 << 30);
    probe.alloc(9);
    let names = ["greedy_by_size", "greedy_by_conflicts", "best_gap", "reuse"];
    let sizes = names.map(|name| probe.counter(name));
    let least = sizes.iter().min().copied().expect("there are some");
    assert!(probe.counter("plan_bytes") <= least);
    assert!(sizes.iter().all(|size| *size >= probe.counter("lower_bound")), "{sizes:?}");
}
