//! Who ran: the columns that all figures of a run share.

use std::collections::BTreeMap;

use super::metrics::{self, Metric, Value};
use crate::row::Row;

/// A run and its metrics. Columns: see [`crate::frame`].
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Run {
    pub experiment: String,
    pub run: String,
    pub workload: String,
    pub settings: String,
    pub passes: String,
    pub trace: String,
    pub strategy: String,
    pub options: String,
    pub device: String,
    pub cost_table: String,
    pub capacity: u64,
    pub seed: Option<u64>,
    pub outcome: String,
    pub reason: String,
    pub version: String,
    pub metrics: Vec<Metric>,
}

impl Run {
    /// What `row` says; who asked for what is left to the caller.
    pub fn new(experiment: &str, run: &str, row: &Row) -> Self {
        Self {
            experiment: experiment.to_owned(),
            run: run.to_owned(),
            strategy: row.strategy.clone(),
            options: pairs(&row.options),
            device: row.device.clone(),
            cost_table: row.cost_table.clone(),
            capacity: row.capacity,
            seed: row.seed,
            outcome: row.outcome.to_owned(),
            reason: row.reason.clone().unwrap_or_default(),
            version: row.vramlab.to_owned(),
            metrics: metrics::of(row),
            ..Self::default()
        }
    }

    /// The metric of this name.
    pub fn metric(&self, name: &str) -> Option<Value> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    /// Was it run to its end (or recorded)?
    pub fn ran(&self) -> bool {
        matches!(self.outcome.as_str(), "ok" | "oom" | "recorded")
    }
}

/// `k=v,…`, by name.
pub(crate) fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
