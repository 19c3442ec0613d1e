//! Rules that no golden case shows, one test each.

use vramlab_sim::allocator::{Allocator, Notice, Reply};
use vramlab_sim::units::StreamId;

use crate::paddle::testing::{MIB, Probe};

/// The event that keeps a block completes only because the host waits.
#[test]
fn retry_waits_for_the_device_before_a_request_fails() {
    for (options, served) in [("", true), (":gpu_allocator_retry_time=0", false)] {
        let mut probe = Probe::new(&format!("paddle.auto_growth+stream_safe{options}"), 100);
        probe.machine.set_sync_completes(true);
        let a = probe.place(60 * MIB).block;
        probe.record(a, 1);
        probe.free(a);
        assert_eq!((probe.usage().allocated, probe.usage().active), (0, 60 * MIB));
        assert_eq!(probe.alloc_on(1, 80 * MIB).is_ok(), served, "{options}");
    }
}

#[test]
fn retry_does_not_wait_where_nothing_is_waiting() {
    let mut probe = Probe::new("paddle.auto_growth+stream_safe", 100);
    probe.refused(0, 200 * MIB);
    assert!(!probe.calls().contains(&"cudaDeviceSynchronize"));
}

#[test]
fn a_deferred_free_ends_when_it_is_completed_or_waited_for() {
    let mut probe = Probe::new("paddle.auto_growth+stream_safe", 100);
    let [a, b] = [30, 30].map(|mib| probe.place(mib * MIB).block);
    probe.notice(Notice::FreeDeferred { block: a });
    probe.notice(Notice::FreeDeferred { block: b });
    assert_eq!((probe.usage().allocated, probe.usage().active), (0, 60 * MIB));
    probe.notice(Notice::Completed { block: a });
    assert_eq!(probe.usage().active, 30 * MIB);
    probe.place(100 * MIB);
    probe.notice(Notice::Completed { block: b });
    assert_eq!(probe.usage().active, 100 * MIB, "it had come back already");
}

#[test]
fn a_use_recorded_under_capture_gets_its_event_after_the_capture() {
    let mut probe = Probe::new("paddle.auto_growth+stream_safe", 100);
    let a = probe.place(MIB);
    let stream = StreamId(0);
    probe.notice(Notice::CaptureBegin { stream });
    probe.calls();
    probe.record(a.block, 1);
    probe.free(a.block);
    assert!(probe.calls().is_empty(), "no event while a graph is captured");
    probe.notice(Notice::CaptureEnd { stream });
    assert_ne!(probe.place(MIB).address, a.address, "now it is recorded");
    assert_eq!(probe.calls(), ["cudaEventRecord", "cudaMalloc"]);
    probe.machine.complete(StreamId(1));
    assert_eq!(probe.place(MIB).address, a.address);
}

#[test]
fn a_free_on_another_stream_is_a_use_by_it() {
    let mut probe = Probe::new("paddle.auto_growth+stream_safe", 100);
    let a = probe.place(MIB);
    let free = probe.strategy.free(&mut probe.machine, a.block, Some(StreamId(3)));
    free.expect("it is live");
    assert_ne!(probe.place(MIB).address, a.address);
    probe.machine.complete(StreamId(3));
    assert_eq!(probe.place(MIB).address, a.address);
}

#[test]
fn limit_holds_for_all_streams_together() {
    let mut probe = Probe::new("paddle.auto_growth+stream_safe:gpu_memory_limit_mb=64", 1024);
    probe.place_on(1, 40 * MIB);
    assert_eq!(probe.refused(2, 30 * MIB).limit, Some(64 * MIB));
    let each = "paddle.auto_growth:gpu_memory_limit_mb=64+stream_safe";
    let mut probe = Probe::new(each, 1024);
    probe.place_on(1, 40 * MIB);
    probe.place_on(2, 30 * MIB);
}

/// Any strategy: PyTorch's cache has a pool for each stream too, but here each stream has a cache.
#[test]
fn per_stream_instances_of_any_strategy_keep_their_own_memory() {
    for inner in [
        "torch.caching",
        "classic.best_fit",
        "cuda.malloc",
        "paddle.naive_best_fit:initial_gpu_memory_in_mb=40,reallocate_gpu_memory_in_mb=40",
    ] {
        let mut probe = Probe::new(&format!("{inner}+stream_safe"), 100);
        let a = probe.place_on(1, 30 * MIB);
        let b = probe.place_on(2, 30 * MIB);
        let Reply::Layout(layout) = probe.notice(Notice::Walk) else {
            panic!("a walk is answered")
        };
        let streams: Vec<u32> = layout.segments.iter().map(|segment| segment.stream.0).collect();
        assert_eq!(streams, [1, 2], "{inner}");
        probe.record(a.block, 2);
        probe.free(a.block);
        probe.free(b.block);
        assert_eq!((probe.usage().allocated, probe.usage().active / MIB), (0, 30), "{inner}");
        probe.machine.complete(StreamId(2));
        probe.notice(Notice::EmptyCache);
        assert_eq!(probe.usage().reserved, 0, "{inner}");
    }
}

#[test]
fn trim_counts_what_all_streams_hold() {
    let mut probe = Probe::new("paddle.auto_growth+stream_safe", 1024);
    for stream in 0..4 {
        let block = probe.place_on(stream, 10 * MIB).block;
        probe.free(block);
    }
    probe.notice(Notice::Trim { keep: 25 * MIB });
    assert_eq!(probe.usage().reserved, 20 * MIB);
}

#[test]
fn settings_that_changed_are_told_to_later_instances() {
    let mut probe = Probe::new("torch.caching+stream_safe", 1024);
    let set = Notice::Set { key: "memory_fraction", value: "0.01" };
    if probe.notice(set) == Reply::Unsupported {
        panic!("torch.caching has a memory fraction");
    }
    probe.refused(7, 100 * MIB);
}
