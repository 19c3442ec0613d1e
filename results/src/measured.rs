//! Our models beside what was measured of the same set-ups: peaks, phases of failures, large buffers.
//!
//! A set-up is a file `NAME.json` beside a recording; see [`vramlab_workloads::setup`].

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::{Bytes, Nanos};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::readers::recording::{Action, Entries};
use vramlab_workloads::registry::{self, BoxedSource};
use vramlab_workloads::setup::Setup;

use crate::cli::parse_spec;
use crate::failure::Failure;
use crate::inputs::{self, Opened, small_text};
use crate::job::{Input, Place, run_pair};
use crate::row::Row;

mod buffers;
mod ending;
mod phases;

pub use buffers::Buffers;
use buffers::{Asked, Phases};
use ending::Ending;

/// Most bytes of a set-up file.
const SETUP_MAX: Bytes = Bytes::mib(16);

/// A set-up that a workload can express, and what was measured of it.
pub struct Measured {
    /// The file's name without its ending.
    pub name: String,
    /// The workload.
    pub setup: Setup,
    path: PathBuf,
    file: Value,
}

/// Our figures beside the measured ones. Sizes are bytes.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Beside {
    pub name: String,
    pub workload: &'static str,
    pub params: String,
    pub peak_requested: u64,
    pub peak_requested_measured: Option<u64>,
    pub peak_allocated: u64,
    pub peak_allocated_measured: Option<u64>,
    pub peak_reserved: u64,
    pub peak_reserved_measured: Option<u64>,
    /// The phase in which the first request failed.
    pub failed_in: Option<String>,
    pub failed_in_measured: Option<String>,
}

/// Set-ups, and what of the files is none that a workload expresses.
#[derive(Default)]
pub struct Found {
    /// Those that are.
    pub setups: Vec<Measured>,
    /// Of the others: the file's name without its ending, and why.
    pub left_out: Vec<(String, String)>,
}

/// Set-ups in a folder, or a file.
///
/// # Errors
/// When something cannot be read, or is no JSON.
pub fn read(path: &Path) -> Result<Found, Failure> {
    let bad =
        |path: &Path, e: &dyn std::fmt::Display| Failure::input(format!("{}: {e}", path.display()));
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|e| bad(path, &e))?;
        let all: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|e| e.path())).collect();
        files = all.map_err(|e| bad(path, &e))?;
        files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
        files.sort();
    }
    let mut found = Found::default();
    for file in files {
        let text = small_text(&file, SETUP_MAX, "a set-up")?;
        let value: Value = serde_json::from_str(&text).map_err(|e| {
            let expected = "expected a set-up beside a recording (one object in JSON), a folder of such, or of measured runs (NAME_requests.jsonl)";
            bad(&file, &format_args!("{e}; {expected}"))
        })?;
        if path.is_dir() && value.is_array() {
            // a list of what is in the folder
            continue;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match Setup::read(&value) {
            Ok(setup) => found.setups.push(Measured { name, setup, path: file, file: value }),
            Err(why) => found.left_out.push((name, why)),
        }
    }
    Ok(found)
}

impl Measured {
    fn source(&self) -> Result<BoxedSource, Failure> {
        let workload = registry::find(self.setup.workload).map_err(Failure::usage)?;
        let source = workload.source(&self.setup.params, 0, &Rates::free());
        source.map_err(|e| Failure::input(format!("{}: {e}", self.path.display())))
    }

    /// Plays it through `torch.caching` with the recorded settings, on a device of the recorded size, up to the first request that is refused.
    fn play(&self) -> Result<Row, Failure> {
        let make = || Ok(Box::new(Ending(self.source()?)) as Box<dyn Source>);
        let input = Input { accesses: true, ..Input::new(self.name.clone(), Box::new(make)) };
        let spec = match self.setup.conf.as_str() {
            "" => "torch.caching".to_owned(),
            conf => format!("torch.caching:conf='{conf}'"),
        };
        let spec = parse_spec(&spec).map_err(Failure::input)?;
        let place = Place::new("zero", Some(Bytes(self.setup.capacity)))?;
        run_pair(&input, &spec, &place, None)
    }

    /// Its peaks and where it fails, beside the recorded ones.
    ///
    /// # Errors
    /// When the set-up asks for what cannot be run.
    pub fn run(&self) -> Result<Beside, Failure> {
        let row = self.play()?;
        let figure = |key: &str| self.file[key].as_u64();
        let failed = figure("num_ooms").is_some_and(|ooms| ooms > 0);
        let last = self.phases().pop().map(|(text, _)| text);
        Ok(Beside {
            name: self.name.clone(),
            workload: self.setup.workload,
            params: self.setup.params.clone(),
            peak_requested: row.live_floor,
            peak_requested_measured: figure("max_memory_requested"),
            peak_allocated: row.peak_allocated,
            peak_allocated_measured: figure("max_memory_allocated"),
            peak_reserved: row.peak_reserved,
            peak_reserved_measured: figure("max_memory_reserved"),
            failed_in: failed_in(&row),
            failed_in_measured: last.filter(|_| failed),
        })
    }

    /// Phases with their first entries, in order.
    fn phases(&self) -> Vec<(String, u64)> {
        let list = self.file["phases"].as_array().map(Vec::as_slice).unwrap_or_default();
        let phase = |phase: &Value| {
            Some((phase["text"].as_str()?.to_owned(), phase["first_entry"].as_u64()?))
        };
        list.iter().filter_map(phase).collect()
    }

    /// Buffers of at least `least` bytes by phase and size, ours and recorded. Of a run of ours that is refused memory, those up to there.
    ///
    /// # Errors
    /// When the recording beside the set-up cannot be read, or the set-up asks for what cannot be run.
    pub fn buffers(&self, least: u64) -> Result<Vec<Buffers>, Failure> {
        let recorded = self.recorded_buffers(least)?;
        let refused = self.play()?.first_oom_op;
        Ok(buffers::compare(&self.name, &recorded, &self.our_buffers(least, refused)?))
    }

    fn recorded_buffers(&self, least: u64) -> Result<Phases, Failure> {
        let name = self.file["file"].as_str().unwrap_or_default();
        let opened = inputs::open(&self.path.with_file_name(name))?;
        let Opened::Snapshot(snapshot) = &opened else {
            return Err(Failure::input(format!("{name}: no snapshot, expected one")));
        };
        let mut found = Phases::default();
        for device in &snapshot.devices {
            let entries = device.recording.entries();
            let mut phases = self.phases().into_iter().peekable();
            for index in 0..entries.len() {
                while let Some((text, _)) = phases.next_if(|(_, first)| *first <= index as u64) {
                    found.begin(&text);
                }
                let entry = entries.entry(index);
                if entry.action == Action::Alloc && entry.size >= least {
                    found.ask(Asked { size: entry.size, site: String::new() });
                }
            }
        }
        Ok(found)
    }

    /// Up to the op of this number, which was refused.
    fn our_buffers(&self, least: u64, refused: Option<u64>) -> Result<Phases, Failure> {
        let mut source = self.source()?;
        let (mut found, mut number) = (Phases::default(), 0);
        while refused != Some(number) {
            match source.next(Nanos(0), Answered::Done).map_err(Failure::input)? {
                Step::Op(op) => {
                    number += u64::from(!op.is_setting());
                    match op {
                        Op::Mark { name } => found.begin(source.text(name)),
                        Op::Alloc { size, site, .. } if size >= least => {
                            found.ask(Asked { size, site: source.text(site).to_owned() });
                        }
                        _ => {}
                    }
                }
                Step::WaitUntil(_) => {}
                Step::End => break,
            }
        }
        Ok(found)
    }
}

/// The mark before the first request that failed.
fn failed_in(row: &Row) -> Option<String> {
    let op = row.first_oom_op?;
    row.marks.iter().rev().find(|mark| mark.op <= op).map(|mark| mark.name.clone())
}
