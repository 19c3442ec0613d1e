//! Recordings, opened by their content.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use vramlab_allocators::{Options, Spec};
use vramlab_sim::Source;
use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::PoolId;
use vramlab_workloads::readers::bytes;
use vramlab_workloads::readers::recording::{
    Action, Entries, Entry, Recording, RecordingSource, Rules,
};
use vramlab_workloads::readers::torch_snapshot::{self as torch, Snapshot};

use crate::failure::Failure;
use crate::job::Input;

/// Devices that the ops of a JSON Lines trace may name.
const JSONL_DEVICES: usize = 16;
/// Largest size of a range that is taken for real, in bytes.
const RANGE_MAX: u64 = 1 << 56;
/// Set in a site's number that is a text of the program, not a stack.
const METADATA: u32 = 1 << 31;

/// A recording.
pub enum Opened {
    /// Our JSON Lines: a file is read anew for each run; what comes through a pipe is kept.
    Trace {
        /// Where.
        path: PathBuf,
        /// The content, if it came through a pipe.
        kept: Option<Vec<u8>>,
    },
    /// A PyTorch snapshot.
    Snapshot(SnapshotInput),
}

/// A PyTorch snapshot, with the histories in it.
pub struct SnapshotInput {
    /// Name of the file.
    pub name: String,
    /// What is in it.
    pub snapshot: Arc<Snapshot>,
    /// Devices that have entries or segments.
    pub devices: Vec<DeviceRecording>,
    /// What does not add up.
    pub warnings: Vec<String>,
}

/// The history of one device.
pub struct DeviceRecording {
    /// Its number.
    pub device: u16,
    /// The history.
    pub recording: Arc<Recording<History>>,
    /// The state after it.
    pub end: Layout,
    /// Bytes that the allocator could get: reserved and free at the first recorded failure.
    pub capacity: Option<u64>,
}

/// A device's entries in a snapshot.
pub struct History {
    snapshot: Arc<Snapshot>,
    device: usize,
}

impl Entries for History {
    fn len(&self) -> usize {
        self.snapshot.traces.get(self.device).map_or(0, torch::Trace::len)
    }

    fn entry(&self, index: usize) -> Entry {
        let Some(entry) = self.snapshot.traces.get(self.device).and_then(|t| t.get(index)) else {
            return Entry {
                action: Action::Other,
                addr: 0,
                size: 0,
                stream: 0,
                time_us: 0,
                site: 0,
                pool: (0, 0),
            };
        };
        let action = match entry.action {
            torch::Action::Alloc => Action::Alloc,
            torch::Action::FreeRequested => Action::FreeRequested,
            torch::Action::FreeCompleted => Action::FreeCompleted,
            torch::Action::SegmentAlloc => Action::SegmentAlloc,
            torch::Action::SegmentFree => Action::SegmentFree,
            torch::Action::SegmentMap => Action::SegmentMap,
            torch::Action::SegmentUnmap => Action::SegmentUnmap,
            torch::Action::Snapshot => Action::Snapshot,
            torch::Action::Oom => Action::Oom,
            torch::Action::Unknown(_) => Action::Other,
        };
        let tag = self.snapshot.tag(entry.tag);
        let text =
            tag.and_then(|t| t.user_metadata).filter(|id| !self.snapshot.text(*id).is_empty());
        let site = entry.stack.map(|s| s.0 + 1).or(text.map(|id| id.0 | METADATA)).unwrap_or(0);
        Entry {
            action,
            addr: if action == Action::Oom { entry.device_free } else { entry.addr }.unwrap_or(0),
            size: entry.size,
            stream: tag.map_or(0, |t| t.stream),
            time_us: entry.time_us.unwrap_or(0),
            site,
            pool: tag.and_then(|t| t.pool).map_or((0, 0), |p| (p.0, p.1)),
        }
    }

    /// The innermost Python frame outside of PyTorch itself, or the innermost frame; or the text that the program set.
    fn site(&self, site: u32) -> String {
        if site & METADATA != 0 {
            return self
                .snapshot
                .text(vramlab_workloads::readers::pickle::StrId(site & !METADATA))
                .to_owned();
        }
        let Some(stack) = site.checked_sub(1) else { return String::new() };
        let frames: Vec<_> = self.snapshot.frames(torch::StackId(stack)).collect();
        let own = frames.iter().find(|f| {
            f.line > 0 && !f.filename.contains("/torch/") && !f.filename.starts_with("torch/")
        });
        own.or_else(|| frames.iter().find(|f| !is_recorder(f.name)))
            .or(frames.first())
            .map_or(String::new(), |f| format!("{}:{} {}", f.filename, f.line, f.name))
    }
}

/// Frames of PyTorch's own stack recorder, which stand on top of every C++ stack.
fn is_recorder(name: &str) -> bool {
    ["torch::unwind", "CapturedTraceback", "torch::cuda", "c10::cuda", "DeviceCachingAllocator"]
        .iter()
        .any(|part| name.contains(part))
}

/// Opens files.
///
/// # Errors
/// The first that cannot be read or is nothing known.
pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Opened>, Failure> {
    paths.par_iter().map(|path| open(path)).collect()
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
    if is_jsonl(&start) {
        let mut kept = None;
        if !std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
            let mut content = Vec::new();
            input.read_to_end(&mut content).map_err(|e| named(&e))?;
            kept = Some(content);
        }
        return Ok(Opened::Trace { path: path.to_owned(), kept });
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

/// No address range may pass 2^64, and devices are numbered below 65,536.
fn check_ranges(snapshot: &Snapshot) -> Result<(), String> {
    let fits = |address: u64, size: u64| {
        size <= RANGE_MAX && address.checked_add(size + RANGE_MAX).is_some()
    };
    for (index, segment) in snapshot.segments.iter().enumerate() {
        if u16::try_from(segment.device).is_err() {
            return Err(format!(
                "segments[{index}].device: found {}, expected a number below 65536",
                segment.device
            ));
        }
        let blocks = snapshot.blocks_of(segment);
        if !fits(segment.address, segment.total_size)
            || !blocks.iter().all(|b| fits(b.address, b.size))
        {
            return Err(format!(
                "segments[{index}]: {} bytes at {:#x}, or its blocks, reach past what an address can be",
                segment.total_size, segment.address
            ));
        }
    }
    for (device, trace) in snapshot.traces.iter().enumerate() {
        if u16::try_from(device).is_err() && !trace.is_empty() {
            return Err(format!("device_traces[{device}]: expected at most 65536 devices"));
        }
        let bad = trace
            .iter()
            .position(|e| e.action != torch::Action::Oom && !fits(e.addr.unwrap_or(0), e.size));
        if let Some(index) = bad {
            return Err(format!(
                "device_traces[{device}][{index}]: its address and size reach past what an address can be"
            ));
        }
    }
    Ok(())
}

/// Does a JSON object of one line with an op or our header come first?
fn is_jsonl(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.starts_with('{') && (line.contains("\"op\"") || line.contains("\"vramlab_trace\""))
}

impl SnapshotInput {
    fn new(path: &Path, snapshot: Snapshot) -> Self {
        let name = path
            .file_name()
            .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let snapshot = Arc::new(snapshot);
        let mut warnings: Vec<String> = snapshot.warnings.iter().map(ToString::to_string).collect();
        let unknown = snapshot.unknown_actions.iter();
        warnings.extend(
            unknown.map(|(name, n)| format!("{n} entries of unknown action {name:?} were skipped")),
        );
        let last = snapshot.segments.iter().map(|s| s.device as usize + 1).max().unwrap_or(0);
        let count = snapshot.traces.len().max(last);
        let devices =
            (0..count).filter_map(|device| DeviceRecording::new(&snapshot, device)).collect();
        Self { name, snapshot, devices, warnings }
    }

    /// The settings text that was in force.
    pub fn conf(&self) -> String {
        let Some(settings) = &self.snapshot.settings else { return String::new() };
        match settings.conf.as_deref() {
            Some(conf) if !conf.is_empty() => conf.to_owned(),
            _ if settings.expandable_segments == Some(true) => {
                "expandable_segments:True".to_owned()
            }
            _ => String::new(),
        }
    }

    /// Whose rules the recording follows: only 2.15 writes `host_segments`.
    pub fn torch_version(&self) -> &'static str {
        if self.snapshot.host_segments.is_some() { "2.15" } else { "2.9" }
    }
}

impl DeviceRecording {
    fn new(snapshot: &Arc<Snapshot>, device: usize) -> Option<Self> {
        let history = History { snapshot: Arc::clone(snapshot), device };
        let (mut end, handles) = end_layout(snapshot, device);
        if history.is_empty() && handles.is_empty() {
            return None;
        }
        let settings = snapshot.settings.as_ref();
        let round =
            |size: u64| vramlab_allocators::torch::rounded(settings_divisions(settings), size);
        let max_split = settings
            .and_then(|s| s.max_split_size)
            .and_then(|m| u64::try_from(m).ok())
            .unwrap_or(u64::MAX);
        let recording =
            Recording::new(history, &mut end, handles, &Rules { round: &round, max_split });
        let capacity = capacity_at_failure(&recording);
        Some(Self { device: device as u16, recording: Arc::new(recording), end, capacity })
    }
}

fn settings_divisions(settings: Option<&torch::AllocatorSettings>) -> &[(u64, u64)] {
    settings.map_or(&[], |s| &s.roundup_power2_divisions)
}

/// Segments after the last entry in address order, without their stream numbers, and the stream handle of each.
fn end_layout(snapshot: &Snapshot, device: usize) -> (Layout, Vec<u64>) {
    let mut own: Vec<&torch::Segment> =
        snapshot.segments.iter().filter(|s| s.device as usize == device).collect();
    own.sort_by_key(|s| s.address);
    let segments = own
        .iter()
        .map(|s| LayoutSegment {
            address: s.address,
            size: s.total_size,
            stream: vramlab_sim::StreamId(0),
            pool: if s.kind == torch::SegmentKind::Small { "small" } else { "large" },
            private_pool: s
                .pool
                .filter(|p| (p.0, p.1) != (0, 0))
                .map(|p| PoolId((p.0 * 0x1_0000 + p.1) as u32)),
            expandable: s.expandable,
            registration: None,
            blocks: snapshot
                .blocks_of(s)
                .iter()
                .map(|b| LayoutBlock {
                    address: b.address,
                    size: b.size,
                    requested: b.requested_size.unwrap_or(0),
                    state: match b.state {
                        torch::BlockState::ActiveAllocated => BlockState::Allocated,
                        torch::BlockState::ActivePendingFree => BlockState::Pending,
                        torch::BlockState::Inactive => BlockState::Free,
                    },
                    age: 0,
                })
                .collect(),
        })
        .collect();
    (Layout { segments }, own.iter().map(|s| s.stream).collect())
}

/// Reserved bytes and free bytes of the device at the first recorded failure.
fn capacity_at_failure(recording: &Recording<History>) -> Option<u64> {
    let mut reserved: u64 = recording.start_layout().segments.iter().map(|s| s.size).sum();
    for index in 0..recording.entries().len() {
        let entry = recording.entries().entry(index);
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved += entry.size,
            Action::SegmentFree | Action::SegmentUnmap => {
                reserved = reserved.saturating_sub(entry.size)
            }
            Action::Oom => return reserved.checked_add(entry.addr).filter(|c| *c <= RANGE_MAX),
            _ => {}
        }
    }
    None
}

impl Opened {
    /// As it is printed.
    pub fn name(&self) -> String {
        match self {
            Self::Trace { path, .. } => path
                .file_name()
                .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned()),
            Self::Snapshot(snapshot) => snapshot.name.clone(),
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

    /// Bytes that each history's allocator could get, where the recording tells.
    pub fn capacities(&self) -> Vec<Option<u64>> {
        match self {
            Self::Trace { .. } => vec![None],
            Self::Snapshot(snapshot) => snapshot.devices.iter().map(|d| d.capacity).collect(),
        }
    }

    /// PyTorch's allocator as it was when this was recorded.
    ///
    /// # Errors
    /// A version that is not known, or settings that it refuses.
    pub fn recorded_spec(&self, version: Option<&str>) -> Result<Spec, Failure> {
        let (version, conf) = match self {
            Self::Trace { .. } => (version, String::new()),
            Self::Snapshot(snapshot) => {
                (Some(version.unwrap_or(snapshot.torch_version())), snapshot.conf())
            }
        };
        let bare = Spec::new("torch.caching", Options::from_pairs(version.map(|v| ("version", v))));
        vramlab_allocators::build(&bare).map_err(Failure::usage)?;
        let conf = Some(("conf", conf.as_str())).filter(|(_, c)| !c.is_empty());
        let spec = Spec::new(
            "torch.caching",
            Options::from_pairs(version.map(|v| ("version", v)).into_iter().chain(conf)),
        );
        vramlab_allocators::build(&spec).map_err(|e| {
            Failure::input(format!("{}: recorded settings {spec}: {e}", self.name()))
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
            Self::Trace { path, kept } => {
                let make = move || -> Result<Box<dyn Source>, Failure> {
                    let name = path.display().to_string();
                    match kept {
                        Some(content) => Ok(Box::new(JsonlSource::new(
                            std::io::Cursor::new(content.clone()),
                            name,
                        ))),
                        None => Ok(Box::new(JsonlSource::new(
                            bytes::open(path).map_err(Failure::input)?,
                            name,
                        ))),
                    }
                };
                vec![Input {
                    name: self.name(),
                    seed: None,
                    devices: JSONL_DEVICES,
                    accesses: true,
                    make: Box::new(make),
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
                    Input { name, seed: None, devices: 1, accesses: false, make: Box::new(make) }
                };
                snapshot.devices.iter().map(input).collect()
            }
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
