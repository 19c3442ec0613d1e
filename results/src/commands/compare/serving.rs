//! What a comparison does for servers of language models: traces of requests, and columns of what users wait for.

use std::path::{Path, PathBuf};

use vramlab_sim::report::{Latency, Served};
use vramlab_workloads::readers::format::Carries;
use vramlab_workloads::registry::Workload;

use super::table::Column;
use crate::failure::Failure;
use crate::inputs;
use crate::output::percent;
use crate::row::Row;

/// Traces of requests, which a server takes, and recordings of other kinds. Without a server all are recordings.
///
/// # Errors
/// With a server, a file that is not there: the server would serve other requests.
pub(super) fn split(
    files: &[PathBuf],
    workloads: &[&Workload],
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let serves = workloads.iter().any(|workload| workload.carries.sequences);
    if let Some((file, error)) = files
        .iter()
        .filter(|_| serves)
        .find_map(|file| Some((file, std::fs::metadata(file).err()?)))
    {
        return Err(Failure::input(format!("{}: {error}", file.display())));
    }
    Ok(files.iter().cloned().partition(|file| serves && is_requests(file)))
}

/// Is it a file of requests, by its content? A pipe cannot be looked into beforehand; what cannot be read is told when it is opened.
fn is_requests(file: &Path) -> bool {
    let format = || inputs::begin(file).ok()?.format;
    file.is_file() && format().is_some_and(|format| format.doc().carries == Carries::Requests)
}

/// For requests to a server.
pub(super) const COLUMNS: &[Column] = &[
    ("strategy<", |row| row.strategy.clone()),
    ("outcome<", |row| row.outcome.to_owned()),
    ("answered", |row| count(row, |served| served.finished)),
    ("over a limit", |row| count(row, |served| served.refused_limit)),
    ("no memory", |row| count(row, |served| served.refused_memory)),
    ("preempted", |row| count(row, |served| served.preemptions)),
    ("swapped", |row| count(row, |served| served.swaps)),
    ("TTFT s P50/90/99", |row| quantiles(row, 1e9, |served| served.ttft)),
    ("TPOT ms P50/90/99", |row| quantiles(row, 1e6, |served| served.tpot)),
    ("e2e s P50/90/99", |row| quantiles(row, 1e9, |served| served.e2e)),
    ("most running", |row| count(row, |served| served.most_running)),
    ("most waiting", |row| count(row, |served| served.most_waiting)),
    ("hit rate", |row| percent(row.kv.as_ref().and_then(|kv| kv.hit_rate))),
    ("waste", |row| percent(row.internal_frag)),
];

/// Said where not all requests were answered: the latencies of those that were are not those of the others.
pub(super) fn answered(rows: &[Row]) -> Option<String> {
    let served: Vec<(&Row, &Served)> = rows
        .iter()
        .filter(|row| row.ran())
        .filter_map(|row| Some((row, row.served.as_ref()?)))
        .collect();
    let all = served.iter().all(|(_, served)| served.finished == served.requests);
    if all || served.iter().all(|(_, served)| served.finished == 0) {
        return None;
    }
    let alike = served.windows(2).all(|pair| pair[0].1.finished == pair[1].1.finished);
    let each: Vec<String> = served
        .iter()
        .map(|(row, served)| format!("{} {} of {}", row.strategy, served.finished, served.requests))
        .collect();
    let differ = if alike { "" } else { ", and not the same for all strategies" };
    Some(format!(
        "latencies are those of answered requests, not of all{differ} (who is over a limit is mostly long): {}",
        each.join(", ")
    ))
}

fn count(row: &Row, of: fn(&Served) -> u64) -> String {
    row.served.as_ref().map_or_else(|| "-".to_owned(), |served| of(served).to_string())
}

fn quantiles(row: &Row, unit_ns: f64, of: fn(&Served) -> Latency) -> String {
    let Some(served) = &row.served else { return "-".to_owned() };
    let spread = of(served).spread;
    if spread.count == 0 {
        return "-".to_owned();
    }
    [spread.p50, spread.p90, spread.p99].map(|ns| three(ns as f64 / unit_ns)).join(" / ")
}

/// Three digits.
pub(super) fn three(value: f64) -> String {
    let places = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}
