//! What no golden case shows: defaults, refused arguments, what the user of RMM does, the fixed-size resource by itself, failures.

use vramlab_sim::allocator::{AllocError, Allocator, Notice, Reply, Request};
use vramlab_sim::device::SimMachine;
use vramlab_sim::driver::DriverError;
use vramlab_sim::machine::Machine;
use vramlab_sim::units::{PoolId, StreamId};

use crate::parts::lab::Lab;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn refused(spec: &str) -> String {
    crate::build(&spec.parse().expect(spec)).err().expect(spec).to_string()
}

#[test]
fn default_initial_is_half_of_the_free_memory() {
    for (spec, capacity, want) in [
        ("rmm.pool", 64 * MIB + 1000, 32 * MIB + 256),
        ("rmm.pool:initial_pool_size=None", 64 * MIB, 32 * MIB),
        ("rmm.pool:initial_pool_size=25%", 64 * MIB, 16 * MIB),
        ("rmm.pool:initial_pool_size=1.5MiB", 64 * MIB, 3 * MIB / 2),
        ("rmm.arena", 64 * MIB + 1000, 32 * MIB + 256),
    ] {
        let mut lab = Lab::new(spec, capacity);
        assert_eq!(lab.usage().reserved, 0, "{spec}: nothing before the first request");
        lab.alloc(1, 0);
        assert_eq!(lab.usage().reserved, want, "{spec}");
    }
}

#[test]
fn bad_arguments_are_named_with_what_was_expected() {
    for (spec, want) in [
        (
            "rmm.pool:initial_pool_size=1000",
            "initial_pool_size=1000: expected a multiple of 256 bytes",
        ),
        (
            "rmm.pool:maximum_pool_size=1000",
            "maximum_pool_size=1000: expected a multiple of 256 bytes",
        ),
        (
            "rmm.pool:initial_pool_size=2MiB,maximum_pool_size=1MiB",
            "Initial pool size exceeds the maximum pool size! (found initial_pool_size=2097152, maximum_pool_size=1048576)",
        ),
        (
            "rmm.pool:initial_pool_size=101%",
            "initial_pool_size=101%: expected a size, or 0% to 100%",
        ),
        ("rmm.pool:initial_pool_size=many", "option initial_pool_size: not a size: \"many\""),
        ("rmm.pool:reclaim_free_upstream=2", "reclaim_free_upstream=2: expected true or false"),
        ("rmm.pool:version=24", "version=24: expected 26.08 or 26.06"),
        ("rmm.arena:arena_size=1MB", "Arena size smaller than minimum superblock size."),
        (
            "rmm.binning:min_size_exponent=8,max_size_exponent=31",
            "max_size_exponent=31: expected a number from 0 to 30",
        ),
        ("rmm.fixed_size:blocks_to_preallocate=0", "found \"1MiB\" and 0"),
        ("rmm.fixed_size:block_size=8EiB", "option block_size: not a size"),
        ("rmm.fixed_size:block_size=16777216TiB", "option block_size"),
    ] {
        let found = refused(spec);
        assert!(found.contains(want), "{spec}: {found}");
    }
}

#[test]
fn options_without_effect_are_named() {
    let said = |spec: &str| {
        let spec: crate::Spec = spec.parse().expect(spec);
        let part = spec.strategy();
        (crate::find(&part.name).expect("a strategy").inert)(&part.options)
    };
    let reclaim = "reclaim_free_upstream=true has no effect: the pool has no maximum";
    assert_eq!(said("rmm.pool:reclaim_free_upstream=true"), [reclaim]);
    assert_eq!(said("rmm.pool:reclaim_free_upstream=true,maximum_pool_size=1MiB"), [""; 0]);
    let exponent = "min_size_exponent=8 has no effect: max_size_exponent is not given";
    assert_eq!(said("rmm.binning:min_size_exponent=8"), [exponent]);
    let limit = "CUPY_GPU_MEMORY_LIMIT=50% has no effect: limit is given";
    assert_eq!(said("cupy.pool:CUPY_GPU_MEMORY_LIMIT=50%,limit=1GiB"), [limit]);
}

/// As Python's `PoolMemoryResource(mr, maximum_pool_size=…)` on a device that is more than twice as large.
#[test]
fn a_default_initial_size_above_the_maximum_is_an_argument_error() {
    let mut lab = Lab::new("rmm.pool:maximum_pool_size=1MiB", 64 * MIB);
    let error = lab.try_alloc(1, 0).expect_err("above the maximum");
    assert!(error.to_string().starts_with("Initial pool size exceeds the maximum"), "{error}");
    assert!(lab.calls().is_empty());
}

/// A pool that cannot be made says so at each request, and is made once there is room.
#[test]
fn a_resource_that_cannot_be_made_holds_nothing() {
    for (spec, want) in [
        ("rmm.pool:initial_pool_size=8MiB", 8 * MIB),
        ("rmm.arena:arena_size=8MiB", 8 * MIB),
        ("rmm.fixed_size:block_size=64KiB", 8 * MIB),
        // the pool is there, but its bins find no room
        ("rmm.binning:initial_pool_size=1MiB,min_size_exponent=8,max_size_exponent=15", 8 * MIB),
    ] {
        let mut lab = Lab::new(spec, 16 * MIB);
        lab.machine.other_process(10 * MIB);
        for _ in 0..2 {
            let numbers = lab.refusal(1, 0);
            assert!(numbers.asked <= want, "{spec}: {numbers}");
            assert_eq!(lab.usage().reserved, 0, "{spec}");
        }
        lab.machine.other_process(0);
        lab.alloc(1, 0);
        assert!(lab.usage().reserved >= want, "{spec}: {:?}", lab.usage());
    }
}

#[test]
fn a_free_without_a_stream_is_on_that_of_the_request() {
    let mut lab = Lab::new("rmm.pool:initial_pool_size=0", 64 * MIB);
    let a = lab.alloc(MIB, 5);
    lab.calls();
    lab.free(a);
    assert_eq!(lab.calls(), ["cudaEventRecord,,,0,s5,1"]);
    assert_eq!(lab.alloc(MIB, 5).address, a.address);
    assert!(lab.calls().is_empty(), "its own list needs no wait");
}

/// What rapidsai/rmm#2489 tells: A's work still uses X, B merges the lists, C takes X.
fn takes_a_merged_block_in_order(spec: &str) -> bool {
    let mut machine = SimMachine::of_capacity(4 * MIB);
    let mut pool = crate::build(&spec.parse().expect(spec)).expect(spec);
    let alloc = |pool: &mut dyn Allocator, machine: &mut SimMachine, size, stream| {
        pool.alloc(machine, &Request { size, stream: StreamId(stream), ordinal: 0 })
    };
    let x = alloc(&mut *pool, &mut machine, MIB, 1).expect("room");
    machine.launch(StreamId(1), 1000).expect("a launch");
    let used = machine.stamp(StreamId(1)).expect("a stamp");
    pool.free(&mut machine, x.block, None).expect("is live");
    alloc(&mut *pool, &mut machine, 8 * MIB, 2).expect_err("no room, but lists are merged");
    let y = alloc(&mut *pool, &mut machine, MIB, 3).expect("the block in B's list");
    assert_eq!(y.address, x.address);
    machine.ordered(used, StreamId(3))
}

#[test]
fn record_merged_orders_who_takes_a_merged_block() {
    assert!(takes_a_merged_block_in_order("rmm.pool:initial_pool_size=0"));
    assert!(!takes_a_merged_block_in_order("rmm.pool:initial_pool_size=0,version=26.06"));
}

#[test]
fn a_recorded_stream_is_joined_by_the_user_before_the_free() {
    let mut lab = Lab::new("rmm.pool:initial_pool_size=0", 64 * MIB);
    let [a, b] = [1, 1].map(|stream| lab.alloc(MIB, stream));
    lab.record(a, 2);
    lab.record(a, 2);
    lab.record(b, 1);
    lab.calls();
    lab.free(a);
    let joined =
        ["cudaEventRecord,,,0,s2,1", "cudaStreamWaitEvent,,,0,s1,1", "cudaEventRecord,,,0,s1,1"];
    assert_eq!(lab.calls(), joined);
    lab.free(b);
    assert_eq!(lab.calls(), ["cudaEventRecord,,,0,s1,1"], "its own stream");
}

#[test]
fn what_rmm_does_not_have_is_not_supported() {
    let mut lab = Lab::new("rmm.pool:initial_pool_size=0", 64 * MIB);
    let a = lab.alloc(MIB, 0);
    for notice in [
        Notice::FreeDeferred { block: a.block },
        Notice::EmptyCache,
        Notice::Trim { keep: 0 },
        Notice::PoolBegin { pool: PoolId(1), stream: StreamId(0) },
    ] {
        assert_eq!(lab.tell(notice), Ok(Reply::Unsupported));
    }
    lab.free(a);
}

#[test]
fn reclaim_gives_whole_free_chunks_back_before_the_maximum_refuses() {
    let spec = "rmm.pool:initial_pool_size=256,maximum_pool_size=1024";
    assert_eq!(Lab::new(spec, 64 * MIB).refusal(1024, 0).limit, Some(1024));
    let mut lab = Lab::new(&format!("{spec},reclaim_free_upstream=true"), 64 * MIB);
    let a = lab.alloc(1024, 0);
    assert_eq!((lab.usage().reserved, lab.counter("upstream_blocks")), (1024, 1));
    lab.free(a);
    let b = lab.alloc(256, 1);
    assert_eq!(lab.refusal(1024, 0).limit, Some(1024), "its chunk is in use");
    lab.free(b);
    assert_eq!(lab.refusal(2048, 0).reserved, 1024, "would not fit anyway: nothing goes back");
}

#[test]
fn a_failed_wait_leaves_the_block_in_its_list() {
    let mut lab = Lab::new("rmm.pool:initial_pool_size=1MiB", 64 * MIB);
    let a = lab.alloc(1, 0);
    let failed = DriverError::Failed { call: "cudaStreamWaitEvent", what: "on cue".into() };
    lab.machine.fail_on("cudaStreamWaitEvent", 0, failed.clone());
    assert_eq!(lab.try_alloc(512, 1), Err(AllocError::Driver(failed)));
    assert_eq!((lab.usage().allocated, lab.counter("total_free")), (256, MIB - 256));
    assert_eq!(lab.alloc(512, 1).address, a.address + 256);
}

mod fixed_size {
    use super::*;

    const SPEC: &str = "rmm.fixed_size:block_size=1000,blocks_to_preallocate=4";

    #[test]
    fn one_size() {
        let mut lab = Lab::new(SPEC, 64 * MIB);
        assert_eq!([1, 1000, 1024].map(|size| lab.alloc(size, 0).size), [1024; 3]);
        lab.calls();
        let numbers = lab.refusal(1025, 0);
        assert_eq!((numbers.asked, numbers.limit, numbers.largest_free), (1280, Some(1024), 1024));
        assert!(lab.calls().is_empty(), "the device is not asked");
    }

    #[test]
    fn preallocate() {
        let mut lab = Lab::new(SPEC, 64 * MIB);
        lab.alloc(1, 0);
        assert_eq!(lab.calls(), ["cudaMalloc,m0,0,4096,,1"]);
        assert_eq!(lab.counter("free_blocks"), 3);
        let mut lab = Lab::new("rmm.fixed_size", 1 << 30);
        assert_eq!((lab.alloc(1, 0).size, lab.usage().reserved), (MIB, 128 * MIB));
    }

    #[test]
    fn queue() {
        let mut lab = Lab::new(SPEC, 64 * MIB);
        let [a, _b] = [0, 0].map(|stream| lab.alloc(1, stream));
        lab.free(a);
        let next = [0, 0, 0].map(|_| lab.alloc(1, 0)).map(|block| lab.place(block).1 / KIB);
        assert_eq!(next, [2, 3, 0], "the freed block comes last");
    }

    #[test]
    fn batch() {
        let mut lab = Lab::new(SPEC, 64 * MIB);
        let blocks = [0; 5].map(|_| lab.alloc(1, 0));
        let places = blocks.map(|block| lab.place(block));
        assert_eq!(places, [(0, 0), (0, KIB), (0, 2 * KIB), (0, 3 * KIB), (1, 0)]);
        assert_eq!((lab.usage().reserved, lab.counter("free_blocks")), (8 * KIB, 3));
        assert_eq!(lab.segments().iter().map(|segment| segment.blocks.len()).sum::<usize>(), 8);
    }

    #[test]
    fn no_return() {
        let mut lab = Lab::new("rmm.fixed_size:block_size=1MiB,blocks_to_preallocate=4", 9 * MIB);
        let blocks = [0; 8].map(|_| lab.alloc(1, 0));
        let numbers = lab.refusal(1, 0);
        assert_eq!((numbers.asked, numbers.device_free, numbers.limit), (4 * MIB, MIB, None));
        blocks.into_iter().for_each(|block| lab.free(block));
        assert_eq!(lab.usage().reserved, 8 * MIB);
        assert_eq!(lab.tell(Notice::EmptyCache), Ok(Reply::Unsupported));
    }

    #[test]
    fn streams() {
        let mut lab = Lab::new(SPEC, 64 * MIB);
        let a = lab.alloc(1, 1);
        let waits = ["cudaMalloc,m0,0,4096,,1", "cudaStreamWaitEvent,,,0,s1,1"];
        assert_eq!(lab.calls(), waits, "the first batch is in the default stream's list");
        lab.free_on(a, 2);
        assert_eq!(lab.calls(), ["cudaEventRecord,,,0,s2,1"]);
        let rest = [0; 4].map(|_| lab.alloc(1, 3));
        assert_eq!(lab.place(rest[3]).1, 0, "that of stream 2, which is visited last");
        lab.calls();
        lab.alloc(1, 3);
        let calls = lab.calls();
        let waited = calls.iter().filter(|call| call.contains("WaitEvent")).count();
        assert_eq!((waited, lab.counter("free_lists")), (3, 1), "empty lists cost a wait too");
    }
}

#[test]
fn a_batch_of_a_bin_has_no_token() {
    let mut lab = Lab::new(
        "rmm.binning:initial_pool_size=1MiB,min_size_exponent=8,max_size_exponent=9",
        64 * MIB,
    );
    let large = lab.alloc(100 * KIB, 0);
    for slot in 1..8_u64 {
        for generation in 0..4_u64 {
            let token = vramlab_sim::allocator::Block(generation << 32 | slot);
            if token != large.block {
                assert_eq!(lab.try_free(token, None), Err(AllocError::UnknownBlock(token)));
            }
        }
    }
    lab.free(large);
    let small = lab.alloc(1, 0);
    lab.free(small);
    assert_eq!(lab.try_free(small.block, None), Err(AllocError::UnknownBlock(small.block)));
}

#[test]
fn a_bin_without_exponents_is_a_pool() {
    let mut lab = Lab::new("rmm.binning:initial_pool_size=1MiB,min_size_exponent=-1", 64 * MIB);
    assert_eq!(lab.alloc(1, 0).size, 256);
    assert_eq!((lab.counter("bin_free_blocks"), lab.counter("max_block")), (0, MIB - 256));
}

/// The host waits where RMM waits, so that a freed block is nobody's work any more.
#[test]
fn the_arena_waits_for_the_stream_of_a_large_free() {
    let mut lab = Lab::new("rmm.arena:arena_size=8MiB", 64 * MIB);
    let (large, small) = (lab.alloc(2 * MIB, 1), lab.alloc(1, 1));
    lab.calls();
    lab.free_on(large, 2);
    assert_eq!(lab.calls(), ["cudaStreamSynchronize,,,0,s2,1"]);
    lab.free_on(small, 1);
    assert!(lab.calls().is_empty(), "in its own arena");
    let segments = lab.segments();
    let owners: Vec<_> = segments.iter().map(|segment| (segment.pool, segment.stream.0)).collect();
    assert_eq!(owners, [("global", 0), ("stream", 1), ("global", 0)]);
}

/// Above 1 TiB sizes are told apart one by one.
#[test]
fn an_arena_may_have_terabytes() {
    const QUARTER: u64 = 1 << 38;
    let mut lab = Lab::new("rmm.arena:arena_size=3.75TiB", 16 * QUARTER);
    let [a, b, c, _] = [5, 1, 6, 1].map(|quarters| lab.alloc(quarters * QUARTER, 0));
    [a, c].into_iter().for_each(|block| lab.free(block));
    assert_eq!(lab.counter("max_free"), 6 * QUARTER);
    assert_eq!(lab.refusal(7 * QUARTER, 0).largest_free, 6 * QUARTER);
    assert_eq!(lab.alloc(6 * QUARTER, 0).address, c.address, "the first is too small");
    lab.free(b);
    assert_eq!(lab.alloc(6 * QUARTER, 0).address, a.address);
}
