//! Logs of other programs as inputs: the history of each device in them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use vramlab_sim::Source;
use vramlab_workloads::readers::bytes::{self, Bytes};
use vramlab_workloads::readers::events::{EventSource, Events};
use vramlab_workloads::readers::format::Format;
use vramlab_workloads::readers::{plan, profiler, rmm};

use super::Recorded;
use crate::failure::Failure;
use crate::job::{Input, PlaceOf, Times};

/// PyTorch's number of the type of CUDA's devices.
const CUDA: i64 = 1;

/// A log of another program.
pub struct LogInput {
    /// As it is printed.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The history of each device.
    pub histories: Vec<LogHistory>,
    /// What does not add up, as far as opening it tells.
    warnings: Vec<String>,
    /// And as far as playing it does: times of an RMM log that go back.
    passed: Arc<OnceLock<String>>,
    /// Bytes that the file's own placement needs, if it has one.
    pub planned_bytes: Option<u64>,
}

/// The history of one device.
pub struct LogHistory {
    /// Its number.
    pub device: u16,
    /// What the log tells of it.
    pub recorded: Recorded,
    /// Buffers that were live at the start, and their bytes.
    pub start: (u64, u64),
    played: Played,
}

enum Played {
    /// All of it is in memory.
    Held(Arc<Events>),
    /// The log is read anew for each run; what came through a pipe is kept.
    Rmm { timed: bool, kept: Option<Vec<u8>> },
}

impl LogInput {
    /// Reads a log of one of the formats that carry ops.
    ///
    /// # Errors
    /// It cannot be read, or a line is bad.
    pub fn read(path: &Path, format: Format, mut input: Bytes) -> Result<Self, Failure> {
        let origin = path.display().to_string();
        let mut log = Self {
            name: super::file_name(path),
            path: path.to_owned(),
            histories: Vec::new(),
            warnings: Vec::new(),
            passed: Arc::default(),
            planned_bytes: None,
        };
        match format {
            Format::ProfilerTrace | Format::ProfilerList => {
                log.take_profile(profiler::read(input, &origin).map_err(Failure::input)?)?;
            }
            Format::RmmLog => {
                let kept = super::open::kept(path, &mut input)?;
                let timed = source(path, kept.as_deref(), false, Arc::default())?.timed();
                log.histories.push(LogHistory::new(Played::Rmm { timed, kept }));
            }
            _ => {
                let plan = plan::read(input, &origin).map_err(Failure::input)?;
                log.planned_bytes = plan.planned_bytes();
                if plan.gaps_left_out > 0 {
                    log.warnings.push(format!(
                        "gaps in the lives of {} buffers are left out: they live through them",
                        plan.gaps_left_out
                    ));
                }
                log.histories.push(LogHistory::new(Played::Held(Arc::new(plan.events()))));
            }
        }
        Ok(log)
    }

    /// What does not add up in it, as far as it was played. Only an RMM log is told of while it is played, and nothing else of it.
    pub fn warnings(&self) -> &[String] {
        self.passed.get().map_or(&self.warnings, std::slice::from_ref)
    }

    fn take_profile(&mut self, profile: profiler::Profile) -> Result<(), Failure> {
        if profile.devices.is_empty() {
            let hint = match profile.host_events {
                0 => "record with profile_memory=True",
                _ => "record with ProfilerActivity.CUDA too",
            };
            return Err(Failure::input(format!(
                "{}: found {} memory events of the host and none of a device; {hint}",
                self.path.display(),
                profile.host_events
            )));
        }
        for device in profile.devices {
            if device.device_type != CUDA {
                self.warnings.push(format!(
                    "device {} is of PyTorch's type {}, not CUDA",
                    device.device, device.device_type
                ));
            }
            if device.events.gaps() > 0 {
                let gaps = device.events.gaps();
                self.warnings.push(format!("{gaps} events of device {} were lost", device.device));
            }
            self.histories.push(LogHistory {
                device: device.device,
                recorded: Recorded { capacity: None, peak_reserved: device.peak_reserved },
                start: (device.start_blocks, device.start_bytes),
                played: Played::Held(device.events),
            });
        }
        Ok(())
    }

    /// One input per history.
    pub(super) fn inputs(&self, keep_times: bool) -> Vec<Input<'_>> {
        let several = self.histories.len() > 1;
        let named = |history: &LogHistory| {
            let name = match several {
                true => format!("{} device {}", self.name, history.device),
                false => self.name.clone(),
            };
            let kept_times = keep_times && history.timed();
            let times = if kept_times { Times::Recorded } else { Times::None };
            let origin = self.path.display().to_string();
            (name, origin, times)
        };
        let all = self.histories.iter().map(|history| {
            let (name, origin, times) = named(history);
            match &history.played {
                Played::Held(events) => {
                    let make = move || -> Result<Box<dyn Source>, Failure> {
                        Ok(Box::new(EventSource::new(Arc::clone(events), keep_times)))
                    };
                    Input { origin, times, ..Input::new(name, Box::new(make)) }
                }
                Played::Rmm { kept, .. } => {
                    let open = move || {
                        source(&self.path, kept.as_deref(), keep_times, Arc::clone(&self.passed))
                    };
                    let make =
                        move || -> Result<Box<dyn Source + '_>, Failure> { Ok(Box::new(open()?)) };
                    let line = move |op| {
                        super::line_of(open().ok()?, op, rmm::RmmSource::line)
                            .map(|line| format!("line {line}"))
                    };
                    let place = Some(Box::new(line) as Box<PlaceOf<'_>>);
                    Input { origin, times, place, ..Input::new(name, Box::new(make)) }
                }
            }
        });
        all.collect()
    }
}

impl LogHistory {
    fn new(played: Played) -> Self {
        Self { device: 0, recorded: Recorded::default(), start: (0, 0), played }
    }

    /// Has it times?
    pub fn timed(&self) -> bool {
        match &self.played {
            Played::Held(events) => events.timed(),
            Played::Rmm { timed, .. } => *timed,
        }
    }
}

fn source<'a>(
    path: &Path,
    kept: Option<&'a [u8]>,
    keep_times: bool,
    passed: Arc<OnceLock<String>>,
) -> Result<rmm::RmmSource<Box<dyn Read + 'a>>, Failure> {
    let input: Box<dyn Read + 'a> = match kept {
        Some(content) => Box::new(content),
        None => Box::new(bytes::open(path).map_err(Failure::input)?),
    };
    rmm::RmmSource::new(input, &path.display().to_string(), keep_times)
        .map(|source| source.telling(passed))
        .map_err(Failure::input)
}
