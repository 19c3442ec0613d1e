//! What no golden case shows: where the limit comes from, the retry, joined regions that go back, options.

use vramlab_sim::allocator::{AllocError, Allocator, Notice};
use vramlab_sim::driver::DriverError;

use crate::classic::testing::Probe;

const MIB: u64 = 1 << 20;

/// Bytes of the first region for a small request.
fn first_region(spec: &str, capacity: u64) -> u64 {
    let mut probe = Probe::of_capacity(spec, capacity);
    probe.alloc(1);
    probe.reserved()
}

#[test]
fn system_memory_is_left_to_the_system() {
    let own = "tensorflow.bfc:TF_DEVICE_MIN_SYS_MEMORY_IN_MB=auto";
    for (capacity, limit) in [(8192, 8192 - 1536), (2048, 512), (1024, 1024 - 225), (200, 200)] {
        assert_eq!(first_region(own, capacity * MIB), limit * MIB, "of {capacity} MiB");
    }
    let spec = "tensorflow.bfc:TF_DEVICE_MIN_SYS_MEMORY_IN_MB=100";
    assert_eq!(first_region(spec, 1024 * MIB), 924 * MIB);
    assert_eq!(first_region("tensorflow.bfc", 1024 * MIB), 1024 * MIB, "none unless it is given");
}

#[test]
fn pages_of_2_mib_make_a_limit_that_the_device_can_give() {
    for spec in ["tensorflow.bfc", "tensorflow.bfc:per_process_gpu_memory_fraction=1"] {
        assert_eq!(first_region(spec, 100 * MIB + 700_000), 100 * MIB, "{spec}");
    }
}

#[test]
fn fraction_is_of_the_total_memory_and_memory_limit_is_bytes() {
    let spec = "tensorflow.bfc:per_process_gpu_memory_fraction=0.3";
    assert_eq!(first_region(spec, 1000 * MIB), 300 * MIB);
    assert_eq!(first_region("tensorflow.bfc:memory_limit=1000000", 8192 * MIB), 999_936);
    let grows = "tensorflow.bfc:allow_growth=true";
    assert_eq!(first_region(grows, 8192 * MIB), 2 * MIB);
    let forced =
        "tensorflow.bfc:allow_growth=true,TF_FORCE_GPU_ALLOW_GROWTH=false,memory_limit=64MiB";
    assert_eq!(first_region(forced, 8192 * MIB), 64 * MIB);
}

#[test]
fn preallocate_takes_three_quarters_of_the_device() {
    assert_eq!(first_region("tensorflow.xla", 1000 * MIB), 750 * MIB);
    let spec =
        "tensorflow.xla:XLA_PYTHON_CLIENT_MEM_FRACTION=.5,XLA_PYTHON_CLIENT_PREALLOCATE=false";
    assert_eq!(first_region(spec, 1000 * MIB), 2 * MIB);
    let mut probe = Probe::of_capacity(spec, 1000 * MIB);
    assert_eq!(probe.refusal(501 * MIB).limit, Some(500 * MIB));
}

#[test]
fn no_collection_for_xla_but_by_default_for_tensorflow() {
    let refused = |spec: &str| {
        let mut probe = Probe::of_capacity(spec, 1000 * MIB);
        let blocks = [2, 4, 8].map(|mib| probe.alloc(mib * MIB));
        probe.free_all(blocks);
        probe.try_alloc(31 * MIB, 0).is_err()
    };
    assert!(!refused("tensorflow.bfc:allow_growth=true,memory_limit=32MiB"));
    let off = "tensorflow.bfc:allow_growth=true,memory_limit=32MiB,TF_ENABLE_GPU_GARBAGE_COLLECTION=false";
    assert!(refused(off));
    let xla = "tensorflow.xla:XLA_PYTHON_CLIENT_MEM_FRACTION=0.032,XLA_PYTHON_CLIENT_PREALLOCATE=0";
    assert!(refused(xla));
}

#[test]
fn retry_waits_for_deferred_frees() {
    let mut probe = Probe::new("tensorflow.bfc:memory_limit=64MiB");
    let block = probe.alloc(40 * MIB);
    probe.tell(Notice::FreeDeferred { block });
    assert_eq!(probe.calls("cudaDeviceSynchronize").len(), 0);
    assert_eq!(probe.place(64 * MIB), 0);
    assert_eq!(probe.calls("cudaDeviceSynchronize").len(), 1);
    assert_eq!(probe.refusal(1).limit, Some(64 * MIB));
}

#[test]
fn backpedal_of_a_small_region_ends() {
    let mut probe = Probe::of_capacity("tensorflow.bfc:memory_limit=2560", 0);
    assert_eq!(probe.refusal(1).device_free, 0);
    let asked = [2560, 2304, 2048, 1792, 1536, 1280, 1024, 768, 512, 256];
    assert_eq!(probe.calls("cudaMalloc"), asked);
}

#[test]
fn regions_that_were_joined_go_back_together() {
    let options = "allow_growth=true,coalesce_regions=true,memory_limit=16MiB";
    let mut probe = Probe::new(&format!("tensorflow.bfc:{options}"));
    let [a, b] = [2, 4].map(|mib| probe.alloc(mib * MIB));
    probe.free_all([a, b]);
    assert_eq!(probe.place(6 * MIB), 0, "one chunk over both regions");
    let c = probe.refusal(11 * MIB);
    assert_eq!((c.reserved, c.active), (6 * MIB, 6 * MIB));

    let mut probe = Probe::new(&format!("tensorflow.bfc:{options}"));
    let [a, b] = [2, 4].map(|mib| probe.alloc(mib * MIB));
    probe.free_all([a, b]);
    probe.machine.drain_log();
    assert_eq!(probe.place(16 * MIB), 0);
    assert_eq!(probe.calls("cudaFree"), [2 * MIB, 4 * MIB]);
    assert_eq!(probe.reserved(), 16 * MIB);
}

/// The first of a region's two mallocs went back, the second did not: the rest stays a region.
#[test]
fn a_joined_region_that_goes_back_in_part_keeps_its_rest() {
    let options = "allow_growth=true,coalesce_regions=true,memory_limit=16MiB";
    let mut probe = Probe::new(&format!("tensorflow.bfc:{options}"));
    let blocks = [2, 4].map(|mib| probe.alloc(mib * MIB));
    probe.free_all(blocks);
    let failed = DriverError::Failed { call: "cudaFree", what: "on cue".into() };
    probe.machine.fail_on("cudaFree", 1, failed.clone());
    assert_eq!(probe.try_alloc(16 * MIB, 0), Err(AllocError::Driver(failed)));
    assert_eq!(probe.reserved(), 4 * MIB);
    assert_eq!(probe.place(4 * MIB), 0, "it serves again");
    assert_eq!(probe.reserved(), 4 * MIB);
}

#[test]
fn a_driver_error_passes_through_and_the_books_hold() {
    let mut probe = Probe::new("tensorflow.bfc:allow_growth=true,memory_limit=16MiB");
    let failed = |call| DriverError::Failed { call, what: "on cue".into() };
    let a = probe.alloc(MIB);
    probe.machine.fail_on("cudaMalloc", 0, failed("cudaMalloc"));
    assert_eq!(probe.try_alloc(8 * MIB, 0), Err(AllocError::Driver(failed("cudaMalloc"))));
    probe.free(a);
    probe.machine.fail_on("cudaStreamWaitEvent", 0, failed("cudaStreamWaitEvent"));
    let refused = probe.try_alloc(MIB, 7);
    assert_eq!(refused, Err(AllocError::Driver(failed("cudaStreamWaitEvent"))));
    assert_eq!(probe.strategy.usage().active, 0);
    assert_eq!(probe.place(2 * MIB), 0, "nothing was lost");
}

#[test]
fn bad_options_are_named_with_what_was_expected() {
    for (spec, want) in [
        (
            "tensorflow.bfc:memory_limit=0",
            "option memory_limit=0: expected device, or a size below 1 TiB such as 16GiB",
        ),
        (
            "tensorflow.bfc:per_process_gpu_memory_fraction=1.2",
            "option per_process_gpu_memory_fraction=1.2: expected a number from 0 to 1",
        ),
        ("tensorflow.bfc:allow_growth=yes", "option allow_growth=yes: expected true or false"),
        (
            "tensorflow.bfc:fragmentation_fraction=-1",
            "option fragmentation_fraction=-1: expected a number 0 or more",
        ),
        (
            "tensorflow.xla:XLA_PYTHON_CLIENT_MEM_FRACTION=0",
            "option XLA_PYTHON_CLIENT_MEM_FRACTION=0: expected a number above 0, up to 1",
        ),
    ] {
        let refused = crate::build(&spec.parse().expect(spec)).err().expect(spec);
        assert_eq!(refused.to_string(), want);
    }
}

#[test]
fn options_that_are_overruled_are_inert() {
    let said = |spec: &str| {
        let spec: crate::Spec = spec.parse().expect(spec);
        super::options::inert(&spec.strategy().options)
    };
    assert_eq!(said("tensorflow.bfc:allow_growth=true,memory_limit=1GiB"), [""; 0]);
    let fraction = "tensorflow.bfc:per_process_gpu_memory_fraction=0.5,memory_limit=1GiB";
    let want = "per_process_gpu_memory_fraction=0.5 has no effect: memory_limit is given";
    assert_eq!(said(fraction), [want]);
    let growth = "tensorflow.bfc:allow_growth=true,TF_FORCE_GPU_ALLOW_GROWTH=false";
    let want = "allow_growth=true has no effect: TF_FORCE_GPU_ALLOW_GROWTH goes before it";
    assert_eq!(said(growth), [want]);
}
