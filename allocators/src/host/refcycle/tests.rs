//! One test for each rule of [`super`].

use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply};
use vramlab_sim::driver::DriverError;
use vramlab_sim::testing::Dice;

use crate::classic::testing::Probe;

const MIB: u64 = 1 << 20;

/// Each block is a range of the driver's own, so `reserved` is what is not freed yet.
fn probe(options: &str) -> Probe {
    Probe::new(&format!("cuda.malloc+refcycle:{options}"))
}

fn set(probe: &mut Probe, key: &str, value: &str) {
    assert_eq!(probe.tell(Notice::Set { key, value }), Reply::Done, "{key}={value}");
}

/// Frees blocks in one cycle with an owner.
fn die(probe: &mut Probe, blocks: impl IntoIterator<Item = Block>) {
    set(probe, "cycle", "1");
    probe.free_all(blocks);
    set(probe, "cycle", "0");
}

/// New objects, which stay.
fn grow(probe: &mut Probe, objects: u64) -> Vec<Block> {
    (0..objects).map(|_| probe.alloc(1)).collect()
}

fn held_mib(probe: &Probe) -> u64 {
    probe.reserved() / MIB
}

#[test]
fn refcount_frees_at_once_what_is_in_no_cycle() {
    let mut probe = probe("");
    let a = probe.alloc(MIB);
    probe.free(a);
    assert_eq!((probe.reserved(), probe.counter("gc_count0")), (0, 0));
    let again = probe.strategy.free(&mut probe.machine, a, None);
    assert_eq!(again, Err(AllocError::UnknownBlock(a)));
}

#[test]
fn threshold0_counts_births_less_deaths_and_collects_above_it() {
    let mut probe = probe("threshold0=5");
    let a = probe.alloc(MIB);
    die(&mut probe, [a]);
    assert_eq!(probe.counter("gc_count0"), 2, "the buffer and its owner");
    for _ in 0..20 {
        let b = probe.alloc(1);
        probe.free(b); // births and deaths in balance
    }
    assert_eq!((held_mib(&probe), probe.counter("gc_count0")), (1, 2));
    let live = grow(&mut probe, 3);
    assert_eq!((held_mib(&probe), probe.counter("gc_count0")), (1, 5), "not above it");
    probe.alloc(1);
    assert_eq!(held_mib(&probe), 0);
    assert_eq!((probe.counter("gc_collections0"), probe.counter("gc_count0")), (1, 0));
    assert_eq!(probe.counter("gc_collected"), 2);
    probe.free_all(live);
    assert_eq!(probe.counter("gc_count0"), 0, "never below 0");
    let mut probe = self::probe("threshold0=0,cycles=all");
    for _ in 0..1000 {
        let block = probe.alloc(MIB);
        probe.free(block);
    }
    assert_eq!(held_mib(&probe), 1000, "0 is never");
}

#[test]
fn a_request_is_served_before_the_collection_that_it_begins() {
    let dead_3_mib = |capacity| {
        let spec = "cuda.malloc+refcycle:threshold0=2,cycles=all";
        let mut probe = Probe::of_capacity(spec, capacity);
        let block = probe.alloc(3 * MIB);
        probe.free(block);
        probe
    };
    let mut probe = dead_3_mib(4 * MIB);
    assert_eq!(probe.refusal(MIB).active, 3 * MIB, "the dead buffer is in the way");
    assert_eq!(probe.refusal(MIB).active, 3 * MIB, "and stays there");
    let mut probe = dead_3_mib(6 * MIB);
    probe.alloc(2 * MIB);
    assert_eq!(held_mib(&probe), 2);
}

#[test]
fn older_is_collected_after_so_many_collections_of_the_younger() {
    let mut probe = probe("threshold0=1,threshold1=2,threshold2=1");
    let collections = |probe: &mut Probe| {
        [0, 1, 2]
            .map(|g| probe.counter(["gc_collections0", "gc_collections1", "gc_collections2"][g]))
    };
    let mut seen = Vec::new();
    for _ in 0..9 {
        grow(&mut probe, 2);
        seen.push(collections(&mut probe));
    }
    let want = [
        [1, 0, 0],
        [2, 0, 0],
        [3, 0, 0],
        [3, 1, 0],
        [4, 1, 0],
        [5, 1, 0],
        [6, 1, 0],
        [6, 2, 0],
        [6, 2, 1],
    ];
    assert_eq!(seen, want, "3 young ones are above 2, 2 middle ones above 1");
}

#[test]
fn promotion_makes_survivors_wait_for_an_older_collection() {
    let mut probe = probe("threshold0=1000");
    let a = probe.alloc(MIB);
    set(&mut probe, "gc.collect", "0");
    die(&mut probe, [a]);
    set(&mut probe, "gc.collect", "0");
    assert_eq!(held_mib(&probe), 1, "it is in the middle generation");
    set(&mut probe, "gc.collect", "1");
    assert_eq!(held_mib(&probe), 0);
    let b = probe.alloc(MIB);
    set(&mut probe, "gc.collect", "0");
    set(&mut probe, "gc.collect", "1");
    die(&mut probe, [b]);
    set(&mut probe, "gc.collect", "1");
    assert_eq!(held_mib(&probe), 1, "in the oldest");
    set(&mut probe, "gc.collect", "2");
    assert_eq!(held_mib(&probe), 0);
}

#[test]
fn cycle_is_found_with_its_oldest_object() {
    let mut probe = probe("threshold0=1000");
    let old = probe.alloc(MIB);
    set(&mut probe, "gc.collect", "0");
    let young = probe.alloc(2 * MIB);
    die(&mut probe, [young, old]);
    set(&mut probe, "gc.collect", "0");
    assert_eq!(held_mib(&probe), 3, "the old one refers to the young one");
    set(&mut probe, "gc.collect", "1");
    assert_eq!(held_mib(&probe), 0);
}

#[test]
fn quarter_of_the_long_lived_must_be_new_before_the_oldest_is_collected() {
    // every second object begins a collection; of those, every second is a middle one, by which 4 objects join the oldest generation
    let collected = |long_lived: u64, objects: u64| {
        let mut probe =
            probe(&format!("threshold0=1,threshold1=0,threshold2=0,long_lived={long_lived}"));
        grow(&mut probe, objects);
        probe.counter("gc_collections2")
    };
    assert_eq!(collected(0, 6), 1, "young, middle, oldest");
    assert_eq!(collected(19, 6), 1, "4 joined, 19/4 is 4");
    assert_eq!(collected(20, 6), 0, "20/4 is 5");
    assert_eq!(collected(20, 8), 0, "a middle one instead, and now 8 joined");
    assert_eq!(collected(20, 10), 1);
}

#[test]
fn enabled_false_collects_only_when_asked() {
    let mut probe = probe("threshold0=1,enabled=false,cycles=1MiB");
    let [a, small] = [MIB, 1].map(|size| probe.alloc(size));
    probe.free_all([a, small]);
    grow(&mut probe, 50);
    assert_eq!((held_mib(&probe), probe.counter("gc_collections0")), (1, 0));
    set(&mut probe, "gc.collect", "2");
    assert_eq!(held_mib(&probe), 0);
    let b = probe.alloc(MIB);
    probe.free(b);
    set(&mut probe, "gc.enabled", "true");
    grow(&mut probe, 2);
    assert_eq!(held_mib(&probe), 0);
}

#[test]
fn collect_frees_in_order_of_death_and_a_dead_block_is_not_live() {
    let mut probe = probe("threshold0=1000");
    let [a, b, c] = [2, 4, 6].map(|mib| probe.alloc(mib * MIB));
    die(&mut probe, [c, a]);
    die(&mut probe, [b]);
    let again = probe.strategy.free(&mut probe.machine, a, None);
    assert_eq!(again, Err(AllocError::UnknownBlock(a)));
    let recorded = Notice::RecordStream { block: a, stream: vramlab_sim::StreamId(1) };
    let recorded = probe.strategy.notice(&mut probe.machine, recorded);
    assert_eq!(recorded, Err(AllocError::UnknownBlock(a)));
    probe.machine.drain_log();
    set(&mut probe, "gc.collect", "2");
    assert_eq!(probe.calls("cudaFree"), [6 * MIB, 2 * MIB, 4 * MIB]);
}

/// Under audit, with a walk after every op: what is dead is in use until it is collected, and nothing is lost.
#[test]
fn random_cycles_keep_the_promises_of_the_strategy_inside() {
    for inside in ["classic.best_fit", "torch.caching", "tensorflow.bfc:allow_growth=true"] {
        let options = "threshold0=12,threshold1=2,threshold2=2,cycles=200KiB";
        let mut probe = Probe::new(&format!("{inside}+refcycle:{options}"));
        let mut live = Vec::new();
        let mut dice = Dice::of_step_1(5);
        for _ in 0..3000 {
            if live.len() < 60 && dice.below(2) == 0 {
                let stream = dice.below(3) as u32;
                live.push(probe.try_alloc(dice.below(MIB), stream).expect("there is room").block);
            } else if dice.below(20) == 0 && live.len() > 4 {
                die(&mut probe, live.split_off(live.len() - 3));
            } else if !live.is_empty() {
                probe.free(live.swap_remove(dice.below(live.len() as u64) as usize));
            }
            probe.tell(Notice::Walk);
        }
        probe.free_all(live);
        assert!(probe.strategy.usage().active > 0, "{inside}: the last ones wait");
        set(&mut probe, "gc.collect", "2");
        assert_eq!(probe.strategy.usage().active, 0, "{inside}");
        let each = [0, 1, 2].map(|g| probe.counter(&format!("gc_collections{g}")));
        assert!(each.iter().all(|count| *count > 2), "{inside}: {each:?}");
    }
}

#[test]
fn a_driver_error_in_a_collection_passes_through() {
    let mut probe = probe("threshold0=2,cycles=all");
    let a = probe.alloc(MIB);
    let failed = DriverError::Failed { call: "cudaFree", what: "on cue".into() };
    probe.machine.fail_on("cudaFree", 0, failed.clone());
    probe.free(a);
    assert_eq!(probe.try_alloc(1, 0), Err(AllocError::Driver(failed)));
}

#[test]
fn bad_options_and_settings_are_named() {
    for (options, want) in [
        ("cycles=some", "option cycles=some: expected none, all, or a size such as 1MiB"),
        ("others=0", "option others=0: expected 1 or more"),
        ("threshold0=x", "option threshold0=x: expected a number"),
        ("treshold0=1", "refcycle has no option \"treshold0\"; did you mean threshold0"),
    ] {
        let spec = format!("cuda.malloc+refcycle:{options}");
        let refused = crate::build(&spec.parse().expect(&spec)).err().expect(&spec).to_string();
        assert!(refused.starts_with(want), "{refused}");
    }
    let mut probe = probe("");
    for (key, value) in [("cycle", "x"), ("gc.collect", "3"), ("gc.enabled", "maybe")] {
        let refused = probe.strategy.notice(&mut probe.machine, Notice::Set { key, value });
        assert!(matches!(refused, Err(AllocError::BadSetting(_))), "{key}={value}: {refused:?}");
    }
}
