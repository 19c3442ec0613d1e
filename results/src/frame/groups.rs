//! Groups over seeds: mean, 95 % interval, count.

use polars::prelude::{Column, DataFrame, IntoLazy, LazyFrame, NamedFrom, Series, col, len};

use super::{Frame, internal};
use crate::failure::Failure;
use crate::statistics::Interval;

/// Columns that tell apart what is not a repetition of the same run.
const KEY: [&str; 14] = [
    "experiment",
    "run",
    "workload",
    "settings",
    "passes",
    "trace",
    "strategy",
    "options",
    "device",
    "cost_table",
    "capacity",
    "metric",
    "unit",
    "version",
];

impl Frame {
    /// One row per run id and metric over its seeds: the columns that tell runs apart, `mean`, `half` (of the 95 % Student-t interval; null of
    /// fewer than two seeds), `least`, `most` and `seeds`, in the order of the frame.
    ///
    /// # Errors
    /// None that an input can cause.
    pub fn intervals(&self) -> Result<DataFrame, Failure> {
        self.intervals_by(&KEY)
    }

    /// The same for groups by other columns of the frame.
    ///
    /// # Errors
    /// A column that the frame does not have.
    pub fn intervals_by(&self, columns: &[&str]) -> Result<DataFrame, Failure> {
        let by: Vec<_> = columns.iter().map(|name| col(*name)).collect();
        let groups: LazyFrame = self.0.clone().lazy().group_by_stable(by).agg([
            col("value").mean().alias("mean"),
            col("value").std(1).alias("deviation"),
            col("value").min().alias("least"),
            col("value").max().alias("most"),
            len().alias("seeds"),
        ]);
        let mut groups = groups.collect().map_err(internal)?;
        let half: Vec<Option<f64>> = {
            let column = |name: &str| groups.column(name).map_err(internal);
            let means = column("mean")?.f64().map_err(internal)?;
            let deviations = column("deviation")?.f64().map_err(internal)?;
            let counts = column("seeds")?.u32().map_err(internal)?;
            let all = means.iter().zip(deviations.iter()).zip(counts.iter());
            all.map(|((mean, deviation), count)| {
                Interval::from_deviation(mean?, deviation?, count? as usize).map(|i| i.half)
            })
            .collect()
        };
        let half = Column::from(Series::new("half".into(), half));
        groups.with_column(half).map_err(internal)?;
        let wanted = columns.iter().copied().chain(["mean", "half", "least", "most", "seeds"]);
        groups.select(wanted).map_err(internal)
    }
}
