//! Each rule of the table.

use super::*;
use crate::options::Options;
use vramlab_sim::device::SimMachine;
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::PoolId;

const MIB: u64 = 1 << 20;
const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);
const POOL: PoolId = PoolId(7);

type Tested = Result<(), AllocError>;

fn spec(text: &str) -> Result<Box<dyn Allocator>, String> {
    super::super::make(&Options::from_pairs([("conf", text)])).map_err(|error| error.0)
}

/// The backend on a device of 256 MiB.
struct Pair<M> {
    torch: Box<dyn Allocator>,
    machine: M,
}

impl Pair<SimMachine> {
    fn new() -> Self {
        let torch = spec("backend:cudaMallocAsync").expect("accepted");
        Self { torch, machine: SimMachine::of_capacity(256 * MIB) }
    }
}

impl Pair<ScriptedMachine> {
    fn scripted() -> Self {
        let torch = spec("backend:cudaMallocAsync").expect("accepted");
        Self { torch, machine: ScriptedMachine::of_capacity(256 * MIB) }
    }

    fn calls(&mut self) -> Vec<&'static str> {
        self.machine.drain_log().map(|row| row.call).collect()
    }
}

impl<M: Machine> Pair<M> {
    fn alloc(&mut self, size: u64, stream: StreamId) -> Result<Placement, AllocError> {
        self.torch.alloc(&mut self.machine, &Request { size, stream, ordinal: 0 })
    }

    fn free(&mut self, placement: Placement) -> Tested {
        self.torch.free(&mut self.machine, placement.block, None)
    }

    fn notice(&mut self, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.torch.notice(&mut self.machine, notice)
    }

    fn counter(&mut self, name: &str) -> u64 {
        let Ok(Reply::Counters(counters)) = self.notice(Notice::Counters) else { return u64::MAX };
        counters.into_iter().find(|(n, _)| *n == name).map_or(u64::MAX, |(_, value)| value)
    }
}

#[test]
fn first_use_sets_the_pool_to_keep_everything() -> Tested {
    let mut pair = Pair::scripted();
    assert_eq!(pair.counter("reserved_peak"), 0);
    assert!(pair.calls().is_empty());
    pair.alloc(1000, ONE)?;
    pair.alloc(1000, ONE)?;
    let want = [
        "cudaMemPoolSetAttribute",
        "cudaMemPoolSetAttribute",
        "cudaMemPoolSetAttribute",
        "cudaMemPoolSetAttribute",
        "cudaMallocAsync",
        "cudaMallocAsync",
    ];
    assert_eq!(pair.calls(), want);
    let mut pair = Pair::new();
    let a = pair.alloc(MIB, ONE)?;
    pair.free(a)?;
    pair.machine.device_synchronize()?;
    assert_eq!(pair.machine.held().reserved, 32 * MIB);
    Ok(())
}

#[test]
fn loaded_backend_is_the_first_that_is_named() {
    for text in ["", "max_split_size_mb:64", "backend:native"] {
        let mut torch = spec(text).expect("accepted");
        let mut machine = ScriptedMachine::of_capacity(256 * MIB);
        let request = Request { size: 1000, stream: ONE, ordinal: 0 };
        torch.alloc(&mut machine, &request).expect("room");
        assert!(machine.drain_log().any(|row| row.call == "cudaMalloc"), "{text}");
    }
    assert!(spec("backend:cudaMallocAsync,backend:native").is_err());
    let mut pair = Pair::new();
    let bad = pair.notice(Notice::Set { key: "conf", value: "backend:native" });
    assert!(matches!(bad, Err(AllocError::BadSetting(_))));
    let same = Notice::Set { key: "conf", value: "backend:cudaMallocAsync" };
    assert_eq!(pair.notice(same), Ok(Reply::Done));
}

#[test]
fn sizes_are_as_asked_and_an_exabyte_is_out_of_memory() -> Tested {
    let mut pair = Pair::scripted();
    let a = pair.alloc(1001, ONE)?;
    assert_eq!((a.size, pair.torch.usage().allocated), (1001, 1001));
    let null = pair.alloc(0, ONE)?;
    assert_eq!((null.address, null.size), (0, 0));
    pair.free(null)?;
    pair.machine.drain_log();
    assert!(matches!(pair.alloc(1 << 60, ONE), Err(AllocError::OutOfMemory(_))));
    assert!(pair.calls().is_empty(), "not asked");
    assert!(matches!(pair.alloc((1 << 60) - 1, ONE), Err(AllocError::OutOfMemory(_))));
    assert_eq!(pair.calls(), ["cudaMallocAsync"]);
    Ok(())
}

#[test]
fn fraction_limits_what_was_asked_for() -> Tested {
    let mut pair = Pair::new();
    pair.notice(Notice::Set { key: "memory_fraction", value: "0.3" })?;
    let limit = (0.3 * (256 * MIB) as f64) as u64;
    let a = pair.alloc(limit - 10, ONE)?;
    let Err(AllocError::OutOfMemory(oom)) = pair.alloc(11, ONE) else { panic!("over the limit") };
    assert_eq!((oom.limit, oom.asked, oom.active), (Some(limit), 11, limit - 10));
    pair.alloc(10, ONE)?;
    pair.free(a)?;
    let bad = pair.notice(Notice::Set { key: "memory_fraction", value: "1.5" });
    assert!(matches!(bad, Err(AllocError::BadSetting(_))));
    Ok(())
}

#[test]
fn record_stream_frees_in_a_stream_that_waits_for_all() -> Tested {
    let mut pair = Pair::scripted();
    let a = pair.alloc(1000, ONE)?;
    let b = pair.alloc(1000, ONE)?;
    pair.notice(Notice::RecordStream { block: a.block, stream: ONE })?;
    pair.notice(Notice::RecordStream { block: b.block, stream: TWO })?;
    pair.calls();
    pair.free(a)?;
    assert_eq!(pair.calls(), ["cudaFreeAsync"], "its own stream is none");
    pair.free(b)?;
    let waits = pair.calls().iter().filter(|call| **call == "cudaStreamWaitEvent").count();
    assert_eq!(waits, 2, "for the stream that it was made for and for the other");
    Ok(())
}

#[test]
fn empty_cache_waits_and_trims() -> Tested {
    let mut pair = Pair::new();
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.machine.calls().iter().count(), 0, "nothing before the first use");
    let a = pair.alloc(MIB, ONE)?;
    pair.machine.launch(ONE, 100)?;
    pair.free(a)?;
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.torch.usage(), Usage::default());
    assert_eq!(pair.machine.now().0, 100);
    Ok(())
}

#[test]
fn statistics_are_the_pools_and_reset_begins_from_now() -> Tested {
    let mut pair = Pair::new();
    let (a, _b) = (pair.alloc(40 * MIB, ONE)?, pair.alloc(MIB, ONE)?);
    pair.free(a)?;
    assert_eq!(pair.counter("allocated_peak"), 41 * MIB);
    assert_eq!(pair.counter("active_peak"), 41 * MIB);
    assert_eq!(pair.counter("reserved_peak"), 64 * MIB);
    assert_eq!(pair.counter("num_device_alloc"), 0, "the native allocator's own");
    pair.notice(Notice::ResetAccumulated)?;
    assert_eq!(pair.counter("allocated_peak"), 41 * MIB);
    pair.notice(Notice::ResetPeak)?;
    assert_eq!(pair.counter("allocated_peak"), MIB);
    Ok(())
}

#[test]
fn one_capture_at_a_time() -> Tested {
    let mut pair = Pair::new();
    let begin = || Notice::PoolBegin { pool: POOL, stream: ONE };
    assert_eq!(pair.notice(begin())?, Reply::Done);
    assert!(pair.notice(begin()).is_err());
    pair.notice(Notice::PoolEnd { pool: POOL })?;
    assert!(pair.notice(Notice::PoolEnd { pool: POOL }).is_err());
    assert_eq!(pair.notice(Notice::PoolRelease { pool: POOL })?, Reply::Done);
    Ok(())
}

#[test]
fn uncaptured_free_waits_for_the_first_malloc_after_the_capture() -> Tested {
    let mut pair = Pair::scripted();
    let before = pair.alloc(1000, ONE)?;
    pair.notice(Notice::PoolBegin { pool: POOL, stream: ONE })?;
    let during = pair.alloc(500, ONE)?;
    pair.calls();
    pair.free(before)?;
    assert!(pair.calls().is_empty());
    let usage = pair.torch.usage();
    assert_eq!((usage.allocated, usage.active), (500, 1500));
    assert!(matches!(pair.free(before), Err(AllocError::UnknownBlock(_))));
    pair.alloc(1, ONE)?;
    assert_eq!(pair.calls(), ["cudaMallocAsync"], "still a capture");
    pair.notice(Notice::PoolEnd { pool: POOL })?;
    pair.alloc(1, ONE)?;
    assert_eq!(pair.calls(), ["cudaFreeAsync", "cudaMallocAsync"]);
    pair.free(during)?;
    assert_eq!(pair.calls(), ["cudaFreeAsync"], "a captured one may go at any time");
    assert_eq!(pair.torch.usage().active, 2);
    Ok(())
}

#[test]
fn rejoin_makes_the_capture_wait_for_each_stream_that_freed() -> Tested {
    let mut pair = Pair::scripted();
    pair.notice(Notice::PoolBegin { pool: POOL, stream: ONE })?;
    for stream in [TWO, TWO, ONE] {
        let a = pair.alloc(1000, stream)?;
        pair.free(a)?;
    }
    pair.calls();
    pair.notice(Notice::PoolEnd { pool: POOL })?;
    let call = ["cudaEventRecord", "cudaStreamWaitEvent"];
    assert_eq!(pair.calls(), [call, call].concat());
    Ok(())
}
