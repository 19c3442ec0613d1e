//! What the runs of several seeds agree on: means with 95 % confidence intervals.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `replications` | runs of different seeds are independent, and each gives one value of a figure | Law, Simulation Modeling and Analysis (5th ed.) 9.4.1 |
//! | `interval` | mean ± t(n − 1, 0.975) · s / √n, with s the sample standard deviation: it covers the expected value in 95 of 100 such comparisons, if the values are near normal | Law 4.5 |
//!
//! Quantiles of latencies are taken within a run; the interval is that of the quantile over runs. Runs that failed in part count with what they
//! gave, and are counted in `failed`. Warm-up is not removed: a run begins with an empty device, as a program does.

use super::serving::three;
use crate::output::Grid;
use crate::row::Row;

/// t(n, 0.975) for n degrees of freedom, from 1 (Student 1908; any table).
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal distribution's, to which it falls.
const Z_975: f64 = 1.959_964;

/// A mean and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    mean: f64,
    half: f64,
}

impl Interval {
    /// Of independent values; none of fewer than two.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let degrees = values.len().checked_sub(1).filter(|n| *n > 0)?;
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / degrees as f64).sqrt();
        Some(Self { mean, half: student(degrees) * deviation / n.sqrt() })
    }

    fn text(self) -> String {
        format!("{} ± {}", three(self.mean), three(self.half))
    }
}

/// t(degrees, 0.975); beyond the table by the first term of its expansion, (z³ + z) / 4n.
fn student(degrees: usize) -> f64 {
    let more = |n: f64| Z_975 + (Z_975.powi(3) + Z_975) / (4.0 * n);
    T_975.get(degrees - 1).copied().unwrap_or_else(|| more(degrees as f64))
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
            Interval::of(&values).map_or_else(|| "-".to_owned(), Interval::text)
        }));
        grid.row(cells);
    }
    let heading = format!("{name}, {} seeds: means with 95 % confidence intervals", seeds.len());
    let heading = if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") };
    Some(heading + &grid.print(markdown) + "\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four values with mean 5 and deviation 2.582: t(3) is 3.182.
    #[test]
    fn an_interval_is_students() {
        let found = Interval::of(&[2.0, 4.0, 6.0, 8.0]).expect("four values");
        assert!((found.mean - 5.0).abs() < 1e-12);
        assert!((found.half - 3.182 * 2.581_989 / 2.0).abs() < 1e-5, "{found:?}");
        assert_eq!(Interval::of(&[1.0]), None);
        assert_eq!(Interval::of(&[3.0, 3.0]), Some(Interval { mean: 3.0, half: 0.0 }));
    }

    /// t(40) is 2.0211, t(120) is 1.9799.
    #[test]
    fn students_quantile_goes_on_beyond_its_table() {
        assert!((student(40) - 2.0211).abs() < 2e-3);
        assert!((student(120) - 1.9799).abs() < 2e-4);
        assert!(student(30) > student(31));
    }
}
