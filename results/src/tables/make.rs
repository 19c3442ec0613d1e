//! From an experiment to its finished table.

use super::cells::{self, Cell};
use super::claims::{self, Given, Listing};
use super::experiment::{Experiment, RowSpec};
use super::figures;
use super::page::Page;
use super::run;
use crate::failure::Failure;
use crate::frame::Run;

/// A table, and the runs that it was made from.
pub struct Made {
    /// As it is printed.
    pub page: Page,
    /// As the frame has them.
    pub runs: Vec<Run>,
}

/// Runs and judges an experiment; with `row`, only that row and what it needs.
///
/// # Errors
/// What is wrong with the file, with its line; a row that it does not have; bad inputs.
pub fn make(
    experiment: &Experiment,
    asked: &str,
    row: Option<usize>,
    quick: bool,
    quiet: bool,
) -> Result<Made, Failure> {
    let file = &experiment.file;
    let mut cells = cells::cells(experiment, quick)?;
    claims::check(experiment, &cells)?;
    let rows = || (1..).zip(&experiment.rows).map(|(number, row)| (number, row.as_ref()));
    if let Some(wanted) = row {
        let (_, row) = rows().find(|(number, _)| *number == wanted).ok_or_else(|| {
            let count = experiment.rows.len();
            Failure::usage(format!("--row {wanted}: {} has the rows 1 to {count}", file.path))
        })?;
        let needed = claims::needs(experiment, &cells, row)?;
        cells.iter_mut().for_each(|cell| cell.skipped |= !needed.contains(&cell.id));
    }
    let runs = run::run_all(file, &cells, quiet)?;
    let given = Given::new(file, &cells, &runs);
    let wanted = |number: usize| row.is_none_or(|row| row == number);
    let claims = rows()
        .filter(|(number, _)| wanted(*number))
        .map(|(number, row): (usize, &RowSpec)| given.claim(number, row))
        .collect::<Result<_, _>>()?;
    let listings = experiment.listings.iter().filter(|_| row.is_none());
    let mut listings: Vec<Listing> = listings
        .map(|listing| given.listing(listing.span().start, listing.as_ref()))
        .collect::<Result<_, _>>()?;
    for matrix in experiment.matrices.iter().filter(|_| row.is_none()) {
        listings.extend(given.matrix(matrix)?);
    }
    let figures = match row {
        None => figures::drawn(experiment, &cells, &given)?,
        Some(_) => Vec::new(),
    };
    let page = Page {
        name: file.name.clone(),
        again: format!("vramlab tables {asked}"),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        quick,
        claims,
        listings,
        figures,
        devices: devices(&runs),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok(Made { page, runs })
}

/// The devices that runs ran on, with whose prices, each once.
fn devices(runs: &[Run]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for run in runs.iter().filter(|run| run.ran() && !run.device.is_empty()) {
        let text = format!("{}, costs {}", run.device, run.cost_table);
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Cells of an experiment, for its content key.
///
/// # Errors
/// As [`make`].
pub fn cells_of(experiment: &Experiment, quick: bool) -> Result<Vec<Cell>, Failure> {
    let cells = cells::cells(experiment, quick)?;
    claims::check(experiment, &cells)?;
    Ok(cells)
}
