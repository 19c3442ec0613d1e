//! The pictures of a table: bars, pairs or a map of what its runs gave, or runs drawn anew with their first seed.

use std::cmp::Ordering;

use rayon::prelude::*;
use toml::Spanned;

use super::cells::Cell;
use super::claims::{Figure, Given, Listing, found};
use super::experiment::{ColumnSpec, Experiment, FigureSpec, ListingSpec, Source};
use super::expression::Expression;
use super::run;
use crate::analysis::inspection::When;
use crate::failure::Failure;
use crate::figures::bars::{Bar, Bars};
use crate::figures::heat::Heat;
use crate::figures::pairs::{Pair, Pairs};
use crate::figures::subject::Subject;
use crate::figures::{Kind, Picture, capacity, latency, map, not_drawn, segments, sizes, time};

/// Runs of each picture, and what bars, pairs and maps need.
///
/// # Errors
/// With file and line.
pub fn check(experiment: &Experiment, cells: &[Cell]) -> Result<(), Failure> {
    let file = &experiment.file;
    for spanned in &experiment.figures {
        let (at, spec) = (spanned.span().start, spanned.as_ref());
        keys(file, at, spec)?;
        if let Some(title) = &spec.listing {
            let known = titles(experiment);
            if !known.contains(title) {
                let known = known.join("; ");
                let message = format!("no plain table is called {title:?}; there are: {known}");
                return Err(file.bad(at, message));
            }
            continue;
        }
        let runs = found(file, at, &spec.runs, cells)?;
        let several =
            matches!(spec.kind, Kind::Bars | Kind::Pairs | Kind::Latency | Kind::Capacity);
        if runs.is_empty() || (runs.len() > 1 && !several) {
            let count = runs.len();
            let most = if several { "at least one run" } else { "one run" };
            return Err(file.bad(at, format!("this picture has {count} runs, expected {most}")));
        }
        for figure in spec.figure.iter().chain(spec.beside.iter().map(|beside| &beside.figure)) {
            let text = figure.as_ref();
            Expression::parse(text)
                .map_err(|e| file.bad(figure.span().start, format!("the figure {text:?}: {e}")))?;
        }
    }
    Ok(())
}

/// Each kind has the keys that it needs, and no others.
fn keys(file: &Source, at: usize, spec: &FigureSpec) -> Result<(), Failure> {
    let given = [
        ("figure", spec.figure.is_some()),
        ("name", spec.name.is_some()),
        ("beside", spec.beside.is_some()),
        ("listing", spec.listing.is_some()),
        ("first", spec.first.is_some()),
        ("unit", spec.unit.is_some()),
        ("claimed", !spec.claimed.is_empty()),
        ("log", spec.log),
        ("ends", spec.ends.is_some()),
        ("more_is_better", spec.more_is_better),
    ];
    let (kind, needed, may): (&str, &[&str], &[&str]) = match spec.kind {
        Kind::Bars => ("bars", &["figure", "name"], &["unit", "claimed", "log", "more_is_better"]),
        Kind::Pairs => {
            ("pairs", &["figure", "name", "beside"], &["first", "unit", "claimed", "log"])
        }
        Kind::Heat => ("heat", &["listing", "name"], &["unit", "log", "ends"]),
        _ => ("a picture of runs", &[], &[]),
    };
    for (key, there) in given {
        if there && !needed.contains(&key) && !may.contains(&key) {
            return Err(file.bad(at, format!("{kind} cannot have {key}")));
        }
    }
    if needed.iter().any(|key| given.contains(&(key, false))) {
        let message = format!("{kind}: expected {}", needed.join(" and "));
        return Err(file.bad(at, message));
    }
    if let Some([least, most]) = spec.ends
        && (least.partial_cmp(&most) != Some(Ordering::Less) || (spec.log && least <= 0.0))
    {
        let expected =
            if spec.log { "a lesser one above 0 and a greater" } else { "a lesser and a greater" };
        return Err(file.bad(at, format!("ends = [{least}, {most}]: expected {expected}")));
    }
    if spec.kind == Kind::Heat && !spec.runs.is_empty() {
        return Err(file.bad(at, "heat cannot have runs: its listing has them"));
    }
    Ok(())
}

/// Titles of all plain tables.
fn titles(experiment: &Experiment) -> Vec<String> {
    let listings = experiment.listings.iter().map(|listing| listing.as_ref().title.clone());
    let of_matrix = experiment.matrices.iter().flat_map(|matrix| {
        let matrix = matrix.as_ref();
        let figures = matrix.figures.iter().map(|figure| &figure.name);
        let names = figures.chain(matrix.across.iter().map(|group| &group.name));
        names.map(move |name| format!("{}: {name}", matrix.title))
    });
    listings.chain(of_matrix).collect()
}

/// All of them. In the place of one whose runs are not there, words say why.
///
/// # Errors
/// What is wrong with the file, with its line; inputs that are bad.
pub fn drawn(
    experiment: &Experiment,
    cells: &[Cell],
    given: &Given<'_>,
    listings: &[Listing],
) -> Result<Vec<Picture>, Failure> {
    let of_figures = |spanned: &Spanned<FigureSpec>| match spanned.as_ref().kind {
        Kind::Bars => bars(experiment, spanned, given).map(Some),
        Kind::Pairs => pairs(experiment, spanned, given).map(Some),
        Kind::Heat => heat(experiment, spanned, listings).map(Some),
        _ => Ok(None),
    };
    let figures = experiment.figures.iter();
    let pictures: Vec<Option<Picture>> =
        figures.clone().map(of_figures).collect::<Result<_, _>>()?;
    let all: Vec<(&Spanned<FigureSpec>, Option<Picture>)> = figures.zip(pictures).collect();
    all.into_par_iter()
        .map(|(spec, picture)| match picture {
            Some(picture) => Ok(picture),
            None => of_runs(experiment, spec, cells),
        })
        .collect()
}

/// Figures of runs, as a plain table has them; `columns` is not empty.
fn figures(
    spanned: &Spanned<FigureSpec>,
    columns: Vec<ColumnSpec>,
    given: &Given<'_>,
) -> Result<Listing, Failure> {
    let (title, about, runs) = (String::new(), String::new(), spanned.as_ref().runs.clone());
    given.listing(spanned.span().start, &ListingSpec { title, about, runs, columns })
}

/// Words under a picture of which `drawn` runs are there.
fn words(experiment: &Experiment, listing: &Listing, drawn: usize) -> String {
    match listing.missing.len() + listing.rows.len() - drawn {
        0 => experiment.title.clone(),
        gone => format!("{}; {gone} runs are not there", experiment.title),
    }
}

/// Bars.
fn bars(
    experiment: &Experiment,
    spanned: &Spanned<FigureSpec>,
    given: &Given<'_>,
) -> Result<Picture, Failure> {
    let (at, spec) = (spanned.span().start, spanned.as_ref());
    let (Some(name), Some(figure)) = (&spec.name, &spec.figure) else {
        return Err(experiment.file.bad(at, "expected figure and name"));
    };
    let column = ColumnSpec { name: name.clone(), figure: figure.clone() };
    let listing = figures(spanned, vec![column], given)?;
    let bar = |(label, figures): &(String, Vec<Option<Figure>>)| {
        let figure = figures.first()?.as_ref()?;
        let ends = |half: f64| (figure.mean - half, figure.mean + half);
        Some(Bar { label: label.clone(), value: figure.mean, interval: figure.half.map(ends) })
    };
    let bars: Vec<Bar> = listing.rows.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return not_drawn(name, &listing.missing.join("; "));
    }
    let picture = Bars {
        name: name.clone(),
        unit: spec.unit.clone().unwrap_or_default(),
        words: words(experiment, &listing, bars.len()),
        bars,
        log: spec.log,
        claimed: spec.claimed.clone(),
        more_is_better: spec.more_is_better,
    };
    picture.picture().map_err(|e| experiment.file.bad(at, e))
}

/// Pairs: means where there are several seeds.
fn pairs(
    experiment: &Experiment,
    spanned: &Spanned<FigureSpec>,
    given: &Given<'_>,
) -> Result<Picture, Failure> {
    let (at, spec) = (spanned.span().start, spanned.as_ref());
    let (Some(name), Some(figure), Some(beside)) = (&spec.name, &spec.figure, &spec.beside) else {
        return Err(experiment.file.bad(at, "expected figure, beside and name"));
    };
    let first = spec.first.clone().unwrap_or_else(|| "ours".to_owned());
    let column = ColumnSpec { name: first.clone(), figure: figure.clone() };
    let listing = figures(spanned, vec![column, beside.clone()], given)?;
    let pair = |(label, figures): &(String, Vec<Option<Figure>>)| match figures.as_slice() {
        [Some(one), Some(other)] => {
            Some(Pair { label: label.clone(), values: [one.mean, other.mean] })
        }
        _ => None,
    };
    let pairs: Vec<Pair> = listing.rows.iter().filter_map(pair).collect();
    if pairs.is_empty() {
        return not_drawn(name, &listing.missing.join("; "));
    }
    let picture = Pairs {
        name: name.clone(),
        names: [first, beside.name.clone()],
        unit: spec.unit.clone().unwrap_or_default(),
        words: words(experiment, &listing, pairs.len()),
        pairs,
        log: spec.log,
        claimed: spec.claimed.clone(),
    };
    picture.picture().map_err(|e| experiment.file.bad(at, e))
}

/// The map of a plain table: means where there are several seeds.
fn heat(
    experiment: &Experiment,
    spanned: &Spanned<FigureSpec>,
    listings: &[Listing],
) -> Result<Picture, Failure> {
    let (at, spec) = (spanned.span().start, spanned.as_ref());
    let of = |listing: &&Listing| Some(&listing.title) == spec.listing.as_ref();
    let (Some(name), Some(listing)) = (&spec.name, listings.iter().find(of)) else {
        return Err(experiment.file.bad(at, "expected listing and name"));
    };
    if listing.rows.is_empty() {
        return not_drawn(name, &listing.missing.join("; "));
    }
    let row = |(label, figures): &(String, Vec<Option<Figure>>)| {
        (label.clone(), figures.iter().map(|figure| figure.map(|figure| figure.mean)).collect())
    };
    let picture = Heat {
        name: name.clone(),
        unit: spec.unit.clone().unwrap_or_default(),
        words: experiment.title.clone(),
        columns: listing.columns.clone(),
        rows: listing.rows.iter().map(row).collect(),
        log: spec.log,
        ends: spec.ends,
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
        Kind::Capacity | Kind::Bars | Kind::Pairs | Kind::Heat => capacity::picture(&subjects),
    }
    .map_err(|e| file.bad(at, e))
}
