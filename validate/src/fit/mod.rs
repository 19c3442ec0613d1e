//! `fit`: from measurements to a device's file, each price with its dispersion and its error.
//!
//! | rule | what it says |
//! |---|---|
//! | `model` | a call costs a base price for each handle, and a price for each granule of its bytes; a link takes a latency and bytes over its bandwidth |
//! | `median` | what is fitted are medians; `low` and `high` of a price are the tenth and ninetieth percentile, in proportion |
//! | `weights` | each median counts by its own error, which comes from its spread and how often it was measured, and is at least 0.5 % |
//! | `nonnegative` | no price is below 0: one that would be is left out, and the other fitted alone; so is a slope that its own error covers |
//! | `error` | three standard errors of a coefficient, widened where the medians scatter more about the line than their own errors explain |
//! | `left_out` | what was not measured, or costs nothing, is the base device's |
//!
//! A batch of faults costs what a touch of all pages takes beyond the link. Evictions are not measured: for that a device would have to be
//! oversubscribed.

mod line;
mod render;

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Code, Outcome};
use crate::measure::{Head, Measured, Row};
use crate::output::{Format, print, write_whole};

pub(crate) use line::{Line, Point, fit_line};

/// Arguments.
#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// What measure wrote.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Short name of the device, as --device takes it.
    #[arg(long, value_name = "NAME", default_value = "measured")]
    name: String,
    /// The built-in device that has what was not measured.
    #[arg(long, value_name = "NAME", default_value = "generic")]
    based_on: String,
    /// The device's file to write.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What a price depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing.
    Flat,
    /// The granules of its bytes, and handles.
    Granules,
    /// Batches of faults and blocks in them, beyond what the link takes.
    Faults,
}

/// Prices that are fitted: their name in the cost table, and the measurements (all states that are not named here are for people).
const PRICES: [(&str, &str, &[&str], Shape); 37] = {
    use Shape::{Faults, Flat, Granules};
    const IDLE: &[&str] = &["idle"];
    [
        ("cudaMalloc", "cudaMalloc", IDLE, Granules),
        ("malloc_packed", "malloc_packed", &["beside a small one"], Flat),
        ("cudaFree", "cudaFree", IDLE, Granules),
        ("cudaMemGetInfo", "cudaMemGetInfo", IDLE, Flat),
        ("cudaMallocHost", "cudaMallocHost", &["pinned"], Granules),
        ("cudaFreeHost", "cudaFreeHost", &["pinned"], Granules),
        ("cudaMemPoolCreate", "cudaMemPoolCreate", IDLE, Flat),
        ("cudaMemPoolDestroy", "cudaMemPoolDestroy", IDLE, Flat),
        ("cudaMemPoolSetAttribute", "cudaMemPoolSetAttribute", IDLE, Flat),
        ("cudaMemPoolGetAttribute", "cudaMemPoolGetAttribute", IDLE, Flat),
        ("cudaMemPoolTrimTo", "cudaMemPoolTrimTo", &["nothing to give"], Flat),
        ("cudaMallocAsync", "cudaMallocAsync", &["hit"], Granules),
        ("cudaFreeAsync", "cudaFreeAsync", &["pool"], Flat),
        ("pool_grow", "pool_grow", &["empty pool, above a hit"], Granules),
        ("pool_shrink", "pool_shrink", &["above an idle trim"], Granules),
        ("cuMemAddressReserve", "cuMemAddressReserve", IDLE, Granules),
        ("cuMemAddressFree", "cuMemAddressFree", IDLE, Granules),
        ("cuMemCreate", "cuMemCreate", IDLE, Granules),
        ("cuMemMap", "cuMemMap", IDLE, Granules),
        ("cuMemSetAccess", "cuMemSetAccess", &["idle", "many handles"], Granules),
        ("cuMemUnmap", "cuMemUnmap", &["idle", "many handles"], Granules),
        ("cuMemRelease", "cuMemRelease", IDLE, Granules),
        ("cudaMallocManaged", "cudaMallocManaged", IDLE, Granules),
        ("cudaMemPrefetchAsync", "cudaMemPrefetchAsync", &["to the host"], Granules),
        ("cudaMemAdvise", "cudaMemAdvise", IDLE, Granules),
        ("fault_batch", "device faults", &["pages on the host"], Faults),
        ("cudaStreamCreate", "cudaStreamCreate", IDLE, Flat),
        ("cudaStreamIsCapturing", "cudaStreamIsCapturing", IDLE, Flat),
        ("cudaStreamWaitEvent", "cudaStreamWaitEvent", IDLE, Flat),
        ("cudaStreamSynchronize", "cudaStreamSynchronize", IDLE, Flat),
        ("cudaDeviceSynchronize", "cudaDeviceSynchronize", IDLE, Flat),
        ("cudaEventCreate", "cudaEventCreate", IDLE, Flat),
        ("cudaEventRecord", "cudaEventRecord", IDLE, Flat),
        ("cudaEventQuery", "cudaEventQuery", &["complete"], Flat),
        ("cudaEventSynchronize", "cudaEventSynchronize", &["complete"], Flat),
        ("cudaEventDestroy", "cudaEventDestroy", IDLE, Flat),
        ("launch", "launch", IDLE, Flat),
    ]
};
/// Links that are fitted: their name, and the measurements.
const LINKS: [(&str, &str, &str); 3] = [
    ("host_to_device", "link.host_to_device", "pinned"),
    ("device_to_host", "link.device_to_host", "pinned"),
    ("device_to_device", "link.device_to_device", ""),
];
/// Faults on managed memory come by pages of this size, are served by blocks of that size, and in batches of so many (`vramlab_sim::device`, managed
/// memory, rules `page`, `block`, `batch`).
const FAULT_PAGE: u64 = 64 << 10;
const BLOCK: u64 = 2 << 20;
const FAULT_BATCH: u64 = 256;

/// A price, or a link's latency and ns a byte.
#[derive(Clone, Debug)]
pub(crate) struct Fitted {
    pub(crate) name: &'static str,
    pub(crate) line: Line,
    /// Tenth and ninetieth percentile over the median.
    pub(crate) spread: (f64, f64),
    /// Times that were measured.
    pub(crate) n: u64,
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) head: Head,
    pub(crate) prices: Vec<Fitted>,
    pub(crate) links: Vec<Fitted>,
}

/// Runs the command.
pub(crate) fn command(args: &FitArgs, format: Format) -> Outcome {
    let measured = Measured::read(&args.file)?;
    let fit = fit(&measured);
    let text = render::device_file(&fit, &args.name, &args.based_on)?;
    if let Some(path) = &args.out {
        write_whole(path, &text)?;
    }
    print(&render::goodness(&fit, format)?)?;
    Ok(Code::Done)
}

/// Fits all that was measured.
pub(crate) fn fit(measured: &Measured) -> Fit {
    let rows = |what: &str, states: &[&str]| -> Vec<&Row> {
        let wanted = |row: &&Row| row.what == what && states.contains(&row.state.as_str());
        measured.rows.iter().filter(wanted).collect()
    };
    let links: Vec<Fitted> = LINKS
        .iter()
        .filter_map(|(name, what, state)| {
            fitted(name, &rows(what, &[state]), |row| (1.0, row.bytes as f64, 0.0))
        })
        .collect();
    let granule = measured.head.granule;
    let link = links.iter().find(|link| link.name == "host_to_device").map(|link| link.line);
    let link_ns = |bytes: u64| link.map_or(0.0, |link| link.base + link.slope * bytes as f64);
    let price = |(name, what, states, shape): &(&'static str, &str, &[&str], Shape)| {
        fitted(name, &rows(what, states), |row| match shape {
            Shape::Flat => (1.0, 0.0, 0.0),
            Shape::Granules => (row.count as f64, row.bytes.div_ceil(granule) as f64, 0.0),
            Shape::Faults => {
                let batches = row.bytes.div_ceil(FAULT_PAGE).div_ceil(FAULT_BATCH);
                (batches as f64, row.bytes.div_ceil(BLOCK) as f64, link_ns(row.bytes))
            }
        })
    };
    let prices = PRICES.iter().filter_map(price).collect();
    Fit { head: measured.head.clone(), prices, links }
}

/// A line through the rows' medians. `place`: what the base and the slope are multiplied with, and the ns that something else takes. `None` where
/// there are no rows, or they cost nothing.
fn fitted(
    name: &'static str,
    rows: &[&Row],
    place: impl Fn(&Row) -> (f64, f64, f64),
) -> Option<Fitted> {
    let points: Vec<Point> = rows
        .iter()
        .map(|row| {
            let (base, slope, other) = place(row);
            let y = (row.quantiles.p50 as f64 - other).max(0.0);
            Point { base, slope, y, error: error_of(row) }
        })
        .collect();
    let line = fit_line(&points)?;
    let shares = |of: fn(&Row) -> u64| {
        let mut all: Vec<f64> = rows
            .iter()
            .filter(|row| row.quantiles.p50 > 0)
            .map(|row| of(row) as f64 / row.quantiles.p50 as f64)
            .collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(1.0)
    };
    let spread = (shares(|row| row.quantiles.p10), shares(|row| row.quantiles.p90));
    let n = rows.iter().map(|row| row.n).sum();
    Some(Fitted { name, line, spread, n })
}

/// Standard error of a row's median, in ns (rule `weights`).
fn error_of(row: &Row) -> f64 {
    // a normal distribution has 2.563 standard deviations between its tenth and ninetieth percentile, and the median's error is 1.253 times the mean's
    let spread = row.quantiles.p90.saturating_sub(row.quantiles.p10) as f64 / 2.563;
    let error = 1.253 * spread / (row.n.max(1) as f64).sqrt();
    error.max(row.quantiles.p50 as f64 * 0.005).max(0.5)
}

#[cfg(test)]
mod tests;
