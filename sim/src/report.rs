//! The figures of a run: one definition each, used by code, tables and book.
//!
//! | name | unit | definition |
//! |---|---|---|
//! | `requested` | B | sum of live request sizes, counted by the engine |
//! | `allocated` | B | sum of live block sizes as the strategy rounds and (not) splits them |
//! | `active` | B | allocated, and freed blocks that still wait for a stream |
//! | `reserved` | B | held from the device, asked of the machine |
//! | `device_used` | B | reserved with context and granule rounding |
//! | `resident` | B | under tiering: of live buffers, those that are on the device, as the strategy counts them |
//! | `live_floor` | B | highest sum of live request sizes, refused ones included: no strategy that keeps buffers on one device can serve them all with less |
//! | `overhead` | ratio | peak reserved / live floor |
//! | `utilisation`, `fragmentation` | ratio | peak active / peak reserved, and 1 minus that |
//! | `internal_frag` | ratio | (allocated − requested) / allocated, at peak reserved |
//! | `external_frag` | ratio | 1 − largest free piece / total free inside reserved, at the end |
//! | `lock_ns`, `lock_total` | ns | waits of host threads for the lock of their pool; part of the stalls |
//! | `alloc_ns`, `stall_ns`, `request_ns` | ns | host time per allocation, time lost to memory per call (of an announcement of work: the host's, where it took some), time of served requests |

mod kv;
mod served;

use hdrhistogram::Histogram;

use crate::machine::{CallCounts, DriverWork};
use crate::units::{DeviceId, Nanos};

pub use kv::KvFigures;
pub use served::{Answers, Done, Latency, LatencySpread, REQUESTS_KEPT, Served};

/// A count of bytes now and at its highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub current: u64,
    /// Highest so far.
    pub peak: u64,
}

impl Level {
    /// A new value.
    #[inline]
    pub fn set(&mut self, value: u64) {
        self.current = value;
        self.peak = self.peak.max(value);
    }
}

/// Bytes of one device (or the sum over devices).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Live request sizes.
    pub requested: Level,
    /// Live request sizes, with those that were refused for want of memory until they would have been freed.
    pub demand: Level,
    /// Live block sizes.
    pub allocated: Level,
    /// Live and waiting block sizes.
    pub active: Level,
    /// Held from the device.
    pub reserved: Level,
    /// Held, with context and granule rounding.
    pub device_used: Level,
    /// `requested` when `reserved` was first at its peak.
    pub requested_at_peak_reserved: u64,
    /// `allocated` at that moment.
    pub allocated_at_peak_reserved: u64,
    /// `active` at that moment.
    pub active_at_peak_reserved: u64,
}

impl Figures {
    /// Highest demand: the floor for one device, whatever was refused.
    pub const fn live_floor(&self) -> u64 {
        self.demand.peak
    }

    /// Peak reserved over the live floor; `None` when nothing was live.
    pub fn overhead(&self) -> Option<f64> {
        ratio(self.reserved.peak, self.demand.peak)
    }

    /// Peak active over peak reserved.
    pub fn utilisation(&self) -> Option<f64> {
        ratio(self.active.peak, self.reserved.peak)
    }

    /// 1 minus `utilisation`.
    pub fn fragmentation(&self) -> Option<f64> {
        self.utilisation().map(|u| 1.0 - u)
    }

    /// Share of allocated bytes that nobody asked for, at peak reserved.
    pub fn internal_frag(&self) -> Option<f64> {
        let allocated = self.allocated_at_peak_reserved;
        ratio(allocated.saturating_sub(self.requested_at_peak_reserved), allocated)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A distribution of nanoseconds, to three digits (an HDR histogram). The commonest value is counted beside it, since most calls cost the same.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Of the other values; made for the first of them, since it is large.
    histogram: Option<Histogram<u64>>,
    common: u64,
    common_count: u64,
}

impl Spread {
    /// An empty one that expects mostly `common` ns.
    pub const fn new(common: u64) -> Self {
        Self { histogram: None, common, common_count: 0 }
    }

    /// One more value.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if ns == self.common {
            self.common_count += 1;
        } else {
            self.histogram.get_or_insert_with(histogram).saturating_record(ns);
        }
    }

    /// p50, p90, p99, p99.9, max and count.
    pub fn summary(&self) -> Summary {
        let Some(others) = &self.histogram else {
            return Summary::constant(self.common, self.common_count);
        };
        let mut whole = others.clone();
        whole.saturating_record_n(self.common, self.common_count);
        let at = |q| whole.value_at_quantile(q);
        Summary {
            count: whole.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: whole.max(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 50, 3).expect("constant bounds are valid")
}

/// Quantiles of a [`Spread`], in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub count: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    #[serde(rename = "p99.9")]
    pub p999: u64,
    pub max: u64,
}

impl Summary {
    /// Of `count` equal values.
    const fn constant(value: u64, count: u64) -> Self {
        let value = if count == 0 { 0 } else { value };
        Self { count, p50: value, p90: value, p99: value, p999: value, max: value }
    }
}

/// Figures at a mark of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkFigures {
    /// The mark's name.
    pub name: String,
    /// Index of the op.
    pub op: u64,
    /// Host time.
    pub time: Nanos,
    /// Figures of the current device then.
    pub figures: Figures,
    /// Blocks of the caches that were in use, and that were ready to be handed out.
    pub kv_blocks: (u64, u64),
}

/// A race: memory was used again before its earlier use was ordered before the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// Op at which it was found.
    pub op: u64,
    /// The buffer that got the memory (the workload's own number).
    pub buffer: u64,
    /// The buffer that had it.
    pub earlier: u64,
    /// The stream of the earlier use.
    pub earlier_stream: u32,
    /// The stream of the later use.
    pub stream: u32,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Report {
    /// Ops done.
    pub ops: u64,
    /// Requests among them; of a cache, new sequences and further tokens.
    pub allocs: u64,
    /// Requests that did not fit.
    pub ooms: u64,
    /// Requests whose size was refused.
    pub invalid_sizes: u64,
    /// Index of the first op that did not fit.
    pub first_oom_op: Option<u64>,
    /// The device that it was on.
    pub first_oom_device: Option<DeviceId>,
    /// The strategy's words about it.
    pub first_oom: Option<String>,
    /// Per device.
    pub devices: Vec<Figures>,
    /// Of all devices together: a peak is the highest sum at one moment.
    pub total: Figures,
    /// Of the caches, if the run had ops of sequences.
    pub kv: Option<KvFigures>,
    /// 1 − largest free piece / total free, at the end; `None` where the strategy cannot say or nothing is free.
    pub external_frag: Option<f64>,
    /// Host time per allocation.
    pub alloc_ns: Summary,
    /// Host time lost to memory, per memory op: beyond the strategy's own cost.
    pub stall_ns: Summary,
    /// Sum of that.
    pub stall_total: Nanos,
    /// Waits of host threads for the lock of a shared pool (also part of the stalls).
    pub lock_ns: Summary,
    /// Sum of those.
    pub lock_total: Nanos,
    /// Served requests: between the ops of their arrival and answer, or as a server says ([`Served::e2e`]).
    pub request_ns: Summary,
    /// What a server counted, if the source is one.
    pub served: Option<Served>,
    /// What a service that may refuse to answer counted, if the source is one.
    pub answers: Option<Answers>,
    /// The first [`REQUESTS_KEPT`] answered requests, in the order in which they were answered.
    pub done: Vec<Done>,
    /// Host time at the end.
    pub time: Nanos,
    /// Driver calls.
    pub driver_calls: CallCounts,
    /// What the driver did below them.
    pub driver_work: DriverWork,
    /// The strategies' own counters, summed over devices.
    pub counters: Vec<(&'static str, u64)>,
    /// Kept if asked for.
    pub marks: Vec<MarkFigures>,
    /// Races found (the first 1,000 are kept).
    pub races: Vec<Race>,
    /// How many races there were.
    pub race_count: u64,
    /// Frees of buffers that the input never allocated.
    pub trace_gaps: u64,
    /// Notices that the strategy does not know, by op name.
    pub unsupported: Vec<(&'static str, u64)>,
}

impl Report {
    /// A strategy's own counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_counts_the_common_value_with_the_rest() {
        let mut spread = Spread::new(10);
        (0..99).for_each(|_| spread.record(10));
        spread.record(5000);
        let summary = spread.summary();
        assert_eq!((summary.count, summary.p50, summary.p99), (100, 10, 10));
        assert!(summary.max >= 5000);
    }

    #[test]
    fn ratios_of_nothing_are_none() {
        let figures = Figures::default();
        assert_eq!(
            (figures.overhead(), figures.utilisation(), figures.internal_frag()),
            (None, None, None)
        );
    }
}
