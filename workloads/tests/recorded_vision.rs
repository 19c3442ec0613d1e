//! Residual networks, two-stream prefetching and the page-reading service as graphs against recorded runs of the real thing.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder: set-ups and peaks of runs over PyTorch 2.15. Every file whose
//! set-up a graph can express is run; files are known by their fields, not by their names. Compared is the highest sum of live
//! requests (`max_memory_requested`; with a second stream `max_memory_allocated`). Tolerance: 3 %.

mod set_ups;

use std::path::{Path, PathBuf};

use serde_json::Value;
use vramlab_sim::device::profile::device;
use vramlab_sim::source::Source;
use vramlab_workloads::live::live_peak;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;
use vramlab_workloads::setup::Setup;

/// Largest relative deviation of the peak.
const TOLERANCE: f64 = 0.03;

#[test]
fn recorded_vision() {
    let Some(folder) = shared_folder() else { return };
    let mut checks = Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        let setup = Setup::read(&file).filter(|setup| setup.workload == "resnet");
        let source: Option<Box<dyn Source>> = match setup {
            Some(setup) => {
                let rates = Rates::of(&device("a100-80gb").unwrap());
                let workload = find(setup.workload).unwrap();
                Some(workload.source(&setup.params, 0, &rates).unwrap())
            }
            None => set_ups::prefetch(&file).map(|player| Box::new(player) as Box<dyn Source>),
        };
        if let Some(mut source) = source {
            checks.check(&name, &file, &mut *source);
        }
    }
    checks.end("recorded_vision");
}

/// The service reads the pages of the recorded one; how wide lines are is taken from the recording, since its set-up does not say.
#[test]
fn recorded_ocr() {
    let Some(folder) = shared_folder() else { return };
    let mut checks = Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        if file["page_h_w_lines"].is_null() || file["ballast_gib"].as_f64() != Some(0.0) {
            continue;
        }
        let recorded = set_ups::Pages::of(&folder.join(format!("{name}.pickle.gz")), &file);
        if let Some(mut service) = set_ups::ocr(&file, &recorded.inputs) {
            checks.compare(&name, recorded.peak, recorded.requests, &mut service);
        }
    }
    checks.end("recorded_ocr");
}

#[derive(Default)]
struct Checks {
    found: u64,
    worst: f64,
}

impl Checks {
    fn check(&mut self, name: &str, file: &Value, source: &mut dyn Source) {
        // what PyTorch calls requested counts blocks that wait for another stream too
        let waits = file["record_stream"].as_bool() == Some(true);
        let key = if waits { "max_memory_allocated" } else { "max_memory_requested" };
        let recorded = file[key].as_u64().unwrap();
        let requests = file["actions"]["alloc"].as_u64().unwrap();
        self.compare(name, recorded, requests, source);
    }

    fn compare(&mut self, name: &str, recorded: u64, requests: u64, source: &mut dyn Source) {
        let seen = live_peak(source).unwrap();
        let deviation = seen.bytes as f64 / recorded as f64 - 1.0;
        self.worst = self.worst.max(deviation.abs());
        self.found += 1;
        eprintln!(
            "{name}: peak requested {} B, recorded {recorded} B, {:+.4} %; {} requests, recorded {requests}",
            seen.bytes,
            100.0 * deviation,
            seen.allocs,
        );
    }

    fn end(&self, test: &str) {
        let worst = 100.0 * self.worst;
        println!("{test}: {} set-ups, largest deviation of the peak {worst:.4} %", self.found);
        assert!(self.found > 0, "no set-up could be expressed");
        assert!(self.worst <= TOLERANCE, "a peak deviates by more than {} %", 100.0 * TOLERANCE);
    }
}

/// The folder of the recordings; without it the test is skipped, or fails if it was required.
fn shared_folder() -> Option<PathBuf> {
    let shared = std::env::var_os("VRAMLAB_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let folder = shared.join("traces/pytorch_recorded");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("recorded_vision: skipped, no shared folder");
    let required = std::env::var("VRAMLAB_REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(!required, "{} is missing, and VRAMLAB_REQUIRE_SHARED=1", folder.display());
    None
}
