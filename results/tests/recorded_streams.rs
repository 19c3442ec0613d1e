//! Two-stream prefetching and the page-reading service through the caching allocator against recorded runs of the real thing.
//!
//! Witness: `traces/pytorch_recorded/NAME.json`: peaks as PyTorch 2.15 reported them. Tolerance: 3 % of peak allocated, 5 % of peak reserved.

#[path = "../../workloads/tests/set_ups/mod.rs"]
mod set_ups;
mod shared;

use serde_json::Value;
use vramlab_allocators::Spec;
use vramlab_allocators::registry::build;
use vramlab_sim::SimMachine;
use vramlab_sim::device::profile::device;
use vramlab_sim::engine::{Setup, run};
use vramlab_sim::report::Report;
use vramlab_sim::source::Source;

const ALLOCATED: f64 = 0.03;
const RESERVED: f64 = 0.05;

#[test]
fn recorded_streams() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let (mut found, mut worst) = (0, [0.0_f64; 2]);
    for (name, file) in set_ups::recordings(&folder) {
        let Some(mut player) = set_ups::prefetch(&file) else { continue };
        let report = run_caching(&mut player, &file);
        let ours = [report.devices[0].allocated.peak, report.devices[0].reserved.peak];
        found += 1;
        for (i, key) in ["max_memory_allocated", "max_memory_reserved"].into_iter().enumerate() {
            let recorded = file[key].as_u64().expect("a peak");
            let deviation = ours[i] as f64 / recorded as f64 - 1.0;
            worst[i] = worst[i].max(deviation.abs());
            eprintln!(
                "{name}: {key} {} B, recorded {recorded} B, {:+.3} %",
                ours[i],
                100.0 * deviation
            );
        }
    }
    println!(
        "recorded_streams: {found} set-ups, allocated within {:.3} %, reserved within {:.3} %",
        100.0 * worst[0],
        100.0 * worst[1]
    );
    assert!(found > 0, "no set-up could be expressed");
    assert!(worst[0] <= ALLOCATED && worst[1] <= RESERVED, "a peak deviates by more");
}

/// A run through `torch.caching` on the device that the recording states.
fn run_caching(source: &mut dyn Source, file: &Value) -> Report {
    let stated = &file["device"];
    let number = |key: &str| stated[key].as_u64().expect("a number");
    let mut options = device("a100-80gb").expect("a built-in device").options;
    options.capacity = number("capacity_bytes");
    options.context = number("context_bytes");
    let mut machine = SimMachine::with_devices([options]);
    let spec: Spec = "torch.caching".parse().expect("a spec");
    let mut strategies = vec![build(&spec).expect("a strategy")];
    run(source, Setup::new(&mut machine, &mut strategies)).expect("it runs to its end")
}
