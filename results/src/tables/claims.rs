//! Rows of a table: the figure of each claim over seeds, and the word that follows from its rule.

use std::collections::BTreeMap;

use toml::Spanned;
use vramlab_allocators::options::nearest;
use vramlab_sim::driver::CALL_NAMES;

use super::cells::{Cell, matches};
use super::experiment::{Experiment, ListingSpec, Over, RowSpec, Source};
use super::expression::Expression;
use super::rule::{Judge, Rule, Verdict};
use super::{figures, matrix};
use crate::failure::Failure;
use crate::frame::Run;
use crate::statistics::Interval;

/// A figure over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Mean over seeds.
    pub mean: f64,
    /// Half of the 95 % interval; none of one seed.
    pub half: Option<f64>,
    /// How many seeds.
    pub seeds: usize,
}

/// The figures of a row for one of the runs that it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The run, as conditions name it; empty where the row names its runs itself.
    pub label: String,
    /// One, or those of a list in order; why there is none.
    pub figures: Result<Vec<Figure>, String>,
}

/// A claim beside our figures.
#[derive(Clone, Debug)]
pub struct Claim {
    /// From 1.
    pub number: usize,
    /// As the file has it.
    pub row: RowSpec,
    /// Our figures.
    pub targets: Vec<Target>,
    /// The word.
    pub verdict: Verdict,
    /// An interval reaches across the border of the rule.
    pub crosses: bool,
}

/// A plain table: a label and figures for each run.
#[derive(Clone, Debug)]
pub struct Listing {
    /// What it shows.
    pub title: String,
    /// What the labels are: `run`, or the axis of a matrix.
    pub label: String,
    /// Words under it.
    pub about: String,
    /// Names of the figures.
    pub columns: Vec<String>,
    /// Label and figures; none where there is no such figure.
    pub rows: Vec<(String, Vec<Option<Figure>>)>,
    /// Why runs are missing.
    pub missing: Vec<String>,
}

/// A row whose texts are read.
struct Ready<'a> {
    row: &'a RowSpec,
    judge: Judge<'a>,
    /// The runs that it is about with their figures; one without a run, if it names its runs itself.
    targets: Vec<(Option<&'a Cell>, Vec<Expression>)>,
}

/// In the figure of a row about several runs: what the `*` of its pattern stands for, so that it can name another run beside each.
const STAR: &str = "{*}";

/// What the only `*` of a pattern stands for in `id`.
fn star<'a>(pattern: &str, id: &'a str) -> Option<&'a str> {
    let (before, after) = pattern.split_once('*').filter(|(_, after)| !after.contains('*'))?;
    id.strip_prefix(before)?.strip_suffix(after)
}

/// Texts, rules and run ids of all rows, checked before anything is run.
///
/// # Errors
/// With file and line.
pub fn check(experiment: &Experiment, cells: &[Cell]) -> Result<(), Failure> {
    for row in &experiment.rows {
        if because(&experiment.file, row.as_ref())?.is_none() {
            ready(&experiment.file, row.as_ref(), cells)?;
        }
    }
    for listing in &experiment.listings {
        let at = listing.span().start;
        found(&experiment.file, at, &listing.as_ref().runs, cells)?;
        columns(&experiment.file, listing.as_ref())?;
    }
    experiment.matrices.iter().try_for_each(|spec| matrix::check(&experiment.file, spec, cells))?;
    figures::check(experiment, cells)
}

/// Why a row is not run, if it says so; one that does has neither runs nor figure nor rule.
fn because<'a>(file: &Source, row: &'a RowSpec) -> Result<Option<&'a str>, Failure> {
    let (figure, rule) = (row.figure.as_ref(), row.rule.as_ref());
    let at = || file.text.find(&row.claim).unwrap_or(0);
    match &row.because {
        Some(why) if figure.is_empty() && rule.is_empty() && row.each.is_empty() => Ok(Some(why)),
        Some(_) => {
            let message = "a row with because has no each, figure or rule: nothing is run for it";
            Err(file.bad(at(), message))
        }
        None if figure.is_empty() || rule.is_empty() => {
            Err(file.bad(at(), "expected a figure and a rule, or because"))
        }
        None => Ok(None),
    }
}

/// Each column of a listing has one figure and a name of its own, beside that of the half width that may stand next to it.
fn columns(file: &Source, listing: &ListingSpec) -> Result<(), Failure> {
    let mut names = vec!["run".to_owned()];
    for column in &listing.columns {
        let at = column.figure.span().start;
        if parse(file, at, column.figure.as_ref())?.len() > 1 {
            return Err(file.bad(at, "a column has one figure, without <"));
        }
        let both = [column.name.clone(), format!("{}, half", column.name)];
        if both.iter().any(|name| names.contains(name)) {
            let message = format!("the column {:?} is there already", column.name);
            return Err(file.bad(at, message));
        }
        names.extend(both);
    }
    Ok(())
}

fn parse(file: &Source, at: usize, figure: &str) -> Result<Vec<Expression>, Failure> {
    figure.split('<').map(|part| parse_part(file, at, part)).collect()
}

pub(super) fn parse_part(file: &Source, at: usize, part: &str) -> Result<Expression, Failure> {
    Expression::parse(part).map_err(|e| file.bad(at, format!("the figure {:?}: {e}", part.trim())))
}

fn rule(file: &Source, text: &Spanned<String>) -> Result<Rule, Failure> {
    text.as_ref().parse().map_err(|e: String| file.bad(text.span().start, e))
}

/// The runs of these ids, each once.
pub(super) fn found<'a>(
    file: &Source,
    at: usize,
    patterns: &[String],
    cells: &'a [Cell],
) -> Result<Vec<&'a Cell>, Failure> {
    let mut all: Vec<&Cell> = Vec::new();
    for pattern in patterns {
        let before = all.len();
        let matching = cells.iter().filter(|cell| matches(pattern, &cell.id));
        let matching: Vec<&Cell> = matching.collect();
        if matching.is_empty() {
            let hint = nearest(pattern, cells.iter().map(|cell| cell.id.as_str()));
            return Err(file.bad(at, format!("no run is called {pattern:?}; {hint}")));
        }
        for cell in matching {
            if !all[..before].iter().any(|other| other.id == cell.id) {
                all.push(cell);
            }
        }
    }
    Ok(all)
}

/// The cell that a name begins with, and the metric behind it.
pub(super) fn split<'a, 'c>(name: &'a str, cells: &'c [Cell]) -> Option<(&'c Cell, &'a str)> {
    let (id, metric) = name.split_once('.')?;
    Some((cells.iter().find(|cell| cell.id == id)?, metric))
}

fn ready<'a>(file: &Source, row: &'a RowSpec, cells: &'a [Cell]) -> Result<Ready<'a>, Failure> {
    let (at, figure) = (row.figure.span().start, row.figure.as_ref());
    let judge = Judge {
        rule: rule(file, &row.rule)?,
        refuted: row.refuted.as_ref().map(|text| rule(file, text)).transpose()?,
        assumes: row.assumes.as_deref(),
    };
    let in_order = judge.rule == Rule::InOrder;
    if figure.contains('<') != in_order || judge.refuted == Some(Rule::InOrder) {
        return Err(
            file.bad(at, "a figure with < goes with rule = \"in order\", and only with it; refuted takes another")
        );
    }
    if row.over.is_some() && (in_order || row.each.is_empty()) {
        return Err(file.bad(at, "over goes with each, and not with rule = \"in order\""));
    }
    if row.each.is_empty() {
        let parts = parse(file, at, figure)?;
        for name in parts.iter().flat_map(Expression::names) {
            if split(name, cells).is_none() {
                let id = name.split('.').next().unwrap_or_default();
                let hint = nearest(id, cells.iter().map(|cell| cell.id.as_str()));
                return Err(file.bad(at, format!("{name}: no run is called {id:?}; {hint}")));
            }
        }
        return Ok(Ready { row, judge, targets: vec![(None, parts)] });
    }
    let of = |cell: &'a Cell| {
        let beside = row.each.iter().find_map(|pattern| star(pattern, &cell.id));
        let figure = beside.map_or_else(|| figure.clone(), |text| figure.replace(STAR, text));
        Ok((Some(cell), parse(file, at, &figure)?))
    };
    let targets = found(file, at, &row.each, cells)?.into_iter().map(of);
    Ok(Ready { row, judge, targets: targets.collect::<Result<_, Failure>>()? })
}

/// One figure of several runs, or why one of them has none.
fn together(over: Over, targets: &[Target]) -> Target {
    let mut all: Vec<Figure> = Vec::new();
    for target in targets {
        match &target.figures {
            Ok(figures) => all.extend(figures),
            Err(reason) => return Target { label: String::new(), figures: Err(reason.clone()) },
        }
    }
    let means: Vec<f64> = all.iter().map(|figure| figure.mean).collect();
    let seeds = all.iter().map(|figure| figure.seeds).max().unwrap_or(1);
    let figure = Figure { mean: over.of(&means), half: None, seeds };
    Target { label: String::new(), figures: Ok(vec![figure]) }
}

/// Ids of the runs that the row of this number (from 1) needs.
///
/// # Errors
/// As [`check`].
pub fn needs(
    experiment: &Experiment,
    cells: &[Cell],
    row: &RowSpec,
) -> Result<Vec<String>, Failure> {
    if because(&experiment.file, row)?.is_some() {
        return Ok(Vec::new());
    }
    let ready = ready(&experiment.file, row, cells)?;
    let of = |(target, parts): &(Option<&Cell>, Vec<Expression>)| {
        let names = parts.iter().flat_map(Expression::names);
        let named = names.filter_map(|name| split(name, cells)).map(|(cell, _)| cell.id.clone());
        named.chain(target.map(|cell| cell.id.clone())).collect::<Vec<_>>()
    };
    Ok(ready.targets.iter().flat_map(of).collect())
}

/// What the runs gave, by id.
pub struct Given<'a> {
    pub(super) file: &'a Source,
    pub(super) cells: &'a [Cell],
    runs: BTreeMap<&'a str, Vec<&'a Run>>,
}

/// What is not there, by the reason.
#[derive(Default)]
struct Missing(Vec<(String, Vec<String>)>);

impl Missing {
    fn add(&mut self, what: &str, reason: String) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, all)) => all.push(what.to_owned()),
            None => self.0.push((reason, vec![what.to_owned()])),
        }
    }

    fn lines(self) -> Vec<String> {
        let line = |(reason, what): (String, Vec<String>)| format!("{}: {reason}", what.join(", "));
        self.0.into_iter().map(line).collect()
    }
}

/// Why a figure has no value.
pub(super) enum Absent {
    /// A run did not run.
    NotRun(String),
    /// A mistake in the file.
    Bad(Failure),
}

impl<'a> Given<'a> {
    /// Of these runs.
    pub fn new(file: &'a Source, cells: &'a [Cell], all: &'a [Run]) -> Self {
        let mut runs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in all {
            runs.entry(&run.run).or_default().push(run);
        }
        Self { file, cells, runs }
    }

    /// The figure of one name for one seed.
    fn value(
        &self,
        name: &str,
        target: Option<&Cell>,
        seed: usize,
        at: usize,
    ) -> Result<f64, Absent> {
        let (cell, metric) = match (split(name, self.cells), target) {
            (Some(found), _) => found,
            (None, Some(target)) => (target, name),
            (None, None) => {
                return Err(Absent::Bad(self.file.bad(at, format!("{name}: no such run"))));
            }
        };
        let runs = self.runs(cell);
        let Some(run) = runs.get(seed).or(runs.first().filter(|_| runs.len() == 1)) else {
            if runs.is_empty() {
                return Err(Absent::NotRun(format!("run {} was not asked for", cell.id)));
            }
            let message = format!(
                "run {} has {} seeds and another of this figure has more; expected 1 or as many",
                cell.id,
                runs.len()
            );
            return Err(Absent::Bad(self.file.bad(at, message)));
        };
        if !run.ran() {
            return Err(Absent::NotRun(run.reason.clone()));
        }
        if metric == "capacity" {
            return Ok(run.capacity as f64);
        }
        if let Some(value) = run.metric(metric) {
            return Ok(value.as_f64());
        }
        if metric.strip_prefix("driver_calls.").is_some_and(|call| CALL_NAMES.contains(&call)) {
            return Ok(0.0); // only calls that were made are there
        }
        if metric == "min_capacity" {
            let why = format!(
                "run {}: no least device was searched for, or none is large enough",
                cell.id
            );
            return Err(Absent::NotRun(why));
        }
        let hint = nearest(metric, run.metrics.iter().map(|metric| metric.name.as_str()));
        let message = format!("run {} has no figure {metric:?}; {hint}", cell.id);
        Err(Absent::Bad(self.file.bad(at, message)))
    }

    /// The runs of a cell, by seed.
    pub(super) fn runs(&self, cell: &Cell) -> &[&'a Run] {
        self.runs.get(cell.id.as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The figure of an expression, over seeds: over those of which the least capacity was searched for, where it is about that.
    pub(super) fn figure(
        &self,
        part: &Expression,
        target: Option<&Cell>,
        at: usize,
    ) -> Result<Figure, Absent> {
        let names = part.names();
        let cells = || {
            let named = names.iter().filter_map(|name| split(name, self.cells));
            named.map(|(cell, _)| cell).chain(target)
        };
        let mut seeds = cells().map(|cell| self.runs(cell).len().max(1)).max().unwrap_or(1);
        if names.iter().any(|name| name.ends_with("min_capacity")) {
            let searched = cells().map(|cell| cell.min_capacity as usize).filter(|n| *n > 0);
            seeds = searched.min().map_or(seeds, |searched| searched.min(seeds));
        }
        let values: Vec<f64> = (0..seeds)
            .map(|seed| part.value(&mut |name: &str| self.value(name, target, seed, at)))
            .collect::<Result<_, _>>()?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        if !mean.is_finite() {
            return Err(Absent::NotRun("the figure is no number".to_owned()));
        }
        let half = Interval::of(&values).map(|interval| interval.half);
        Ok(Figure { mean, half, seeds: values.len() })
    }

    fn target(
        &self,
        row: &RowSpec,
        cell: Option<&Cell>,
        parts: &[Expression],
    ) -> Result<Target, Failure> {
        let at = row.figure.span().start;
        let figures = parts.iter().map(|part| self.figure(part, cell, at));
        let figures = match figures.collect::<Result<Vec<_>, _>>() {
            Ok(figures) => Ok(figures),
            Err(Absent::NotRun(reason)) => Err(reason),
            Err(Absent::Bad(failure)) => return Err(failure),
        };
        Ok(Target { label: cell.map_or_else(String::new, |cell| cell.label.clone()), figures })
    }

    /// A row of the table.
    ///
    /// # Errors
    /// A figure that the runs do not have, with file and line.
    pub fn claim(&self, number: usize, row: &RowSpec) -> Result<Claim, Failure> {
        if let Some(why) = because(self.file, row)? {
            let none = Target { label: String::new(), figures: Err(why.to_owned()) };
            let verdict = Verdict::NotRun(why.to_owned());
            let row = row.clone();
            return Ok(Claim { number, row, targets: vec![none], verdict, crosses: false });
        }
        let ready = ready(self.file, row, self.cells)?;
        let each = ready.targets.iter().map(|(cell, parts)| self.target(ready.row, *cell, parts));
        let mut targets: Vec<Target> = each.collect::<Result<_, Failure>>()?;
        if let Some(over) = row.over {
            targets = vec![together(over, &targets)];
        }
        let means: Vec<(String, Vec<f64>)> = targets
            .iter()
            .filter_map(|target| {
                let figures = target.figures.as_ref().ok()?;
                Some((target.label.clone(), figures.iter().map(|f| f.mean).collect()))
            })
            .collect();
        let reason = targets.iter().find_map(|target| target.figures.as_ref().err().cloned());
        let verdict = match reason {
            Some(reason) if means.is_empty() => Verdict::NotRun(reason),
            _ => ready.judge.verdict(&means),
        };
        let last = targets.iter().filter_map(|t| t.figures.as_ref().ok()?.last());
        let crosses = ready.judge.rule != Rule::InOrder
            && last
                .into_iter()
                .any(|f| f.half.is_some_and(|h| ready.judge.rule.crosses(f.mean, h)));
        Ok(Claim { number, row: row.clone(), targets, verdict, crosses })
    }

    /// A plain table.
    ///
    /// # Errors
    /// A figure that none of its runs has, with file and line.
    pub fn listing(&self, at: usize, spec: &ListingSpec) -> Result<Listing, Failure> {
        let cells = found(self.file, at, &spec.runs, self.cells)?;
        let columns: Vec<(Vec<Expression>, usize)> = spec
            .columns
            .iter()
            .map(|column| {
                let at = column.figure.span().start;
                Ok((parse(self.file, at, column.figure.as_ref())?, at))
            })
            .collect::<Result<_, Failure>>()?;
        let mut rows: Vec<(String, Vec<Option<Figure>>)> = Vec::new();
        let mut missing = Missing::default();
        let mut bad: Vec<Option<Failure>> = columns.iter().map(|_| None).collect();
        for cell in cells {
            let mut figures = Vec::new();
            let mut not_run = None;
            for ((parts, at), bad) in columns.iter().zip(&mut bad) {
                figures.push(match self.figure(&parts[0], Some(cell), *at) {
                    Ok(figure) => Some(figure),
                    Err(Absent::NotRun(reason)) => {
                        not_run = Some(reason);
                        None
                    }
                    Err(Absent::Bad(failure)) => {
                        *bad = Some(failure);
                        None
                    }
                });
            }
            match not_run {
                Some(reason) if figures.iter().all(Option::is_none) => {
                    missing.add(&cell.label, reason);
                }
                _ => rows.push((cell.label.clone(), figures)),
            }
        }
        for (index, failure) in bad.into_iter().enumerate() {
            let nowhere = rows.iter().all(|(_, figures)| figures[index].is_none());
            if let Some(failure) = failure.filter(|_| nowhere) {
                return Err(failure);
            }
        }
        let columns = spec.columns.iter().map(|column| column.name.clone()).collect();
        let (title, about) = (spec.title.clone(), spec.about.clone());
        let missing =
            missing.lines().into_iter().map(|line| format!("not there: {line}")).collect();
        let label = "run".to_owned();
        Ok(Listing { title, label, about, columns, rows, missing })
    }
}
