//! What a run gave, as it is printed and written: one object per run.

use std::collections::BTreeMap;

use serde::Serialize;
use vramlab_sim::report::{Report, Summary};

/// Version of the object's shape; rises when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

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
    pub ops: u64,
    pub allocs: u64,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub first_oom_op: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_oom: Option<String>,
    pub ooms: u64,
    pub invalid_sizes: u64,
    pub alloc_retries: Option<u64>,
    /// Under tiering.
    pub resident: Option<u64>,
    pub peak_resident: Option<u64>,
    pub live_floor: u64,
    pub peak_requested: u64,
    pub peak_allocated: u64,
    pub peak_active: u64,
    pub peak_reserved: u64,
    pub peak_device_used: u64,
    pub requested: u64,
    pub allocated: u64,
    pub active: u64,
    pub reserved: u64,
    pub device_used: u64,
    pub requested_at_peak_reserved: u64,
    pub allocated_at_peak_reserved: u64,
    pub active_at_peak_reserved: u64,
    pub overhead: Option<f64>,
    pub utilisation: Option<f64>,
    pub fragmentation: Option<f64>,
    pub internal_frag: Option<f64>,
    pub external_frag: Option<f64>,
    pub alloc_ns: Summary,
    pub stall_ns: Summary,
    pub stall_total_ns: u64,
    pub request_ns: Option<Summary>,
    pub time_ns: u64,
    pub driver_calls: BTreeMap<&'static str, u64>,
    pub counters: BTreeMap<&'static str, u64>,
    pub races: u64,
    pub trace_gaps: u64,
    pub unsupported: BTreeMap<&'static str, u64>,
    pub notes: Vec<String>,
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

    /// Was it run to its end?
    pub fn ran(&self) -> bool {
        matches!(self.outcome, "ok" | "oom")
    }

    /// Number of driver calls of all kinds that change what is held.
    pub fn memory_calls(&self) -> u64 {
        const QUERIES: [&str; 5] = [
            "cudaMemGetInfo",
            "cudaStreamIsCapturing",
            "cudaEventQuery",
            "cudaEventCreate",
            "cudaEventDestroy",
        ];
        self.driver_calls.iter().filter(|(name, _)| !QUERIES.contains(name)).map(|(_, n)| n).sum()
    }

    /// Fills in what the run gave.
    pub fn fill(mut self, report: &Report) -> Self {
        let f = report.total;
        self.ops = report.ops;
        self.allocs = report.allocs;
        self.outcome = if report.ooms + report.invalid_sizes > 0 { "oom" } else { "ok" };
        self.first_oom_op = report.first_oom_op;
        self.first_oom = report.first_oom.clone();
        self.ooms = report.ooms;
        self.invalid_sizes = report.invalid_sizes;
        self.alloc_retries = report.counter("num_alloc_retries");
        self.resident = report.counter("resident");
        self.peak_resident = report.counter("peak_resident");
        self.live_floor = f.live_floor();
        (self.peak_requested, self.requested) = (f.requested.peak, f.requested.current);
        (self.peak_allocated, self.allocated) = (f.allocated.peak, f.allocated.current);
        (self.peak_active, self.active) = (f.active.peak, f.active.current);
        (self.peak_reserved, self.reserved) = (f.reserved.peak, f.reserved.current);
        (self.peak_device_used, self.device_used) = (f.device_used.peak, f.device_used.current);
        self.requested_at_peak_reserved = f.requested_at_peak_reserved;
        self.allocated_at_peak_reserved = f.allocated_at_peak_reserved;
        self.active_at_peak_reserved = f.active_at_peak_reserved;
        self.overhead = f.overhead();
        self.utilisation = f.utilisation();
        self.fragmentation = f.fragmentation();
        self.internal_frag = f.internal_frag();
        self.external_frag = report.external_frag;
        self.alloc_ns = report.alloc_ns;
        self.stall_ns = report.stall_ns;
        self.stall_total_ns = report.stall_total.0;
        self.request_ns = (report.request_ns.count > 0).then_some(report.request_ns);
        self.time_ns = report.time.0;
        self.driver_calls = report.driver_calls.iter().collect();
        self.counters = report.counters.iter().copied().collect();
        self.races = report.race_count;
        self.trace_gaps = report.trace_gaps;
        self.unsupported = report.unsupported.iter().copied().collect();
        self
    }
}
