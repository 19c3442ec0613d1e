//! Names and units of what a run gave: the one place.
//!
//! A metric is named as in [`Row`]'s JSON and CSV (`peak_reserved`, `alloc_ns.p99`, `driver_calls.cudaMalloc`, `kv.hit_rate`); definitions are those of
//! [`vramlab_sim::report`]. Three are made here:
//!
//! | name | unit | definition |
//! |---|---|---|
//! | `ran` | count | 1 if the run came to its end (an out-of-memory is a result), else 0 and nothing else |
//! | `memory_calls` | count | driver calls that give, take or map memory |
//! | `steps`, `step_ns` | count, ns | steps of a model, and simulated time of one, of those after the first if there are several ([`step_ns`]) |

use serde_json::Value as Json;

use crate::row::{Mark, Row};

/// A figure: exact where it is a count of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Bytes, ns, counts.
    Exact(u64),
    /// Ratios.
    Real(f64),
}

impl Value {
    /// For arithmetic.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Exact(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// The count, if it is one.
    pub fn exact(self) -> Option<u64> {
        match self {
            Self::Exact(value) => Some(value),
            Self::Real(_) => None,
        }
    }
}

/// A named figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// As in [`Row`].
    pub name: String,
    /// `B`, `ns`, `ratio`, `count`, `tokens`, `blocks`.
    pub unit: &'static str,
    /// The figure.
    pub value: Value,
}

impl Metric {
    /// Of this name, with the unit that the name has.
    pub fn new(name: impl Into<String>, value: Value) -> Self {
        let name = name.into();
        Self { unit: unit(&name), name, value }
    }
}

/// Fields of a row that say who ran, not what it gave.
const NO_METRICS: [&str; 12] = [
    "schema",
    "vramlab",
    "input",
    "strategy",
    "options",
    "device",
    "cost_table",
    "capacity",
    "seed",
    "times",
    "notes",
    "marks",
];

/// All metrics of a row, in its order; of one that did not run only `ran`.
pub fn of(row: &Row) -> Vec<Metric> {
    let mut all = vec![Metric::new("ran", Value::Exact(u64::from(row.ran())))];
    if !row.ran() {
        return all;
    }
    all.push(Metric::new("memory_calls", Value::Exact(row.memory_calls())));
    if let Some((steps, ns)) = step_ns(row) {
        all.push(Metric::new("steps", Value::Exact(steps)));
        all.push(Metric::new("step_ns", Value::Exact(ns)));
    }
    all.extend(turn_p99_ns(row).map(|ns| Metric::new("turn_p99_ns", Value::Exact(ns))));
    let bare = Row { marks: Vec::new(), ..row.clone() };
    if let Ok(Json::Object(fields)) = serde_json::to_value(bare) {
        for (name, value) in fields.iter().filter(|(name, _)| !NO_METRICS.contains(&&***name)) {
            flatten(name, value, &mut all);
        }
    }
    all
}

fn flatten(name: &str, value: &Json, all: &mut Vec<Metric>) {
    match value {
        Json::Object(fields) => {
            fields
                .iter()
                .for_each(|(inner, value)| flatten(&format!("{name}.{inner}"), value, all));
        }
        Json::Number(number) => {
            let exact = number.as_u64().map(Value::Exact);
            if let Some(value) = exact.or_else(|| number.as_f64().map(Value::Real)) {
                all.push(Metric::new(name, value));
            }
        }
        _ => {}
    }
}

/// How many steps a model's run had, and ns of one: of one after the first, which the first makes ready (moments are made, workers have a
/// batch), if there are several.
pub fn step_ns(row: &Row) -> Option<(u64, u64)> {
    let number =
        |mark: &Mark| mark.name.strip_prefix("step ")?.split(' ').next()?.parse::<u64>().ok();
    let first = row.marks.iter().find_map(number)?;
    let last = row.marks.iter().rev().find_map(number)?;
    let steps = last.checked_sub(first)?.checked_add(1)?;
    let from = if steps > 1 { first + 1 } else { first };
    let begin = row.marks.iter().find(|mark| number(mark) == Some(from))?;
    let timed = last - from + 1;
    Some((steps, row.time_ns.checked_sub(begin.time_ns)? / timed))
}

/// What 99 % of those who wait do not wait longer for (nearest rank): of requests, from their arrival to the end of the answer, where there are any;
/// else of a model's steps after the first.
pub fn turn_p99_ns(row: &Row) -> Option<u64> {
    if let Some(served) = &row.served {
        return (served.e2e.spread.count > 0).then_some(served.e2e.spread.p99);
    }
    if let Some(requests) = &row.request_ns {
        return Some(requests.p99);
    }
    let number =
        |mark: &Mark| mark.name.strip_prefix("step ")?.split(' ').next()?.parse::<u64>().ok();
    let mut begins: Vec<(u64, u64)> = Vec::new();
    for mark in &row.marks {
        let step = number(mark);
        if let Some(step) = step.filter(|step| begins.last().is_none_or(|(last, _)| last < step)) {
            begins.push((step, mark.time_ns));
        }
    }
    let ends = begins.iter().skip(1).map(|(_, time)| *time).chain([row.time_ns]);
    let took = begins.iter().zip(ends).map(|((_, begin), end)| end.saturating_sub(*begin));
    let mut took: Vec<u64> = took.skip(usize::from(begins.len() > 1)).collect();
    took.sort_unstable();
    let rank = (took.len() * 99).div_ceil(100);
    took.get(rank.checked_sub(1)?).copied()
}

/// The unit of a name.
pub fn unit(name: &str) -> &'static str {
    const RATIOS: [&str; 6] =
        ["overhead", "utilisation", "fragmentation", "internal_frag", "external_frag", "hit_rate"];
    const BYTES: [&str; 9] = [
        "live_floor",
        "requested",
        "allocated",
        "active",
        "reserved",
        "device_used",
        "resident",
        "min_capacity",
        "bytes",
    ];
    const LATENCIES: [&str; 3] = ["ttft", "tpot", "e2e"];
    let parts: Vec<&str> = name.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let about = |words: &[&str]| words.iter().any(|word| last.contains(word));
    if last == "count" || parts[0] == "driver_calls" {
        return "count";
    }
    if parts.iter().any(|part| part.ends_with("_ns") || LATENCIES.contains(part)) {
        return "ns";
    }
    if parts[0] == "causes" {
        return "B";
    }
    if RATIOS.contains(&last) {
        return "ratio";
    }
    if last.contains("tokens")
        || (parts[0] == "kv" && ["peak_filled", "looked_up", "hit"].contains(&last))
    {
        return "tokens";
    }
    if parts[0] == "kv" && last.contains("blocks") {
        return "blocks";
    }
    if parts[0] != "kv" && about(&BYTES) { "B" } else { "count" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_names() {
        for (name, expected) in [
            ("peak_reserved", "B"),
            ("active_at_peak_reserved", "B"),
            ("devices.1.live_floor", "B"),
            ("min_capacity", "B"),
            ("alloc_ns.p99.9", "ns"),
            ("alloc_ns.count", "count"),
            ("served.ttft.p50", "ns"),
            ("stall_total_ns", "ns"),
            ("external_frag", "ratio"),
            ("causes.rounding", "B"),
            ("turn_p99_ns", "ns"),
            ("kv.hit_rate", "ratio"),
            ("kv.peak_blocks_used", "blocks"),
            ("kv.peak_tokens", "tokens"),
            ("driver_calls.cudaMalloc", "count"),
            ("ooms", "count"),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }

    #[test]
    fn a_run_that_was_left_out_says_so_and_nothing_else() {
        let left_out = of(&Row::new("a", "b").skipped("no cache"));
        assert_eq!(left_out, [Metric::new("ran", Value::Exact(0))]);
    }

    #[test]
    fn the_longest_turns_are_of_steps_where_nobody_asks() {
        let mark = |name: &str, time_ns| Mark { name: name.to_owned(), time_ns, ..Mark::default() };
        let mut row = Row::new("a", "b");
        assert_eq!(turn_p99_ns(&row), None);
        row.time_ns = 50;
        row.marks = vec![mark("step 1 forward", 10)];
        assert_eq!(turn_p99_ns(&row), Some(40), "a first step, if there is no other");
        row.marks.extend([mark("step 1 update", 12), mark("step 2", 30), mark("step 3", 35)]);
        assert_eq!(turn_p99_ns(&row), Some(15));
    }

    #[test]
    fn bytes_stay_exact_and_names_are_those_of_the_row() {
        let mut row = Row::new("a", "b");
        row.outcome = "ok";
        row.live_floor = u64::MAX;
        row.overhead = Some(1.5);
        row.driver_calls.insert("cudaMalloc", 3);
        let all = of(&row);
        let find = |name: &str| all.iter().find(|m| m.name == name).map(|m| m.value);
        assert_eq!(find("live_floor"), Some(Value::Exact(u64::MAX)));
        assert_eq!(find("overhead"), Some(Value::Real(1.5)));
        assert_eq!(find("driver_calls.cudaMalloc"), Some(Value::Exact(3)));
        assert_eq!(find("memory_calls"), Some(Value::Exact(3)));
        assert_eq!(find("min_capacity"), None);
        assert_eq!(find("capacity"), None);
    }
}
