//! Benchmarks as tables: one for each group, with a picture; and as records, one line for each benchmark.

use polars::prelude::{Column, DataFrame, NamedFrom, Series};
use polars_io::prelude::{CsvWriter, SerWriter};
use serde::Serialize;

use super::read::Benchmark;
use crate::failure::Failure;
use crate::figures::Picture;
use crate::figures::bars::{BARS_MAX, Bar, Bars};
use crate::figures::scale::Unit;
use crate::tables::claims::{Figure, Listing};
use crate::tables::page::Page;

/// Where the largest time is so many times the least, bars are logarithmic.
const LOG: f64 = 30.0;

/// A line of data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Record {
    pub group: String,
    pub benchmark: String,
    /// Of one iteration.
    pub median_ns: f64,
    /// Its interval.
    pub low_ns: f64,
    pub high_ns: f64,
    pub level: f64,
    /// A second.
    pub throughput: Option<f64>,
    pub throughput_unit: Option<&'static str>,
    pub against: Option<String>,
    /// How many times as long as the baseline.
    pub times: Option<f64>,
}

/// A line for each benchmark; `times` are those of [`super::against::times`].
pub fn records(all: &[Benchmark], against: Option<&str>, times: &[Option<f64>]) -> Vec<Record> {
    let times = times.iter().copied().chain(std::iter::repeat(None));
    let record = |(one, times): (&Benchmark, Option<f64>)| Record {
        group: one.group.clone(),
        benchmark: one.name.clone(),
        median_ns: one.median.ns,
        low_ns: one.median.low,
        high_ns: one.median.high,
        level: one.median.level,
        throughput: one.throughput.as_ref().map(|t| t.count as f64 / one.median.ns * 1e9),
        throughput_unit: one.throughput.as_ref().map(|throughput| throughput.unit),
        against: against.map(str::to_owned),
        times,
    };
    all.iter().zip(times).map(record).collect()
}

/// The records as a frame.
///
/// # Errors
/// None that an input can cause.
pub fn frame(records: &[Record]) -> Result<DataFrame, Failure> {
    let text = |name: &str, of: fn(&Record) -> Option<&str>| {
        Column::from(Series::new(name.into(), records.iter().map(of).collect::<Vec<_>>()))
    };
    let real = |name: &str, of: fn(&Record) -> Option<f64>| {
        Column::from(Series::new(name.into(), records.iter().map(of).collect::<Vec<_>>()))
    };
    let columns = vec![
        text("group", |one| Some(&one.group)),
        text("benchmark", |one| Some(&one.benchmark)),
        real("median_ns", |one| Some(one.median_ns)),
        real("low_ns", |one| Some(one.low_ns)),
        real("high_ns", |one| Some(one.high_ns)),
        real("level", |one| Some(one.level)),
        real("throughput", |one| one.throughput),
        text("throughput_unit", |one| one.throughput_unit),
        text("against", |one| one.against.as_deref()),
        real("times", |one| one.times),
    ];
    DataFrame::new(records.len(), columns)
        .map_err(|error| Failure::input(format!("the benchmarks: {error}")))
}

/// The records as CSV, its columns in the frame's order.
///
/// # Errors
/// None that an input can cause.
pub fn csv(records: &[Record]) -> Result<String, Failure> {
    let mut text = Vec::new();
    CsvWriter::new(&mut text)
        .finish(&mut frame(records)?)
        .map_err(|error| Failure::input(format!("the benchmarks: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// All groups as one page; `again` is the command that makes it.
///
/// # Errors
/// None that an input can cause.
pub fn page(records: &[Record], again: String) -> Result<Page, Failure> {
    let (mut listings, mut figures) = (Vec::new(), Vec::new());
    for group in records.chunk_by(|a, b| a.group == b.group) {
        let unit = unit(group);
        listings.push(listing(group, unit));
        for part in group.chunks(BARS_MAX) {
            figures.push(bars(part, unit)?);
        }
    }
    Ok(Page {
        name: "bench".to_owned(),
        again,
        title: "Benchmarks".to_owned(),
        about: "Medians of one iteration with their intervals, as criterion estimated them. Times are those of the machine that ran them: compare within one run."
            .to_owned(),
        quick: false,
        claims: Vec::new(),
        listings,
        figures,
        devices: Vec::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Of a group: that of its longest time.
fn unit(group: &[Record]) -> Unit {
    Unit::time(group.iter().map(|one| one.high_ns).fold(0.0, f64::max) as u64)
}

/// The intervals' level, in percent.
fn level(group: &[Record]) -> String {
    let level = group.first().map_or(0.95, |one| one.level);
    format!("{} %", (level * 1000.0).round() / 10.0)
}

fn listing(group: &[Record], unit: Unit) -> Listing {
    let first = group.first();
    let name = first.map_or("", |one| &one.group);
    let mut columns = vec![format!("median {}", unit.name), "from".to_owned(), "to".to_owned()];
    let throughput = group.iter().find_map(|one| one.throughput_unit);
    columns.extend(throughput.map(|unit| format!("M {unit}/s")));
    let against = first.and_then(|one| one.against.as_deref());
    columns.extend(against.map(|against| format!("times {against}")));
    let plain = |mean: f64| Some(Figure { mean, half: None, seeds: 1 });
    let row = |one: &Record| {
        let times = [one.median_ns, one.low_ns, one.high_ns];
        let mut figures: Vec<Option<Figure>> = times.map(|ns| plain(ns / unit.one)).to_vec();
        if let Some(unit) = throughput {
            let same = one.throughput.filter(|_| one.throughput_unit == Some(unit));
            figures.push(same.and_then(|count| plain(count / 1e6)));
        }
        if against.is_some() {
            figures.push(one.times.and_then(plain));
        }
        (one.benchmark.clone(), figures)
    };
    Listing {
        title: name.to_owned(),
        label: "benchmark".to_owned(),
        about: format!("from and to: the {} interval of the median", level(group)),
        columns,
        rows: group.iter().map(row).collect(),
        missing: Vec::new(),
    }
}

fn bars(group: &[Record], unit: Unit) -> Result<Picture, Failure> {
    let bar = |one: &Record| Bar {
        label: one.benchmark.clone(),
        value: one.median_ns / unit.one,
        interval: Some((one.low_ns / unit.one, one.high_ns / unit.one)),
    };
    let (least, most) = group.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), one| {
        (least.min(one.median_ns), most.max(one.median_ns))
    });
    Bars {
        name: format!("median of {}", group.first().map_or("", |one| &one.group)),
        unit: unit.name.to_owned(),
        words: format!("one iteration, with the {} interval", level(group)),
        bars: group.iter().map(bar).collect(),
        log: most > LOG * least,
        ..Bars::default()
    }
    .picture()
}
