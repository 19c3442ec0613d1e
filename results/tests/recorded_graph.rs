//! Models as graphs through `torch.caching`, against what real PyTorch reported of the same set-ups.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder. Tolerances: peak allocated 3 %, peak reserved 5 %; a run that ended out of
//! memory fails in the same phase. Files are known by their fields, not by their names.

mod shared;

use serde_json::Value;
use vramlab::cli::parse_spec;
use vramlab::job::{Input, Place, run_pair};
use vramlab::row::Row;
use vramlab_sim::units::Bytes;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;
use vramlab_workloads::setup::Setup;

const ALLOCATED_TOLERANCE: f64 = 0.03;
const RESERVED_TOLERANCE: f64 = 0.05;

fn run(setup: &Setup) -> Row {
    let workload = find(setup.workload).expect("a workload");
    let make = || {
        let source = workload.source(&setup.params, 0, &Rates::free()).expect("good parameters");
        Ok(source as Box<dyn vramlab_sim::Source>)
    };
    let input = Input { accesses: true, ..Input::new(setup.workload, Box::new(make)) };
    let spec = match setup.conf.as_str() {
        "" => "torch.caching".to_owned(),
        conf => format!("torch.caching:conf='{conf}'"),
    };
    let spec = parse_spec(&spec).expect("a strategy");
    let place = Place::new("zero", Some(Bytes(setup.capacity))).expect("a device");
    run_pair(&input, &spec, &place, None).expect("it runs")
}

/// The mark before the first request that failed.
fn failed_in(row: &Row) -> Option<&str> {
    let op = row.first_oom_op?;
    row.marks.iter().rev().find(|mark| mark.op <= op).map(|mark| mark.name.as_str())
}

#[test]
fn recorded_graph_reserved() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder can be read")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let (mut runs, mut failures, mut worst) = (0, 0, [0.0_f64; 2]);
    for path in files {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let file: Value = serde_json::from_str(&text).expect("JSON");
        let Some(setup) = Setup::read(&file) else { continue };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let row = run(&setup);
        runs += 1;
        if file["num_ooms"].as_u64() != Some(0) {
            failures += 1;
            let phases = file["phases"].as_array().expect("phases");
            let recorded = phases.last().and_then(|phase| phase["text"].as_str());
            println!("{name}: fails in {:?}, recorded {recorded:?}", failed_in(&row));
            assert_eq!(failed_in(&row), recorded, "{name}");
            continue;
        }
        assert_eq!(row.first_oom_op, None, "{name}");
        let figures = [
            ("allocated", row.peak_allocated, "max_memory_allocated", ALLOCATED_TOLERANCE),
            ("reserved", row.peak_reserved, "max_memory_reserved", RESERVED_TOLERANCE),
        ];
        for (i, (what, ours, key, tolerance)) in figures.into_iter().enumerate() {
            let recorded = file[key].as_u64().expect("a figure");
            let deviation = ours as f64 / recorded as f64 - 1.0;
            worst[i] = worst[i].max(deviation.abs());
            println!(
                "{name}: peak {what} {ours} B, recorded {recorded} B, {:+.4} %",
                100.0 * deviation
            );
            assert!(deviation.abs() <= tolerance, "{name}: peak {what}");
        }
    }
    println!(
        "recorded_graph_reserved: {runs} set-ups, {failures} of them out of memory in the same phase, largest deviation {:.4} % allocated, {:.4} % reserved",
        100.0 * worst[0],
        100.0 * worst[1]
    );
    assert!(runs > 0, "no set-up in {}", folder.display());
}
