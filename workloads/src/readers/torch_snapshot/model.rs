//! What a snapshot holds.

use std::ops::Range;

use super::check::Warning;
use super::columns::{Action, StackId, TagId, Trace};
use crate::readers::pickle::{Interned, StrId, Strings};

/// A memory pool: `(0, 0)` is the normal one, others belong to graphs or to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u64, pub u64);

/// What many entries have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    /// CUDA stream handle (not an index); 0 is the default stream.
    pub stream: u64,
    /// Pool, from torch 2.15 on.
    pub pool: Option<PoolId>,
    /// Text set by the program, from 2026 on.
    pub user_metadata: Option<StrId>,
    /// Text about compilation, from autumn 2025 on; `N/A` outside it.
    pub compile_context: Option<StrId>,
}

/// One line of a call stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// File; `??` or empty for some C++ frames.
    pub filename: &'a str,
    /// Line from 1; 0 or -1 for C++ frames.
    pub line: i32,
    /// Function.
    pub name: &'a str,
}

/// Every distinct call stack, once.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Triples: file name, line, function.
    pub(super) frames: Interned<u32>,
    /// Frame numbers, innermost first.
    pub(super) stacks: Interned<u32>,
}

impl Stacks {
    /// Number of distinct stacks.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of distinct frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Numbers of the frames of a stack, innermost first; equal numbers are equal frames.
    pub fn frame_ids(&self, stack: StackId) -> &[u32] {
        self.stacks.get(stack.0).unwrap_or(&[])
    }
}

/// Small or large pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentKind {
    /// For requests of up to 1 MiB.
    Small,
    /// For larger ones.
    Large,
}

/// Memory that the allocator holds from the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Device index.
    pub device: u32,
    /// Base address.
    pub address: u64,
    /// Bytes (mapped bytes of this stretch, if expandable).
    pub total_size: u64,
    /// Sum of the sizes of blocks in use, as stated.
    pub allocated_size: Option<u64>,
    /// In use plus pending free, as stated.
    pub active_size: Option<u64>,
    /// Sum of what was asked for, as stated.
    pub requested_size: Option<u64>,
    /// Stream handle.
    pub stream: u64,
    /// Small or large.
    pub kind: SegmentKind,
    /// Private pool; missing in spring 2023.
    pub pool: Option<PoolId>,
    /// Made of mapped pages.
    pub expandable: bool,
    /// Stack of the driver call, if recorded.
    pub stack: Option<StackId>,
    /// Which of [`Snapshot::blocks`], in address order.
    pub blocks: Range<usize>,
}

/// State of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockState {
    /// In use.
    ActiveAllocated,
    /// Dropped, waiting for a stream.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// The word used in snapshots.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

/// A part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Address; where the file gives none, the running sum inside the segment.
    pub address: u64,
    /// Real bytes.
    pub size: u64,
    /// Bytes asked for; may be a leftover in inactive blocks.
    pub requested_size: Option<u64>,
    /// In use or not.
    pub state: BlockState,
    /// Stack of the request, if recorded.
    pub stack: Option<StackId>,
}

/// The allocator's configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AllocatorSettings {
    /// `PYTORCH_CUDA_ALLOC_CONF` as given.
    pub conf: Option<String>,
    /// Whether segments grow by mapping pages.
    pub expandable_segments: Option<bool>,
    /// Largest block that is split, bytes; -1 is unlimited.
    pub max_split_size: Option<i64>,
    /// Share of the memory limit from which on cached memory is given back; 0 is off.
    pub garbage_collection_threshold: Option<f64>,
    /// From a size in MiB up: into how many steps a power of two is divided (0: not rounded so).
    pub roundup_power2_divisions: Vec<(u64, u64)>,
    /// Every other setting: key, and value as text (`True`, `int 1`, …).
    pub other: Vec<(String, String)>,
}

/// Where a named range begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Begins.
    Start,
    /// Ends.
    End,
    /// Another word.
    Other(StrId),
}

/// One end of a named range (optimizer step, data loader, compilation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// Begin or end.
    pub stage: Stage,
    /// Name of the range.
    pub name: StrId,
    /// Device index.
    pub device: Option<i64>,
    /// Microseconds since 1970.
    pub time_us: u64,
}

/// How the file was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `torch.cuda.memory._snapshot()`: a dict.
    Dict,
    /// `torch.cuda.memory_snapshot()`: just the list of segments.
    SegmentList,
}

/// A PyTorch CUDA memory snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// Dict or list of segments.
    pub form: Form,
    /// The keys of the top level, in the file's order; none in the list form.
    pub top_level_keys: Vec<String>,
    /// History by device index; empty in the list form.
    pub traces: Vec<Trace>,
    /// All segments of all devices, in the file's order.
    pub segments: Vec<Segment>,
    /// The blocks of all segments; each segment names its range.
    pub blocks: Vec<Block>,
    /// From June 2024 on.
    pub settings: Option<AllocatorSettings>,
    /// From November 2024 on.
    pub annotations: Vec<Annotation>,
    /// Number of pinned-host segments listed; `Some`, even if 0, marks torch 2.15.
    pub host_segments: Option<usize>,
    /// What [`TagId`]s name.
    pub tags: Vec<Tag>,
    /// What [`StackId`]s name.
    pub stacks: Stacks,
    /// What [`StrId`]s name.
    pub strings: Strings,
    /// Names and numbers of entries whose action is not known here; the index is that of [`Action::Unknown`].
    pub unknown_actions: Vec<(String, u64)>,
    /// What does not add up; nothing here keeps the snapshot from being read.
    pub warnings: Vec<Warning>,
}

impl Snapshot {
    /// Stream, pool and texts of an entry.
    pub fn tag(&self, id: TagId) -> Option<&Tag> {
        self.tags.get(id.0 as usize)
    }

    /// The text of a string.
    pub fn text(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = Frame<'_>> {
        self.stacks.frame_ids(stack).iter().filter_map(|frame| self.frame(*frame))
    }

    /// One frame by its number.
    pub fn frame(&self, frame: u32) -> Option<Frame<'_>> {
        match self.stacks.frames.get(frame)? {
            [filename, line, name] => Some(Frame {
                filename: self.strings.get(StrId(*filename)),
                line: line.cast_signed(),
                name: self.strings.get(StrId(*name)),
            }),
            _ => None,
        }
    }

    /// The blocks of a segment, in address order.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.blocks.clone()).unwrap_or(&[])
    }

    /// Entries of all devices.
    pub fn entry_count(&self) -> usize {
        self.traces.iter().map(Trace::len).sum()
    }

    /// The name of an action as the file has it.
    pub fn action_name(&self, action: Action) -> &str {
        match action {
            Action::Unknown(index) => {
                let name = self.unknown_actions.get(usize::from(index));
                name.map_or("unknown", |(name, _)| name)
            }
            known => known.name(),
        }
    }
}
