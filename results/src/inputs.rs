//! Recordings, opened by their content.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use vramlab_allocators::{Options, Spec};
use vramlab_sim::Source;
use vramlab_sim::source::{Answered, Step};
use vramlab_sim::trace::{JsonlSource, not_utf8};
use vramlab_sim::units::Nanos;
use vramlab_workloads::readers::bytes;
use vramlab_workloads::readers::recording::RecordingSource;
use vramlab_workloads::readers::torch_snapshot as torch;

use crate::failure::{Code, Failure};
use crate::job::{Input, Times};

mod snapshot;

use snapshot::check_ranges;
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

fn file_name(path: &Path) -> String {
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

/// Opens a file and tells its format by its content.
///
/// # Errors
/// A file that cannot be read, is damaged, or is of no known format.
pub fn open(path: &Path) -> Result<Opened, Failure> {
    let mut input = bytes::open(path).map_err(Failure::input)?;
    let start: Vec<u8> = input
        .peek()
        .map_err(|e| Failure::input(format!("{}: {e}", path.display())))?
        .iter()
        .take(4096)
        .copied()
        .collect();
    if start.is_empty() {
        return Err(Failure::input(format!(
            "{}: the file is empty; expected a PyTorch snapshot or JSON Lines",
            path.display()
        )));
    }
    let named =
        |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    if let Some(what) = not_utf8(&start) {
        return Err(named(&what));
    }
    if is_jsonl(&start) {
        let mut kept = None;
        if !std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
            let mut content = Vec::new();
            input.read_to_end(&mut content).map_err(|e| named(&e))?;
            kept = Some(content);
        }
        let (recorded, made) = header(&start);
        let (name, path) = (file_name(path), path.to_owned());
        return Ok(Opened::Trace { name, path, kept, recorded, made });
    }
    if !torch::is_json(&start)
        && start.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace())
    {
        let shown: String = start.iter().take(40).map(|b| char::from(*b)).collect();
        return Err(named(&format!(
            "neither a PyTorch snapshot (pickle or JSON) nor JSON Lines of ops; it begins with {shown:?}"
        )));
    }
    let snapshot = torch::read(input).map_err(|e| named(&e))?;
    check_ranges(&snapshot).map_err(|e| named(&e))?;
    Ok(Opened::Snapshot(SnapshotInput::new(path, snapshot)))
}

/// Does a JSON object of one line with an op or our header come first?
fn is_jsonl(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let line = first_line(&text);
    line.starts_with('{') && (line.contains("\"op\"") || line.contains("\"vramlab_trace\""))
}

fn first_line(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.lines().next().unwrap_or_default()
}

/// What the header of our JSON Lines says of the device and the allocator, if the first line is one.
fn header(start: &[u8]) -> (Recorded, Made) {
    let text = String::from_utf8_lossy(start);
    let line: serde_json::Value = serde_json::from_str(first_line(&text)).unwrap_or_default();
    if line.get("vramlab_trace").is_none() {
        return Default::default();
    }
    let bytes = |field: &str| line.get(field).and_then(serde_json::Value::as_u64);
    let text = |field: &str| line.get(field).and_then(|v| v.as_str()).map(str::to_owned);
    let recorded = Recorded { capacity: bytes("capacity"), peak_reserved: bytes("peak_reserved") };
    let torch_version = text("torch_version");
    (recorded, Made { torch_version, conf: text("conf").unwrap_or_default() })
}

impl Opened {
    /// As it is printed.
    pub fn name(&self) -> &str {
        match self {
            Self::Trace { name, .. } => name,
            Self::Snapshot(snapshot) => &snapshot.name,
        }
    }

    /// The same, printed by this name.
    pub fn called(mut self, by: String) -> Self {
        match &mut self {
            Self::Trace { name, .. } => *name = by,
            Self::Snapshot(snapshot) => snapshot.name = by,
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
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::Trace { path, .. } => path,
            Self::Snapshot(snapshot) => &snapshot.path,
        }
    }

    /// What does not add up in it.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Trace { .. } => &[],
            Self::Snapshot(snapshot) => &snapshot.warnings,
        }
    }

    /// Numbers of the devices whose histories it has, in the order of [`Opened::inputs`].
    pub fn device_numbers(&self) -> Vec<u16> {
        match self {
            Self::Trace { .. } => vec![0],
            Self::Snapshot(snapshot) => snapshot.devices.iter().map(|d| d.device).collect(),
        }
    }

    /// What each history tells of its device, in the order of [`Opened::inputs`].
    pub fn recorded(&self) -> Vec<Recorded> {
        match self {
            Self::Trace { recorded, .. } => vec![*recorded],
            Self::Snapshot(snapshot) => {
                snapshot.devices.iter().map(DeviceRecording::recorded).collect()
            }
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
                let line = move |op| line_of(open().ok()?, op).map(|line| format!("line {line}"));
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
                    Input { origin, times, ..Input::new(name, Box::new(make)) }
                };
                snapshot.devices.iter().map(input).collect()
            }
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
fn line_of(mut source: JsonlSource<impl BufRead>, op: u64) -> Option<u64> {
    let mut seen = 0;
    loop {
        match source.next(Nanos(0), Answered::Done).ok()? {
            Step::End => return None,
            Step::WaitUntil(_) => {}
            // A change of device or thread is no op, but belongs to the line of the next one.
            Step::Op(_) if seen == op => return Some(source.line()),
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
