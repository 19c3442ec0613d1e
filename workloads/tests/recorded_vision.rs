//! Residual networks as graphs against recorded runs of the real thing.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder: set-up and peaks of ResNet-50 over PyTorch 2.15. Every file whose
//! set-up a graph can express is run; files are known by their fields, not by their names. Compared is the highest sum of live
//! requests (`max_memory_requested`). Tolerance: 3 %.

mod set_ups;

use std::path::{Path, PathBuf};

use vramlab_workloads::live::live_peak;

/// Largest relative deviation of the peak.
const TOLERANCE: f64 = 0.03;

#[test]
fn recorded_vision() {
    let Some(folder) = shared_folder() else { return };
    let (mut found, mut worst) = (0, 0.0_f64);
    for (name, file) in set_ups::recordings(&folder) {
        let Some(mut player) = set_ups::resnet(&file) else { continue };
        let Some(recorded) = file["max_memory_requested"].as_u64() else { continue };
        let seen = live_peak(&mut player).unwrap();
        let deviation = seen.bytes as f64 / recorded as f64 - 1.0;
        worst = worst.max(deviation.abs());
        found += 1;
        let recorded_allocs = &file["actions"]["alloc"];
        eprintln!(
            "{name}: peak requested {} B, recorded {recorded} B, {:+.4} %; {} requests, recorded {recorded_allocs}",
            seen.bytes,
            100.0 * deviation,
            seen.allocs
        );
    }
    println!(
        "recorded_vision: {found} set-ups, largest deviation of the peak {:.4} %",
        100.0 * worst
    );
    assert!(found > 0, "no set-up could be expressed");
    assert!(worst <= TOLERANCE, "a peak deviates by more than {} %", 100.0 * TOLERANCE);
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
