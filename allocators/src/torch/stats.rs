//! Statistics exactly as PyTorch counts them, kept lean.
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
//! Sums of decreases are derived from sums of increases. Allocated and active move alike except while blocks wait, so the hot path keeps
//! one peak for both, and [`Tally::settle`] books it whenever the waiting ones change.

/// A counter as PyTorch shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: i64,
    /// Highest value since the last reset of peaks.
    pub peak: i64,
    /// Sum of increases since the last reset of accumulated statistics.
    pub allocated: i64,
    /// Sum of decreases since then.
    pub freed: i64,
}

/// A counter for both pools together and for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatByPool {
    /// Both pools.
    pub all: Stat,
    /// Blocks up to 1 MiB.
    pub small_pool: Stat,
    /// Blocks above.
    pub large_pool: Stat,
}

/// PyTorch's `DeviceStats`, and the blocks that garbage collection released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names are PyTorch's; see `torch.cuda.memory_stats`
pub struct Statistics {
    pub allocation: StatByPool,
    pub segment: StatByPool,
    pub active: StatByPool,
    pub inactive_split: StatByPool,
    pub allocated_bytes: StatByPool,
    pub reserved_bytes: StatByPool,
    pub active_bytes: StatByPool,
    pub inactive_split_bytes: StatByPool,
    pub requested_bytes: StatByPool,
    pub oversize_allocations: Stat,
    pub oversize_segments: Stat,
    pub num_alloc_retries: u64,
    pub num_ooms: u64,
    pub num_sync_all_streams: u64,
    pub num_device_alloc: u64,
    pub num_device_free: u64,
    pub num_oom_rejections: u64,
    /// Split limit in bytes at the start; `None`: no limit.
    pub max_split_size: Option<u64>,
    /// Ours: blocks released by garbage collection.
    pub gc_released_blocks: u64,
    /// Ours: times that an oversize release came to a part of a segment, which PyTorch would free although the rest is in use.
    pub spared_blocks: u64,
}

/// Which of the two kinds of pool.
pub(super) const SMALL: usize = 0;
pub(super) const LARGE: usize = 1;

/// A value that goes up and down.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    now: u64,
    peak: u64,
    /// Sum of increases.
    up: u64,
    /// `now` when `up` was last 0.
    base: u64,
}

impl Flow {
    #[inline]
    fn rise(&mut self, by: u64) {
        self.now += by;
        self.up += by;
        if self.now > self.peak {
            self.peak = self.now;
        }
    }

    #[inline]
    fn fall(&mut self, by: u64) {
        self.now -= by;
    }

    fn reset_accumulated(&mut self) {
        self.up = 0;
        self.base = self.now;
    }

    fn down(&self) -> u64 {
        self.base + self.up - self.now
    }
}

/// Live blocks of a kind of pool. The peaks of the flows are those since the waiting ones last changed.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    flow: Flow,
    /// Freed blocks that wait.
    waiting: u64,
    waiting_base: u64,
    peak: u64,
    active_peak: u64,
}

/// A flow of both pools, and the peak of their sum.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    kinds: [Flow; 2],
    peak: u64,
}

impl Pair {
    #[inline]
    fn rise(&mut self, kind: usize, by: u64) {
        self.kinds[kind].rise(by);
        let sum = self.kinds[SMALL].now + self.kinds[LARGE].now;
        if sum > self.peak {
            self.peak = sum;
        }
    }

    #[inline]
    fn fall(&mut self, kind: usize, by: u64) {
        self.kinds[kind].fall(by);
    }

    fn now(&self) -> u64 {
        self.kinds[SMALL].now + self.kinds[LARGE].now
    }

    fn reset_peak(&mut self) {
        for flow in &mut self.kinds {
            flow.peak = flow.now;
        }
        self.peak = self.now();
    }

    fn reset_accumulated(&mut self) {
        for flow in &mut self.kinds {
            flow.reset_accumulated();
        }
    }

    fn stat(&self) -> StatByPool {
        let of = |flow: &Flow| stat(flow.now, flow.peak, flow.up, flow.down());
        by_pool(of(&self.kinds[SMALL]), of(&self.kinds[LARGE]), self.peak)
    }
}

/// Live blocks of both pools: numbers or bytes.
#[derive(Clone, Copy, Debug, Default)]
struct LivePair {
    kinds: [Live; 2],
    /// Highest sum of both since the waiting ones last changed.
    recent: u64,
    peak: u64,
    active_peak: u64,
}

impl LivePair {
    #[inline]
    fn rise(&mut self, kind: usize, by: u64) {
        self.kinds[kind].flow.rise(by);
        let sum = self.now();
        if sum > self.recent {
            self.recent = sum;
        }
    }

    #[inline]
    fn fall(&mut self, kind: usize, by: u64) {
        self.kinds[kind].flow.fall(by);
    }

    #[inline]
    fn now(&self) -> u64 {
        self.kinds[SMALL].flow.now + self.kinds[LARGE].flow.now
    }

    fn waiting(&self) -> u64 {
        self.kinds[SMALL].waiting + self.kinds[LARGE].waiting
    }

    /// Books the peaks since the last time.
    fn settle(&mut self) {
        self.peak = self.peak.max(self.recent);
        self.active_peak = self.active_peak.max(self.recent + self.waiting());
        self.recent = self.now();
        for live in &mut self.kinds {
            live.peak = live.peak.max(live.flow.peak);
            live.active_peak = live.active_peak.max(live.flow.peak + live.waiting);
            live.flow.peak = live.flow.now;
        }
    }

    fn reset_peak(&mut self) {
        self.settle();
        self.peak = self.now();
        self.active_peak = self.now() + self.waiting();
        for live in &mut self.kinds {
            live.peak = live.flow.now;
            live.active_peak = live.flow.now + live.waiting;
        }
    }

    fn reset_accumulated(&mut self) {
        for live in &mut self.kinds {
            live.flow.reset_accumulated();
            live.waiting_base = live.waiting;
        }
    }

    /// Allocated, active. Call on a settled one.
    fn stats(&self) -> (StatByPool, StatByPool) {
        let allocated =
            |live: &Live| stat(live.flow.now, live.peak, live.flow.up, live.flow.down());
        let active = |live: &Live| {
            let now = live.flow.now + live.waiting;
            let down = live.flow.base + live.waiting_base + live.flow.up - now;
            stat(now, live.active_peak, live.flow.up, down)
        };
        let [small, large] = &self.kinds;
        (
            by_pool(allocated(small), allocated(large), self.peak),
            by_pool(active(small), active(large), self.active_peak),
        )
    }
}

fn stat(current: u64, peak: u64, allocated: u64, freed: u64) -> Stat {
    Stat {
        current: current as i64,
        peak: peak as i64,
        allocated: allocated as i64,
        freed: freed as i64,
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

impl Stat {
    pub(super) fn rise(&mut self, by: i64) {
        self.current += by;
        self.allocated += by;
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn fall(&mut self, by: i64) {
        self.current -= by;
        self.freed += by;
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
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
    blocks: LivePair,
    bytes: LivePair,
    requested: Pair,
    splits: Pair,
    split_bytes: Pair,
    segments: Pair,
    reserved: Pair,
    pub(super) oversize_blocks: Stat,
    pub(super) oversize_segments: Stat,
    pub(super) counts: Counts,
    pub(super) gc_released: u64,
    pub(super) spared: u64,
}

impl Tally {
    /// A block is handed out.
    #[inline]
    pub(super) fn alloc(&mut self, kind: usize, bytes: u64, requested: u64) {
        self.blocks.rise(kind, 1);
        self.bytes.rise(kind, bytes);
        self.requested.rise(kind, requested);
    }

    /// A block comes back at once.
    #[inline]
    pub(super) fn free(&mut self, kind: usize, bytes: u64, requested: u64) {
        self.blocks.fall(kind, 1);
        self.bytes.fall(kind, bytes);
        self.requested.fall(kind, requested);
    }

    fn settle(&mut self) {
        self.blocks.settle();
        self.bytes.settle();
    }

    /// A block is freed, and waits.
    pub(super) fn wait(&mut self, kind: usize, bytes: u64) {
        self.settle();
        for (pair, by) in [(&mut self.blocks, 1), (&mut self.bytes, bytes)] {
            let live = &mut pair.kinds[kind];
            live.flow.now -= by;
            live.waiting += by;
            live.flow.peak = live.flow.now;
            pair.recent = pair.now();
        }
    }

    /// A block that waited comes back.
    pub(super) fn arrive(&mut self, kind: usize, bytes: u64, requested: u64) {
        self.settle();
        self.blocks.kinds[kind].waiting -= 1;
        self.bytes.kinds[kind].waiting -= bytes;
        self.requested.fall(kind, requested);
    }

    /// Net change of free pieces in split segments.
    #[inline]
    pub(super) fn splits(&mut self, kind: usize, blocks: i32, bytes: i64) {
        match blocks {
            1.. => self.splits.rise(kind, blocks as u64),
            0 => {}
            _ => self.splits.fall(kind, u64::from(blocks.unsigned_abs())),
        }
        if bytes > 0 {
            self.split_bytes.rise(kind, bytes as u64);
        } else {
            self.split_bytes.fall(kind, bytes.unsigned_abs());
        }
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
        self.bytes.now()
    }

    #[inline]
    pub(super) fn active(&self) -> u64 {
        self.bytes.now() + self.bytes.waiting()
    }

    #[inline]
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.now()
    }

    pub(super) fn reset_peak(&mut self) {
        self.blocks.reset_peak();
        self.bytes.reset_peak();
        for pair in self.pairs() {
            pair.reset_peak();
        }
        self.oversize_blocks.reset_peak();
        self.oversize_segments.reset_peak();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.blocks.reset_accumulated();
        self.bytes.reset_accumulated();
        for pair in self.pairs() {
            pair.reset_accumulated();
        }
        self.oversize_blocks.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.counts = Counts::default();
    }

    fn pairs(&mut self) -> [&mut Pair; 5] {
        [
            &mut self.requested,
            &mut self.splits,
            &mut self.split_bytes,
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
            inactive_split: self.splits.stat(),
            allocated_bytes,
            reserved_bytes: self.reserved.stat(),
            active_bytes,
            inactive_split_bytes: self.split_bytes.stat(),
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

impl Statistics {
    /// The main ones, named.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let of = |value: i64| value.max(0) as u64;
        vec![
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
            ("gc_released_blocks", self.gc_released_blocks),
            ("spared_blocks", self.spared_blocks),
            ("torch.requested", of(self.requested_bytes.all.current)),
            ("torch.requested_peak", of(self.requested_bytes.all.peak)),
            ("allocated_peak", of(self.allocated_bytes.all.peak)),
            ("active_peak", of(self.active_bytes.all.peak)),
            ("reserved_peak", of(self.reserved_bytes.all.peak)),
            ("inactive_split_bytes", of(self.inactive_split_bytes.all.current)),
            ("inactive_split_bytes_peak", of(self.inactive_split_bytes.all.peak)),
            ("inactive_split_blocks", of(self.inactive_split.all.current)),
            ("segments", of(self.segment.all.current)),
            ("active_blocks", of(self.active.all.current)),
            ("oversize_allocations", of(self.oversize_allocations.current)),
            ("oversize_segments", of(self.oversize_segments.current)),
        ]
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
