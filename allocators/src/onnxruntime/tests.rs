//! One test for each rule of [`super::arena`].

use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply};
use vramlab_sim::machine::Machine as _;

use crate::classic::testing::{KIB, Probe};

const MIB: u64 = 1 << 20;
const SAME: &str = "onnxruntime.arena:arena_extend_strategy=kSameAsRequested";

fn probe() -> Probe {
    Probe::new("onnxruntime.arena")
}

fn mark(probe: &mut Probe) {
    assert_eq!(probe.tell(Notice::Mark { name: "run" }), Reply::Done);
}

fn shrink(probe: &mut Probe) {
    assert_eq!(probe.tell(Notice::Trim { keep: 0 }), Reply::Done);
}

fn on(probe: &mut Probe, stream: u32, size: u64) -> (Block, u64, u64) {
    let placement = probe.try_alloc(size, stream).expect("there is room");
    let offset = probe.machine.origin(placement.address).expect("in a segment").offset;
    (placement.block, offset, placement.size)
}

#[test]
fn round_is_to_256() {
    let mut probe = probe();
    let sizes = [1, 256, 257, 1000].map(|size| probe.placement(size).size);
    assert_eq!(sizes, [256, 256, 512, 1024]);
}

#[test]
fn null_for_no_bytes() {
    let mut probe = probe();
    let null = probe.placement(0);
    assert_eq!((null.address, null.size, probe.reserved()), (0, 0, 0));
    probe.free(null.block);
}

#[test]
fn best_fit_takes_the_smallest_and_then_the_lowest() {
    let mut probe = probe();
    let [a, _, c, _, e, _] = [8, 4, 16, 4, 8, 4].map(|kib| probe.alloc(kib * KIB));
    probe.free_all([a, c, e]);
    let got = [16, 8, 8].map(|kib| probe.place(kib * KIB) / KIB);
    assert_eq!(got, [12, 0, 32]);
}

#[test]
fn split_needs_twice_the_request_or_max_dead_bytes() {
    let mut probe = probe();
    assert_eq!(probe.placement(512 * KIB + 1).size, MIB, "whole: less than twice");
    assert_eq!(probe.placement(MIB).size, MIB, "of 2 MiB");
    let mut probe = Probe::new("onnxruntime.arena:max_dead_bytes_per_chunk=100KiB");
    assert_eq!(probe.placement(MIB - 100 * KIB).size, MIB - 100 * KIB);
    let mut probe = Probe::new("onnxruntime.arena:max_dead_bytes_per_chunk=102657");
    assert_eq!(probe.placement(MIB - 100 * KIB).size, MIB, "the rest is 1 byte short");
}

#[test]
fn next_power_of_two_doubles_for_the_request_or_afterwards() {
    let mut probe = probe();
    let regions = |probe: &mut Probe, size| {
        probe.alloc(size);
        probe.calls("cudaMalloc")
    };
    assert_eq!(regions(&mut probe, MIB), [MIB], "the first");
    assert_eq!(probe.counter("curr_region_allocation_bytes"), 2 * MIB);
    assert_eq!(regions(&mut probe, 5 * MIB), [8 * MIB], "doubled for the request");
    assert_eq!(probe.counter("curr_region_allocation_bytes"), 8 * MIB, "and not afterwards");
    assert_eq!(regions(&mut probe, MIB), [8 * MIB]);
    assert_eq!(probe.counter("curr_region_allocation_bytes"), 16 * MIB);
    let mut probe = Probe::new("onnxruntime.arena:initial_chunk_size_bytes=1000");
    assert_eq!(regions(&mut probe, 1), [1024]);
    let mut probe = Probe::new("onnxruntime.arena:gpu_mem_limit=3500000");
    probe.free_all([]);
    assert_eq!(regions(&mut probe, MIB), [MIB]);
    assert_eq!(regions(&mut probe, 100), [2 * MIB]);
    assert_eq!(regions(&mut probe, 2 * MIB - 300 * KIB), [0_u64; 0], "a rest serves it");
    assert_eq!(regions(&mut probe, 256 * KIB), [354_048], "what the limit leaves");
}

/// The size is doubled before the device is asked.
#[test]
fn next_power_of_two_doubles_also_if_the_device_refuses() {
    let mut probe = Probe::of_capacity("onnxruntime.arena", 0);
    probe.refusal(MIB);
    assert_eq!(probe.counter("curr_region_allocation_bytes"), 2 * MIB);
}

#[test]
fn extend_max_ends_the_doubling_but_not_what_a_request_needs() {
    let mut probe = Probe::new("onnxruntime.arena:max_power_of_two_extend_bytes=3MiB");
    let next = |probe: &mut Probe, size| {
        probe.alloc(size);
        probe.counter("curr_region_allocation_bytes")
    };
    assert_eq!(next(&mut probe, MIB), 2 * MIB);
    assert_eq!(next(&mut probe, 2 * MIB), 3 * MIB);
    assert_eq!(next(&mut probe, 5 * MIB), 6 * MIB);
    assert_eq!(next(&mut probe, 6 * MIB), 3 * MIB, "a region of 6 MiB, then");
    let mut probe = self::probe();
    next(&mut probe, 1025 * MIB);
    assert_eq!(next(&mut probe, 2048 * MIB), 4096 * MIB);
}

#[test]
fn extend_max_that_is_no_multiple_of_256_leaves_no_byte_outside_of_chunks() {
    let mut probe = Probe::new("onnxruntime.arena:max_power_of_two_extend_bytes=1000000");
    for _ in 0..4 {
        probe.alloc(700_000);
        let Reply::Layout(layout) = probe.tell(Notice::Walk) else { panic!("walks") };
        let blocks = layout.segments.iter().flat_map(|segment| &segment.blocks);
        assert_eq!(blocks.map(|block| block.size).sum::<u64>(), probe.reserved());
    }
}

#[test]
fn same_as_requested_asks_for_the_request() {
    let mut probe = Probe::new(SAME);
    for size in [1, 1000, 5 * MIB] {
        probe.alloc(size);
    }
    assert_eq!(probe.calls("cudaMalloc"), [256, 1024, 5 * MIB]);
}

#[test]
fn limit_refuses_without_asking_the_device() {
    let mut probe = Probe::new("onnxruntime.arena:gpu_mem_limit=4MiB");
    probe.alloc(MIB);
    probe.machine.drain_log();
    let numbers = probe.refusal(3 * MIB + 1);
    assert_eq!((numbers.limit, numbers.asked), (Some(4 * MIB), 3 * MIB + 256));
    assert_eq!(probe.calls("cudaMalloc"), [0_u64; 0]);
    probe.alloc(3 * MIB);
}

#[test]
fn backpedal_while_it_covers_the_request_and_8_kib() {
    let mut probe = Probe::of_capacity("onnxruntime.arena", 0);
    probe.refusal(900_000);
    assert_eq!(probe.calls("cudaMalloc"), [MIB, 943_872], "849485 would not cover it");
    let small = "onnxruntime.arena:initial_chunk_size_bytes=10000";
    let mut probe = Probe::of_capacity(small, 0);
    probe.refusal(1);
    assert_eq!(probe.calls("cudaMalloc"), [10_240, 9216, 8448], "then less than 8 KiB");
    let mut probe = Probe::of_capacity(SAME, 0);
    probe.refusal(MIB);
    assert_eq!(probe.calls("cudaMalloc"), [MIB], "once");
}

#[test]
fn no_release_when_growth_fails() {
    let mut probe = Probe::of_capacity(SAME, 8 * MIB);
    let blocks = [2, 2, 2].map(|mib| probe.alloc(mib * MIB));
    probe.free_all(blocks);
    assert_eq!(probe.refusal(5 * MIB).reserved, 6 * MIB);
    assert_eq!(probe.calls("cudaFree"), [0_u64; 0]);
    assert_eq!(probe.tell(Notice::EmptyCache), Reply::Unsupported);
}

#[test]
fn reserve_goes_straight_to_the_device_and_back() {
    let mut probe = Probe::new("onnxruntime.arena:gpu_mem_limit=4MiB");
    probe.tell(Notice::Set { key: "reserve", value: "true" });
    let weights = probe.placement(1_000_001);
    assert_eq!((weights.size, probe.counter("num_reserves")), (1_000_001, 1));
    probe.tell(Notice::Set { key: "reserve", value: "false" });
    assert_eq!(probe.refusal(3_200_000).reserved, 1_000_001, "it counts against the limit");
    let usage = probe.strategy.usage();
    assert_eq!((usage.allocated, usage.reserved), (1_000_001, 1_000_001));
    let Reply::Layout(layout) = probe.tell(Notice::Walk) else { panic!("no layout") };
    assert_eq!(layout.segments[0].size, 1_000_001);
    shrink(&mut probe);
    assert_eq!(probe.calls("cudaFree"), [0_u64; 0], "a shrink leaves it");
    probe.free(weights.block);
    assert_eq!(probe.reserved(), 0);
    let again = probe.strategy.free(&mut probe.machine, weights.block, None);
    assert_eq!(again, Err(AllocError::UnknownBlock(weights.block)));
}

#[test]
fn coalesce_only_in_a_region_and_only_with_chunks_of_the_stream() {
    let mut probe = Probe::new("onnxruntime.arena:use_stream_aware_arena=false");
    let blocks = [256, 256, 512, 1024, 1024].map(|kib| probe.alloc(kib * KIB));
    assert_eq!(probe.reserved(), 3 * MIB);
    probe.free_all(blocks);
    assert_eq!(probe.refusal(9 << 30).largest_free, 2 * MIB, "two regions that touch");
    let mut probe = self::probe();
    let a = probe.alloc(256 * KIB);
    probe.free(a);
    assert_eq!(probe.refusal(9 << 30).largest_free, 768 * KIB, "the rest has no stream");
}

#[test]
fn shrink_returns_idle_regions_but_the_first() {
    let mut probe = probe();
    let [a, b, c] = [MIB, 2 * MIB, 4 * MIB].map(|size| probe.alloc(size));
    probe.free_all([a, b]);
    shrink(&mut probe);
    assert_eq!((probe.reserved(), probe.calls("cudaFree")), (5 * MIB, vec![2 * MIB]));
    probe.free(c);
    shrink(&mut probe);
    assert_eq!((probe.reserved(), probe.counter("num_arena_shrinkages")), (MIB, 2));
    let mut probe = Probe::new(SAME);
    let [a, b] = [MIB, 2 * MIB].map(|size| probe.alloc(size));
    probe.free_all([a, b]);
    shrink(&mut probe);
    assert_eq!(probe.reserved(), 0, "the first too");
}

#[test]
fn shrink_resets_the_region_size_even_if_nothing_goes_back() {
    let mut probe = Probe::new("onnxruntime.arena:initial_growth_chunk_size_bytes=5MiB");
    probe.alloc(64 * MIB);
    shrink(&mut probe);
    assert_eq!(probe.counter("curr_region_allocation_bytes"), 5 * MIB);
    probe.machine.drain_log();
    probe.alloc(MIB);
    assert_eq!(probe.calls("cudaMalloc"), [5 * MIB]);
}

#[test]
fn streams_share_new_memory_and_nothing_else() {
    let mut probe = probe();
    let (a, at, _) = on(&mut probe, 1, 256 * KIB);
    assert_eq!(at, 0);
    probe.free(a);
    let (b, at, _) = on(&mut probe, 2, 256 * KIB);
    assert_eq!(at, 256 * KIB, "the rest of the region has no stream, the freed chunk has");
    assert_eq!(on(&mut probe, 1, 200 * KIB).1, 0, "its own");
    probe.free(b);
    on(&mut probe, 1, 512 * KIB);
    assert_eq!(probe.reserved(), MIB);
    on(&mut probe, 1, 256 * KIB);
    assert_eq!(probe.reserved(), 3 * MIB, "it grows beside a chunk of stream 2");
}

#[test]
fn release_streams_when_a_run_ends() {
    let mut probe = probe();
    let (a, ..) = on(&mut probe, 1, 256 * KIB);
    let (b, ..) = on(&mut probe, 2, 256 * KIB);
    probe.free_all([a, b]);
    assert_eq!(probe.refusal(9 << 30).largest_free, 512 * KIB);
    mark(&mut probe);
    assert_eq!(probe.refusal(9 << 30).largest_free, MIB);
    let waits = probe.counter("stream_waits");
    assert_eq!(on(&mut probe, 3, MIB).1, 0);
    assert_eq!(probe.counter("stream_waits"), waits + 2, "ordered after both");
}

#[test]
fn cross_stream_takes_another_streams_chunk_whole_as_a_last_resort() {
    let mut probe = Probe::new("onnxruntime.arena:enable_cross_stream_reusing=true");
    let (a, ..) = on(&mut probe, 1, 512 * KIB);
    let (b, ..) = on(&mut probe, 1, 512 * KIB);
    probe.free(a);
    let (c, at, size) = on(&mut probe, 2, KIB);
    assert_eq!((at, size), (0, 512 * KIB), "whole, before the arena grows");
    assert_eq!(probe.counter("stream_waits"), 1);
    probe.free(c);
    assert_eq!(on(&mut probe, 1, KIB).1, 0, "it stayed stream 1's");
    probe.free(b);
    assert_eq!(probe.reserved(), MIB);
}

#[test]
fn bad_options_are_named_with_what_was_expected_and_others_are_inert() {
    let spec = "onnxruntime.arena:arena_extend_strategy=kNext";
    let refused = crate::build(&spec.parse().expect(spec)).err().expect(spec).to_string();
    let want = "option arena_extend_strategy=kNext: expected kNextPowerOfTwo or kSameAsRequested";
    assert_eq!(refused, want);
    let spec = "onnxruntime.arena:initial_chunk_size_bytes=0";
    let refused = crate::build(&spec.parse().expect(spec)).err().expect(spec).to_string();
    assert!(refused.starts_with("option initial_chunk_size_bytes=0: expected a size"), "{refused}");
    let spec: crate::Spec =
        format!("{SAME},initial_chunk_size_bytes=2MiB").parse().expect("parses");
    let inert = super::options::inert(&spec.strategy().options);
    let want = "initial_chunk_size_bytes=2MiB has no effect: regions are what requests need";
    assert_eq!(inert, [want]);
}
