//! A figure of many runs, down and across: strategies by workloads.
//!
//! A matrix has a run for each value of the axis `down` in each of its groups. Of it come plain tables: one for each figure (values down, groups across), then
//! one for each group (values down, figures across). A run whose requests failed has figures of what was served, and is named under the table.

use toml::Spanned;

use super::cells::Cell;
use super::claims::{Absent, Figure, Given, Listing, found, parse_part, split};
use super::experiment::{GroupSpec, MatrixSpec, Source};
use super::expression::Expression;
use crate::failure::Failure;

/// What stands for the group's name in a figure.
const ACROSS: &str = "{across}";

/// The axis, the groups and the figures of a matrix, before anything is run.
///
/// # Errors
/// With file and line.
pub(super) fn check(
    file: &Source,
    spec: &Spanned<MatrixSpec>,
    cells: &[Cell],
) -> Result<(), Failure> {
    let (at, spec) = (spec.span().start, spec.as_ref());
    let mut names: Vec<String> = vec![spec.down.clone()];
    let all = spec.across.iter().map(|group| &group.name);
    for name in all.chain(spec.figures.iter().map(|figure| &figure.name)) {
        let both = [name.clone(), format!("{name}, half")];
        if both.iter().any(|name| names.contains(name)) {
            return Err(file.bad(at, format!("the name {name:?} is there already")));
        }
        names.extend(both);
    }
    for group in &spec.across {
        let mut before: Vec<&str> = Vec::new();
        for cell in found(file, at, &group.runs, cells)? {
            let value = cell.axes.get(&spec.down).ok_or_else(|| {
                file.bad(at, format!("run {:?} has no axis {:?}", cell.id, spec.down))
            })?;
            if before.contains(&value.as_str()) {
                let (name, down) = (&group.name, &spec.down);
                let message = format!("the group {name:?} has several runs of {down} {value}");
                return Err(file.bad(at, message));
            }
            before.push(value);
        }
        for (part, at) in parts(file, spec, group)? {
            for name in part.names().iter().filter(|name| name.contains('.')) {
                let id = name.split('.').next().unwrap_or_default();
                if id.starts_with(&group.name) && split(name, cells).is_none() {
                    return Err(file.bad(at, format!("{name}: no run is called {id:?}")));
                }
            }
        }
    }
    Ok(())
}

/// The figures for one group, and where they stand.
fn parts(
    file: &Source,
    spec: &MatrixSpec,
    group: &GroupSpec,
) -> Result<Vec<(Expression, usize)>, Failure> {
    let part = |figure: &Spanned<String>| {
        let at = figure.span().start;
        let text = figure.as_ref().replace(ACROSS, &group.name);
        Ok((parse_part(file, at, &text)?, at))
    };
    spec.figures.iter().map(|column| part(&column.figure)).collect()
}

/// Said of runs whose requests failed.
const FAILED: &str = "requests failed, figures are of those served";

/// Values with their groups.
type Values<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// What is to be said of which runs.
#[derive(Default)]
struct Remarks<'a>(Vec<(&'a str, Values<'a>)>);

impl<'a> Remarks<'a> {
    fn add(&mut self, words: &'a str, value: &'a str, group: &'a str) {
        let at = self.0.iter().position(|(known, _)| *known == words).unwrap_or_else(|| {
            self.0.push((words, Vec::new()));
            self.0.len() - 1
        });
        let values = &mut self.0[at].1;
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, groups)) => groups.push(group),
            None => values.push((value, vec![group])),
        }
    }

    /// A line for each of the words: values that have the same groups stand together.
    fn lines(self) -> Vec<String> {
        let line = |(words, values): (&str, Values<'a>)| {
            let mut parts: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
            for (value, groups) in values {
                match parts.iter_mut().find(|(_, known)| *known == groups) {
                    Some((values, _)) => values.push(value),
                    None => parts.push((vec![value], groups)),
                }
            }
            let parts = parts
                .iter()
                .map(|(values, groups)| format!("{} ({})", values.join(", "), groups.join(", ")));
            format!("{}: {words}", parts.collect::<Vec<_>>().join("; "))
        };
        self.0.into_iter().map(line).collect()
    }
}

/// The figures of a run, in the order of the file.
type Figures = Vec<Option<Figure>>;
/// Of each value and group; none where it did not run.
type Cube = Vec<Vec<Option<Figures>>>;

impl Given<'_> {
    /// The tables of a matrix.
    ///
    /// # Errors
    /// A figure that none of its runs has, with file and line.
    pub fn matrix(&self, spec: &Spanned<MatrixSpec>) -> Result<Vec<Listing>, Failure> {
        let (at, spec) = (spec.span().start, spec.as_ref());
        let mut values: Vec<&str> = Vec::new();
        for group in &spec.across {
            for cell in found(self.file, at, &group.runs, self.cells)? {
                let value = cell.axes.get(&spec.down).map_or("", String::as_str);
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        let (mut missing, mut failed) = (Remarks::default(), Remarks::default());
        let mut bad: Vec<Option<Failure>> = spec.figures.iter().map(|_| None).collect();
        let mut cube: Cube = vec![vec![None; spec.across.len()]; values.len()];
        for (column, group) in spec.across.iter().enumerate() {
            let parts = parts(self.file, spec, group)?;
            for cell in found(self.file, at, &group.runs, self.cells)? {
                let value = cell.axes.get(&spec.down).map_or("", String::as_str);
                let runs = self.runs(cell);
                if let Some(reason) = runs.iter().find(|run| !run.ran()).map(|run| &run.reason) {
                    missing.add(reason, value, &group.name);
                    continue;
                }
                if runs.iter().any(|run| run.outcome == "oom") {
                    failed.add(FAILED, value, &group.name);
                }
                let mut figures = Vec::with_capacity(parts.len());
                for ((part, at), bad) in parts.iter().zip(&mut bad) {
                    figures.push(match self.figure(part, Some(cell), *at) {
                        Ok(figure) => Some(figure),
                        Err(Absent::NotRun(_)) => None,
                        Err(Absent::Bad(failure)) => {
                            *bad = Some(failure);
                            None
                        }
                    });
                }
                let row = values.iter().position(|known| *known == value);
                if let Some(row) = row {
                    cube[row][column] = Some(figures);
                }
            }
        }
        for (figure, failure) in bad.into_iter().enumerate() {
            let ran = || cube.iter().flatten().flatten();
            let nowhere = ran().all(|figures| figures[figure].is_none());
            if let Some(failure) = failure.filter(|_| nowhere && ran().count() > 0) {
                return Err(failure);
            }
        }
        let mut lines = failed.lines();
        lines.extend(missing.lines().into_iter().map(|line| format!("not there: {line}")));
        Ok(tables(spec, &values, &cube, &lines))
    }
}

/// One for each figure, then one for each group.
fn tables(spec: &MatrixSpec, values: &[&str], cube: &Cube, remarks: &[String]) -> Vec<Listing> {
    let table = |name: &str, columns: Vec<String>, rows: Vec<(String, Figures)>| {
        let there = |(_, figures): &(String, Figures)| figures.iter().any(Option::is_some);
        Listing {
            title: format!("{}: {name}", spec.title),
            label: spec.down.clone(),
            about: spec.about.clone(),
            columns,
            rows: rows.into_iter().filter(there).collect(),
            missing: remarks.to_vec(),
        }
    };
    let names = |all: &[String]| all.to_vec();
    let groups: Vec<String> = spec.across.iter().map(|group| group.name.clone()).collect();
    let figures: Vec<String> = spec.figures.iter().map(|figure| figure.name.clone()).collect();
    let mut all = Vec::with_capacity(groups.len() + figures.len());
    for (index, name) in figures.iter().enumerate() {
        let of = |row: &Vec<Option<Figures>>| {
            row.iter().map(|cell| cell.as_ref().and_then(|figures| figures[index])).collect()
        };
        let rows = values.iter().zip(cube).map(|(value, row)| ((*value).to_owned(), of(row)));
        all.push(table(name, names(&groups), rows.collect()));
    }
    for (index, name) in groups.iter().enumerate() {
        let of = |row: &Vec<Option<Figures>>| {
            row[index].clone().unwrap_or_else(|| vec![None; figures.len()])
        };
        let rows = values.iter().zip(cube).map(|(value, row)| ((*value).to_owned(), of(row)));
        all.push(table(name, names(&figures), rows.collect()));
    }
    all
}
