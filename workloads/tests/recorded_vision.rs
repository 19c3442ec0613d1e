//! Residual networks, two-stream prefetching and the page-reading service as graphs against recorded runs of the real thing.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder: set-ups and peaks of runs over PyTorch 2.15. Every file whose
//! set-up a graph can express is run; files are known by their fields, not by their names. Compared is the highest sum of live
//! requests (`max_memory_requested`; with a second stream `max_memory_allocated`). Tolerance: 0.01 %. Networks that try no convolution twice make as
//! many requests as was recorded.

mod set_ups;

use vramlab_sim::device::profile::device;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;
use vramlab_workloads::setup::Setup;
use vramlab_workloads::synthetic::ocr::OnOom;

#[test]
fn recorded_vision() {
    let Some(folder) = set_ups::folder() else { return };
    let mut checks = set_ups::Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        if let Some(setup) = Setup::read(&file).ok().filter(|setup| setup.workload == "resnet") {
            let rates = Rates::of(&device("a100-80gb").unwrap());
            let workload = find(setup.workload).unwrap();
            let mut source = workload.source(&setup.params, 0, &rates).unwrap();
            let recorded = file["max_memory_requested"].as_u64().unwrap();
            // how often each way is tried is not known
            let tried = file["cudnn_benchmark"].as_bool() == Some(true);
            let requests = file["actions"]["alloc"].as_u64().filter(|_| !tried);
            checks.compare(&name, recorded, requests, &mut *source);
        } else if let Some(mut player) = set_ups::prefetch(&file) {
            // what PyTorch calls requested counts blocks that wait for another stream too
            let recorded = file["max_memory_allocated"].as_u64().unwrap();
            checks.compare(&name, recorded, None, &mut player);
        }
    }
    checks.end("recorded_vision");
}

/// The service reads the pages of the recorded one; how wide lines are is taken from the recording, since its set-up does not say.
#[test]
fn recorded_ocr() {
    let Some(folder) = set_ups::folder() else { return };
    let mut checks = set_ups::Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        if file["page_h_w_lines"].is_null() || file["ballast_gib"].as_f64() != Some(0.0) {
            continue;
        }
        let recorded = set_ups::Pages::of(&folder.join(format!("{name}.pickle.gz")), &file);
        if let Some(mut service) = set_ups::ocr(&file, &recorded.inputs, OnOom::Ignore) {
            eprintln!("{name}: {} requests are recorded", recorded.requests);
            checks.compare(&name, recorded.peak, None, &mut service);
        }
    }
    checks.end("recorded_ocr");
}
