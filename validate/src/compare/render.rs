//! Comparisons as text.

use super::{Pair, Times};
use crate::failure::{Code, Failure};
use crate::output::{Format, table, time};

/// In this format.
pub(super) fn render(pairs: &[Pair], format: Format) -> Result<String, Failure> {
    match format {
        Format::Json => json_lines(pairs),
        Format::Table => Ok(text(pairs, false)),
        Format::Markdown => Ok(text(pairs, true)),
    }
}

/// One object a line.
pub(super) fn json_lines(pairs: &[Pair]) -> Result<String, Failure> {
    let mut text = String::new();
    for pair in pairs {
        let line = serde_json::to_string(pair).map_err(|e| Failure::new(Code::CannotWrite, e))?;
        text += &line;
        text.push('\n');
    }
    Ok(text)
}

fn text(pairs: &[Pair], markdown: bool) -> String {
    let rows: Vec<Vec<String>> = pairs.iter().map(row).collect();
    let titles = [
        "input<",
        "strategy<",
        "ops",
        "outcome<",
        "placements",
        "driver calls",
        "reserved",
        "failures",
    ];
    let mut text = table(&titles, &rows, markdown) + "\n";
    for pair in pairs {
        let name = format!("{} through {}", pair.input, pair.strategy);
        if let Some(reason) = &pair.reason {
            text += &format!("\n{name}: {}: {reason}\n", pair.outcome);
        }
        if let Some(differences) = pair.differences.as_ref().filter(|found| found.any()) {
            text += &format!("\n{name}: {} ops differ; the first:\n", differences.count());
            for what in &differences.first {
                text += &format!("  {what}\n");
            }
        }
    }
    let equal = pairs.iter().filter(|pair| pair.outcome == "equal").count();
    let skipped = pairs.iter().filter(|pair| pair.outcome == "skipped").count();
    let differences: u64 =
        pairs.iter().filter_map(|pair| pair.differences.as_ref()).map(|found| found.count()).sum();
    text += &format!(
        "\n{} pairs: {equal} equal, {skipped} skipped, {} others; {differences} differences\n",
        pairs.len(),
        pairs.len() - equal - skipped
    );
    let times = joined(pairs);
    if !times.is_empty() {
        text += "\nHost time, simulated and real (error: simulated over real, minus 1), worst pair by median:\n\n";
        let titles = [
            "what<", "pairs", "calls", "p50", "real", "error", "p90", "real", "error", "p99",
            "real", "error",
        ];
        text += &(table(&titles, &times, markdown) + "\n");
    }
    text
}

fn row(pair: &Pair) -> Vec<String> {
    let count = |of: fn(&super::Differences) -> u64| {
        pair.differences.as_ref().map_or_else(|| "-".to_owned(), |found| of(found).to_string())
    };
    vec![
        pair.input.clone(),
        pair.strategy.clone(),
        pair.ops.to_string(),
        pair.outcome.to_owned(),
        count(|found| found.placements),
        count(|found| found.driver_calls),
        count(|found| found.reserved),
        count(|found| found.failures),
    ]
}

/// One row for each thing that was timed: the pair whose median is furthest off.
fn joined(pairs: &[Pair]) -> Vec<Vec<String>> {
    let mut names: Vec<&str> = Vec::new();
    for times in pairs.iter().flat_map(|pair| &pair.times) {
        if !names.contains(&times.what.as_str()) {
            names.push(&times.what);
        }
    }
    let row = |name: &&str| {
        let all: Vec<&Times> = pairs
            .iter()
            .flat_map(|pair| &pair.times)
            .filter(|times| times.what == **name)
            .collect();
        let off = |times: &&&Times| {
            let (one, two) = (times.simulated.p50.max(1) as f64, times.real.p50.max(1) as f64);
            (one / two).ln().abs()
        };
        let worst = all.iter().max_by(|a, b| off(a).total_cmp(&off(b)))?;
        let mut cells =
            vec![(*name).to_owned(), all.len().to_string(), worst.real.count.to_string()];
        for (one, two) in [
            (worst.simulated.p50, worst.real.p50),
            (worst.simulated.p90, worst.real.p90),
            (worst.simulated.p99, worst.real.p99),
        ] {
            cells.extend([time(one as f64), time(two as f64), error(one, two)]);
        }
        Some(cells)
    };
    names.iter().filter_map(row).collect()
}

/// How far the simulated value is from the real one.
pub(crate) fn error(simulated: u64, real: u64) -> String {
    match (simulated, real) {
        (one, two) if one == two => "0 %".to_owned(),
        (_, 0) => "-".to_owned(),
        (one, two) => format!("{:+.1} %", (one as f64 / two as f64 - 1.0) * 100.0),
    }
}
