//! The tidy frame: one row per run and figure, from which tables, figures and sweeps are made.
//!
//! ```text
//! Row (what a run gave) ─▶ Run (who ran, and its metrics) ─▶ Frame ─▶ CSV, Parquet, groups with intervals
//! ```
//!
//! | column | type | is |
//! |---|---|---|
//! | `experiment`, `run` | text | the experiment's name, and the run's id in it; runs of one id differ by their seed |
//! | `workload`, `settings`, `passes`, `trace` | text | what was run: a workload with its `k=v,…` and passes, or a file; empty where there is none |
//! | `strategy`, `options` | text | the spec, and the options in it |
//! | `device`, `cost_table` | text | where, and whose prices |
//! | `capacity` | u64, B | of the device |
//! | `seed` | u64 or null | of the run |
//! | `outcome`, `reason` | text | `ok`, `oom`, `skipped`, `driver_error`, `recorded`; and why, if it did not run |
//! | `metric`, `unit` | text | names and units of [`metrics`] |
//! | `value` | f64 | the figure |
//! | `exact` | u64 or null | the same, of bytes, ns and counts: exact beyond 2^53 |
//! | `version` | text | of vramlab |
//!
//! Every run has at least the metric `ran` (1 or 0), so that one that was left out is seen.
//!
//! In use: [`Run::new`] makes a run of a [`crate::row::Row`], [`Frame::of`] a frame of runs; [`Frame::write`] and [`Frame::read`] take CSV or Parquet by the
//! ending; [`Frame::stack`] puts frames under each other; [`Frame::intervals`] gives mean, interval and count over seeds; [`Frame::data`] is the polars frame, for joins.

mod files;
mod groups;
pub mod metrics;
mod run;

use polars::prelude::{Column, DataFrame, DataType, NamedFrom, PolarsError, Series};

use crate::failure::Failure;
pub(crate) use files::write_data;
pub use metrics::{Metric, Value};
pub use run::Run;

/// Names and types of the columns, in order.
const COLUMNS: [(&str, DataType); 19] = [
    ("experiment", DataType::String),
    ("run", DataType::String),
    ("workload", DataType::String),
    ("settings", DataType::String),
    ("passes", DataType::String),
    ("trace", DataType::String),
    ("strategy", DataType::String),
    ("options", DataType::String),
    ("device", DataType::String),
    ("cost_table", DataType::String),
    ("capacity", DataType::UInt64),
    ("seed", DataType::UInt64),
    ("outcome", DataType::String),
    ("reason", DataType::String),
    ("metric", DataType::String),
    ("unit", DataType::String),
    ("value", DataType::Float64),
    ("exact", DataType::UInt64),
    ("version", DataType::String),
];

/// Rows with the columns of this module.
#[derive(Clone, Debug)]
pub struct Frame(DataFrame);

/// An error of polars that no input can cause.
fn internal(error: PolarsError) -> Failure {
    Failure::input(format!("the frame: {error}"))
}

impl Frame {
    /// Of these runs, in their order.
    ///
    /// # Errors
    /// None that an input can cause.
    pub fn of(runs: &[Run]) -> Result<Self, Failure> {
        let rows = || runs.iter().flat_map(|run| run.metrics.iter().map(move |m| (run, m)));
        let height = rows().count();
        let text = |of: fn(&Run) -> &str| rows().map(|(run, _)| of(run)).collect::<Vec<_>>();
        let named = |name: &str| -> Series {
            match name {
                "experiment" => Series::new(name.into(), text(|run| &run.experiment)),
                "run" => Series::new(name.into(), text(|run| &run.run)),
                "workload" => Series::new(name.into(), text(|run| &run.workload)),
                "settings" => Series::new(name.into(), text(|run| &run.settings)),
                "passes" => Series::new(name.into(), text(|run| &run.passes)),
                "trace" => Series::new(name.into(), text(|run| &run.trace)),
                "strategy" => Series::new(name.into(), text(|run| &run.strategy)),
                "options" => Series::new(name.into(), text(|run| &run.options)),
                "device" => Series::new(name.into(), text(|run| &run.device)),
                "cost_table" => Series::new(name.into(), text(|run| &run.cost_table)),
                "outcome" => Series::new(name.into(), text(|run| &run.outcome)),
                "reason" => Series::new(name.into(), text(|run| &run.reason)),
                "version" => Series::new(name.into(), text(|run| &run.version)),
                "capacity" => numbers(name, rows().map(|(run, _)| Some(run.capacity))),
                "seed" => numbers(name, rows().map(|(run, _)| run.seed)),
                "exact" => numbers(name, rows().map(|(_, metric)| metric.value.exact())),
                "metric" => {
                    let names: Vec<&str> = rows().map(|(_, metric)| &*metric.name).collect();
                    Series::new(name.into(), names)
                }
                "unit" => {
                    let units: Vec<&str> = rows().map(|(_, metric)| metric.unit).collect();
                    Series::new(name.into(), units)
                }
                _ => {
                    let values: Vec<f64> =
                        rows().map(|(_, metric)| metric.value.as_f64()).collect();
                    Series::new(name.into(), values)
                }
            }
        };
        let columns = COLUMNS.iter().map(|(name, _)| Column::from(named(name))).collect();
        DataFrame::new(height, columns).map(Self).map_err(internal)
    }

    /// A frame whose columns are these, in this order.
    ///
    /// # Errors
    /// A column that is missing, or of another type.
    pub fn from_data(data: DataFrame) -> Result<Self, Failure> {
        for (name, kind) in &COLUMNS {
            let found = data.column(name).map_err(|_| {
                let names: Vec<&str> = data.get_column_names().iter().map(|n| n.as_str()).collect();
                Failure::input(format!("no column {name}; found {}", names.join(", ")))
            })?;
            if found.dtype() != kind {
                let dtype = found.dtype();
                return Err(Failure::input(format!(
                    "column {name} is of type {dtype}, expected {kind}"
                )));
            }
        }
        data.select(COLUMNS.map(|(name, _)| name)).map(Self).map_err(internal)
    }

    /// The frames under each other.
    ///
    /// # Errors
    /// None that an input can cause.
    pub fn stack(frames: impl IntoIterator<Item = Self>) -> Result<Self, Failure> {
        let mut all = Self::of(&[])?;
        for frame in frames {
            all.0.vstack_mut_owned(frame.0).map_err(internal)?;
        }
        all.0.rechunk_mut();
        Ok(all)
    }

    /// The polars frame.
    pub fn data(&self) -> &DataFrame {
        &self.0
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.0.height()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn numbers(name: &str, values: impl Iterator<Item = Option<u64>>) -> Series {
    Series::new(name.into(), values.collect::<Vec<_>>())
}
