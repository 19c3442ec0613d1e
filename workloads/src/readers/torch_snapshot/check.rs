//! What should add up in a snapshot, and did in every recording seen: told as warnings, never as errors.

use std::fmt;

use super::columns::{Action, Trace};
use super::model::{Block, BlockState, Segment, Snapshot};

/// A stated sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// `allocated_size`: blocks in use.
    Allocated,
    /// `active_size`: blocks in use or waiting.
    Active,
    /// `requested_size`: requests of blocks in use or waiting.
    Requested,
}

/// Something that does not add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A segment without a block list (cut-down files).
    NoBlocks {
        /// Address of the segment.
        segment: u64,
    },
    /// A block that does not begin where the one before it ends.
    BlockOutOfPlace {
        /// Address of the segment.
        segment: u64,
        /// Index of the block in it.
        block: usize,
        /// Where it begins.
        found: u64,
        /// Where the block before it ends.
        expected: u64,
    },
    /// Blocks whose sizes do not sum to the segment's.
    BlocksDoNotFill {
        /// Address of the segment.
        segment: u64,
        /// Sum of block sizes, bytes.
        found: u64,
        /// Size of the segment, bytes.
        expected: u64,
    },
    /// Two free blocks side by side, which the allocator would have merged.
    FreeNeighbours {
        /// Address of the segment.
        segment: u64,
        /// Index of the second of them.
        block: usize,
    },
    /// A sum stated for a segment that differs from that of its blocks.
    SumDiffers {
        /// Address of the segment.
        segment: u64,
        /// Which sum.
        sum: Sum,
        /// Bytes counted over the blocks.
        found: u64,
        /// Bytes stated.
        stated: u64,
    },
    /// An `oom` entry without the free bytes of the device.
    OomWithoutFree {
        /// Device index.
        device: usize,
        /// Entry index.
        entry: usize,
    },
    /// A time before that of the entry before it.
    TimeGoesBack {
        /// Device index.
        device: usize,
        /// The first such entry.
        entry: usize,
    },
    /// Entries with an action that is not known here; they are kept, and mean nothing.
    UnknownAction {
        /// The name.
        name: String,
        /// Number of entries.
        count: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::NoBlocks { segment } => write!(f, "segment 0x{segment:x} lists no blocks"),
            Warning::BlockOutOfPlace { segment, block, found, expected } => write!(
                f,
                "segment 0x{segment:x}: block {block} begins at 0x{found:x}, \
                 but the one before it ends at 0x{expected:x}"
            ),
            Warning::BlocksDoNotFill { segment, found, expected } => write!(
                f,
                "segment 0x{segment:x}: its blocks sum to {found} bytes, but it has {expected}"
            ),
            Warning::FreeNeighbours { segment, block } => write!(
                f,
                "segment 0x{segment:x}: blocks {} and {block} are both free",
                block.saturating_sub(1)
            ),
            Warning::SumDiffers { segment, sum, found, stated } => {
                let name = match sum {
                    Sum::Allocated => "allocated_size",
                    Sum::Active => "active_size",
                    Sum::Requested => "requested_size",
                };
                write!(
                    f,
                    "segment 0x{segment:x}: {name} is {stated}, but its blocks sum to {found}"
                )
            }
            Warning::OomWithoutFree { device, entry } => {
                write!(f, "device_traces[{device}][{entry}]: oom without device_free")
            }
            Warning::TimeGoesBack { device, entry } => {
                write!(f, "device_traces[{device}][{entry}]: time_us is before the entry before it")
            }
            Warning::UnknownAction { name, count } => {
                write!(f, "action {name:?} is not known here ({count} entries)")
            }
        }
    }
}

/// Everything that does not add up, in the order of the file: segments, then entries.
pub fn check(snapshot: &Snapshot) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for segment in &snapshot.segments {
        check_segment(segment, snapshot.blocks_of(segment), &mut warnings);
    }
    for (device, trace) in snapshot.traces.iter().enumerate() {
        check_trace(device, trace, &mut warnings);
    }
    for (name, count) in snapshot.unknown_actions.iter().filter(|(_, count)| *count > 0) {
        warnings.push(Warning::UnknownAction { name: name.clone(), count: *count });
    }
    warnings
}

fn check_segment(segment: &Segment, blocks: &[Block], warnings: &mut Vec<Warning>) {
    let address = segment.address;
    if blocks.is_empty() {
        warnings.push(Warning::NoBlocks { segment: address });
        return;
    }
    let mut expected = address;
    let mut misplaced = false;
    let mut free_before = false;
    for (index, block) in blocks.iter().enumerate() {
        // One misplaced block is enough: those behind it are likely to follow.
        if block.address != expected && !misplaced {
            misplaced = true;
            let found = block.address;
            warnings.push(Warning::BlockOutOfPlace {
                segment: address,
                block: index,
                found,
                expected,
            });
        }
        let free = block.state == BlockState::Inactive;
        if free && free_before {
            warnings.push(Warning::FreeNeighbours { segment: address, block: index });
        }
        free_before = free;
        expected = block.address.saturating_add(block.size);
    }
    let found = sum(blocks, |_| true, |block| block.size);
    if found != segment.total_size {
        let expected = segment.total_size;
        warnings.push(Warning::BlocksDoNotFill { segment: address, found, expected });
    }
    let allocated = |block: &Block| block.state == BlockState::ActiveAllocated;
    let active = |block: &Block| block.state != BlockState::Inactive;
    let requested = |block: &Block| block.requested_size.unwrap_or(0);
    let sums = [
        (Sum::Allocated, segment.allocated_size, sum(blocks, allocated, |block| block.size)),
        (Sum::Active, segment.active_size, sum(blocks, active, |block| block.size)),
        (Sum::Requested, segment.requested_size, sum(blocks, active, requested)),
    ];
    for (sum, stated, found) in sums {
        if let Some(stated) = stated.filter(|stated| *stated != found) {
            warnings.push(Warning::SumDiffers { segment: address, sum, found, stated });
        }
    }
}

fn sum(blocks: &[Block], which: impl Fn(&Block) -> bool, of: impl Fn(&Block) -> u64) -> u64 {
    blocks.iter().filter(|block| which(block)).fold(0, |sum, block| sum.saturating_add(of(block)))
}

fn check_trace(device: usize, trace: &Trace, warnings: &mut Vec<Warning>) {
    for (entry, action) in trace.actions().iter().enumerate() {
        if *action == Action::Oom && trace.get(entry).is_some_and(|e| e.device_free.is_none()) {
            warnings.push(Warning::OomWithoutFree { device, entry });
        }
    }
    let mut last = 0;
    for (entry, time) in trace.times().iter().enumerate().filter(|(_, time)| **time != u64::MAX) {
        if *time < last {
            warnings.push(Warning::TimeGoesBack { device, entry });
            break;
        }
        last = *time;
    }
}
