//! Rules that no golden case shows, one test each.

use vramlab_sim::allocator::Notice;
use vramlab_sim::units::StreamId;

use crate::paddle::testing::{MIB, Probe};

fn active(probe: &Probe) -> u64 {
    probe.usage().active / MIB
}

/// 6 + 6 reach 10; had the sum been looked at after the second tensor, the third would wait.
#[test]
fn hand_over_takes_all_frees_between_two_other_ops_together() {
    let spec = |executor| {
        format!("paddle.auto_growth+eager_deletion:eager_delete_tensor_gb=0.01,executor={executor}")
    };
    for (executor, left) in [("old", 0), ("new", 6)] {
        let mut probe = Probe::new(&spec(executor), 100);
        let blocks = [6, 6, 6].map(|mib| probe.place(mib * MIB).block);
        blocks.into_iter().for_each(|block| probe.free(block));
        probe.work(0);
        assert_eq!(active(&probe), left, "executor {executor}");
        assert_eq!(probe.usage().allocated, 0);
    }
}

#[test]
fn hand_over_ends_with_a_request_too() {
    let mut probe =
        Probe::new("paddle.auto_growth+eager_deletion:eager_delete_tensor_gb=0.01", 100);
    let a = probe.place(20 * MIB);
    probe.free(a.block);
    assert_eq!(active(&probe), 20, "the operator may have more");
    assert_eq!(probe.place(20 * MIB).address, a.address);
}

#[test]
fn run_end_frees_what_waits_unless_the_collector_stays() {
    for (options, left) in [
        ("eager_delete_tensor_gb=1", 0),
        ("eager_delete_tensor_gb=-1", 0),
        ("eager_delete_tensor_gb=1,executor=new", 8),
        ("eager_delete_tensor_gb=-1,executor=new", 0),
    ] {
        let mut probe = Probe::new(&format!("classic.best_fit+eager_deletion:{options}"), 100);
        let block = probe.place(8 * MIB).block;
        probe.free(block);
        probe.work(0);
        assert_eq!(active(&probe), 8, "{options}");
        probe.mark();
        assert_eq!(active(&probe), left, "{options}");
    }
}

#[test]
fn slow_collection_waits_for_the_stream() {
    let mut probe =
        Probe::new("paddle.auto_growth+eager_deletion:fast_eager_deletion_mode=false", 100);
    let a = probe.place_on(2, 60 * MIB);
    probe.free(a.block);
    probe.work(2);
    assert_eq!(active(&probe), 60);
    assert_eq!(probe.counter("gc_pending_tensors"), 1);
    probe.machine.complete(StreamId(2));
    assert_eq!(probe.place_on(2, 60 * MIB).address, a.address);
}

#[test]
fn slow_collection_is_waited_for_before_a_request_fails_and_at_the_end_of_a_run() {
    let spec = "paddle.auto_growth+eager_deletion:fast_eager_deletion_mode=false";
    let mut probe = Probe::new(spec, 100);
    let a = probe.place(60 * MIB);
    probe.free(a.block);
    let b = probe.place(80 * MIB);
    assert!(probe.calls().contains(&"cudaEventSynchronize"));
    probe.free(b.block);
    probe.work(0);
    probe.mark();
    assert_eq!(active(&probe), 0);
}

#[test]
fn largest_share_is_collected_early_from_the_second_run_on() {
    // at once, or as an operator's hand-over that reaches its threshold
    for gb in ["0", "0.001"] {
        let share = "memory_fraction_of_eager_deletion=0.5";
        let spec = format!("paddle.auto_growth+eager_deletion:{share},eager_delete_tensor_gb={gb}");
        let mut probe = Probe::new(&spec, 100);
        for kept in [0, 4] {
            let blocks = [8, 1, 1, 2].map(|mib| probe.place(mib * MIB).block);
            blocks.into_iter().for_each(|block| probe.free(block));
            probe.work(0);
            assert_eq!(active(&probe), kept, "8 of 12 MiB are the half");
            probe.mark();
            assert_eq!(active(&probe), 0);
        }
    }
    let mut probe =
        Probe::new("paddle.auto_growth+eager_deletion:memory_fraction_of_eager_deletion=0", 100);
    let block = probe.place(MIB).block;
    probe.free(block);
    assert_eq!(active(&probe), 1, "no share: nothing is collected early");
}

#[test]
fn queue_is_freed_at_its_bytes_under_pressure_and_when_the_cache_is_emptied() {
    for inner in
        ["torch.caching", "paddle.auto_growth", "classic.tlsf", "paddle.auto_growth+stream_safe"]
    {
        let mut probe = Probe::new(&format!("{inner}+eager_deletion:queue_bytes=30MiB"), 100);
        let a = probe.place(20 * MIB).block;
        probe.free(a);
        probe.work(0);
        assert_eq!(probe.counter("gc_pending_tensors"), 1, "{inner}: 20 MiB wait");
        let b = probe.place(16 * MIB).block;
        probe.free(b);
        probe.work(0);
        assert_eq!(probe.usage().active, 0, "{inner}: 36 MiB do not");
        let c = probe.place(22 * MIB).block;
        probe.free(c);
        probe.place(84 * MIB);
        assert_eq!(probe.counter("gc_pending_tensors"), 0, "{inner}: released for a request");
        let mut probe = Probe::new(&format!("{inner}+eager_deletion:queue_bytes=30MiB"), 100);
        let d = probe.place(20 * MIB).block;
        probe.free(d);
        probe.notice(Notice::EmptyCache);
        assert_eq!(probe.usage().reserved, 0, "{inner}");
    }
}

/// Paddle's own collector does not hear of it.
#[test]
fn a_threshold_is_not_released_for_a_request() {
    let mut probe = Probe::new("paddle.auto_growth+eager_deletion:eager_delete_tensor_gb=1", 100);
    let a = probe.place(60 * MIB).block;
    probe.free(a);
    let numbers = probe.refused(0, 60 * MIB);
    assert_eq!((numbers.reserved, numbers.active), (60 * MIB, 60 * MIB));
}

#[test]
fn flags_text_of_the_whole_process_is_accepted() {
    let flags = "FLAGS_allocator_strategy=auto_growth FLAGS_eager_delete_tensor_gb=1.0 FLAGS_fast_eager_deletion_mode=true";
    let spec = format!("paddle.auto_growth:flags='{flags}'+eager_deletion:flags='{flags}'");
    let mut probe = Probe::new(&spec, 100);
    let a = probe.place(MIB).block;
    probe.free(a);
    probe.work(0);
    assert_eq!(active(&probe), 1);
}
