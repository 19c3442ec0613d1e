//! Ours beside what was measured, as figures of a run: by the paths of `vramlab measured`.
//!
//! | file | figures |
//! |---|---|
//! | a set-up beside a recording | `peak_requested`, `peak_requested_measured`, … of [`Beside`](crate::measured::Beside) |
//! | requests of a server's measured run | of each quantity `NAME.measured`, `NAME.fitted`, `NAME.longer`, `NAME.roofline`, see [`crate::serving`]; other characters than letters and digits in a quantity's name are `_` |

use std::path::Path;

use serde_json::Value as Json;

use super::cells::plain;
use crate::failure::Failure;
use crate::frame::{Metric, Value};
use crate::measured;
use crate::serving::{recorded, table};

/// Figures, or why there are none.
pub type Found = Result<Vec<Metric>, String>;

/// Of a set-up, or of a server's requests.
///
/// # Errors
/// A file that cannot be read, or asks for what cannot be run.
pub fn measured(path: &Path) -> Result<Found, Failure> {
    let ran = vec![Metric::new("ran", Value::Exact(1))];
    if recorded::is_runs(path) {
        return Ok(Ok([ran, server(path)?].concat()));
    }
    let found = measured::read(path)?;
    let Some(setup) = found.setups.first() else {
        let why = found.left_out.into_iter().next().map(|(_, why)| why);
        return Ok(Err(why.unwrap_or_else(|| "no set-up that a workload can express".to_owned())));
    };
    let Ok(Json::Object(fields)) = serde_json::to_value(setup.run()?) else { return Ok(Ok(ran)) };
    let number =
        |(name, value): (&String, &Json)| Some(Metric::new(name, Value::Exact(value.as_u64()?)));
    Ok(Ok(ran.into_iter().chain(fields.iter().filter_map(number)).collect()))
}

fn server(requests: &Path) -> Result<Vec<Metric>, Failure> {
    let lines = table::lines(&recorded::runs(requests)?)?;
    let metrics = lines.iter().flat_map(|line| {
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
    Ok(metrics.collect())
}
