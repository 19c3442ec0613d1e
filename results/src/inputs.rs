//! Recordings, opened by their content.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use vramlab_allocators::{Options, Spec};
use vramlab_sim::Source;
use vramlab_sim::source::{Answered, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::Nanos;
use vramlab_workloads::readers::bytes;
use vramlab_workloads::readers::recording::RecordingSource;
use vramlab_workloads::readers::torch_snapshot as torch;

use crate::cli::Common;
use crate::commands::remark;
use crate::failure::{Code, Failure};
use crate::job::{FramesOf, Input, Times};

mod log;
mod open;
mod snapshot;

pub use log::{LogHistory, LogInput};
pub use open::{Begun, begin, open, open_begun, small_text};
pub use snapshot::{DeviceRecording, History, SnapshotInput};

/// Devices that the ops of a JSON Lines trace may name.
const JSONL_DEVICES: usize = 16;

/// What a recording tells of its device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// What the allocator could get: reserved and free at the first recorded failure.
    pub capacity: Option<u64>,
    /// The most that was reserved.
    pub peak_reserved: Option<u64>,
}

/// What a recording tells of the allocator that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The PyTorch whose rules it followed.
    pub torch_version: Option<String>,
    /// The settings text that was in force; empty for the defaults.
    pub conf: String,
}

/// A recording.
pub enum Opened {
    /// Our JSON Lines: a file is read anew for each run; what comes through a pipe is kept.
    Trace {
        /// As it is printed.
        name: String,
        /// Where.
        path: PathBuf,
        /// The content, if it came through a pipe.
        kept: Option<Vec<u8>>,
        /// What its header says of the device that it was recorded on.
        recorded: Recorded,
        /// And of the allocator.
        made: Made,
    },
    /// A PyTorch snapshot.
    Snapshot(SnapshotInput),
    /// A log of another program.
    Log(LogInput),
}

/// Files that could be opened, and what is wrong with the others.
#[derive(Default)]
pub struct Opening {
    /// In the order in which they were given.
    pub opened: Vec<Opened>,
    /// One message a file.
    pub bad: Bad,
}

/// Messages about bad inputs. The others are run all the same.
#[derive(Clone, Debug, Default)]
pub struct Bad(Vec<String>);

impl Bad {
    /// One more: kept if the input is what is wrong, and given back otherwise.
    ///
    /// # Errors
    /// A failure of another kind.
    pub fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.code != Code::BadInput {
            return Err(failure);
        }
        if !self.0.contains(&failure.message) {
            self.0.push(failure.message);
        }
        Ok(())
    }

    /// All of them, each on a line of its own; `None` if there are none.
    pub fn message(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("\nvramlab: "))
    }
}

/// As each of these files is printed: by its own name, or by the path as it was given where two have the same.
pub fn names(paths: &[PathBuf]) -> Vec<String> {
    let named: Vec<String> = paths.iter().map(|path| file_name(path)).collect();
    let alone = |name: &String| named.iter().filter(|other| *other == name).count() == 1;
    let pairs = named.iter().zip(paths);
    pairs
        .map(|(name, path)| if alone(name) { name.clone() } else { path.display().to_string() })
        .collect()
}

/// Name of a file, without its folder.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Opens files, and goes on behind one that is bad.
///
/// # Errors
/// None of its own: only what is no fault of an input.
pub fn open_each(paths: &[PathBuf]) -> Result<Opening, Failure> {
    let mut opening = Opening::default();
    let files: Vec<_> = paths.par_iter().map(|path| open(path)).collect();
    for (file, name) in files.into_iter().zip(names(paths)) {
        match file {
            Ok(opened) => opening.opened.push(opened.called(name)),
            Err(failure) => opening.bad.add(failure)?,
        }
    }
    Ok(opening)
}

impl Opened {
    /// As it is printed.
    pub fn name(&self) -> &str {
        match self {
            Self::Trace { name, .. } => name,
            Self::Snapshot(snapshot) => &snapshot.name,
            Self::Log(log) => &log.name,
        }
    }

    /// The same, printed by this name.
    pub fn called(mut self, by: String) -> Self {
        match &mut self {
            Self::Trace { name, .. } => *name = by,
            Self::Snapshot(snapshot) => snapshot.name = by,
            Self::Log(log) => log.name = by,
        }
        self
    }

    /// What it tells of the allocator that made it.
    pub fn made(&self) -> Made {
        match self {
            Self::Trace { made, .. } => made.clone(),
            Self::Snapshot(snapshot) => Made {
                torch_version: Some(snapshot.torch_version().to_owned()),
                conf: snapshot.conf(),
            },
            Self::Log(_) => Made::default(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::Trace { path, .. } => path,
            Self::Snapshot(snapshot) => &snapshot.path,
            Self::Log(log) => &log.path,
        }
    }

    /// What does not add up in it, as far as it was read: of a log that is read while it runs, all after a run.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Trace { .. } => &[],
            Self::Snapshot(snapshot) => &snapshot.warnings,
            Self::Log(log) => log.warnings(),
        }
    }

    /// Says them on standard error, unless all is to be quiet.
    pub fn remark_warnings(&self, common: &Common) {
        for warning in self.warnings().iter().filter(|_| !common.quiet) {
            remark(&format!("vramlab: {}: {warning}", self.name()));
        }
    }

    /// Numbers of the devices whose histories it has, in the order of [`Opened::inputs`].
    pub fn device_numbers(&self) -> Vec<u16> {
        match self {
            Self::Trace { .. } => vec![0],
            Self::Snapshot(snapshot) => snapshot.devices.iter().map(|d| d.device).collect(),
            Self::Log(log) => log.histories.iter().map(|history| history.device).collect(),
        }
    }

    /// What each history tells of its device, in the order of [`Opened::inputs`].
    pub fn recorded(&self) -> Vec<Recorded> {
        match self {
            Self::Trace { recorded, .. } => vec![*recorded],
            Self::Snapshot(snapshot) => snapshot.devices.iter().map(snapshot::recorded).collect(),
            Self::Log(log) => log.histories.iter().map(|history| history.recorded).collect(),
        }
    }

    /// Why `--keep-times` changes nothing, if that is so.
    pub fn keep_times_is_idle(&self) -> Option<&'static str> {
        match self {
            Self::Trace { .. } => Some("the times (t) of JSON Lines always hold"),
            Self::Snapshot(snapshot) => {
                let timed = snapshot.devices.iter().any(DeviceRecording::has_times);
                (!timed).then_some("the recording has no times")
            }
            Self::Log(log) => {
                let timed = log.histories.iter().any(LogHistory::timed);
                (!timed).then_some("the recording has no times")
            }
        }
    }

    /// PyTorch's allocator as it was when this was recorded.
    ///
    /// # Errors
    /// A version that is not known, or settings that it refuses.
    pub fn recorded_spec(&self, version: Option<&str>) -> Result<Spec, Failure> {
        let Made { torch_version, conf } = self.made();
        let wanted = version;
        let version = wanted.or(torch_version.as_deref());
        let bare = Spec::new("torch.caching", Options::from_pairs(version.map(|v| ("version", v))));
        vramlab_allocators::build(&bare).map_err(|e| match (wanted, version) {
            (Some(version), _) => Failure::usage(format!("--torch-version {version}: {e}")),
            (None, Some(version)) => Failure::input(format!(
                "{}: recorded torch_version {version}: {e}; say with --torch-version whose rules it follows",
                self.path().display()
            )),
            (None, None) => Failure::usage(e),
        })?;
        let conf = Some(("conf", conf.as_str())).filter(|(_, c)| !c.is_empty());
        let spec = Spec::new(
            "torch.caching",
            Options::from_pairs(version.map(|v| ("version", v)).into_iter().chain(conf)),
        );
        vramlab_allocators::build(&spec).map_err(|e| {
            Failure::input(format!("{}: recorded settings {spec}: {e}", self.path().display()))
        })?;
        Ok(spec)
    }

    /// One input per history, ops one right after the other.
    pub fn inputs(&self) -> Vec<Input<'_>> {
        self.inputs_timed(false)
    }

    /// One input per history; with `keep_times` ops are issued not before their recorded times.
    pub fn inputs_timed(&self, keep_times: bool) -> Vec<Input<'_>> {
        match self {
            Self::Trace { path, kept, .. } => {
                let open = move || trace(path, kept.as_deref());
                let make = move || -> Result<Box<dyn Source>, Failure> { Ok(Box::new(open()?)) };
                let line = move |op| {
                    line_of(open().ok()?, op, JsonlSource::line).map(|line| format!("line {line}"))
                };
                vec![Input {
                    origin: path.display().to_string(),
                    devices: JSONL_DEVICES,
                    accesses: true,
                    times: Times::AsGiven,
                    place: Some(Box::new(line)),
                    ..Input::new(self.name(), Box::new(make))
                }]
            }
            Self::Snapshot(snapshot) => {
                let several = snapshot.devices.len() > 1;
                let input = |device: &DeviceRecording| {
                    let recording = Arc::clone(&device.recording);
                    let make = move || -> Result<Box<dyn Source>, Failure> {
                        Ok(Box::new(RecordingSource::new(Arc::clone(&recording), keep_times)))
                    };
                    let name = if several {
                        format!("{} device {}", snapshot.name, device.device)
                    } else {
                        snapshot.name.clone()
                    };
                    let kept = keep_times && device.has_times();
                    let times = if kept { Times::Recorded } else { Times::None };
                    let origin = snapshot.path.display().to_string();
                    let recording = Arc::clone(&device.recording);
                    let frames = move |site| recording.entries().frames(site);
                    let frames = Some(Box::new(frames) as Box<FramesOf<'_>>);
                    let live_at_start = device.recording.start_blocks().len();
                    let input = Input::new(name, Box::new(make));
                    Input { origin, times, frames, live_at_start, ..input }
                };
                snapshot.devices.iter().map(input).collect()
            }
            Self::Log(log) => log.inputs(keep_times),
        }
    }
}

fn trace<'a>(
    path: &Path,
    kept: Option<&'a [u8]>,
) -> Result<JsonlSource<Box<dyn BufRead + 'a>>, Failure> {
    let input: Box<dyn BufRead + 'a> = match kept {
        Some(content) => Box::new(content),
        None => Box::new(bytes::open(path).map_err(Failure::input)?),
    };
    Ok(JsonlSource::new(input, path.display().to_string()))
}

/// The line of the n-th op, as the engine counts them.
fn line_of<S: Source>(mut source: S, op: u64, line: impl Fn(&S) -> u64) -> Option<u64> {
    let mut seen = 0;
    loop {
        match source.next(Nanos(0), Answered::Done).ok()? {
            Step::End => return None,
            Step::WaitUntil(_) => {}
            // A change of device or thread is no op, but belongs to the line of the next one.
            Step::Op(_) if seen == op => return Some(line(&source)),
            Step::Op(other) => seen += u64::from(!other.is_setting()),
        }
    }
}

/// Recordings that are built into the program.
///
/// # Errors
/// None unless the program itself is broken.
pub fn examples() -> Result<Vec<Opened>, Failure> {
    vramlab_workloads::examples::ALL
        .iter()
        .map(|(name, packed)| {
            let reader = bytes::decompressed(*packed, Some(packed.len() as u64))
                .map_err(|e| Failure::input(format!("{name}: {e}")))?;
            let snapshot =
                torch::read(reader).map_err(|e| Failure::input(format!("{name}: {e}")))?;
            Ok(Opened::Snapshot(SnapshotInput::new(Path::new(name), snapshot)))
        })
        .collect()
}
