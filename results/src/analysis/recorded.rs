//! The state that a recording ends with, judged: without a run, by what the file says of segments and blocks.

use rustc_hash::FxHashMap;
use vramlab_allocators::Spec;
use vramlab_allocators::torch::Sizes;
use vramlab_sim::allocator::{BlockState, LayoutBlock, LayoutSegment};

use super::causes::{Judged, Knows, Owner, Wanted, judge};
use super::lives::{Lives, NEVER};
use crate::failure::Failure;
use crate::inputs::DeviceRecording;
use vramlab_workloads::readers::recording::{Action, Entries};

/// Judges the state after the last entry by a request: the recorded failure if it ends with one. `spec` is the recorded allocator. None if the
/// file's segments do not add up.
///
/// # Errors
/// Settings that the allocator refuses.
pub fn judge_end(
    device: &DeviceRecording,
    spec: &Spec,
    lives: &Lives,
    wanted: Option<Wanted>,
) -> Result<Option<Judged>, Failure> {
    let sizes = Sizes::of(&spec.strategy().options).map_err(Failure::usage)?;
    let owners = lives.live_at(lives.ops).map(|at| (lives.list[at].name, at)).collect();
    let segments = &device.end.segments;
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let in_use = |block: &&LayoutBlock| block.state == BlockState::Allocated;
    let requested = blocks.filter(in_use).map(|block| block.requested.min(block.size));
    let requested = requested.fold(0, u64::saturating_add);
    let reserved = segments.iter().map(|segment| segment.size).fold(0, u64::saturating_add);
    Ok(judge(&device.end, (reserved, requested), wanted, &End { sizes, lives, owners }))
}

/// The request that a recording ends with, if that failed.
pub fn failure_at_end(device: &DeviceRecording, lives: &Lives) -> Option<Wanted> {
    let recording = &*device.recording;
    let entries = recording.entries();
    let told = |at: &usize| !matches!(entries.entry(*at).action, Action::Snapshot | Action::Other);
    let last = entries.entry((0..entries.len()).rev().find(told)?);
    (last.action == Action::Oom).then(|| Wanted {
        op: lives.ops.saturating_sub(1),
        size: last.size,
        stream: recording.stream(last.stream).0,
        private_pool: recording.pool(last.pool),
        failed: true,
    })
}

struct End<'a> {
    sizes: Option<Sizes>,
    lives: &'a Lives,
    /// The life that has a recorded address at the end.
    owners: FxHashMap<u64, usize>,
}

impl Knows for End<'_> {
    fn owner(&self, block: &LayoutBlock) -> Option<Owner> {
        let life = self.owners.get(&block.address).copied();
        let stream = life.map(|at| self.lives.list[at].stream);
        let requested = block.requested.min(block.size);
        Some(Owner { life, requested, stream, death: NEVER })
    }

    fn rounded(&self, size: u64) -> u64 {
        self.sizes.map_or(size, |sizes| sizes.rounded(size))
    }

    fn pool(&self, size: u64) -> Option<&'static str> {
        self.sizes.map(|sizes| sizes.pool(size))
    }

    fn page(&self, pool: &str) -> u64 {
        self.sizes.map_or(1, |sizes| sizes.page(pool))
    }

    fn used(&self, _segment: &LayoutSegment) -> Option<(u64, u64)> {
        None
    }
}
