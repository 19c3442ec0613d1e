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
//!
//! A value is kept as its peak and its **room** below the peak: going up takes room away, and only when there is none left, which is rare,
//! the peak moves. So one subtraction both changes a value and looks at its peak. Sums of decreases follow from sums of increases.
//! Allocated and active move alike except while blocks wait, so the hot path keeps one peak for both, and [`Tally::settle`] books it
//! whenever the waiting ones change.

use super::statistics::{Stat, StatByPool, Statistics};

/// Which of the two kinds of pool.
pub(super) const SMALL: usize = 0;
pub(super) const LARGE: usize = 1;

/// A value that goes up and down.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    peak: u64,
    /// Peak less value.
    room: u64,
}

impl Level {
    #[inline(always)]
    fn now(self) -> u64 {
        self.peak - self.room
    }

    #[inline(always)]
    fn rise(&mut self, by: u64) {
        let (room, passed) = self.room.overflowing_sub(by);
        self.room = room;
        if passed {
            self.new_peak();
        }
    }

    #[cold]
    fn new_peak(&mut self) {
        self.peak = self.peak.wrapping_sub(self.room);
        self.room = 0;
    }

    #[inline(always)]
    fn fall(&mut self, by: u64) {
        self.room += by;
    }

    /// The peak becomes the present value.
    #[inline]
    fn reset(&mut self) {
        *self = Self { peak: self.now(), room: 0 };
    }
}

/// A value of both pools together and of each.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    all: Level,
    kinds: [Level; 2],
    /// Sums of increases, and the values when those were last 0.
    up: [u64; 2],
    base: [u64; 2],
}

impl Flow {
    #[inline(always)]
    fn rise(&mut self, kind: usize, by: u64) {
        self.kinds[kind].rise(by);
        self.all.rise(by);
        self.up[kind] += by;
    }

    #[inline(always)]
    fn fall(&mut self, kind: usize, by: u64) {
        self.kinds[kind].fall(by);
        self.all.fall(by);
    }

    fn reset_peak(&mut self) {
        self.all.reset();
        self.kinds.iter_mut().for_each(Level::reset);
    }

    fn reset_accumulated(&mut self) {
        self.up = [0; 2];
        self.base = self.kinds.map(Level::now);
    }

    fn stat(&self) -> StatByPool {
        let of = |kind: usize| {
            let level = self.kinds[kind];
            stat(level.now(), level.peak, self.up[kind], self.base[kind])
        };
        by_pool(of(SMALL), of(LARGE), self.all.peak)
    }
}

/// Peaks of allocated and of active values.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    allocated: u64,
    active: u64,
}

impl Peaks {
    #[inline]
    fn raise(&mut self, recent: u64, waiting: u64) {
        self.allocated = self.allocated.max(recent);
        self.active = self.active.max(recent + waiting);
    }
}

/// Live blocks: their number, or their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    /// Its peaks are those since the waiting ones last changed.
    flow: Flow,
    /// Freed, but waiting.
    waiting: [u64; 2],
    waiting_base: [u64; 2],
    all: Peaks,
    kinds: [Peaks; 2],
}

impl Live {
    #[inline]
    fn all_waiting(&self) -> u64 {
        self.waiting[SMALL] + self.waiting[LARGE]
    }

    /// Books the peaks since the last time.
    fn settle(&mut self) {
        self.settle_kind(SMALL);
        self.settle_kind(LARGE);
    }

    /// Books the peaks of both pools together, and of one.
    #[inline]
    fn settle_kind(&mut self, kind: usize) {
        self.all.raise(self.flow.all.peak, self.all_waiting());
        self.kinds[kind].raise(self.flow.kinds[kind].peak, self.waiting[kind]);
        self.flow.all.reset();
        self.flow.kinds[kind].reset();
    }

    #[inline]
    fn wait(&mut self, kind: usize, by: u64) {
        self.settle_kind(kind);
        self.flow.fall(kind, by);
        self.waiting[kind] += by;
        self.flow.all.reset();
        self.flow.kinds[kind].reset();
    }

    #[inline]
    fn arrive(&mut self, kind: usize, by: u64) {
        self.settle_kind(kind);
        self.waiting[kind] -= by;
    }

    fn reset_peak(&mut self) {
        self.all = Peaks::default();
        self.kinds = [Peaks::default(); 2];
        self.flow.reset_peak();
        self.settle();
    }

    fn reset_accumulated(&mut self) {
        self.flow.reset_accumulated();
        self.waiting_base = self.waiting;
    }

    /// Allocated, active. Call on a settled one.
    fn stats(&self) -> (StatByPool, StatByPool) {
        let allocated = |kind: usize| {
            let flow = &self.flow;
            stat(flow.kinds[kind].now(), self.kinds[kind].allocated, flow.up[kind], flow.base[kind])
        };
        let active = |kind: usize| {
            let now = self.flow.kinds[kind].now() + self.waiting[kind];
            let base = self.flow.base[kind] + self.waiting_base[kind];
            stat(now, self.kinds[kind].active, self.flow.up[kind], base)
        };
        (
            by_pool(allocated(SMALL), allocated(LARGE), self.all.allocated),
            by_pool(active(SMALL), active(LARGE), self.all.active),
        )
    }
}

fn stat(current: u64, peak: u64, up: u64, base: u64) -> Stat {
    Stat {
        current: current as i64,
        peak: peak as i64,
        allocated: up as i64,
        freed: (base + up - current) as i64,
    }
}

fn by_pool(small: Stat, large: Stat, peak: u64) -> StatByPool {
    let all = Stat {
        current: small.current + large.current,
        peak: peak as i64,
        allocated: small.allocated + large.allocated,
        freed: small.freed + large.freed,
    };
    StatByPool { all, small_pool: small, large_pool: large }
}

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
