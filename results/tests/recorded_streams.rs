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
    let mut checks = Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        let Some(mut player) = set_ups::prefetch(&file) else { continue };
        let [allocated, reserved] =
            ["max_memory_allocated", "max_memory_reserved"].map(|key| file[key].as_u64());
        // where events complete launches later, blocks wait in a way that time does not decide
        let lag = file["device"]["event_lag_launches"].as_u64();
        let reserved = reserved.filter(|_| lag == Some(0));
        checks.check(&name, &run_caching(&mut player, &file), [allocated, reserved]);
    }
    checks.end("recorded_streams");
}

/// Recordings that never empty the cache, up to the last page whose end they name.
#[test]
fn recorded_pages() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let mut checks = Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        let plain = ["ballast_gib", "empty_cache_every"].map(|key| file[key].as_f64());
        if file["page_h_w_lines"].is_null() || plain != [Some(0.0); 2] {
            continue;
        }
        let pages = set_ups::Pages::of(&folder.join(format!("{name}.pickle.gz")), &file);
        let Some(mut service) = set_ups::ocr(&file, &pages.inputs) else { continue };
        let last = file["phases"].as_array().and_then(|phases| phases.last()).expect("a phase");
        let figures = ["peak_so_far", "reserved"].map(|key| last[key].as_u64());
        checks.check(&name, &run_caching(&mut service, &file), figures);
    }
    checks.end("recorded_pages");
}

#[derive(Default)]
struct Checks {
    found: u64,
    worst: [f64; 2],
}

impl Checks {
    /// Peak allocated and peak reserved against the recorded ones, where these say something.
    fn check(&mut self, name: &str, report: &Report, recorded: [Option<u64>; 2]) {
        self.found += 1;
        let figures = &report.devices[0];
        let ours = [figures.allocated.peak, figures.reserved.peak];
        for (i, what) in ["allocated", "reserved"].into_iter().enumerate() {
            let Some(recorded) = recorded[i] else { continue };
            let deviation = ours[i] as f64 / recorded as f64 - 1.0;
            self.worst[i] = self.worst[i].max(deviation.abs());
            let percent = 100.0 * deviation;
            eprintln!("{name}: peak {what} {} B, recorded {recorded} B, {percent:+.3} %", ours[i]);
        }
    }

    fn end(&self, test: &str) {
        let [allocated, reserved] = self.worst;
        println!(
            "{test}: {} set-ups, allocated within {:.3} %, reserved within {:.3} %",
            self.found,
            100.0 * allocated,
            100.0 * reserved
        );
        assert!(self.found > 0, "no set-up could be expressed");
        assert!(allocated <= ALLOCATED && reserved <= RESERVED, "a peak deviates by more");
    }
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
