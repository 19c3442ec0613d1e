//! A recorded message against what the collector read off it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use vramlab::explain::Explained;

use crate::messages;

/// What a record came to.
#[derive(Default)]
pub(crate) struct Checked {
    /// Figures that are equal.
    pub(crate) figures: u64,
    /// Figures of the record that do not stand in the text.
    pub(crate) unstated: u64,
    pub(crate) differences: Vec<String>,
}

/// Explains a record's message, or the fuller log beside the list that begins with it, and compares.
pub(crate) fn check(record: &Value, logs: &[String]) -> Checked {
    let text = record["message"].as_str().unwrap_or_default();
    let mut checked = Checked::default();
    let mut differ = |what: String| checked.differences.push(what);
    let first = text.lines().next().unwrap_or_default();
    let fuller = logs.iter().find(|log| text.lines().count() == 1 && log.contains(first));
    let text = fuller.map_or(text, String::as_str);
    let all = messages(text.as_bytes());
    // of several in one text, the one that the record is about has its figures
    let equal = |one: &&Explained| {
        let numbers = json!(one.numbers);
        let figures = record["numbers"].as_object().into_iter().flatten();
        figures.filter(|(name, wanted)| numbers.get(name.as_str()) == Some(*wanted)).count()
    };
    let Some(explained) = all.iter().rev().max_by_key(equal) else {
        differ(format!("no message in {text:?}"));
        return checked;
    };
    if reading_of(record).contains("climb") && all.len() > 2 && explained.climb.is_none() {
        differ("no climb is named".to_owned());
    }
    if record["framework"] != explained.framework {
        differ(format!("{} is not {}", explained.framework, record["framework"]));
    }
    let reading = reading_of(record);
    let (allowed, limit) = allowed(reading);
    if !allowed.contains(explained.verdict.name()) {
        differ(format!("{} is none of {allowed:?} ({reading})", explained.verdict.name()));
    }
    if limit && explained.limit.is_none() {
        differ(format!("no limit is named ({reading})"));
    }
    if explained.next.is_empty() || explained.summary.is_empty() {
        differ("nothing is said or advised".to_owned());
    }
    let numbers = json!(explained.numbers);
    for (name, wanted) in record["numbers"].as_object().into_iter().flatten() {
        match (found(&numbers, name, wanted), stands(text, wanted)) {
            (Some(found), _) if found == *wanted => checked.figures += 1,
            (None, false) => checked.unstated += 1,
            (found, _) => differ(format!("{name}: found {found:?}, expected {wanted}")),
        }
    }
    checked
}

fn reading_of(record: &Value) -> &str {
    record["reading"].as_str().unwrap_or_default()
}

/// The figure of this name; or, where we have no such name, one of the same value.
fn found(numbers: &Value, name: &str, wanted: &Value) -> Option<Value> {
    let by_value = || numbers.as_object()?.values().find(|value| *value == wanted);
    numbers.get(name).or_else(by_value).cloned()
}

/// Does this figure stand in the text, in any unit?
fn stands(text: &str, figure: &Value) -> bool {
    let Some(wanted) = figure.as_f64() else {
        return figure.as_str().is_some_and(|word| text.contains(word));
    };
    let numbers = text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    numbers
        .filter_map(|number| number.replace(',', "").trim_matches('.').parse::<f64>().ok())
        .any(|number| (0..5).any(|unit| (number * 1024_f64.powi(unit)).round() == wanted.round()))
}

/// Verdicts that a reading allows, and whether it names a limit.
///
/// A reading has several remarks; each is about one thing that the figures show, and allows the verdicts that are about it. Remarks that only compute
/// something allow none by themselves.
fn allowed(reading: &str) -> (BTreeSet<&'static str>, bool) {
    const REMARKS: &[(&str, &[&str])] = &[
        ("unallocated memory covers the request", &["fragmentation"]),
        ("plus free covers the request", &["fragmentation", "combined"]),
        ("split the free space", &["fragmentation"]),
        ("in pieces", &["fragmentation", "shortage"]),
        ("fragment", &["fragmentation", "combined"]),
        ("contiguous", &["fragmentation", "unknown"]),
        ("cached while", &["fragmentation", "unknown"]),
        ("outside this allocator", &["other_process"]),
        ("other process", &["other_process"]),
        ("something else", &["other_process", "unknown"]),
        ("stale figure", &["unknown"]),
        ("enough free memory", &["unknown"]),
        ("contradict", &["unknown"]),
        ("not stated", &["unknown", "shortage"]),
        ("exhaust", &["shortage"]),
        ("below the request", &["shortage"]),
        ("could not be had", &["shortage", "other_process", "unknown"]),
        ("more than was left", &["shortage", "unknown"]),
        ("does not fit", &["shortage"]),
        ("exceed", &["shortage"]),
        ("watermark", &["shortage"]),
        ("limit is set", &["shortage"]),
        ("program needs", &["shortage"]),
        ("per token", &["shortage"]),
        ("available figure", &["shortage", "unknown"]),
        ("larger than the card", &["over_capacity", "shortage"]),
        ("above capacity", &["over_capacity"]),
        ("leak", &["shortage", "unknown"]),
        ("climb", &["shortage", "unknown"]),
    ];
    // the figures cannot be true, whatever else they would show
    if reading.contains("impossible") || reading.contains("wrapped") {
        return (BTreeSet::from(["unknown"]), false);
    }
    let remarks = REMARKS.iter().filter(|(words, _)| reading.contains(words));
    let mut allowed: BTreeSet<&str> =
        remarks.flat_map(|(_, verdicts)| *verdicts).copied().collect();
    if allowed.is_empty() {
        allowed.extend(["shortage", "unknown"]);
    }
    (allowed, reading.contains("limit is set") || reading.contains("watermark"))
}

#[test]
fn readings_allow_what_they_say() {
    let of = |reading| allowed(reading).0.into_iter().collect::<Vec<_>>();
    assert_eq!(of("plain exhaustion"), ["shortage"]);
    assert_eq!(of("5 x 16 = 80"), ["shortage", "unknown"]);
    assert_eq!(of("impossible: counter wrapped"), ["unknown"]);
    assert!(allowed("at the watermark within print rounding").1);
    assert!(stands("of 1.50 GiB", &json!(1_610_612_736_u64)) && !stands("9 GiB", &json!(7)));
}
