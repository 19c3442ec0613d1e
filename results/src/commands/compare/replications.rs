//! What the runs of several seeds agree on: means with 95 % confidence intervals.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `replications` | runs of different seeds are independent, and each gives one value of a figure | Law, Simulation Modeling and Analysis (5th ed.) 9.4.1 |
//!
//! The interval is that of [`crate::interval`].
//! Quantiles of latencies are taken within a run; the interval is that of the quantile over runs. Runs that failed in part count with what they
//! gave, and are counted in `failed`. Warm-up is not removed: a run begins with an empty device, as a program does.

use super::serving::three;
use crate::interval::Interval;
use crate::output::Grid;
use crate::row::Row;

fn text(interval: Interval) -> String {
    format!("{} ± {}", three(interval.mean), three(interval.half))
}

/// A figure: its title, and what a run gave.
type Figure = (&'static str, fn(&Row) -> Option<f64>);

const MIB: f64 = (1 << 20) as f64;

const FIGURES: &[Figure] = &[
    ("peak reserved MiB", |row| Some(row.peak_reserved as f64 / MIB)),
    ("live floor MiB", |row| Some(row.live_floor as f64 / MIB)),
    ("stall ms", |row| Some(row.stall_total_ns as f64 / 1e6)),
    ("time s", |row| Some(row.time_ns as f64 / 1e9)),
    ("request ms P50", |row| row.request_ns.map(|spread| spread.p50 as f64 / 1e6)),
    ("P90", |row| row.request_ns.map(|spread| spread.p90 as f64 / 1e6)),
    ("P99", |row| row.request_ns.map(|spread| spread.p99 as f64 / 1e6)),
];

const SERVED: &[Figure] = &[
    ("preempted", |row| row.served.map(|served| served.preemptions as f64)),
    ("TTFT s P50", |row| row.served.map(|served| served.ttft.spread.p50 as f64 / 1e9)),
    ("P90", |row| row.served.map(|served| served.ttft.spread.p90 as f64 / 1e9)),
    ("P99", |row| row.served.map(|served| served.ttft.spread.p99 as f64 / 1e9)),
    ("TPOT ms P50", |row| row.served.map(|served| served.tpot.spread.p50 as f64 / 1e6)),
    ("P99", |row| row.served.map(|served| served.tpot.spread.p99 as f64 / 1e6)),
    ("e2e s P50", |row| row.served.map(|served| served.e2e.spread.p50 as f64 / 1e9)),
    ("P99", |row| row.served.map(|served| served.e2e.spread.p99 as f64 / 1e9)),
];

/// A table for each input that was run with several seeds; nothing for others.
pub(super) fn tables(rows: &[Row], markdown: bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.seed.is_some()) {
        if !names.contains(&row.input.as_str()) {
            names.push(&row.input);
        }
    }
    names.into_iter().filter_map(|name| table(rows, name, markdown)).collect()
}

fn table(rows: &[Row], name: &str, markdown: bool) -> Option<String> {
    let all: Vec<&Row> = rows.iter().filter(|row| row.input == name && row.ran()).collect();
    let mut seeds: Vec<_> = all.iter().filter_map(|row| row.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    if seeds.len() < 2 {
        return None;
    }
    let served = all.iter().any(|row| row.served.is_some());
    let has = |figure: &&Figure| all.iter().any(|row| figure.1(row).is_some());
    let figures: Vec<&Figure> = if served { SERVED } else { FIGURES }.iter().filter(has).collect();
    let titles = ["strategy<", "runs", "failed"].into_iter().chain(figures.iter().map(|f| f.0));
    let mut grid = Grid::new(&titles.collect::<Vec<_>>());
    let mut strategies: Vec<&str> = Vec::new();
    for row in &all {
        if !strategies.contains(&row.strategy.as_str()) {
            strategies.push(&row.strategy);
        }
    }
    for strategy in strategies {
        let of: Vec<&Row> = all.iter().copied().filter(|row| row.strategy == strategy).collect();
        let failed: u64 = of.iter().map(|row| row.failed()).sum();
        let mut cells = vec![strategy.to_owned(), of.len().to_string(), failed.to_string()];
        cells.extend(figures.iter().map(|figure| {
            let values: Vec<f64> = of.iter().filter_map(|row| figure.1(row)).collect();
            Interval::of(&values).map_or_else(|| "-".to_owned(), text)
        }));
        grid.row(cells);
    }
    let heading = format!("{name}, {} seeds: means with 95 % confidence intervals", seeds.len());
    let heading = if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") };
    Some(heading + &grid.print(markdown) + "\n\n")
}
