//! How the statistics are kept: exactly as PyTorch counts, and lean.
//!
//! | rule | what it says |
//! |---|---|
//! | `active` | allocated, and freed blocks that still wait for an event (RULES 25) |
//! | `requested` | sizes asked for, of active blocks (RULES 25) |
//! | `inactive-split` | free blocks of split cudaMalloc segments; one free counts its net change, so the peak sees no step in between (RULES 25) |
//! | `expandable` | no segments, no inactive split; reserved moves by pages; a map step is a device allocation, an unmap step a device free (RULES 23) |
//! | `reset` | resetting accumulated statistics also clears retries, ooms, syncs and device counters (RULES 26) |
//! | `oversize` | counts blocks and segments of at least the split limit **at that moment**, so it may pass below 0 when the limit changes |

use super::levels::{Flow, Live};
use super::statistics::{Stat, Statistics};

/// Which of the two kinds of pool.
pub(super) const SMALL: usize = 0;
pub(super) const LARGE: usize = 1;

/// Counters that are not bytes or blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) retries: u64,
    pub(super) ooms: u64,
    pub(super) syncs: u64,
    pub(super) device_allocs: u64,
    pub(super) device_frees: u64,
    pub(super) rejections: u64,
}

/// What is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    blocks: Live,
    bytes: Live,
    requested: Flow,
    /// Free parts of split segments.
    parts: Flow,
    part_bytes: Flow,
    segments: Flow,
    reserved: Flow,
    pub(super) oversize_blocks: Stat,
    pub(super) oversize_segments: Stat,
    pub(super) counts: Counts,
    pub(super) gc_released: u64,
    pub(super) spared: u64,
}

impl Tally {
    /// A block is handed out.
    #[inline(always)]
    pub(super) fn alloc(&mut self, kind: usize, bytes: u64, requested: u64) {
        self.blocks.flow.rise(kind, 1);
        self.bytes.flow.rise(kind, bytes);
        self.requested.rise(kind, requested);
    }

    /// A block comes back at once.
    #[inline(always)]
    pub(super) fn free(&mut self, kind: usize, bytes: u64, requested: u64) {
        self.blocks.flow.fall(kind, 1);
        self.bytes.flow.fall(kind, bytes);
        self.requested.fall(kind, requested);
    }

    /// A block is freed, and waits.
    pub(super) fn wait(&mut self, kind: usize, bytes: u64) {
        self.blocks.wait(kind, 1);
        self.bytes.wait(kind, bytes);
    }

    /// A block that waited comes back.
    pub(super) fn arrive(&mut self, kind: usize, bytes: u64, requested: u64) {
        self.blocks.arrive(kind, 1);
        self.bytes.arrive(kind, bytes);
        self.requested.fall(kind, requested);
    }

    /// A whole free segment was cut: its rest of `bytes` is a free part.
    #[inline(always)]
    pub(super) fn part_made(&mut self, kind: usize, bytes: u64) {
        self.parts.rise(kind, 1);
        self.part_bytes.rise(kind, bytes);
    }

    /// `bytes` were cut off a free part.
    #[inline(always)]
    pub(super) fn part_cut(&mut self, kind: usize, bytes: u64) {
        self.part_bytes.fall(kind, bytes);
    }

    /// A free part of `bytes` was handed out as it is.
    #[inline(always)]
    pub(super) fn part_taken(&mut self, kind: usize, bytes: u64) {
        self.parts.fall(kind, 1);
        self.part_bytes.fall(kind, bytes);
    }

    /// `bytes` came back, joined `joined` free parts and are a part themselves.
    #[inline(always)]
    pub(super) fn part_joined(&mut self, kind: usize, bytes: u64, joined: u32) {
        match joined {
            0 => self.parts.rise(kind, 1),
            1 => {}
            _ => self.parts.fall(kind, 1),
        }
        self.part_bytes.rise(kind, bytes);
    }

    /// `joined` free parts of `bytes` became a whole free segment.
    #[inline(always)]
    pub(super) fn parts_gone(&mut self, kind: usize, bytes: u64, joined: u32) {
        self.parts.fall(kind, u64::from(joined));
        self.part_bytes.fall(kind, bytes);
    }

    pub(super) fn add_segment(&mut self, kind: usize, bytes: u64) {
        self.segments.rise(kind, 1);
        self.reserve(kind, bytes);
    }

    pub(super) fn drop_segment(&mut self, kind: usize, bytes: u64) {
        self.segments.fall(kind, 1);
        self.unreserve(kind, bytes);
    }

    /// Memory from the device: one device allocation.
    pub(super) fn reserve(&mut self, kind: usize, bytes: u64) {
        self.reserved.rise(kind, bytes);
        self.counts.device_allocs += 1;
    }

    /// Memory back to the device: one device free.
    pub(super) fn unreserve(&mut self, kind: usize, bytes: u64) {
        self.reserved.fall(kind, bytes);
        self.counts.device_frees += 1;
    }

    #[inline]
    pub(super) fn allocated(&self) -> u64 {
        self.bytes.flow.all.now()
    }

    #[inline]
    pub(super) fn active(&self) -> u64 {
        self.bytes.flow.all.now() + self.bytes.all_waiting()
    }

    #[inline]
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.all.now()
    }

    pub(super) fn reset_peak(&mut self) {
        self.blocks.reset_peak();
        self.bytes.reset_peak();
        for flow in self.flows() {
            flow.reset_peak();
        }
        self.oversize_blocks.reset_peak();
        self.oversize_segments.reset_peak();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.blocks.reset_accumulated();
        self.bytes.reset_accumulated();
        for flow in self.flows() {
            flow.reset_accumulated();
        }
        self.oversize_blocks.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.counts = Counts::default();
    }

    fn flows(&mut self) -> [&mut Flow; 5] {
        [
            &mut self.requested,
            &mut self.parts,
            &mut self.part_bytes,
            &mut self.segments,
            &mut self.reserved,
        ]
    }

    /// As PyTorch shows it.
    pub(super) fn statistics(&self, max_split_size: Option<u64>) -> Statistics {
        let (mut blocks, mut bytes) = (self.blocks, self.bytes);
        blocks.settle();
        bytes.settle();
        let (allocation, active) = blocks.stats();
        let (allocated_bytes, active_bytes) = bytes.stats();
        Statistics {
            allocation,
            segment: self.segments.stat(),
            active,
            inactive_split: self.parts.stat(),
            allocated_bytes,
            reserved_bytes: self.reserved.stat(),
            active_bytes,
            inactive_split_bytes: self.part_bytes.stat(),
            requested_bytes: self.requested.stat(),
            oversize_allocations: self.oversize_blocks,
            oversize_segments: self.oversize_segments,
            num_alloc_retries: self.counts.retries,
            num_ooms: self.counts.ooms,
            num_sync_all_streams: self.counts.syncs,
            num_device_alloc: self.counts.device_allocs,
            num_device_free: self.counts.device_frees,
            num_oom_rejections: self.counts.rejections,
            max_split_size,
            gc_released_blocks: self.gc_released,
            spared_blocks: self.spared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_peaks_apart_from_allocated_while_blocks_wait() {
        let mut tally = Tally::default();
        tally.alloc(LARGE, 100, 90);
        tally.wait(LARGE, 100);
        tally.alloc(SMALL, 10, 9);
        tally.free(SMALL, 10, 9);
        tally.arrive(LARGE, 100, 90);
        let stats = tally.statistics(None);
        assert_eq!(
            stats.allocated_bytes.all,
            Stat { current: 0, peak: 100, allocated: 110, freed: 110 }
        );
        assert_eq!(
            stats.active_bytes.all,
            Stat { current: 0, peak: 110, allocated: 110, freed: 110 }
        );
        assert_eq!(stats.active.all.peak, 2);
        assert_eq!(stats.requested_bytes.all.peak, 99);
        assert_eq!(stats.active_bytes.small_pool.peak, 10);
    }

    #[test]
    fn resets_begin_from_now() {
        let mut tally = Tally::default();
        tally.alloc(LARGE, 100, 90);
        tally.alloc(LARGE, 50, 50);
        tally.free(LARGE, 50, 50);
        tally.reset_peak();
        tally.reset_accumulated();
        tally.free(LARGE, 100, 90);
        let stats = tally.statistics(None);
        assert_eq!(
            stats.allocated_bytes.all,
            Stat { current: 0, peak: 100, allocated: 0, freed: 100 }
        );
        assert_eq!(stats.active_bytes.large_pool, stats.allocated_bytes.large_pool);
    }
}
