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
}
