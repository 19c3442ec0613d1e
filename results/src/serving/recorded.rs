//! A measured run of vLLM: `NAME_requests.jsonl`, with `NAME_meta.json` and `NAME_timeseries.csv` beside it where they are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vramlab_sim::device::profile::{self, Profile};
use vramlab_sim::units::Bytes;
use vramlab_workloads::readers::requests::{Request, RequestLog};
use vramlab_workloads::serving::model::{MODELS, Model};

use crate::failure::Failure;
use crate::inputs::small_text;

/// What files with requests end with.
const REQUESTS: &str = "_requests.jsonl";
/// Most bytes of a file of settings.
const META_MAX: Bytes = Bytes::mib(16);
/// Share of a device that vLLM 0.19 takes, where the run does not say.
const UTILIZATION: f64 = 0.9;

/// A run.
pub struct Run {
    /// What its files begin with.
    pub name: String,
    /// Its requests, with what was measured.
    pub log: Arc<RequestLog>,
    /// Which model.
    pub model: &'static Model,
    /// Which card.
    pub device: Profile,
    /// Bytes of a card.
    pub capacity: u64,
    /// Share of it that may be taken.
    pub utilization: f64,
    /// Cards that run a copy each, in step.
    pub copies: u64,
    /// Most requests that run on each.
    pub max_num_seqs: u64,
    /// Most tokens of a step on each.
    pub max_num_batched_tokens: u64,
    /// Most tokens of a request, if it is not the model's.
    pub max_model_len: Option<u64>,
    /// Blocks of its cache, where the run says so.
    pub blocks: Option<u64>,
    /// Share of the cache in use by second, where it was recorded.
    pub curve: Vec<(f64, f64)>,
}

/// What was measured of a request, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From arrival to the first token.
    pub ttft: u64,
    /// From arrival to the last token.
    pub e2e: u64,
    /// Tokens of the answer.
    pub outputs: u64,
}

impl Times {
    /// Time per token after the first, if there are such.
    pub fn tpot(&self) -> Option<f64> {
        (self.outputs > 1).then(|| (self.e2e - self.ttft) as f64 / (self.outputs - 1) as f64)
    }
}

/// Is it a folder with measured runs of servers, or one's file of requests?
pub fn is_runs(path: &Path) -> bool {
    let named = |name: &OsStr| name.to_string_lossy().ends_with(REQUESTS);
    if path.is_file() {
        return path.file_name().is_some_and(named);
    }
    std::fs::read_dir(path)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|e| named(&e.file_name()))))
}

/// What a measured run is read from, by its file of requests; any other file alone.
pub fn files(name: &str) -> Vec<String> {
    let of = |stem: &str| ["_meta.json", "_timeseries.csv"].map(|ending| format!("{stem}{ending}"));
    let beside = name.strip_suffix(REQUESTS).into_iter().flat_map(of);
    std::iter::once(name.to_owned()).chain(beside).collect()
}

/// All runs of a folder, by name; or the one of a file of requests.
///
/// # Errors
/// A folder that cannot be read, has no run, or has a bad one.
pub fn runs(folder: &Path) -> Result<Vec<Run>, Failure> {
    if folder.is_file() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(REQUESTS).unwrap_or(&name).to_owned();
        return Ok(vec![Run::read(folder.parent().unwrap_or(Path::new("")), name)?]);
    }
    let bad = |what: String| Failure::input(format!("{}: {what}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(|error| bad(error.to_string()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| bad(error.to_string()))?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(REQUESTS)) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    if names.is_empty() {
        return Err(bad(format!("found no measured run, expected files NAME{REQUESTS}")));
    }
    names.into_iter().map(|name| Run::read(folder, name)).collect()
}

impl Run {
    fn read(folder: &Path, name: String) -> Result<Self, Failure> {
        let file = |ending: &str| folder.join(format!("{name}{ending}"));
        let meta_path = file("_meta.json");
        let meta = json(&meta_path)?;
        let bad = |what: String| Failure::input(format!("{}: {what}", meta_path.display()));
        let number = |path: &str| meta.pointer(path).and_then(Value::as_u64);
        let need = |path: &str| {
            number(path).ok_or_else(|| bad(format!("found no number at {path}, expected one")))
        };
        let model = meta.pointer("/model").and_then(Value::as_str).unwrap_or_default();
        let known = model_of(model).ok_or_else(|| {
            let names: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
            bad(format!("found model {model:?}, expected one like {}", names.join(", ")))
        })?;
        let device = device_of(&name).ok_or_else(|| {
            bad("found no device that is built in by the file's name, expected NAME to begin with one, such as RTX4090_".to_owned())
        })?;
        let log = RequestLog::read(&file(REQUESTS)).map_err(Failure::input)?;
        if let Some(at) = log.requests().iter().position(|request| request.measured.is_none()) {
            return Err(Failure::input(format!(
                "{}: request {at}: found no measured times, expected queued_ts, first_token_ts and last_token_ts",
                file(REQUESTS).display()
            )));
        }
        Ok(Self {
            log: Arc::new(log),
            model: known,
            capacity: number("/hardware/device_total_memory_bytes")
                .unwrap_or(device.options.capacity),
            device,
            utilization: meta
                .pointer("/kv_cache/gpu_memory_utilization")
                .and_then(Value::as_f64)
                .unwrap_or(UTILIZATION),
            copies: number("/engine_kwargs/data_parallel_size").unwrap_or(1).max(1),
            max_num_seqs: need("/engine_kwargs/max_num_seqs")?,
            max_num_batched_tokens: need("/engine_kwargs/max_num_batched_tokens")?,
            max_model_len: number("/engine_kwargs/max_model_len"),
            blocks: number("/kv_cache/num_gpu_blocks"),
            curve: curve(&file("_timeseries.csv"))?,
            name,
        })
    }

    /// What was measured, by request. The client's clock is laid over the server's: no request is queued before it was sent.
    pub fn measured(&self) -> Vec<Times> {
        let sent = |request: &Request| request.arrival.map_or(0, |at| i128::from(at.0));
        let with = |request: &Request| request.measured.map(|measured| (*request, measured));
        let pairs: Vec<_> = self.log.requests().iter().filter_map(with).collect();
        let shift = pairs.iter().map(|(r, m)| i128::from(m.queued.0) - sent(r)).min().unwrap_or(0);
        let since = |at: u64, sent: i128| u64::try_from(i128::from(at) - shift - sent).unwrap_or(0);
        pairs
            .iter()
            .map(|(request, m)| Times {
                ttft: since(m.first_token.0, sent(request)),
                e2e: since(m.last_token.0, sent(request)),
                outputs: request.output_tokens,
            })
            .collect()
    }
}

fn json(path: &Path) -> Result<Value, Failure> {
    let text = small_text(path, META_MAX, "what a run was set up with")?;
    let bad = |error| Failure::input(format!("{}: {error}", path.display()));
    serde_json::from_str(&text).map_err(bad)
}

/// `meta-llama/Llama-3.1-8B` is `llama-3.1-8b`; of a longer name the longest beginning counts.
fn model_of(name: &str) -> Option<&'static Model> {
    let name = name.rsplit('/').next()?.to_ascii_lowercase();
    let fits = MODELS.iter().filter(|model| name.starts_with(model.name));
    fits.max_by_key(|model| model.name.len())
}

/// The device whose name, without its size, is what the file's name begins with.
fn device_of(name: &str) -> Option<Profile> {
    let card = name.split('_').next()?.to_ascii_lowercase();
    profile::devices().into_iter().find(|device| device.name.split('-').next() == Some(&card))
}

/// The columns `t` and `kv_cache_pct`; nothing where the file is not there, or nothing was recorded.
fn curve(path: &PathBuf) -> Result<Vec<(f64, f64)>, Failure> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let mut reader = csv::Reader::from_path(path).map_err(|error| bad(error.to_string()))?;
    let headers = reader.headers().map_err(|error| bad(error.to_string()))?.clone();
    let column = |name: &str| {
        headers.iter().position(|header| header == name).ok_or_else(|| {
            bad(format!(
                "found columns {}, expected {name}",
                headers.iter().collect::<Vec<_>>().join(", ")
            ))
        })
    };
    let (time, used) = (column("t")?, column("kv_cache_pct")?);
    let mut points = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| bad(error.to_string()))?;
        let line = row.position().map_or(0, csv::Position::line);
        let number = |column: usize| {
            let text = row.get(column).unwrap_or_default();
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| bad(format!("line {line}: found {text:?}, expected a number")))
        };
        points.push((number(time)?, number(used)? / 100.0));
    }
    if points.iter().all(|(_, used)| *used == 0.0) {
        points.clear();
    }
    Ok(points)
}
