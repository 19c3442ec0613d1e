//! What is run: workloads by name, and recordings of any format that can be replayed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramlab_sim::source::Source;
use vramlab_sim::trace::JsonlSource;
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::readers::events::{EventSource, Events};
use vramlab_workloads::readers::format::{Carries, Format, HEAD_BYTES, detect};
use vramlab_workloads::readers::recording::RecordingSource;
use vramlab_workloads::readers::{bytes, plan, profiler, rmm, torch_history, torch_snapshot};
use vramlab_workloads::registry::{self, Workload};

use crate::failure::Failure;

/// Devices that the ops of a JSON Lines trace may name.
const JSONL_DEVICES: usize = 16;

/// Makes a fresh source of the same ops.
pub(crate) type Make<'a> = dyn Fn() -> Result<Box<dyn Source>, Failure> + 'a;

/// An input that can be run again and again.
pub(crate) struct Input {
    /// As it is printed.
    pub(crate) name: String,
    /// How many devices its ops may name.
    pub(crate) devices: usize,
    /// Its work lists the buffers that it uses.
    pub(crate) accesses: bool,
    pub(crate) make: Box<Make<'static>>,
}

impl Input {
    fn new(name: String, make: Box<Make<'static>>) -> Self {
        Self { name, devices: 1, accesses: false, make }
    }
}

/// The workloads of these names, with the parameters `k=v,…` that they know, on a device of these rates.
pub(crate) fn workloads(
    names: &[String],
    set: &[String],
    seed: u64,
    rates: &Rates,
) -> Result<Vec<Input>, Failure> {
    let found = names.iter().map(|name| registry::find(name)).collect::<Result<Vec<_>, _>>();
    let found: Vec<&'static Workload> = found.map_err(Failure::usage)?;
    let pairs = set.iter().map(|pair| {
        pair.split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {pair}: expected name=value")))
    });
    let pairs: Vec<(&str, &str)> = pairs.collect::<Result<_, _>>()?;
    let knows = |workload: &Workload, key: &str| workload.params.iter().any(|p| p.name == key);
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !found.iter().any(|w| knows(w, key))) {
        return Err(Failure::usage(format!("--set {key}=…: no workload here has that parameter")));
    }
    let input = |workload: &'static Workload| {
        let mut params = Params::defaults(workload.params);
        for (key, value) in pairs.iter().filter(|(key, _)| knows(workload, key)) {
            params.set(key, *value).map_err(Failure::usage)?;
        }
        let rates = *rates;
        let make = move || -> Result<Box<dyn Source>, Failure> {
            Ok((workload.build)(&params, seed, &rates).map_err(Failure::usage)?)
        };
        make()?;
        let accesses = workload.carries.accesses;
        Ok(Input { accesses, ..Input::new(workload.name.to_owned(), Box::new(make)) })
    };
    found.into_iter().map(input).collect()
}

/// The histories in recordings.
pub(crate) fn recordings(paths: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    let mut inputs = Vec::new();
    for path in paths {
        inputs.extend(recording(path)?);
    }
    Ok(inputs)
}

/// The history of each device in a recording.
fn recording(path: &Path) -> Result<Vec<Input>, Failure> {
    let bad = |what: &dyn std::fmt::Display| Failure::input(format!("{}: {what}", path.display()));
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let origin = path.display().to_string();
    let mut input = bytes::open(path).map_err(Failure::input)?;
    let head = input.head(HEAD_BYTES).map_err(|e| bad(&e))?;
    let format = detect(&head).filter(|format| format.doc().carries == Carries::Ops);
    let Some(format) = format else {
        return Err(bad(&"found no recording that can be replayed; vramlab list formats has all"));
    };
    match format {
        Format::Trace => {
            let place = path.to_owned();
            let make = move || -> Result<Box<dyn Source>, Failure> {
                let input = bytes::open(&place).map_err(Failure::input)?;
                Ok(Box::new(JsonlSource::new(input, place.display().to_string())))
            };
            let input = Input::new(name, Box::new(make));
            Ok(vec![Input { devices: JSONL_DEVICES, accesses: true, ..input }])
        }
        Format::SnapshotPickle | Format::SnapshotJson => {
            let snapshot = torch_snapshot::read(input).map_err(|e| bad(&e))?;
            torch_history::check_ranges(&snapshot).map_err(|e| bad(&e))?;
            let round = vramlab_allocators::torch::rounded;
            let histories = torch_history::histories(&Arc::new(snapshot), &round);
            let several = histories.len() > 1;
            let one = |history: torch_history::DeviceRecording| {
                let recording = history.recording;
                let make = move || -> Result<Box<dyn Source>, Failure> {
                    Ok(Box::new(RecordingSource::new(Arc::clone(&recording), false)))
                };
                let of =
                    if several { format!(" device {}", history.device) } else { String::new() };
                Input::new(format!("{name}{of}"), Box::new(make))
            };
            Ok(histories.into_iter().map(one).collect())
        }
        Format::ProfilerTrace | Format::ProfilerList => {
            let profile = profiler::read(input, &origin).map_err(Failure::input)?;
            let one = |device: profiler::DeviceHistory| {
                held(format!("{name} device {}", device.device), device.events)
            };
            Ok(profile.devices.into_iter().map(one).collect())
        }
        Format::RmmLog => {
            let place = path.to_owned();
            let make = move || -> Result<Box<dyn Source>, Failure> {
                let input = bytes::open(&place).map_err(Failure::input)?;
                let source = rmm::RmmSource::new(input, &place.display().to_string(), false);
                Ok(Box::new(source.map_err(Failure::input)?))
            };
            Ok(vec![Input::new(name, Box::new(make))])
        }
        _ => {
            let plan = plan::read(input, &origin).map_err(Failure::input)?;
            Ok(vec![held(name, Arc::new(plan.events()))])
        }
    }
}

fn held(name: String, events: Arc<Events>) -> Input {
    let make = move || -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(EventSource::new(Arc::clone(&events), false)))
    };
    Input::new(name, Box::new(make))
}
