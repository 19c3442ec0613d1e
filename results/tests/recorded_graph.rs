//! Models as graphs through `torch.caching`, against what real PyTorch reported of the same set-ups.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder. Tolerances: peak allocated 3 %, peak reserved 5 %; a run that ended out of
//! memory fails in the same phase. Files are known by their fields, not by their names.

mod shared;

use vramlab::measured::{self, Buffers};

const ALLOCATED_TOLERANCE: f64 = 0.03;
const RESERVED_TOLERANCE: f64 = 0.05;

#[test]
fn recorded_graph_reserved() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let found = measured::read(&folder).unwrap_or_else(|e| panic!("{e}"));
    let setups = found.setups;
    // of a model that a workload has, every recording is run: only a field "model" that names another is an excuse
    for (name, why) in &found.left_out {
        assert!(why.starts_with("model: "), "{name}: {why}");
    }
    let (mut failures, mut worst) = (0, [0.0_f64; 2]);
    for setup in &setups {
        let beside = setup.run().unwrap_or_else(|e| panic!("{}: {e}", setup.name));
        assert_eq!(beside.failed_in, beside.failed_in_measured, "{}", setup.name);
        if beside.failed_in.is_some() {
            failures += 1;
            continue;
        }
        let figures = [
            (beside.peak_allocated, beside.peak_allocated_measured, ALLOCATED_TOLERANCE),
            (beside.peak_reserved, beside.peak_reserved_measured, RESERVED_TOLERANCE),
        ];
        for (i, (ours, measured, tolerance)) in figures.into_iter().enumerate() {
            let measured = measured.expect("a figure");
            let deviation = (ours as f64 / measured as f64 - 1.0).abs();
            worst[i] = worst[i].max(deviation);
            assert!(deviation <= tolerance, "{}: {ours} B, measured {measured} B", setup.name);
        }
    }
    println!(
        "recorded_graph_reserved: {} set-ups, {failures} of them out of memory in the same phase, largest deviation {:.4} % allocated, {:.4} % reserved",
        setups.len(),
        100.0 * worst[0],
        100.0 * worst[1]
    );
    assert!(!setups.is_empty(), "no set-up in {}", folder.display());
}

/// Of every size from 1 MiB on, as many buffers in each phase as were recorded.
#[test]
fn recorded_graph_buffers() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let (mut sizes, mut buffers) = (0, 0);
    for setup in measured::read(&folder).unwrap_or_else(|e| panic!("{e}")).setups {
        let beside = setup.run().unwrap_or_else(|e| panic!("{}: {e}", setup.name));
        if beside.failed_in_measured.is_some() {
            // the recording ends with the failure, in the middle of a phase
            continue;
        }
        if setup.setup.params.contains("interleaved=true") {
            // the set-up does not say how many tokens each prompt got: 30, 120, 60 and 120 of the stated 60
            continue;
        }
        for row in setup.buffers(1 << 20).unwrap_or_else(|e| panic!("{}: {e}", setup.name)) {
            sizes += 1;
            buffers += row.ours;
            let Buffers { name, phase, size, .. } = &row;
            assert_eq!(row.ours, row.measured, "{name}: {phase}: buffers of {size} B");
        }
    }
    println!(
        "recorded_graph_buffers: {buffers} large buffers of {sizes} sizes and phases, all as recorded"
    );
    assert!(buffers > 0, "no phase in common");
}
