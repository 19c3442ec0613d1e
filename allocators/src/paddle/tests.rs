//! Rules that no golden case shows, one test each, and the settings text.

use vramlab_sim::allocator::{Allocator, Notice, Reply};
use vramlab_sim::driver::DriverError;

use super::testing::{MIB, Probe, inert, refusal};

/// As in upstream's own test of these flags: 7 blocks of half a MiB in a small pool that grows by 2 MiB.
#[test]
fn small_pool_grows_by_its_own_flag_and_both_pools_are_pre_allocated() {
    let flags = "FLAGS_small_pool_size_in_mb=1 FLAGS_auto_growth_chunk_size_in_mb=10 \
                 FLAGS_small_pool_auto_growth_chunk_size_in_mb=2 FLAGS_large_pool_auto_growth_chunk_size_in_mb=16 \
                 FLAGS_small_pool_pre_alloc_in_mb=2 FLAGS_large_pool_pre_alloc_in_mb=20";
    let mut probe = Probe::new(&format!("paddle.auto_growth:flags='{flags}'"), 1024);
    for _ in 0..4 {
        probe.place(MIB / 2);
    }
    assert_eq!(probe.usage().reserved, 22 * MIB, "four fit in the pre-allocation");
    for _ in 0..3 {
        probe.place(MIB / 2);
    }
    assert_eq!(probe.usage().reserved, 24 * MIB);
    assert_eq!(probe.usage().allocated, 7 * MIB / 2);
    probe.place(MIB + 1);
    assert_eq!(probe.usage().reserved, 24 * MIB, "the large pool has 20 MiB");
    probe.place(19 * MIB);
    assert_eq!(probe.usage().reserved, 43 * MIB, "larger than the growth: exact");
    let note = "auto_growth_chunk_size_in_mb=10 has no effect: with small_pool_size_in_mb each pool has its own";
    assert_eq!(inert(&format!("paddle.auto_growth:flags='{flags}'")), [note]);
}

#[test]
fn pre_alloc_that_does_not_fit_fails_the_request_until_it_does() {
    let mut probe = Probe::new("paddle.auto_growth:large_pool_pre_alloc_in_mb=512", 100);
    assert_eq!(probe.refused(0, MIB).reserved, 0);
    assert_eq!(probe.refused(0, MIB).device_free, 100 * MIB);
}

#[test]
fn warm_up_takes_a_chunk_before_the_first_request_and_serves_from_it() {
    let mut probe = Probe::new("paddle.auto_growth:warm_up=64MiB", 1024);
    let a = probe.place(MIB);
    probe.place(20 * MIB);
    assert_eq!(probe.usage().reserved, 64 * MIB);
    assert_eq!(probe.calls(), ["cudaMalloc"]);
    probe.free(a.block);
    let mut probe = Probe::new("paddle.vmm_auto_growth:warm_up=9MiB", 1024);
    probe.place(8 * MIB);
    assert_eq!(probe.usage().reserved, 10 * MIB);
}

#[test]
fn limit_refuses_what_the_device_has_and_says_so() {
    let mut probe = Probe::new("paddle.auto_growth:gpu_memory_limit_mb=64", 1024);
    let a = probe.place(40 * MIB);
    let numbers = probe.refused(0, 30 * MIB);
    assert_eq!((numbers.limit, numbers.device_free), (Some(64 * MIB), 24 * MIB));
    probe.free(a.block);
    probe.place(50 * MIB);
    assert_eq!(probe.usage().reserved, 50 * MIB, "the idle chunk went back and no longer counts");
}

/// `naive_best_fit` computes its chunk from what it hears to be free.
#[test]
fn limit_info_is_what_a_fraction_is_of() {
    let spec = "paddle.naive_best_fit:fraction_of_gpu_memory_to_use=0.5,gpu_memory_limit_mb=100";
    let mut probe = Probe::new(spec, 1024);
    probe.place(1);
    assert_eq!(probe.counter("max_chunk"), 95 * MIB / 2);
}

#[test]
fn a_flag_that_exceeds_what_is_available_is_out_of_memory() {
    let mut probe = Probe::new("paddle.naive_best_fit:initial_gpu_memory_in_mb=1000", 1024);
    assert_eq!(probe.refused(0, 1).reserved, 0, "95 % of 1024 MiB are available");
}

#[test]
fn space_of_addresses_ends_where_the_device_ends() {
    let mut probe = Probe::new("paddle.vmm_auto_growth", 63);
    probe.place(40 * MIB);
    assert_eq!(probe.calls()[0], "cuMemAddressReserve");
    probe.refused(0, 22 * MIB);
    assert!(probe.calls().is_empty(), "42 and 24 MiB are more than 64: the driver is not asked");
    assert_eq!(probe.notice(Notice::EmptyCache), Reply::Unsupported);
    probe.place(19 * MIB);
}

/// A growth is four things to the driver; where one fails, what was done is undone.
#[test]
fn growth_that_the_driver_fails_leaves_nothing_behind() {
    for call in ["cuMemMap", "cuMemSetAccess"] {
        let mut probe = Probe::new("paddle.vmm_auto_growth", 64);
        let error = DriverError::Failed { call: "cuMem", what: "on cue".into() };
        probe.machine.fail_on(call, 0, error);
        assert!(probe.alloc_on(0, MIB).is_err());
        assert_eq!(probe.usage().reserved, 0, "{call}");
        assert_eq!(probe.place(MIB).size, MIB, "{call}");
    }
}

#[test]
fn text_of_flags_is_accepted_in_every_form_and_an_option_beside_it_wins() {
    for text in [
        "FLAGS_allocator_strategy=auto_growth FLAGS_auto_growth_chunk_size_in_mb=8",
        "export FLAGS_auto_growth_chunk_size_in_mb=\"8\"; export FLAGS_cudnn_deterministic=1",
        "FLAGS_auto_growth_chunk_size_in_mb=4,FLAGS_auto_growth_chunk_size_in_mb=8",
        "FLAGS_auto_growth_chunk_size_in_mb=8\nFLAGS_sync_nccl_allreduce=true",
    ] {
        let mut probe = Probe::new(&format!("paddle.auto_growth:flags='{text}'"), 100);
        probe.place(1);
        assert_eq!(probe.usage().reserved, 8 * MIB, "{text}");
    }
    let spec = "paddle.auto_growth:auto_growth_chunk_size_in_mb=2,flags='FLAGS_auto_growth_chunk_size_in_mb=8'";
    let mut probe = Probe::new(spec, 100);
    probe.place(1);
    assert_eq!(probe.usage().reserved, 2 * MIB);
}

#[test]
fn flags_that_do_nothing_are_reported_with_the_reason() {
    let text = "FLAGS_allocator_strategy=auto_growth FLAGS_eager_delete_tensor_gb=0.0 \
                FLAGS_fraction_of_gpu_memory_to_use=0.5 FLAGS_use_stream_safe_cuda_allocator=true FLAGS_benchmark=1";
    let notes = inert(&format!("paddle.auto_growth:flags='{text}'"));
    assert_eq!(
        notes,
        [
            "FLAGS_eager_delete_tensor_gb=0.0 has no effect: it is an option of the wrapper eager_deletion, which is joined with +",
            "FLAGS_fraction_of_gpu_memory_to_use=0.5 has no effect: only paddle.naive_best_fit reads it",
            "FLAGS_use_stream_safe_cuda_allocator=true has no effect: that is the wrapper stream_safe, which is joined with +",
            "FLAGS_benchmark=1 has no effect: it does not concern this allocator",
        ]
    );
    let both = "paddle.naive_best_fit:initial_gpu_memory_in_mb=8,reallocate_gpu_memory_in_mb=8,fraction_of_gpu_memory_to_use=0.5";
    assert_eq!(
        inert(both),
        ["fraction_of_gpu_memory_to_use=0.5 has no effect: both chunk sizes are given in MiB"]
    );
}

#[test]
fn settings_that_make_no_sense_are_refused_with_what_was_expected() {
    for (spec, want) in [
        (
            "paddle.auto_growth:flags='FLAGS_free_idle_chunks=1'",
            "Paddle has no flag FLAGS_free_idle_chunks; without FLAGS_, did you mean free_idle_chunk?",
        ),
        (
            "paddle.auto_growth:flags='free_idle_chunk=1'",
            "flags: found \"free_idle_chunk\", expected a name that begins with FLAGS_",
        ),
        ("paddle.auto_growth:flags='FLAGS_'", "flags: found \"FLAGS_\", expected FLAGS_name=value"),
        (
            "paddle.auto_growth:flags='FLAGS_allocator_strategy=naive_best_fit'",
            "FLAGS_allocator_strategy=naive_best_fit asks for another allocator than paddle.auto_growth: that of paddle.naive_best_fit",
        ),
        (
            "paddle.auto_growth:flags='FLAGS_use_virtual_memory_auto_growth=1'",
            "FLAGS_use_virtual_memory_auto_growth=1 asks for another allocator than paddle.auto_growth: that of paddle.vmm_auto_growth",
        ),
        (
            "paddle.naive_best_fit:flags='FLAGS_use_cuda_malloc_async_allocator=true'",
            "FLAGS_use_cuda_malloc_async_allocator=true asks for another allocator than paddle.naive_best_fit: that of cuda.async_pool",
        ),
        (
            "paddle.auto_growth:chunk_size=1MiB,auto_growth_chunk_size_in_mb=1",
            "options auto_growth_chunk_size_in_mb and chunk_size mean the same: expected one",
        ),
        (
            "paddle.auto_growth:gpu_memory_limit_mb=99999999999999",
            "option gpu_memory_limit_mb=99999999999999: expected a whole number of MiB below 2^44",
        ),
        (
            "paddle.auto_growth:free_idle_chunk=yes",
            "option free_idle_chunk=yes: expected true or false",
        ),
        (
            "paddle.auto_growth:alignment_size=100",
            "option alignment_size=100: expected a power of two from 256 B to 2 MiB",
        ),
        (
            "paddle.naive_best_fit:fraction_of_gpu_memory_to_use=1.5",
            "option fraction_of_gpu_memory_to_use=1.5: expected a share from 0 to 1",
        ),
        (
            "paddle.auto_growth+eager_deletion:queue_bytes=1,eager_delete_tensor_gb=1",
            "options queue_bytes and eager_delete_tensor_gb are two thresholds: expected one",
        ),
        (
            "paddle.auto_growth+eager_deletion:executor=newer",
            "option executor=newer: expected old or new",
        ),
        (
            "paddle.auto_growth+stream_safe:gpu_allocator_retry_time=soon",
            "option gpu_allocator_retry_time=soon: expected a number such as 0.5",
        ),
    ] {
        assert_eq!(refusal(spec), want);
    }
}

/// A chunk may have any size: the rest at its end is less than a unit, and sorts by its bytes.
#[test]
fn pieces_of_odd_sizes_are_ordered_by_their_bytes() {
    let mut probe = Probe::new("paddle.naive_best_fit:fraction_of_gpu_memory_to_use=0.333", 100);
    let all: Vec<_> = (0..20).map(|_| probe.place(MIB).block).collect();
    all.into_iter().for_each(|block| probe.free(block));
    let whole = probe.usage().reserved;
    assert!(!whole.is_multiple_of(256), "{whole}");
    let most = probe.place((whole - 64) / 256 * 256 - 64);
    assert_eq!(probe.counter("free_blocks_num"), u64::from(whole % 256 > 64));
    probe.free(most.block);
    probe.notice(Notice::EmptyCache);
    assert_eq!(probe.strategy.usage().reserved, 0);
}
