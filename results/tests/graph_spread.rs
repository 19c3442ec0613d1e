//! Steps that are spread over streams, through the caching allocator: nothing is used before it may be, and a host that does not wait holds more.

use vramlab_allocators::Spec;
use vramlab_allocators::registry::build;
use vramlab_sim::SimMachine;
use vramlab_sim::device::profile::device;
use vramlab_sim::engine::{Setup, run};
use vramlab_sim::report::Report;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

fn report(workload: &str, params: &str) -> Report {
    let profile = device("a100-80gb").expect("a built-in device");
    let rates = Rates::of(&profile);
    let mut source = find(workload).and_then(|w| w.source(params, 0, &rates)).expect(params);
    let mut machine = SimMachine::with_devices([profile.options.clone()]);
    let spec: Spec = "torch.caching".parse().expect("a spec");
    let mut strategies = vec![build(&spec).expect("a strategy")];
    run(&mut *source, Setup::new(&mut machine, &mut strategies)).expect("it runs to its end")
}

#[test]
fn no_pass_over_streams_races() {
    for passes in [
        "allreduce",
        "zero=2",
        "zero=3",
        "zero=3/limit:0",
        "offload=optimizer",
        "offload=weights",
        "offload=activations",
        "prefetch",
        "prefetch+zero=3+offload=activations+checkpoint=every:2",
        "accumulate=2+zero=2",
        "pipeline=stages:2/micro:4",
    ] {
        let report = report("resnet", &format!("depth=18,batch=16,steps=3,passes={passes}"));
        assert_eq!((report.race_count, report.ooms), (0, 0), "{passes}");
    }
    let report = report("ocr", "pages=10,streams=2");
    assert_eq!((report.race_count, report.ooms), (0, 0));
}

/// pytorch/pytorch#98354: gathers without a limit held five times the memory of at most two in flight, and took a little longer.
#[test]
fn a_host_that_gathers_without_limit_holds_more() {
    let peak = |limit: u64| {
        let params = format!("batch=8,seq=128,steps=3,passes=zero=3/devices:8/limit:{limit}");
        let report = report("bert", &params);
        (report.devices[0].active.peak, report.devices[0].reserved.peak)
    };
    let (limited, unlimited) = (peak(2), peak(0));
    println!("peak active and reserved: limit 2 {limited:?} B, no limit {unlimited:?} B");
    assert!(unlimited.0 > limited.0 && unlimited.1 > limited.1);
    // one block ahead is asked for before the block that it would wait for is queued: the one before that stands for it
    let closest = peak(1);
    assert!(closest.0 <= limited.0 && closest.1 <= limited.1, "{closest:?} {limited:?}");
}

/// Time of a step once the first ones are over (ns).
fn step_ns(params: &str) -> u64 {
    let time =
        |steps: u64| report("resnet", &format!("depth=18,batch=16,steps={steps},{params}")).time.0;
    (time(8) - time(4)) / 4
}

/// Workers make the next batch while one is used: a step takes the longer of its own work and T/N.
#[test]
fn workers_and_steps_take_the_longer_of_both() {
    let step = step_ns("passes=none");
    for (workers, ms) in [(1, 100), (4, 100), (8, 40), (16, 1)] {
        for way in ["host", "device"] {
            let with = step_ns(&format!("passes=prefetch={way}/workers:{workers}/ms:{ms}"));
            let made = ms * 1_000_000 / workers;
            let expected = step.max(made);
            println!("{way}, {workers} workers of {ms} ms: {with} ns a step, of {step} ns alone");
            // copies to the device may be hidden, or a little launched later
            assert!(
                with.abs_diff(expected) * 100 <= 5 * expected,
                "{way} {workers} {ms}: {with} {expected}"
            );
        }
    }
}

/// Copies to the host that are in flight hold their blocks; the limit is kept by waiting, and costs time where copies are slower than kernels.
#[test]
fn a_limit_on_copies_to_the_host_holds_less() {
    let at = |passes: &str| {
        let params = format!("batch=16,seq=256,steps=3,passes={passes}");
        let report = report("bert", &params);
        (report.devices[0].reserved.peak, report.time.0)
    };
    let none = at("none");
    let [one, four, free] =
        [1, 4, 0].map(|limit| at(&format!("offload=activations/limit:{limit}")));
    println!("reserved, time: none {none:?}, limit 1 {one:?}, 4 {four:?}, without {free:?}");
    assert!(one.0 < four.0 && four.0 < free.0 && one.0 < none.0);
    // copies take longer than kernels here, so waiting for them costs nothing
    assert!(one.1.abs_diff(free.1) * 100 <= free.1);
}
