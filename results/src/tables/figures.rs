//! The pictures of a table: bars of what its runs gave, or runs drawn anew with their first seed.

use rayon::prelude::*;
use toml::Spanned;

use super::cells::Cell;
use super::claims::{Figure, Given, found};
use super::experiment::{ColumnSpec, Experiment, FigureSpec, ListingSpec};
use super::expression::Expression;
use super::run;
use crate::analysis::inspection::When;
use crate::failure::Failure;
use crate::figures::bars::{Bar, Bars};
use crate::figures::subject::Subject;
use crate::figures::{Kind, Picture, capacity, latency, map, not_drawn, segments, sizes, time};

/// Runs of each picture, and what bars need.
///
/// # Errors
/// With file and line.
pub fn check(experiment: &Experiment, cells: &[Cell]) -> Result<(), Failure> {
    let file = &experiment.file;
    for spanned in &experiment.figures {
        let (at, spec) = (spanned.span().start, spanned.as_ref());
        let runs = found(file, at, &spec.runs, cells)?;
        let several = matches!(spec.kind, Kind::Bars | Kind::Latency | Kind::Capacity);
        if runs.is_empty() || (runs.len() > 1 && !several) {
            let count = runs.len();
            let most = if several { "at least one run" } else { "one run" };
            return Err(file.bad(at, format!("this picture has {count} runs, expected {most}")));
        }
        let bars = spec.kind == Kind::Bars;
        match (&spec.figure, &spec.name) {
            (Some(figure), Some(_)) if bars => {
                let text = figure.as_ref();
                Expression::parse(text).map_err(|e| {
                    file.bad(figure.span().start, format!("the figure {text:?}: {e}"))
                })?;
            }
            (None, None)
                if !bars && spec.unit.is_none() && spec.claimed.is_empty() && !spec.log => {}
            _ => {
                return Err(file.bad(
                    at,
                    "expected figure and name with kind = \"bars\", and only there; unit, claimed and log go with them",
                ));
            }
        }
    }
    Ok(())
}

/// All of them. In the place of one whose runs are not there, words say why.
///
/// # Errors
/// What is wrong with the file, with its line; inputs that are bad.
pub fn drawn(
    experiment: &Experiment,
    cells: &[Cell],
    given: &Given<'_>,
) -> Result<Vec<Picture>, Failure> {
    let figures = experiment.figures.iter();
    let bars = |spec: &Spanned<FigureSpec>| of_figures(experiment, spec, given);
    let pictures: Vec<Option<Picture>> = figures
        .clone()
        .map(|spec| (spec.as_ref().kind == Kind::Bars).then(|| bars(spec)).transpose())
        .collect::<Result<_, _>>()?;
    let all: Vec<(&Spanned<FigureSpec>, Option<Picture>)> = figures.zip(pictures).collect();
    all.into_par_iter()
        .map(|(spec, picture)| match picture {
            Some(picture) => Ok(picture),
            None => of_runs(experiment, spec, cells),
        })
        .collect()
}

/// Bars.
fn of_figures(
    experiment: &Experiment,
    spanned: &Spanned<FigureSpec>,
    given: &Given<'_>,
) -> Result<Picture, Failure> {
    let (at, spec) = (spanned.span().start, spanned.as_ref());
    let (Some(name), Some(figure)) = (&spec.name, &spec.figure) else {
        return Err(experiment.file.bad(at, "expected figure and name"));
    };
    let column = ColumnSpec { name: name.clone(), figure: figure.clone() };
    let listing = ListingSpec {
        title: name.clone(),
        about: String::new(),
        runs: spec.runs.clone(),
        columns: vec![column],
    };
    let listing = given.listing(at, &listing)?;
    let bar = |(label, figures): &(String, Vec<Option<Figure>>)| {
        let figure = figures.first()?.as_ref()?;
        let ends = |half: f64| (figure.mean - half, figure.mean + half);
        Some(Bar { label: label.clone(), value: figure.mean, interval: figure.half.map(ends) })
    };
    let bars: Vec<Bar> = listing.rows.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return not_drawn(name, &listing.missing.join("; "));
    }
    let mut words = experiment.title.clone();
    let gone = listing.missing.len() + listing.rows.len() - bars.len();
    if gone > 0 {
        words += &format!("; {gone} runs are not there");
    }
    let picture = Bars {
        name: name.clone(),
        unit: spec.unit.clone().unwrap_or_default(),
        words,
        bars,
        log: spec.log,
        claimed: spec.claimed.clone(),
        more_is_better: spec.more_is_better,
    };
    picture.picture().map_err(|e| experiment.file.bad(at, e))
}

/// Pictures of runs.
fn of_runs(
    experiment: &Experiment,
    spanned: &Spanned<FigureSpec>,
    cells: &[Cell],
) -> Result<Picture, Failure> {
    let (file, at, spec) = (&experiment.file, spanned.span().start, spanned.as_ref());
    let cells = found(file, at, &spec.runs, cells)?;
    let recordings = run::open(cells.iter().copied())?;
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    for cell in &cells {
        match run::input_of(cell, &recordings).map_err(|e| file.bad(cell.at, e))? {
            Ok((input, place)) => ready.push((input, place, *cell)),
            Err(why) => missing.push(format!("{}: {why}", cell.label)),
        }
    }
    let subject = |(input, place, cell)| -> Subject<'_, '_> {
        let cell: &Cell = cell;
        Subject { input, spec: &cell.spec, place, label: cell.label.clone() }
    };
    let subjects: Vec<Subject<'_, '_>> =
        ready.iter().map(|(input, place, cell)| subject((input, place, *cell))).collect();
    let Some(first) = subjects.first() else {
        return not_drawn(&experiment.title, &missing.join("; "));
    };
    match spec.kind {
        Kind::Time => time::picture(first),
        Kind::Map => map::picture(first),
        Kind::Segments => segments::picture(first, When::Worst),
        Kind::Sizes => sizes::picture(first),
        Kind::Latency => latency::picture(&subjects),
        Kind::Capacity | Kind::Bars => capacity::picture(&subjects),
    }
    .map_err(|e| file.bad(at, e))
}
