//! What the runs of several seeds agree on: means with 95 % confidence intervals.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `replications` | runs of different seeds are independent, and each gives one value of a figure | Law, Simulation Modeling and Analysis (5th ed.) 9.4.1 |
//! | `interval` | [`Interval`]: it covers the expected value in 95 of 100 such comparisons, if the values are near normal | Law 4.5 |
//! | `warm_up` | latencies are those of each run's steady state, without its warm-up ([`Steady`]), where it has enough requests; all else is of whole runs, which begin with an empty device, as a program does | Law 9.5.1 |
//!
//! Quantiles of latencies are taken within a run; the interval is that of the quantile over runs. Runs that failed in part count with what they
//! gave, and are counted in `failed`.

use std::collections::BTreeSet;

use vramlab_sim::report::Summary;

use super::serving::three;
use crate::output::Grid;
use crate::row::Row;
use crate::statistics::{Estimates, Interval, Steady, TOLD_MIN, tells};

/// Said under a table in which an interval is left out.
const LEFT_OUT: &str = "where no interval is given, there are too few seeds for one: fewer than";

/// Mean and half width; only the value where all runs gave the same.
fn text(interval: Interval, told: bool) -> String {
    let Interval { mean, half } = interval;
    match () {
        () if half == 0.0 && mean.fract() == 0.0 => format!("{mean}"),
        () if half == 0.0 || !told => three(mean),
        () => format!("{} ± {}", three(mean), three(half)),
    }
}

/// A figure: its title, and what a run gave.
type Figure = (&'static str, fn(&Row) -> Option<f64>);

const MIB: f64 = (1 << 20) as f64;

const FIGURES: &[Figure] = &[
    ("peak reserved MiB", |row| Some(row.peak_reserved as f64 / MIB)),
    ("live floor MiB", |row| Some(row.live_floor as f64 / MIB)),
    ("stall ms", |row| Some(row.stall_total_ns as f64 / 1e6)),
    ("time s", |row| Some(row.time_ns as f64 / 1e9)),
    ("request ms P50", |row| e2e(row, |found| found.p50.value, |all| all.p50, 1e6)),
    ("P90", |row| e2e(row, |found| found.p90.value, |all| all.p90, 1e6)),
    ("P99", |row| e2e(row, |found| found.p99.value, |all| all.p99, 1e6)),
    ("turned away", |row| row.answers.map(|answers| answers.turned_away as f64)),
];

const SERVED: &[Figure] = &[
    ("over a limit", |row| row.served.map(|served| served.refused_limit as f64)),
    ("no memory", |row| row.served.map(|served| served.refused_memory as f64)),
    ("preempted", |row| row.served.map(|served| served.preemptions as f64)),
    ("swapped", |row| row.served.map(|served| served.swaps as f64)),
    ("TTFT s P50", |row| ttft(row, |found| found.p50.value, |all| all.p50)),
    ("P90", |row| ttft(row, |found| found.p90.value, |all| all.p90)),
    ("P99", |row| ttft(row, |found| found.p99.value, |all| all.p99)),
    ("TPOT ms P50", |row| tpot(row, |found| found.p50.value, |all| all.p50)),
    ("P99", |row| tpot(row, |found| found.p99.value, |all| all.p99)),
    ("e2e s P50", |row| e2e(row, |found| found.p50.value, |all| all.p50, 1e9)),
    ("P99", |row| e2e(row, |found| found.p99.value, |all| all.p99, 1e9)),
];

type OfSteady = fn(&Estimates) -> f64;
type OfAll = fn(&Summary) -> u64;

/// A latency of the steady state, or of all requests where there are too few for one.
fn latency(
    steady: Option<&Estimates>,
    all: Option<Summary>,
    of_steady: OfSteady,
    of_all: OfAll,
) -> Option<f64> {
    let all = || all.as_ref().filter(|all| all.count > 0).map(|all| of_all(all) as f64);
    steady.map(of_steady).or_else(all)
}

fn e2e(row: &Row, steady: OfSteady, all: OfAll, unit_ns: f64) -> Option<f64> {
    let found = row.steady.as_ref().map(|steady| &steady.e2e);
    Some(latency(found, row.request_ns, steady, all)? / unit_ns)
}

fn ttft(row: &Row, steady: OfSteady, all: OfAll) -> Option<f64> {
    let found = row.steady.as_ref().and_then(|steady| steady.ttft.as_ref());
    Some(latency(found, row.served.map(|served| served.ttft.spread), steady, all)? / 1e9)
}

fn tpot(row: &Row, steady: OfSteady, all: OfAll) -> Option<f64> {
    let found = row.steady.as_ref().and_then(|steady| steady.tpot.as_ref());
    Some(latency(found, row.served.map(|served| served.tpot.spread), steady, all)? / 1e6)
}

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

/// The seeds with which an input ran.
fn seeds(rows: &[Row], name: &str) -> BTreeSet<u64> {
    let ran = rows.iter().filter(|row| row.input == name && row.ran());
    ran.filter_map(|row| row.seed).collect()
}

/// Did an input run with several seeds?
pub(super) fn several(rows: &[Row], name: &str) -> bool {
    seeds(rows, name).len() > 1
}

fn table(rows: &[Row], name: &str, markdown: bool) -> Option<String> {
    let seeds = seeds(rows, name);
    if seeds.len() < 2 {
        return None;
    }
    let all: Vec<&Row> = rows.iter().filter(|row| row.input == name && row.ran()).collect();
    let served = all.iter().any(|row| row.served.is_some());
    let has = |figure: &&Figure| all.iter().any(|row| figure.1(row).is_some());
    let figures: Vec<&Figure> = if served { SERVED } else { FIGURES }.iter().filter(has).collect();
    let titles = ["strategy<", "runs", "failed"].into_iter().chain(figures.iter().map(|f| f.0));
    let mut grid = Grid::new(&titles.collect::<Vec<_>>());
    let (mut strategies, mut left_out): (Vec<&str>, bool) = (Vec::new(), false);
    for row in &all {
        if !strategies.contains(&row.strategy.as_str()) {
            strategies.push(&row.strategy);
        }
    }
    for strategy in strategies {
        let of: Vec<&Row> = all.iter().copied().filter(|row| row.strategy == strategy).collect();
        let failed: u64 = of.iter().map(|row| row.failed()).sum();
        let mut cells = vec![strategy.to_owned(), of.len().to_string(), failed.to_string()];
        for figure in &figures {
            let values: Vec<f64> = of.iter().filter_map(|row| figure.1(row)).collect();
            let Some(interval) = Interval::of(&values) else {
                cells.push("-".to_owned());
                continue;
            };
            let told = values.len() >= TOLD_MIN && tells(interval.mean, interval.half);
            left_out |= !told && interval.half > 0.0;
            cells.push(text(interval, told));
        }
        grid.row(cells);
    }
    let steady = all.iter().filter_map(|row| row.steady.as_ref());
    let warmed: Vec<&Steady> = steady.filter(|steady| steady.warm_up > 0).collect();
    let mut heading =
        format!("{name}, {} seeds: means with 95 % confidence intervals", seeds.len());
    if let Some(most) = warmed.iter().map(|steady| steady.warm_up).max() {
        heading += &format!(
            "; latencies without warm-up, up to {most} of {} requests of a run",
            warmed.iter().map(|steady| steady.requests).max().unwrap_or(0)
        );
    }
    let heading = if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") };
    let note = match left_out {
        true => format!("note: {LEFT_OUT} {TOLD_MIN}, or it would reach below zero\n"),
        false => String::new(),
    };
    Some(heading + &grid.print(markdown) + "\n" + &note + "\n")
}
