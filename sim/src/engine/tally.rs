//! Keeps the figures while a run goes.

use rustc_hash::FxHashMap;

use crate::allocator::{AllocError, Allocator, BlockState, Layout, Usage};
use crate::kv::KvError;
use crate::machine::{Held, Machine, Memory};
use crate::op::Op;
use crate::race::RaceFinder;
use crate::report::{Done, Figures, KvFigures, Level, MarkFigures, REQUESTS_KEPT, Report, Spread};
use crate::units::{DeviceId, Nanos};

/// Figures so far.
pub(super) struct Tally {
    pub(super) devices: Vec<Figures>,
    /// Of all devices together, where there are several.
    total: Figures,
    pub(super) kv: KvFigures,
    host_ns: u64,
    memory: Memory,
    allocs: u64,
    ooms: u64,
    invalid_sizes: u64,
    /// Op, device and words of the first refusal.
    first_oom: Option<(u64, DeviceId, String)>,
    alloc_ns: Spread,
    stall_ns: Spread,
    stall_total: u64,
    lock_ns: Spread,
    lock_total: u64,
    request_ns: Spread,
    requests: FxHashMap<u64, Nanos>,
    done: Vec<Done>,
    counters: Vec<(&'static str, u64)>,
    unsupported: Vec<(&'static str, u64)>,
    free_bytes: u64,
    largest_free: u64,
    keep_marks: bool,
    marks: Vec<MarkFigures>,
}

impl Tally {
    pub(super) fn new(devices: usize, host_ns: u64, memory: Memory, keep_marks: bool) -> Self {
        Self {
            devices: vec![Figures::default(); devices],
            total: Figures::default(),
            kv: KvFigures::default(),
            host_ns,
            memory,
            allocs: 0,
            ooms: 0,
            invalid_sizes: 0,
            first_oom: None,
            alloc_ns: Spread::new(host_ns),
            stall_ns: Spread::new(0),
            stall_total: 0,
            lock_ns: Spread::new(0),
            lock_total: 0,
            request_ns: Spread::new(0),
            requests: FxHashMap::default(),
            done: Vec::new(),
            counters: Vec::new(),
            unsupported: Vec::new(),
            free_bytes: 0,
            largest_free: 0,
            keep_marks,
            marks: Vec::new(),
        }
    }

    /// Buffers that are live at the start, on device 0.
    pub(super) fn adopt(
        &mut self,
        requested: &[u64],
        strategies: &[Box<dyn Allocator>],
        machine: &dyn Machine,
    ) {
        requested.iter().for_each(|size| self.requested(DeviceId(0), *size));
        if let Some(strategy) = strategies.first() {
            self.account(DeviceId(0), strategy.usage(), machine.held());
        }
    }

    #[inline]
    pub(super) fn requested(&mut self, device: DeviceId, size: u64) {
        self.wanted(device, size);
        self.each(device, |figures| {
            figures.requested.set(figures.requested.current.saturating_add(size));
        });
    }

    #[inline]
    pub(super) fn released(&mut self, device: DeviceId, size: u64) {
        self.given_up(device, size);
        self.each(device, |figures| {
            figures.requested.current = figures.requested.current.saturating_sub(size);
        });
    }

    /// A request, served or not.
    #[inline]
    pub(super) fn wanted(&mut self, device: DeviceId, size: u64) {
        self.each(device, |figures| {
            figures.demand.set(figures.demand.current.saturating_add(size));
        });
    }

    /// A buffer is freed, or would be if its request had been served.
    #[inline]
    pub(super) fn given_up(&mut self, device: DeviceId, size: u64) {
        self.each(device, |figures| {
            figures.demand.current = figures.demand.current.saturating_sub(size);
        });
    }

    /// The device's figures, and those of all together.
    #[inline]
    fn each(&mut self, device: DeviceId, change: impl Fn(&mut Figures)) {
        change(&mut self.devices[usize::from(device.0)]);
        if self.devices.len() > 1 {
            change(&mut self.total);
        }
    }

    #[inline]
    pub(super) fn account(&mut self, device: DeviceId, usage: Usage, held: Held) {
        let (reserved, peak_reserved) = held.of(self.memory);
        let now = Holding {
            usage,
            reserved: Level { current: reserved, peak: peak_reserved },
            device_used: Level { current: held.device_used, peak: held.peak_device_used },
        };
        if self.devices.len() > 1 {
            let now = now.with_others(&self.devices, usize::from(device.0));
            now.note(&mut self.total);
        }
        now.note(&mut self.devices[usize::from(device.0)]);
    }

    #[inline]
    pub(super) fn alloc_took(&mut self, ns: u64) {
        self.allocs += 1;
        self.alloc_ns.record(ns);
        self.stalled(ns - self.host_ns.min(ns));
    }

    #[inline]
    pub(super) fn free_took(&mut self, ns: u64) {
        self.stalled(ns - self.host_ns.min(ns));
    }

    #[inline]
    pub(super) fn stalled(&mut self, ns: u64) {
        self.stall_ns.record(ns);
        self.stall_total += ns;
    }

    pub(super) fn lock_waited(&mut self, ns: u64) {
        self.lock_ns.record(ns);
        self.lock_total += ns;
    }

    pub(super) fn refused(&mut self, op: u64, device: DeviceId, error: &AllocError) {
        if matches!(error, AllocError::InvalidSize { .. }) {
            self.invalid_sizes += 1;
        } else {
            self.ooms += 1;
        }
        self.first_oom.get_or_insert_with(|| (op, device, error.to_string()));
    }

    pub(super) fn kv_refused(
        &mut self,
        (index, op): (u64, &Op),
        device: DeviceId,
        error: &KvError,
    ) {
        if matches!(op, Op::KvMore { .. }) {
            self.kv.refused_tokens += 1;
        } else {
            self.kv.refused_sequences += 1;
        }
        if error.is_limit() {
            self.invalid_sizes += 1;
        } else {
            self.ooms += 1;
        }
        self.first_oom.get_or_insert_with(|| (index, device, error.to_string()));
    }

    pub(super) fn unsupported(&mut self, op: &'static str) {
        add(&mut self.unsupported, op, 1);
    }

    pub(super) fn request(&mut self, req: u64, now: Nanos) {
        self.requests.insert(req, now);
    }

    pub(super) fn response(&mut self, req: u64, now: Nanos) {
        if let Some(arrival) = self.requests.remove(&req) {
            self.request_ns.record(now.0 - arrival.0);
            if self.done.len() < REQUESTS_KEPT {
                self.done.push(Done { number: req, arrival, first: now, last: now, outputs: 0 });
            }
        }
    }

    pub(super) fn mark(&mut self, name: &str, op: u64, time: Nanos, device: DeviceId) {
        if self.keep_marks {
            let figures = self.devices[usize::from(device.0)];
            let kv_blocks = (self.kv.blocks_used.current, self.kv.blocks_free);
            self.marks.push(MarkFigures { name: name.to_owned(), op, time, figures, kv_blocks });
        }
    }

    pub(super) fn counters(&mut self, counters: &[(&'static str, u64)]) {
        counters.iter().for_each(|(name, value)| add(&mut self.counters, name, *value));
    }

    pub(super) fn layout(&mut self, layout: &Layout) {
        for block in
            layout.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state == BlockState::Free)
        {
            self.free_bytes += block.size;
            self.largest_free = self.largest_free.max(block.size);
        }
    }

    pub(super) fn finish(
        self,
        ops: u64,
        gaps: u64,
        machine: &dyn Machine,
        races: RaceFinder,
    ) -> Report {
        let first = self.first_oom.as_ref();
        let (first_oom_op, first_oom_device) = first.map(|(op, device, _)| (*op, *device)).unzip();
        let external_frag =
            (self.free_bytes > 0).then(|| 1.0 - self.largest_free as f64 / self.free_bytes as f64);
        let total = if self.devices.len() == 1 { self.devices[0] } else { self.total };
        Report {
            ops,
            allocs: self.allocs,
            ooms: self.ooms,
            invalid_sizes: self.invalid_sizes,
            first_oom_op,
            first_oom_device,
            first_oom: self.first_oom.map(|(_, _, words)| words),
            devices: self.devices,
            total,
            kv: (self.kv != KvFigures::default()).then_some(self.kv),
            external_frag,
            alloc_ns: self.alloc_ns.summary(),
            stall_ns: self.stall_ns.summary(),
            stall_total: Nanos(self.stall_total),
            lock_ns: self.lock_ns.summary(),
            lock_total: Nanos(self.lock_total),
            request_ns: self.request_ns.summary(),
            served: None,
            answers: None,
            done: self.done,
            time: machine.now(),
            driver_calls: machine.calls(),
            driver_work: machine.driver_work(),
            counters: self.counters,
            marks: self.marks,
            races: races.found,
            race_count: races.count,
            trace_gaps: gaps,
            unsupported: self.unsupported,
        }
    }
}

/// What is held after an op; the peaks are those within it.
#[derive(Clone, Copy)]
struct Holding {
    usage: Usage,
    reserved: Level,
    device_used: Level,
}

impl Holding {
    /// With what the other devices hold meanwhile.
    fn with_others(mut self, devices: &[Figures], this: usize) -> Self {
        // A machine's peak is the highest of the whole run: only a new one happened in this op.
        let new =
            |now: Level, before: Level| if now.peak > before.peak { now.peak } else { now.current };
        self.reserved.peak = new(self.reserved, devices[this].reserved);
        self.device_used.peak = new(self.device_used, devices[this].device_used);
        for (_, other) in devices.iter().enumerate().filter(|(i, _)| *i != this) {
            self.usage.allocated += other.allocated.current;
            self.usage.active += other.active.current;
            for (mine, theirs) in [
                (&mut self.reserved, other.reserved.current),
                (&mut self.device_used, other.device_used.current),
            ] {
                mine.current += theirs;
                mine.peak += theirs;
            }
        }
        self
    }

    #[inline]
    fn note(self, figures: &mut Figures) {
        let Self { usage, reserved, device_used } = self;
        figures.allocated.set(usage.allocated);
        figures.active.set(usage.active);
        if reserved.peak > figures.reserved.peak {
            figures.requested_at_peak_reserved = figures.requested.current;
            figures.allocated_at_peak_reserved = usage.allocated;
            figures.active_at_peak_reserved = usage.active;
            figures.reserved.peak = reserved.peak;
        }
        figures.reserved.current = reserved.current;
        figures.device_used.current = device_used.current;
        figures.device_used.peak = figures.device_used.peak.max(device_used.peak);
    }
}

fn add(list: &mut Vec<(&'static str, u64)>, name: &'static str, value: u64) {
    match list.iter_mut().find(|(n, _)| *n == name) {
        Some((_, total)) => *total += value,
        None => list.push((name, value)),
    }
}
