//! Runs of graphs with the set-ups of recordings, as `NAME.json` beside a recording states them.

#![allow(dead_code)] // each test that includes it uses a part

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vramlab_sim::device::profile::device;
use vramlab_sim::source::Source;
use vramlab_sim::units::Nanos;
use vramlab_workloads::graph::op::{F, Linear, MeanError};
use vramlab_workloads::graph::plan::{ConvSpace, Optimizer, Release, Rule, Run, Way};
use vramlab_workloads::graph::spread::Loader;
use vramlab_workloads::graph::{DType, Graph, GraphError, Plan, Player};
use vramlab_workloads::live::live_peak;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::readers::torch_snapshot::{self, Action};
use vramlab_workloads::synthetic::ocr::{OnOom, Page, Running, Service, Settings};

/// Largest relative deviation of a peak.
const TOLERANCE: f64 = 1e-4;

/// The folder of the recordings; without it a test is skipped, or fails if it was required.
pub(crate) fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("VRAMLAB_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let folder = shared.join("traces/pytorch_recorded");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("recordings: skipped, no shared folder");
    let required = std::env::var("VRAMLAB_REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(!required, "{} is missing, and VRAMLAB_REQUIRE_SHARED=1", folder.display());
    None
}

/// Peaks of runs beside those of recordings.
#[derive(Default)]
pub(crate) struct Checks {
    found: u64,
    worst: f64,
}

impl Checks {
    /// With `requests` their number has to be the recorded one.
    pub(crate) fn compare(
        &mut self,
        name: &str,
        recorded: u64,
        requests: Option<u64>,
        source: &mut dyn Source,
    ) {
        let seen = live_peak(source).unwrap();
        let deviation = seen.bytes as f64 / recorded as f64 - 1.0;
        self.worst = self.worst.max(deviation.abs());
        self.found += 1;
        eprintln!(
            "{name}: peak requested {} B, recorded {recorded} B, {:+.4} %; {} requests",
            seen.bytes,
            100.0 * deviation,
            seen.allocs,
        );
        assert!(requests.is_none_or(|recorded| recorded == seen.allocs), "{name}: {requests:?}");
    }

    pub(crate) fn end(&self, test: &str) {
        let worst = 100.0 * self.worst;
        println!("{test}: {} set-ups, largest deviation of the peak {worst:.4} %", self.found);
        assert!(self.found > 0, "no set-up could be expressed");
        assert!(self.worst <= TOLERANCE, "a peak deviates by more than {} %", 100.0 * TOLERANCE);
    }
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

/// The run of two streams that a set-up states (`prefetch`), or none if it is another.
pub(crate) fn prefetch(file: &Value) -> Option<Player> {
    if file["mode"].as_str() != Some("prefetch") || file["record_stream"].as_bool() != Some(true) {
        return None;
    }
    // "6 x (Linear 2048, GELU), SGD momentum"
    let (layers, rest) = file["model"].as_str()?.split_once(" x (Linear ")?;
    let layers: u64 = layers.parse().ok()?;
    let width: u64 = rest.split_once(',')?.0.parse().ok()?;
    let steps = file["iterations"].as_u64()?;
    // a batch of each iteration stands in its phase's name: "iteration 3 batch 2048"
    let phases = file["phases"].as_array()?.iter().filter_map(|phase| phase["text"].as_str());
    let batches: Vec<u64> = phases
        .filter_map(|text| text.strip_prefix("iteration ")?.split_once(" batch ")?.1.parse().ok())
        .collect();
    let last = *batches.last()?;
    let optimizer =
        Optimizer { rule: Rule::Sgd { momentum: true }, way: Way::ForEach, decay: false };
    let run = Run { optimizer, ..Run::default() };
    let make = move |key: u64| {
        let (batch, next) = (key >> 32, key & u64::from(u32::MAX));
        let graph = layers_with_targets(batch, layers, width)?;
        let mut run = Run { label: format!("batch {batch}"), ..run.clone() };
        // targets are made on the device from what came from the host
        run.spread.loader = Some(Loader { next: vec![next * width * 4; 2], last_is_made: true });
        Ok(Plan { graph, run })
    };
    let nexts = batches.clone().into_iter().skip(1).chain([last]);
    let keys = batches.into_iter().zip(nexts).map(|(batch, next)| batch << 32 | next);
    let rates = Rates::of(&device("a100-80gb").ok()?);
    Player::new(Box::new(make), Box::new(keys), steps, rates).ok()
}

fn layers_with_targets(batch: u64, layers: u64, width: u64) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let mut x = graph.input("x", &[batch, width], DType::F32)?;
    let targets = graph.input("targets", &[batch, width], DType::F32)?;
    for i in 0..layers {
        x = graph.block(&format!("layer.{i}"), |graph| {
            let weight = graph.parameter("weight", &[width, width], DType::F32)?;
            let bias = graph.parameter("bias", &[width], DType::F32)?;
            let y = graph.add(Linear, &[x, weight, bias])?;
            graph.add(F::Gelu, &[y])
        })?;
    }
    let loss = graph.add(MeanError { squared: true }, &[x, targets])?;
    graph.minimise(loss);
    Ok(graph)
}

/// The pages of a recorded service: sizes and numbers of lines as the set-up states them, widths of lines as `inputs` (bytes of each group's
/// input, in order) say; and how it was run.
pub(crate) fn ocr(file: &Value, inputs: &[Vec<u64>], on_oom: OnOom) -> Option<Service> {
    if !file["model"].as_str()?.starts_with("DB-style detector") {
        return None;
    }
    let group = file["group"].as_u64()?;
    let half = file["precision"].as_str() == Some("fp16");
    let pages: Vec<Page> = file["page_h_w_lines"]
        .as_array()?
        .iter()
        .zip(inputs)
        .map(|(page, inputs)| {
            let number = |i: usize| page[i].as_u64();
            let count = number(2)?;
            // a group's lines are as wide as its input: three colours of 48 rows in fp32
            let widths = inputs.iter().enumerate().flat_map(|(i, bytes)| {
                let lines = group.min(count - i as u64 * group);
                (0..lines).map(move |_| bytes / (lines * 3 * 48 * 4))
            });
            // of a page that failed before its lines were read, nothing is known of them
            Some(Page { size: [number(0)?, number(1)?], lines: widths.collect() })
        })
        .collect::<Option<_>>()?;
    let running = Running {
        dtype: if half { DType::F16 } else { DType::F32 },
        fused: false,
        release: Release::Immediate,
        conv_space: ConvSpace::Transpose,
        beside: false,
    };
    let settings = Settings { running, group, filled: false, queue: 0, on_oom, warm: None };
    let coming = pages.into_iter().map(|page| (Nanos(0), page));
    let rates = Rates::of(&device("a100-80gb").ok()?);
    Service::new(settings, Box::new(coming), rates).ok()
}

/// What a recording says of those of its pages whose beginning and end it names.
pub(crate) struct Pages {
    /// By number of the page: bytes of the input of each group of lines; none of a page that failed. A group asks for as many buffers as any other, but the last may ask for fewer.
    pub(crate) inputs: Vec<Vec<u64>>,
    /// Highest sum of live requests so far (B).
    pub(crate) peak: u64,
    /// Requests so far.
    pub(crate) requests: u64,
}

impl Pages {
    pub(crate) fn of(path: &Path, file: &Value) -> Self {
        let snapshot = torch_snapshot::open(path).unwrap();
        let trace = &snapshot.traces[0];
        let phases = file["phases"].as_array().unwrap();
        let first = |phase: usize| {
            phases.get(phase).map_or(trace.len(), |p| p["first_entry"].as_u64().unwrap() as usize)
        };
        let group = file["group"].as_u64().unwrap() as usize;
        let (mut inputs, mut end): (Vec<Vec<u64>>, _) = (Vec::new(), 0);
        for (place, phase) in phases.iter().enumerate() {
            let text = phase["text"].as_str().unwrap();
            let Some((page, lines)) = text.split_once(" recognise ") else { continue };
            let page: usize = page.strip_prefix("request ").unwrap().parse().unwrap();
            let groups = lines.parse::<usize>().unwrap().div_ceil(group);
            end = first(place + 1);
            let entries = trace.iter().take(end).skip(first(place));
            let asked: Vec<u64> = entries
                .filter(|entry| entry.action == Action::Alloc)
                .map(|entry| entry.size)
                .collect();
            let each = asked.len().div_ceil(groups);
            inputs.resize(page, Vec::new());
            inputs.push(asked.chunks(each).map(|group| group[0]).collect());
        }
        let (mut live, mut peak, mut requests) = (0, 0, 0);
        for entry in trace.iter().take(end) {
            match entry.action {
                Action::Alloc => (live, requests) = (live + entry.size, requests + 1),
                Action::FreeRequested => live -= entry.size,
                _ => {}
            }
            peak = peak.max(live);
        }
        Self { inputs, peak, requests }
    }
}
