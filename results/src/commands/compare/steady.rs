//! The latencies of single runs in their steady state, as a table under the runs.

use super::serving::three;
use crate::output::Grid;
use crate::row::Row;
use crate::statistics::{Estimate, Estimates, Steady, tells};

/// What the intervals of some runs lack, and which runs those are: words, and whether they are of a run.
type Doubt = (&'static str, fn(&Steady) -> bool);

const DOUBTS: [Doubt; 3] = [
    (
        "latencies had not settled by the half of the run: what is left out may be too little, and the intervals too narrow",
        |steady| !steady.settled,
    ),
    (
        "batches of requests depend on the ones before, so that the intervals are too narrow (a load that changes, or more than the server can serve?)",
        |steady| steady.latencies().any(|(_, estimates)| !estimates.independent),
    ),
    (
        "too few requests for the figures without an interval, or an interval would reach below zero",
        |steady| {
            steady
                .latencies()
                .any(|(_, e)| [e.mean, e.p50, e.p90, e.p99].iter().any(|e| told(e).is_none()))
        },
    ),
];

/// A row for each run and latency; nothing where no run had enough requests.
pub(super) fn table(rows: &[Row], markdown: bool) -> String {
    let runs: Vec<(&Row, &Steady)> =
        rows.iter().filter_map(|row| Some((row, row.steady.as_ref()?))).collect();
    if runs.is_empty() {
        return String::new();
    }
    let mut grid =
        Grid::new(&["strategy<", "latency<", "warm-up left out", "mean", "P50", "P90", "P99"]);
    for (row, steady) in &runs {
        let tokens = row.served.is_some();
        for (name, estimates) in steady.latencies() {
            let (unit_ns, unit) = if tokens && name != "TPOT" { (1e9, "s") } else { (1e6, "ms") };
            let name = if tokens { format!("{name} {unit}") } else { format!("request {unit}") };
            let Estimates { mean, p50, p90, p99, .. } = estimates;
            let mut cells = vec![row.strategy.clone(), name];
            cells.push(format!("{} of {}", steady.warm_up, steady.requests));
            cells.extend([mean, p50, p90, p99].map(|estimate| text(estimate, unit_ns)));
            grid.row(cells);
        }
    }
    let mut lines = grid.print(markdown) + "\n";
    for (words, of) in DOUBTS {
        let named: Vec<&str> = runs
            .iter()
            .filter(|(_, steady)| of(steady))
            .map(|(row, _)| row.strategy.as_str())
            .collect();
        if named.len() == runs.len() {
            lines += &format!("note: {words}\n");
        } else if !named.is_empty() {
            lines += &format!("note: {}: {words}\n", named.join(", "));
        }
    }
    let heading = "steady state: 95 % confidence intervals of one run, by batches of its requests";
    if markdown { format!("\n{heading}\n\n{lines}") } else { format!("\n{heading}\n{lines}") }
}

/// Half the width of an interval that says something.
fn told(estimate: &Estimate) -> Option<f64> {
    estimate.half.filter(|half| tells(estimate.value, *half))
}

fn text(estimate: &Estimate, unit_ns: f64) -> String {
    let value = three(estimate.value / unit_ns);
    match told(estimate) {
        Some(half) => format!("{value} ± {}", three(half / unit_ns)),
        None => value,
    }
}
