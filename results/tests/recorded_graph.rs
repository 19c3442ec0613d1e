//! Models as graphs through `torch.caching`, against what real PyTorch reported of the same set-ups.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder. Tolerances: peak allocated 3 %, peak reserved 5 %; a run that ended out of
//! memory fails in the same phase, with the same tolerances up to there. Files are known by their fields, not by their names.

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
        assert!(!why.contains("found nothing"), "{name} is no set-up: {why}");
    }
    let (mut failures, mut worst) = (0_u64, [0.0_f64; 2]);
    for setup in &setups {
        let beside = setup.run().unwrap_or_else(|e| panic!("{}: {e}", setup.name));
        assert_eq!(beside.failed_in, beside.failed_in_measured, "{}", setup.name);
        failures += u64::from(beside.failed_in.is_some());
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

/// Of every size from 1 MiB on, as many buffers in each phase as were recorded, up to where a run is refused memory. A phase with such buffers that only one of both
/// has is an error.
#[test]
fn recorded_graph_buffers() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let (mut sizes, mut buffers, mut left) = (0, 0, 0);
    for setup in measured::read(&folder).unwrap_or_else(|e| panic!("{e}")).setups {
        for row in setup.buffers(1 << 20).unwrap_or_else(|e| panic!("{}: {e}", setup.name)) {
            if not_stated(&setup.setup.params, &row) {
                left += 1;
                continue;
            }
            let Buffers { name, phase, our_phase, size, .. } = &row;
            assert!(
                row.in_both(),
                "{name}: {size} B: recorded in {phase:?}, ours in {our_phase:?}"
            );
            sizes += 1;
            buffers += row.ours;
            assert_eq!(row.ours, row.measured, "{name}: {phase}: {size} B: {}", row.differ);
        }
    }
    println!(
        "recorded_graph_buffers: {buffers} large buffers of {sizes} sizes and phases as recorded; of {left} the set-up does not state enough"
    );
    assert!(buffers > 0, "no phase in common");
}

/// Is it of a phase that the set-up does not state?
///
/// | phase | what is not stated |
/// |---|---|
/// | `round N` of prompts that take turns | how many tokens each prompt got: 30, 120, 60 and 120 of the stated 60. So from round 30 on fewer take part, and rounds 60 to 119 are not ours |
/// | `evaluation N` | that an evaluation follows, and of what |
fn not_stated(params: &str, row: &Buffers) -> bool {
    let of_all = |round: u64| round < 30;
    let round = row.phase.strip_prefix("round ").and_then(|round| round.parse().ok());
    let turns = params.contains("interleaved=true") && round.is_some_and(|round| !of_all(round));
    turns || (row.phase.starts_with("evaluation ") && row.our_phase.is_empty())
}
