//! The histories of the devices in a PyTorch snapshot, as [`Recording`]s.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};

use super::pickle::StrId;
use super::recording::{Action, Entries, Entry, Handles, Recording, Rules};
use super::torch_snapshot::{self as torch, Snapshot};

/// Largest size of a range that is taken for real, in bytes.
const RANGE_MAX: u64 = 1 << 56;
/// Set in a site's number that is a text of the program, not a stack.
const METADATA: u32 = 1 << 31;

/// What a request of so many bytes takes, under the divisions of powers of two that were set.
pub type Round = dyn Fn(&[(u64, u64)], u64) -> u64;

/// The history of each device that has entries or segments.
pub fn histories(snapshot: &Arc<Snapshot>, round: &Round) -> Vec<DeviceRecording> {
    let last = snapshot.segments.iter().map(|s| s.device as usize + 1).max().unwrap_or(0);
    let count = snapshot.traces.len().max(last);
    (0..count).filter_map(|device| DeviceRecording::new(snapshot, device, round)).collect()
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

/// Innermost frames of a stack that are looked at for a site.
const FRAMES_SEEN: usize = 1000;

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
            return self.snapshot.text(StrId(site & !METADATA)).to_owned();
        }
        let Some(stack) = site.checked_sub(1) else { return String::new() };
        let frames = || self.snapshot.frames(torch::StackId(stack)).take(FRAMES_SEEN);
        let own = frames().find(|f| {
            f.line > 0 && !f.filename.contains("/torch/") && !f.filename.starts_with("torch/")
        });
        own.or_else(|| frames().find(|f| !is_recorder(f.name)))
            .or_else(|| frames().next())
            .map_or(String::new(), |f| format!("{}:{} {}", f.filename, f.line, f.name))
    }
}

impl History {
    /// The frames of a site that is a stack, innermost first, each as file and function.
    pub fn frames(&self, site: u32) -> Vec<String> {
        let stack = site.checked_sub(1).filter(|_| site & METADATA == 0);
        let frames = |stack| self.snapshot.frames(torch::StackId(stack)).take(FRAMES_SEEN);
        let text = |f: torch::Frame<'_>| format!("{} {}", f.filename, f.name);
        stack.map(|stack| frames(stack).map(text).collect()).unwrap_or_default()
    }
}

/// Frames of PyTorch's own stack recorder, which stand on top of every C++ stack.
fn is_recorder(name: &str) -> bool {
    ["torch::unwind", "CapturedTraceback", "torch::cuda", "c10::cuda", "DeviceCachingAllocator"]
        .iter()
        .any(|part| name.contains(part))
}

/// No address range may pass 2^64, and devices are numbered below 65,536.
///
/// # Errors
/// Says which entry of the file reaches beyond.
pub fn check_ranges(snapshot: &Snapshot) -> Result<(), String> {
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

impl DeviceRecording {
    fn new(snapshot: &Arc<Snapshot>, device: usize, round: &Round) -> Option<Self> {
        let history = History { snapshot: Arc::clone(snapshot), device };
        let (mut end, handles) = end_layout(snapshot, device);
        if history.is_empty() && handles.is_empty() {
            return None;
        }
        let settings = snapshot.settings.as_ref();
        let round = |size: u64| round(settings_divisions(settings), size);
        let max_split = settings
            .and_then(|s| s.max_split_size)
            .and_then(|m| u64::try_from(m).ok())
            .unwrap_or(u64::MAX);
        let rules = Rules { round: &round, max_split };
        let mut recording = Recording::new(history, &mut end, handles, &rules);
        let stacks = stacks_at_end(snapshot, device);
        recording.name_start(|address| stacks.get(&address).map_or(0, |stack| stack.0 + 1));
        let capacity = capacity_at_failure(&recording);
        Some(Self { device: device as u16, recording: Arc::new(recording), end, capacity })
    }

    /// Does any entry have a time?
    pub fn has_times(&self) -> bool {
        let entries = self.recording.entries();
        (0..entries.len()).any(|index| entries.entry(index).time_us > 0)
    }
}

fn settings_divisions(settings: Option<&torch::AllocatorSettings>) -> &[(u64, u64)] {
    settings.map_or(&[], |s| &s.roundup_power2_divisions)
}

/// Segments after the last entry in address order, without their numbers of streams and pools, and the handles of each.
fn end_layout(snapshot: &Snapshot, device: usize) -> (Layout, Vec<Handles>) {
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
            private_pool: None,
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
    let handles = |s: &&torch::Segment| Handles {
        stream: s.stream,
        pool: s.pool.map_or((0, 0), |p| (p.0, p.1)),
    };
    (Layout { segments }, own.iter().map(handles).collect())
}

/// Who asked for each block that is in use after the last entry, where the segments say so.
fn stacks_at_end(snapshot: &Snapshot, device: usize) -> FxHashMap<u64, torch::StackId> {
    let own = snapshot.segments.iter().filter(|s| s.device as usize == device);
    let blocks = own.flat_map(|segment| snapshot.blocks_of(segment));
    let in_use = blocks.filter(|block| block.state != torch::BlockState::Inactive);
    in_use.filter_map(|block| Some((block.address, block.stack?))).collect()
}

/// Reserved bytes and free bytes of the device at the first recorded failure.
fn capacity_at_failure(recording: &Recording<History>) -> Option<u64> {
    let mut reserved: u64 =
        recording.start_layout().segments.iter().map(|s| s.size).fold(0, u64::saturating_add);
    for index in 0..recording.entries().len() {
        let entry = recording.entries().entry(index);
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                reserved = reserved.saturating_add(entry.size);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                reserved = reserved.saturating_sub(entry.size)
            }
            Action::Oom => return reserved.checked_add(entry.addr).filter(|c| *c <= RANGE_MAX),
            _ => {}
        }
    }
    None
}
