//! Ours beside what was measured or recorded, as figures of a run: by the paths of `vramlab measured` and `vramlab replay --verify`.
//!
//! | run | file | figures |
//! |---|---|---|
//! | `measured` | a set-up beside a recording | `peak_requested`, `peak_requested_measured`, … of [`Beside`](crate::measured::Beside); `failed`, `failed_measured`, `same_failure` (1 or 0; both in one phase, or none) |
//! | `measured` | requests of a server's measured run | of each quantity `NAME.measured`, `NAME.fitted`, `NAME.longer`, `NAME.roofline`, see [`crate::serving`]; other characters than letters and digits in a quantity's name are `_` |
//! | `verify` | a snapshot | `placed`, `matched`, … of [`Check`](crate::check::Check), over its devices; `histories`, `not_verifiable` |

use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;

use super::cells::plain;
use crate::check::check;
use crate::failure::Failure;
use crate::frame::{Metric, Value};
use crate::inputs::{self, Opened};
use crate::measured;
use crate::serving::{recorded, table};

/// Figures, or why there are none.
pub type Found = Result<Vec<Metric>, String>;

/// Whole numbers among the fields of a struct.
fn numbers(of: &impl Serialize) -> Vec<(String, u64)> {
    let Ok(Json::Object(fields)) = serde_json::to_value(of) else { return Vec::new() };
    fields.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

fn exact(name: &str, value: u64) -> Metric {
    Metric::new(name, Value::Exact(value))
}

/// Of a set-up, or of a server's requests.
///
/// # Errors
/// A file that cannot be read, or asks for what cannot be run.
pub fn measured(path: &Path) -> Result<Found, Failure> {
    if recorded::is_runs(path) {
        let lines = table::lines(&recorded::runs(path)?)?;
        let figures = lines.iter().flat_map(|line| {
            let name = plain(&line.quantity);
            let all = [
                ("measured", line.measured),
                ("fitted", line.fitted),
                ("longer", line.longer),
                ("roofline", line.roofline),
            ];
            all.into_iter().filter_map(move |(whose, value)| {
                let name = format!("{name}.{whose}");
                Some(Metric { name, unit: line.unit, value: Value::Real(value?) })
            })
        });
        return Ok(Ok(ran(figures.collect())));
    }
    let found = measured::read(path)?;
    let Some(setup) = found.setups.first() else {
        let why = found.left_out.into_iter().next().map(|(_, why)| why);
        return Ok(Err(why.unwrap_or_else(|| "no set-up that a workload can express".to_owned())));
    };
    let beside = setup.run()?;
    let mut metrics: Vec<Metric> =
        numbers(&beside).iter().map(|(name, value)| exact(name, *value)).collect();
    let (ours, theirs) = (&beside.failed_in, &beside.failed_in_measured);
    metrics.push(exact("failed", u64::from(ours.is_some())));
    metrics.push(exact("failed_measured", u64::from(theirs.is_some())));
    metrics.push(exact("same_failure", u64::from(ours == theirs)));
    Ok(Ok(ran(metrics)))
}

/// Of a snapshot.
///
/// # Errors
/// A file that cannot be read, or settings that the strategy refuses.
pub fn verified(path: &Path) -> Result<Found, Failure> {
    let opened = inputs::open(path)?;
    let Opened::Snapshot(snapshot) = &opened else {
        return Ok(
            Err("no PyTorch snapshot, which alone says where things were placed".to_owned()),
        );
    };
    if snapshot.devices.is_empty() {
        return Ok(Err("no history of allocations in it".to_owned()));
    }
    let spec = opened.recorded_spec(None)?;
    let mut sums: Vec<(String, u64)> = Vec::new();
    let mut unverifiable = 0;
    for device in &snapshot.devices {
        let found = check(device, &spec, None)?;
        unverifiable += u64::from(found.not_verifiable.is_some());
        for (name, value) in numbers(&found) {
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += value,
                None => sums.push((name, value)),
            }
        }
    }
    let mut metrics: Vec<Metric> = sums.iter().map(|(name, sum)| exact(name, *sum)).collect();
    metrics.push(exact("histories", snapshot.devices.len() as u64));
    metrics.push(exact("not_verifiable", unverifiable));
    Ok(Ok(ran(metrics)))
}

fn ran(mut metrics: Vec<Metric>) -> Vec<Metric> {
    metrics.insert(0, exact("ran", 1));
    metrics
}
