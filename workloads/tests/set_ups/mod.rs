//! Runs of graphs with the set-ups of recordings, as `NAME.json` beside a recording states them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vramlab_sim::device::profile::device;
use vramlab_workloads::graph::models::resnet::ResNet;
use vramlab_workloads::graph::plan::{ConvSpace, Optimizer, Rule, Run, Way};
use vramlab_workloads::graph::{DType, Graph, Plan, Player};
use vramlab_workloads::rates::Rates;

/// The run of a recorded set-up, or none if it is of another model.
pub(crate) fn resnet(file: &Value) -> Option<Player> {
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
            .ok_or_else(|| Graph::new().error("no such depth"))?;
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
pub(crate) fn recordings(folder: &Path) -> Vec<(String, Value)> {
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
