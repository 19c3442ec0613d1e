//! The allocator's own statistics: each counter has a current value, a peak, and the sums of its increases and decreases.

/// One counter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) current: i64,
    pub(crate) peak: i64,
    pub(crate) allocated: i64,
    pub(crate) freed: i64,
}

impl Counter {
    pub(crate) fn increase(&mut self, by: i64) {
        self.current += by;
        self.peak = self.peak.max(self.current);
        self.allocated += by;
    }

    pub(crate) fn decrease(&mut self, by: i64) {
        self.current -= by;
        self.freed += by;
    }

    fn flatten(&self, name: &str, out: &mut Vec<(String, i64)>) {
        let values = [
            ("current", self.current),
            ("peak", self.peak),
            ("allocated", self.allocated),
            ("freed", self.freed),
        ];
        out.extend(values.map(|(key, value)| (format!("{name}.{key}"), value)));
    }
}

/// A counter kept for all pools together, for the small ones and for the large ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByPool {
    pub(crate) all: Counter,
    pub(crate) small: Counter,
    pub(crate) large: Counter,
}

impl ByPool {
    fn part(&mut self, small: bool) -> &mut Counter {
        if small { &mut self.small } else { &mut self.large }
    }

    pub(crate) fn increase(&mut self, small: bool, by: u64) {
        let by = i64::try_from(by).expect("a size that was given out");
        self.all.increase(by);
        self.part(small).increase(by);
    }

    pub(crate) fn decrease(&mut self, small: bool, by: u64) {
        let by = i64::try_from(by).expect("a size that was given out");
        self.all.decrease(by);
        self.part(small).decrease(by);
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) allocation: ByPool,
    pub(crate) segment: ByPool,
    pub(crate) active: ByPool,
    pub(crate) inactive_split: ByPool,
    pub(crate) allocated_bytes: ByPool,
    pub(crate) reserved_bytes: ByPool,
    pub(crate) active_bytes: ByPool,
    pub(crate) inactive_split_bytes: ByPool,
    pub(crate) requested_bytes: ByPool,
    pub(crate) oversize_allocations: Counter,
    pub(crate) oversize_segments: Counter,
    pub(crate) num_alloc_retries: i64,
    pub(crate) num_ooms: i64,
    pub(crate) num_sync_all_streams: i64,
    pub(crate) num_device_alloc: i64,
    pub(crate) num_device_free: i64,
    pub(crate) num_oom_rejections: i64,
}

impl Stats {
    fn by_pool(&self) -> [(&'static str, ByPool); 9] {
        [
            ("allocation", self.allocation),
            ("segment", self.segment),
            ("active", self.active),
            ("inactive_split", self.inactive_split),
            ("allocated_bytes", self.allocated_bytes),
            ("reserved_bytes", self.reserved_bytes),
            ("active_bytes", self.active_bytes),
            ("inactive_split_bytes", self.inactive_split_bytes),
            ("requested_bytes", self.requested_bytes),
        ]
    }

    fn counters_mut(&mut self) -> Vec<&mut Counter> {
        let arrays = [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ];
        let mut counters = vec![&mut self.oversize_allocations, &mut self.oversize_segments];
        counters.extend(arrays.into_iter().flat_map(|a| [&mut a.all, &mut a.small, &mut a.large]));
        counters
    }

    pub(crate) fn reset_peak(&mut self) {
        for counter in self.counters_mut() {
            counter.peak = counter.current;
        }
    }

    pub(crate) fn reset_accumulated(&mut self) {
        for counter in self.counters_mut() {
            counter.allocated = 0;
            counter.freed = 0;
        }
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
        self.num_oom_rejections = 0;
    }

    /// Every counter under its name in `final.json`, levels joined by a dot.
    pub(crate) fn flatten(&self) -> Vec<(String, i64)> {
        let mut out = Vec::new();
        for (name, array) in self.by_pool() {
            array.all.flatten(&format!("{name}.all"), &mut out);
            array.small.flatten(&format!("{name}.small_pool"), &mut out);
            array.large.flatten(&format!("{name}.large_pool"), &mut out);
        }
        self.oversize_allocations.flatten("oversize_allocations", &mut out);
        self.oversize_segments.flatten("oversize_segments", &mut out);
        let plain = [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
        ];
        out.extend(plain.map(|(name, value)| (name.to_owned(), value)));
        out
    }
}
