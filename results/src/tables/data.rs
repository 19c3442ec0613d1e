//! Tables as data: a record for each figure of a claim, a line for each run of a listing.

use polars::prelude::{Column, DataFrame, NamedFrom, PolarsError, Series};

use polars_io::prelude::{CsvWriter, SerWriter};
use serde::Serialize;

use super::claims::{Claim, Listing};
use super::page::Page;
use crate::failure::Failure;

fn internal(error: PolarsError) -> Failure {
    Failure::input(format!("the table: {error}"))
}

/// A figure of a claim: a line of the table's data.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Record {
    pub table: String,
    pub row: u64,
    pub claim: String,
    /// The run, where the row is about several.
    pub run: String,
    /// Which figure of a list, from 1.
    pub part: u64,
    pub figure: String,
    pub value: Option<f64>,
    /// Half of the 95 % interval.
    pub half: Option<f64>,
    pub seeds: Option<u64>,
    pub unit: String,
    pub rule: String,
    pub verdict: String,
    pub condition: String,
    pub devices: String,
    pub version: String,
    pub command: String,
}

/// Claims: a record for each of their runs, and for each part of a list.
pub fn records(page: &Page) -> Vec<Record> {
    let of = |claim: &Claim| {
        let row = &claim.row;
        let mut all = Vec::new();
        for target in &claim.targets {
            let figures = target
                .figures
                .as_ref()
                .map_or_else(|_| vec![None], |figures| figures.iter().copied().map(Some).collect());
            all.extend(figures.into_iter().zip(1..).map(|(figure, part)| Record {
                table: page.name.clone(),
                row: claim.number as u64,
                claim: row.claim.clone(),
                run: target.label.clone(),
                part,
                figure: row.figure.as_ref().clone(),
                value: figure.map(|figure| figure.mean),
                half: figure.and_then(|figure| figure.half),
                seeds: figure.map(|figure| figure.seeds as u64),
                unit: row.unit.clone(),
                rule: row.rule.as_ref().clone(),
                verdict: claim.verdict.to_string(),
                condition: row.condition.clone(),
                devices: page.devices.join("; "),
                version: page.version.clone(),
                command: page.command(claim.number),
            }));
        }
        all
    };
    page.claims.iter().flat_map(of).collect()
}

/// The records as a frame.
///
/// # Errors
/// None that an input can cause.
pub fn claims(page: &Page) -> Result<DataFrame, Failure> {
    let all = records(page);
    let text = |name: &str, of: fn(&Record) -> &str| {
        Column::from(Series::new(name.into(), all.iter().map(of).collect::<Vec<_>>()))
    };
    let count = |name: &str, of: fn(&Record) -> Option<u64>| {
        Column::from(Series::new(name.into(), all.iter().map(of).collect::<Vec<_>>()))
    };
    let real = |name: &str, of: fn(&Record) -> Option<f64>| {
        Column::from(Series::new(name.into(), all.iter().map(of).collect::<Vec<_>>()))
    };
    let columns = vec![
        text("table", |record| &record.table),
        count("row", |record| Some(record.row)),
        text("claim", |record| &record.claim),
        text("run", |record| &record.run),
        count("part", |record| Some(record.part)),
        text("figure", |record| &record.figure),
        real("value", |record| record.value),
        real("half", |record| record.half),
        count("seeds", |record| record.seeds),
        text("unit", |record| &record.unit),
        text("rule", |record| &record.rule),
        text("verdict", |record| &record.verdict),
        text("condition", |record| &record.condition),
        text("devices", |record| &record.devices),
        text("version", |record| &record.version),
        text("command", |record| &record.command),
    ];
    DataFrame::new(all.len(), columns).map_err(internal)
}

/// The records as CSV, its columns in the frame's order.
///
/// # Errors
/// None that an input can cause.
pub fn csv(page: &Page) -> Result<String, Failure> {
    let mut text = Vec::new();
    CsvWriter::new(&mut text).finish(&mut claims(page)?).map_err(internal)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A listing: a line for each run; of several seeds the mean, and half of its interval beside it.
///
/// # Errors
/// Two columns of one name.
pub fn listing(listing: &Listing) -> Result<DataFrame, Failure> {
    let labels: Vec<&str> = listing.rows.iter().map(|(label, _)| label.as_str()).collect();
    let mut columns = vec![Column::from(Series::new(listing.label.as_str().into(), labels))];
    for (index, name) in listing.columns.iter().enumerate() {
        let figures = || listing.rows.iter().map(|(_, figures)| figures[index]);
        let means: Vec<Option<f64>> = figures().map(|figure| Some(figure?.mean)).collect();
        columns.push(Column::from(Series::new(name.into(), means)));
        let halves: Vec<Option<f64>> = figures().map(|figure| figure?.half).collect();
        if halves.iter().any(Option::is_some) {
            columns.push(Column::from(Series::new(format!("{name}, half").into(), halves)));
        }
    }
    DataFrame::new(listing.rows.len(), columns).map_err(internal)
}
