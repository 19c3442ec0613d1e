//! Statistics as PyTorch shows them (`torch.cuda.memory_stats`), for tests and tables.

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

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
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
