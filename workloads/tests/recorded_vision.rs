//! Residual networks as graphs against recorded runs of the real thing.
//!
//! Witness: `traces/pytorch_recorded/NAME.json` of the shared folder: set-up and peaks of ResNet-50 over PyTorch 2.15. Every file whose
//! set-up a graph can express is run; files are known by their fields, not by their names. Compared is the highest sum of live
//! requests (`max_memory_requested`). Tolerance: 3 %.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vramlab_sim::device::profile::device;
use vramlab_workloads::graph::models::resnet::ResNet;
use vramlab_workloads::graph::plan::{ConvSpace, Optimizer, Rule, Run, Way};
use vramlab_workloads::graph::{DType, Plan, Player};
use vramlab_workloads::live::live_peak;
use vramlab_workloads::rates::Rates;

/// Largest relative deviation of the peak.
const TOLERANCE: f64 = 0.03;

#[test]
fn recorded_vision() {
    let Some(folder) = shared_folder() else { return };
    let (mut found, mut worst) = (0, 0.0_f64);
    for (name, file) in recordings(&folder) {
        let Some(mut player) = resnet(&file) else { continue };
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

/// The run of a recorded set-up, or none if it is of another model.
fn resnet(file: &Value) -> Option<Player> {
    let depth = file["model"].as_str()?.strip_prefix("ResNet-")?;
    let depth: u64 = depth.split(' ').next()?.parse().ok()?;
    let (batch, steps) = (file["batch"].as_u64()?, file["steps"].as_u64()?);
    let last = file["last_batch"].as_u64().filter(|last| *last > 0).unwrap_or(batch);
    let size = file["size"].as_u64()?;
    if file["precision"].as_str() != Some("fp32") || file["channels_last"].as_bool() == Some(true) {
        return None;
    }
    let optimizer = file["optimizer"].as_str()?;
    let rule = Rule::Sgd { momentum: optimizer.starts_with("SGD momentum") };
    let way = if optimizer.contains("foreach") { Way::ForEach } else { Way::Single };
    let conv_space = match file["device"]["conv_workspace_model"].as_str()? {
        "transpose" => ConvSpace::Transpose,
        "none" => ConvSpace::None,
        _ => return None,
    };
    let run = Run {
        // the usual recipe decays weights (He et al. 2016, section 3.4), and zeroes gradients before backward
        optimizer: Optimizer { rule, way, decay: true },
        zero_first: true,
        inputs_replaced: true,
        conv_space,
        benchmark: file["cudnn_benchmark"].as_bool() == Some(true),
        ..Run::default()
    };
    let make = move |batch| {
        let mut net = ResNet::of_depth(depth, batch, DType::F32)
            .ok_or_else(|| vramlab_workloads::graph::Graph::new().error("no such depth"))?;
        net.size = [size; 2];
        Ok(Plan {
            graph: net.graph()?,
            run: Run { label: format!("batch {batch}"), ..run.clone() },
        })
    };
    let keys = (0..steps).map(move |step| if step + 1 == steps { last } else { batch });
    let rates = Rates::of(&device("a100-80gb").ok()?);
    Player::new(Box::new(make), Box::new(keys), steps, rates).ok()
}

/// The set-ups beside the recordings, in the order of their names.
fn recordings(folder: &Path) -> Vec<(String, Value)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), read(path))).collect()
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
