//! Each rule of the table.

use super::*;
use vramlab_sim::allocator::BlockState;
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::PoolId;

const KIB: u64 = 1 << 10;
const ZERO: StreamId = StreamId(0);
const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);
const POOL: PoolId = PoolId(9);

type Tested = Result<(), AllocError>;

struct Pair {
    cache: Box<dyn Allocator>,
    machine: ScriptedMachine,
}

impl Pair {
    fn new(conf: &str) -> Self {
        let spec = format!("{NAME}:conf='{conf}'").parse().expect("a spec");
        let cache = crate::build(&spec).expect("accepted");
        Self { cache, machine: ScriptedMachine::of_capacity(1 << 30) }
    }

    fn alloc(&mut self, size: u64) -> Result<Placement, AllocError> {
        self.alloc_on(size, ZERO)
    }

    fn alloc_on(&mut self, size: u64, stream: StreamId) -> Result<Placement, AllocError> {
        self.cache.alloc(&mut self.machine, &Request { size, stream, ordinal: 0 })
    }

    fn free(&mut self, placement: Placement) -> Tested {
        self.cache.free(&mut self.machine, placement.block, None)
    }

    /// Recorded for these streams, and freed.
    fn free_used(&mut self, placement: Placement, streams: &[StreamId]) -> Tested {
        for stream in streams.iter().copied() {
            self.notice(Notice::RecordStream { block: placement.block, stream })?;
        }
        self.free(placement)
    }

    fn notice(&mut self, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.cache.notice(&mut self.machine, notice)
    }

    fn calls(&mut self) -> Vec<&'static str> {
        self.machine.drain_log().map(|row| row.call).collect()
    }

    fn counter(&mut self, name: &str) -> u64 {
        let Ok(Reply::Counters(counters)) = self.notice(Notice::Counters) else { return u64::MAX };
        counters.into_iter().find(|(n, _)| *n == name).map_or(u64::MAX, |(_, value)| value)
    }

    fn usage(&self) -> (u64, u64, u64) {
        let Usage { allocated, active, reserved } = self.cache.usage();
        assert_eq!(reserved, self.machine.held().host);
        (allocated, active, reserved)
    }
}

#[test]
fn power_of_two_is_what_a_size_becomes() -> Tested {
    let mut pair = Pair::new("");
    for (asked, size) in [(1, 1), (2, 2), (3, 4), (513, 1024), (65 * MIB, 128 * MIB)] {
        assert_eq!(pair.alloc(asked)?.size, size);
    }
    let null = pair.alloc(0)?;
    assert_eq!((null.address, null.size), (0, 0));
    pair.free(null)?;
    assert!(matches!(pair.alloc((1 << 63) + 1), Err(AllocError::InvalidSize { .. })));
    assert!(matches!(pair.alloc(1 << 63), Err(AllocError::OutOfMemory(_))));
    Ok(())
}

#[test]
fn round_threshold_leaves_larger_sizes_as_they_are() -> Tested {
    for conf in ["pinned_max_round_threshold_mb:2", "pinned_max_cached_size_mb:2"] {
        let mut pair = Pair::new(conf);
        for (asked, size) in [(MIB + 1, 2 * MIB), (2 * MIB, 2 * MIB), (2 * MIB + 1, 2 * MIB + 1)] {
            assert_eq!(pair.alloc(asked)?.size, size, "{conf}");
        }
    }
    Ok(())
}

#[test]
fn own_list_serves_the_block_freed_last_and_no_other_size() -> Tested {
    let mut pair = Pair::new("");
    let [a, b] = [pair.alloc(1000)?, pair.alloc(1000)?];
    pair.free(a)?;
    pair.free(b)?;
    assert_ne!(pair.alloc(500)?.address, b.address, "a list of its own");
    assert_eq!(pair.alloc(1024)?.address, b.address);
    assert_eq!(pair.alloc(600)?.address, a.address);
    assert_eq!(pair.calls(), ["cudaMallocHost"; 3]);
    Ok(())
}

/// pytorch/pytorch#192722: a list with unrounded blocks must not serve one that is too small.
#[test]
fn large_enough_is_asked_where_sizes_are_not_rounded() -> Tested {
    let mut pair = Pair::new("pinned_max_round_threshold_mb:128,pinned_max_cached_size_mb:1024");
    let [a, b, c] = [150, 250, 140].map(|mib| pair.alloc(mib * MIB));
    let (a, b, c) = (a?, b?, c?);
    for block in [a, b, c] {
        pair.free(block)?;
    }
    assert_eq!(pair.alloc(200 * MIB)?.address, b.address);
    assert_eq!(pair.alloc(150 * MIB)?.address, a.address);
    let d = pair.alloc(130 * MIB)?;
    assert_eq!((d.address, d.size), (c.address, 140 * MIB));
    Ok(())
}

#[test]
fn recorded_streams_are_all_waited_for() -> Tested {
    let mut pair = Pair::new("");
    let a = pair.alloc(1000)?;
    pair.free_used(a, &[ONE, TWO, ONE])?;
    assert_eq!(pair.calls(), ["cudaMallocHost", "cudaEventRecord", "cudaEventRecord"]);
    assert_eq!(pair.usage(), (0, 1024, 1024));
    assert!(matches!(pair.free(a), Err(AllocError::UnknownBlock(_))));
    pair.machine.complete(ONE);
    let b = pair.alloc(1000)?;
    assert_ne!(b.address, a.address);
    pair.machine.complete(TWO);
    assert_eq!(pair.alloc(1000)?.address, a.address);
    pair.free_used(b, &[ONE])?;
    assert_eq!(pair.machine.calls().get("cudaEventCreate"), 2, "events are used again");
    Ok(())
}

#[test]
fn noticed_at_a_request_and_in_order() -> Tested {
    let mut pair = Pair::new("");
    let [a, b] = [pair.alloc(1000)?, pair.alloc(5000)?];
    pair.free_used(a, &[ONE])?;
    pair.free_used(b, &[TWO])?;
    pair.machine.complete(TWO);
    assert_ne!(pair.alloc(5000)?.address, b.address, "the older event is in front");
    pair.machine.complete(ONE);
    assert_eq!(pair.usage().1, 1024 + 8192 + 8192, "not by itself");
    assert_eq!(pair.alloc(5000)?.address, b.address);
    Ok(())
}

#[test]
fn background_thread_looks_at_events_between_calls() -> Tested {
    let mut pair = Pair::new("pinned_use_background_threads:True");
    let [a, b] = [pair.alloc(1000)?, pair.alloc(1000)?];
    pair.free_used(a, &[ONE])?;
    pair.machine.complete(ONE);
    assert_ne!(pair.alloc(1000)?.address, a.address, "a request does not look itself");
    assert_eq!(pair.usage(), (2048, 2048, 3072), "but the thread has looked since");
    assert_eq!(pair.alloc(1000)?.address, a.address);
    pair.free_used(b, &[ONE])?;
    pair.machine.complete_all();
    let null = pair.alloc(0)?;
    pair.free(null)?;
    assert_eq!(pair.usage().1, 2048);
    Ok(())
}

#[test]
fn cached_size_limits_what_is_kept() -> Tested {
    let mut pair = Pair::new("pinned_max_cached_size_mb:1");
    let [a, b, c] = [MIB, MIB + 1, MIB + 2].map(|size| pair.alloc(size));
    let (a, b, c) = (a?, b?, c?);
    pair.free(a)?;
    pair.free(b)?;
    assert_eq!(pair.usage(), (c.size, c.size, MIB + c.size));
    pair.free_used(c, &[ONE])?;
    assert_eq!(pair.usage(), (0, c.size, MIB + c.size));
    pair.machine.complete(ONE);
    pair.alloc(1)?;
    assert_eq!(pair.usage(), (1, 1, MIB + 1));
    Ok(())
}

#[test]
fn empty_cache_gives_back_what_is_free_by_then() -> Tested {
    let mut pair = Pair::new("");
    let [a, b, c] = [pair.alloc(5000)?, pair.alloc(100)?, pair.alloc(1000)?];
    pair.free(a)?;
    pair.free_used(b, &[ONE])?;
    pair.free_used(c, &[TWO])?;
    pair.machine.complete(ONE);
    pair.calls();
    pair.notice(Notice::EmptyCache)?;
    let freed: Vec<_> = pair.machine.drain_log().map(|row| row.size).collect();
    assert_eq!(freed.len(), 2, "the small one, then the large one");
    assert_eq!(pair.usage(), (0, 1024, 1024));
    pair.machine.complete(TWO);
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.cache.usage(), Usage::default());
    Ok(())
}

#[test]
fn no_retry_after_a_refusal() -> Tested {
    let mut pair = Pair::new("");
    let a = pair.alloc(1000)?;
    pair.free(a)?;
    let full = vramlab_sim::DriverError::OutOfMemory { asked: 4096, free: 7 };
    pair.machine.fail_on("cudaMallocHost", 0, full);
    let Err(AllocError::OutOfMemory(oom)) = pair.alloc(4000) else { panic!("refused") };
    assert_eq!((oom.asked, oom.device_free, oom.largest_free), (4096, 7, 1024));
    assert_eq!(pair.usage(), (0, 0, 1024), "the cache is as it was");
    pair.alloc(4000).map(drop)
}

#[test]
fn reserve_segment_serves_first_and_is_never_given_back() -> Tested {
    let mut pair = Pair::new("pinned_reserve_segment_size_mb:1");
    let (a, b) = (pair.alloc(100)?, pair.alloc(5000)?);
    assert_eq!((b.address - a.address, pair.usage()), (4096, (8192 + 128, 8192 + 128, MIB)));
    let large = pair.alloc(MIB)?;
    assert_eq!(pair.calls(), ["cudaMallocHost"; 2], "it has no room for the last");
    pair.free(a)?;
    assert_eq!(pair.alloc(100)?.address, a.address, "free blocks are kept as any other");
    for block in [b, large] {
        pair.free(block)?;
    }
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.usage(), (128, 128, MIB));
    assert_eq!(pair.alloc(5000)?.address, a.address + 12_288, "what was dropped is lost");
    let Ok(Reply::Layout(layout)) = pair.notice(Notice::Walk) else { panic!("it can tell") };
    let sizes: Vec<_> = layout.segments[0].blocks.iter().map(|b| (b.size, b.state)).collect();
    let (used, free) = (BlockState::Allocated, BlockState::Free);
    let rest = MIB - 20 * KIB;
    let want = [(128, used), (3968, free), (8192, free), (8192, used), (rest, free)];
    assert_eq!(sizes, want);
    Ok(())
}

#[test]
fn private_pools_keep_their_blocks_to_themselves() -> Tested {
    let mut pair = Pair::new("");
    let a = pair.alloc_on(1000, ONE)?;
    pair.free(a)?;
    pair.notice(Notice::PoolBegin { pool: POOL, stream: ONE })?;
    assert!(pair.notice(Notice::PoolBegin { pool: POOL, stream: ONE }).is_err());
    let b = pair.alloc_on(1000, ONE)?;
    assert_ne!(b.address, a.address);
    assert_eq!(pair.alloc_on(1000, TWO)?.address, a.address, "not routed");
    pair.notice(Notice::PoolEnd { pool: POOL })?;
    assert!(pair.notice(Notice::PoolEnd { pool: POOL }).is_err());
    pair.free(b)?;
    assert_ne!(pair.alloc_on(1000, ONE)?.address, b.address);
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.usage().2, 3 * 1024, "the pool has a use");
    pair.notice(Notice::PoolRelease { pool: POOL })?;
    assert!(pair.notice(Notice::PoolRelease { pool: POOL }).is_err());
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.usage().2, 2 * 1024);
    Ok(())
}

#[test]
fn captured_blocks_that_were_used_never_come_back() -> Tested {
    let mut pair = Pair::new("");
    pair.notice(Notice::PoolBegin { pool: POOL, stream: ONE })?;
    pair.notice(Notice::CaptureBegin { stream: ONE })?;
    let (a, b) = (pair.alloc_on(1000, ONE)?, pair.alloc_on(1000, ONE)?);
    pair.free(b)?;
    assert_eq!(pair.alloc_on(1000, ONE)?.address, b.address, "one that nobody used does");
    pair.free_used(a, &[ONE])?;
    pair.notice(Notice::CaptureEnd { stream: ONE })?;
    pair.notice(Notice::PoolEnd { pool: POOL })?;
    pair.machine.complete_all();
    pair.notice(Notice::PoolRelease { pool: POOL })?;
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.usage(), (1024, 2048, 2048));
    assert!(!pair.calls().contains(&"cudaEventRecord"));
    Ok(())
}

#[test]
fn statistics_have_the_names_and_meanings_of_host_memory_stats() -> Tested {
    let mut pair = Pair::new("");
    let (a, b) = (pair.alloc(1000)?, pair.alloc(3000)?);
    pair.free(a)?;
    pair.free_used(b, &[ONE])?;
    for (name, want) in [
        ("allocations.current", 2),
        ("allocated_bytes.current", 5120),
        ("active_requests.current", 1),
        ("active_bytes.current", 4096),
        ("active_bytes.peak", 5120),
        ("num_host_alloc", 2),
        ("num_host_free", 0),
    ] {
        assert_eq!(pair.counter(name), want, "{name}");
    }
    pair.notice(Notice::EmptyCache)?;
    pair.notice(Notice::ResetPeak)?;
    assert_eq!((pair.counter("num_host_free"), pair.counter("active_bytes.peak")), (1, 4096));
    pair.notice(Notice::ResetAccumulated)?;
    assert_eq!((pair.counter("num_host_alloc"), pair.counter("num_host_free")), (0, 0));
    Ok(())
}

#[test]
fn settings_are_checked_as_pytorch_does_and_idle_ones_are_named() -> Tested {
    for (pairs, want) in [
        (&[("pinned_num_register_threads", "3")][..], "power of 2"),
        (&[("pinned_reserve_segment_size_mb", "0")][..], "greater than 0"),
        (&[("conf", "pinned_use_background_threads:yes")][..], "'True' or 'False'"),
        (&[("max_split_size_mb", "64")][..], "has no option"),
    ] {
        let error = settings(&Options::from_pairs(pairs.iter().copied())).expect_err("bad").0;
        assert!(error.contains(want), "{error}");
    }
    for (conf, want) in [
        ("pinned_use_cuda_host_register:True", "not modelled"),
        ("pinned_num_register_threads:8", "needs pinned_use_cuda_host_register"),
        ("pinned_free_catch_all:True", "errors of a free"),
        ("pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:32", "does nothing beside"),
        ("pinned_max_cached_size_mb:32,max_split_size_mb:64", ""),
    ] {
        let found = inert(&Options::from_pairs([("conf", conf)])).join("; ");
        assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{conf}: {found}");
    }
    let mut pair = Pair::new("");
    pair.notice(Notice::Set { key: "conf", value: "pinned_max_cached_size_mb:0" })?;
    assert_eq!(pair.alloc(1000)?.size, 1000);
    assert!(pair.notice(Notice::Set { key: "conf", value: "pinned_x:1" }).is_err());
    Ok(())
}
