//! What a run gave, as it is printed and written: one object per run.

use std::collections::BTreeMap;

use serde::Serialize;
use vramlab_sim::driver::MEMORY_CALLS;
use vramlab_sim::report::{
    Answers, Figures, KvFigures, MarkFigures, REQUESTS_KEPT, Report, Served, Summary,
};
use vramlab_sim::units::Bytes;

use crate::statistics::{Steady, WarmUp};

/// Version of the object's shape; rises when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Marks whose figures a row keeps; later ones are left out, and a note says so.
pub const MARKS_KEPT: usize = 1000;

/// Figures at a mark of the workload: bytes then, and highest bytes up to then, of the device that was current.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Mark {
    pub name: String,
    pub op: u64,
    pub time_ns: u64,
    pub requested: u64,
    pub allocated: u64,
    pub active: u64,
    pub reserved: u64,
    pub peak_requested: u64,
    pub peak_allocated: u64,
    pub peak_active: u64,
    pub peak_reserved: u64,
    /// Blocks of the caches in use then; not there where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_blocks_used: Option<u64>,
    /// Blocks that were ready to be handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_blocks_free: Option<u64>,
}

impl From<&MarkFigures> for Mark {
    fn from(mark: &MarkFigures) -> Self {
        let f = &mark.figures;
        let blocks = (mark.kv_blocks != (0, 0)).then_some(mark.kv_blocks);
        Self {
            name: mark.name.clone(),
            op: mark.op,
            time_ns: mark.time.0,
            requested: f.requested.current,
            allocated: f.allocated.current,
            active: f.active.current,
            reserved: f.reserved.current,
            peak_requested: f.requested.peak,
            peak_allocated: f.allocated.peak,
            peak_active: f.active.peak,
            peak_reserved: f.reserved.peak,
            kv_blocks_used: blocks.map(|blocks| blocks.0),
            kv_blocks_free: blocks.map(|blocks| blocks.1),
        }
    }
}

/// One run. Sizes are bytes, times ns, ratios plain numbers; `null` where a figure does not apply.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)] // names and definitions: vramlab_sim::report
pub struct Row {
    pub schema: u32,
    pub vramlab: &'static str,
    pub input: String,
    pub strategy: String,
    pub options: BTreeMap<String, String>,
    pub device: String,
    pub cost_table: String,
    pub capacity: u64,
    pub seed: Option<u64>,
    /// `none` (one op right after the other), `recorded` (a recording's own gaps, with its driver stalls in them), `as given`.
    pub times: &'static str,
    /// What the input's times rest on, where that is not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumes: Option<&'static str>,
    pub ops: u64,
    pub allocs: u64,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub first_oom_op: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_oom: Option<String>,
    /// Where there are several devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_oom_device: Option<u16>,
    pub ooms: u64,
    pub invalid_sizes: u64,
    pub alloc_retries: Option<u64>,
    /// Under tiering.
    pub resident: Option<u64>,
    pub peak_resident: Option<u64>,
    pub live_floor: u64,
    /// Of the device on which it is highest. Figures are of all devices together unless they say otherwise, a capacity is of each.
    pub live_floor_of_one: u64,
    pub peak_requested: u64,
    pub peak_allocated: u64,
    pub peak_active: u64,
    pub peak_reserved: u64,
    pub peak_device_used: u64,
    /// At its peak, of the device on which that is highest.
    pub device_used_of_one: u64,
    pub requested: u64,
    pub allocated: u64,
    pub active: u64,
    pub reserved: u64,
    pub device_used: u64,
    pub requested_at_peak_reserved: u64,
    pub allocated_at_peak_reserved: u64,
    pub active_at_peak_reserved: u64,
    /// Searched for only if asked for.
    pub min_capacity: Option<u64>,
    pub overhead: Option<f64>,
    pub utilisation: Option<f64>,
    pub fragmentation: Option<f64>,
    pub internal_frag: Option<f64>,
    pub external_frag: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvRow>,
    pub alloc_ns: Summary,
    pub stall_ns: Summary,
    pub stall_total_ns: u64,
    /// Waits of host threads for the lock of a shared pool.
    pub lock_ns: Option<Summary>,
    pub lock_total_ns: u64,
    pub request_ns: Option<Summary>,
    /// What a server counted of its requests. Names and definitions: `vramlab_sim::report::Served`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
    /// What a service that may refuse to answer counted. Names and definitions: `vramlab_sim::report::Answers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// Latencies of its steady state with 95 % confidence intervals; not there for few requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    pub time_ns: u64,
    pub driver_calls: BTreeMap<&'static str, u64>,
    /// How often pools of the driver took and gave back memory; not there where none did.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub driver_pools: BTreeMap<&'static str, u64>,
    /// Faults and moves of managed memory; not there where none was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub managed: BTreeMap<&'static str, u64>,
    pub counters: BTreeMap<&'static str, u64>,
    pub races: u64,
    pub trace_gaps: u64,
    pub unsupported: BTreeMap<&'static str, u64>,
    /// Of each device that was asked for memory, by its number; not there where only one was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<u16, OneDevice>,
    pub notes: Vec<String>,
    pub marks: Vec<Mark>,
}

/// Of one of several devices. Names and definitions: `vramlab_sim::report::Figures`.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct OneDevice {
    pub live_floor: u64,
    pub peak_requested: u64,
    pub peak_allocated: u64,
    pub peak_reserved: u64,
    pub peak_device_used: u64,
}

impl OneDevice {
    fn new(f: &Figures) -> Self {
        Self {
            live_floor: f.live_floor(),
            peak_requested: f.requested.peak,
            peak_allocated: f.allocated.peak,
            peak_reserved: f.reserved.peak,
            peak_device_used: f.device_used.peak,
        }
    }
}

/// Of the caches of a run with sequences. Names and definitions: `vramlab_sim::report::KvFigures`.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct KvRow {
    pub peak_sequences: u64,
    pub refused_sequences: u64,
    pub refused_tokens: u64,
    pub peak_tokens: u64,
    pub peak_filled: u64,
    pub looked_up: u64,
    pub hit: u64,
    pub hit_rate: Option<f64>,
    pub waits: u64,
    pub peak_blocks_used: u64,
    pub blocks_used: u64,
    pub blocks_free: u64,
    pub blocks_cached: u64,
}

impl KvRow {
    fn new(kv: &KvFigures) -> Self {
        Self {
            peak_sequences: kv.sequences.peak,
            refused_sequences: kv.refused_sequences,
            refused_tokens: kv.refused_tokens,
            peak_tokens: kv.tokens.peak,
            peak_filled: kv.filled.peak,
            looked_up: kv.looked_up,
            hit: kv.hit,
            hit_rate: kv.hit_rate(),
            waits: kv.waits,
            peak_blocks_used: kv.blocks_used.peak,
            blocks_used: kv.blocks_used.current,
            blocks_free: kv.blocks_free,
            blocks_cached: kv.blocks_cached.current,
        }
    }
}

impl Row {
    /// An empty row: who ran on what.
    pub fn new(input: &str, strategy: &str) -> Self {
        Self {
            schema: SCHEMA,
            vramlab: env!("CARGO_PKG_VERSION"),
            input: input.to_owned(),
            strategy: strategy.to_owned(),
            outcome: "skipped",
            ..Self::default()
        }
    }

    /// A pair that was left out.
    pub fn skipped(mut self, reason: impl Into<String>) -> Self {
        self.outcome = "skipped";
        self.reason = Some(reason.into());
        self
    }

    /// A run that the driver or the strategy ended.
    pub fn ended(mut self, reason: impl Into<String>) -> Self {
        self.outcome = "driver_error";
        self.reason = Some(reason.into());
        self
    }

    /// Did the driver or the strategy end it?
    pub fn broke(&self) -> bool {
        self.outcome == "driver_error"
    }

    /// Requests that were not served, for want of memory or since no memory has that size.
    pub fn failed(&self) -> u64 {
        self.ooms + self.invalid_sizes
    }

    /// Was it run to its end?
    pub fn ran(&self) -> bool {
        matches!(self.outcome, "ok" | "oom")
    }

    /// Number of driver calls that give, take or map memory.
    pub fn memory_calls(&self) -> u64 {
        self.driver_calls
            .iter()
            .filter(|(name, _)| MEMORY_CALLS.contains(name))
            .map(|(_, n)| n)
            .sum()
    }

    /// Fills in what the run gave.
    pub fn fill(mut self, report: &Report, warm_up: WarmUp) -> Self {
        let f = report.total;
        self.ops = report.ops;
        self.allocs = report.allocs;
        // a server that turns away who is over a limit does what it should
        let over_limits = if report.served.is_some() { 0 } else { report.invalid_sizes };
        self.outcome = if report.ooms + over_limits > 0 { "oom" } else { "ok" };
        self.first_oom_op = report.first_oom_op;
        self.first_oom = report.first_oom.clone();
        self.ooms = report.ooms;
        self.invalid_sizes = report.invalid_sizes;
        self.alloc_retries = report.counter("num_alloc_retries");
        self.resident = report.counter("resident");
        self.peak_resident = report.counter("peak_resident");
        self.live_floor = f.live_floor();
        let of_one = |figure: fn(&Figures) -> u64| report.devices.iter().map(figure).max();
        self.live_floor_of_one = of_one(Figures::live_floor).unwrap_or(0);
        self.device_used_of_one = of_one(|f| f.device_used.peak).unwrap_or(0);
        let asked = |f: &Figures| f.live_floor() > 0 || f.reserved.peak > 0;
        let asked = (0..).zip(&report.devices).filter(|(_, f)| asked(f));
        self.devices = asked.map(|(number, f)| (number, OneDevice::new(f))).collect();
        if self.devices.len() < 2 {
            self.devices.clear();
        } else {
            self.first_oom_device = report.first_oom_device.map(|device| device.0);
        }
        (self.peak_requested, self.requested) = (f.requested.peak, f.requested.current);
        (self.peak_allocated, self.allocated) = (f.allocated.peak, f.allocated.current);
        (self.peak_active, self.active) = (f.active.peak, f.active.current);
        (self.peak_reserved, self.reserved) = (f.reserved.peak, f.reserved.current);
        (self.peak_device_used, self.device_used) = (f.device_used.peak, f.device_used.current);
        self.requested_at_peak_reserved = f.requested_at_peak_reserved;
        self.allocated_at_peak_reserved = f.allocated_at_peak_reserved;
        self.active_at_peak_reserved = f.active_at_peak_reserved;
        // the floor counts what was refused too: a run that refused something did not serve it
        self.overhead = f.overhead().filter(|_| report.ooms + report.invalid_sizes == 0);
        self.utilisation = f.utilisation();
        self.fragmentation = f.fragmentation();
        self.kv = report.kv.as_ref().map(KvRow::new);
        if let Some((said, used)) = report.kv.and_then(|kv| kv.token_bytes_differ) {
            self.notes.push(format!(
                "keys and values of a token take {used} B in the cache (token_bytes), {said} B as the workload says"
            ));
        }
        self.internal_frag =
            report.kv.as_ref().map_or_else(|| f.internal_frag(), KvFigures::internal_frag);
        self.external_frag = report.external_frag;
        self.alloc_ns = report.alloc_ns;
        self.stall_ns = report.stall_ns;
        self.stall_total_ns = report.stall_total.0;
        self.lock_ns = (report.lock_ns.count > 0).then_some(report.lock_ns);
        self.lock_total_ns = report.lock_total.0;
        if report.lock_ns.count > 0 {
            self.notes.push(format!(
                "host threads waited {} times for the pool's lock, {:.3} ms in all",
                report.lock_ns.count,
                report.lock_total.0 as f64 / 1e6
            ));
        }
        self.request_ns = (report.request_ns.count > 0).then_some(report.request_ns);
        self.served = report.served;
        self.answers = report.answers;
        if report.request_ns.count == report.done.len() as u64 {
            self.steady = Steady::of(&report.done, warm_up);
        } else if report.request_ns.count > 0 {
            self.notes.push(format!(
                "no steady state is looked for: of {} requests the times of the first {REQUESTS_KEPT} are kept",
                report.request_ns.count
            ));
        }
        self.time_ns = report.time.0;
        self.driver_calls = report.driver_calls.iter().collect();
        let work = report.driver_work;
        let pools = [("growths", work.pool_growths), ("releases", work.pool_releases)];
        self.driver_pools = pools.into_iter().filter(|(_, n)| *n > 0).collect();
        self.managed = work.managed.named().into_iter().filter(|(_, n)| *n > 0).collect();
        self.counters = report.counters.iter().copied().collect();
        self.races = report.race_count;
        self.trace_gaps = report.trace_gaps;
        self.unsupported = report.unsupported.iter().copied().collect();
        self.marks = report.marks.iter().take(MARKS_KEPT).map(Mark::from).collect();
        self.note_what_is_left_out(report);
        self.note_that_nobody_is_served(report);
        self
    }

    /// A server that answers nobody for want of memory: why.
    fn note_that_nobody_is_served(&mut self, report: &Report) {
        let nobody = |served: &Served| served.finished == 0 && served.refused_memory > 0;
        if !report.served.as_ref().is_some_and(nobody) {
            return;
        }
        // a cache may have no blocks for other reasons, which its refusal tells
        let full = report.first_oom.as_deref().is_none_or(|words| words.ends_with(" 0 free"));
        let no_blocks =
            full && report.kv.is_some_and(|kv| kv.blocks_used.peak + kv.blocks_free == 0);
        let (model, capacity) = (Bytes(report.total.requested.peak), Bytes(self.capacity));
        self.notes.push(match &report.first_oom {
            _ if no_blocks => format!(
                "nobody is served: weights and activations ({model}) leave nothing of the cache's share of the device ({capacity}); give the cache a larger share (gpu_memory_utilization, mem_fraction_static), or take a larger device or a smaller model"
            ),
            Some(words) => format!("nobody is served: {words}"),
            None => "nobody is served".to_owned(),
        });
    }

    fn note_what_is_left_out(&mut self, report: &Report) {
        if !report.unsupported.is_empty() {
            let counts: Vec<String> =
                report.unsupported.iter().map(|(op, count)| format!("{count} {op}")).collect();
            self.notes
                .push(format!("{} ops did nothing: the strategy has none", counts.join(", ")));
        }
        if report.marks.len() > MARKS_KEPT {
            let all = report.marks.len();
            self.notes
                .push(format!("the figures at the first {MARKS_KEPT} of {all} marks are kept"));
        }
        if report.total.live_floor() == u64::MAX {
            let cut = "the sum of live requests passed 2^64 bytes: the live floor is cut there";
            self.notes.push(cut.to_owned());
        }
    }
}
