//! `vramlab report`: one page that holds all of a history, to be opened in a browser without a network.
//!
//! | module | holds |
//! |---|---|
//! | [`columns`] | numbers as bytes |
//! | [`mod@history`] | buffers, sites, stacks, phases |
//! | [`run`] | a run through a strategy: places, levels, judged moments |
//! | [`what_if`] | the table of settings and strategies |
//! | [`answer`] | what happened and what helps, in words |
//! | [`compared`] | how a history differs from the first of the page, in words |
//! | [`page`] | markup, style, script and data as one text |
//!
//! What is not in a run is not on the page: each figure is one of a replay, or counted by the page from the buffers that it holds.

pub mod answer;
pub mod columns;
pub mod compared;
pub mod history;
pub mod page;
pub mod run;
pub mod what_if;

use std::sync::Arc;

use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_workloads::readers::recording::Entries;

use self::columns::Columns;
use self::compared::Held;
use self::history::{Buffers, Kept, shown};
use self::run::{Cast, Run};
use self::what_if::{Line, Table};
use crate::advise::search::search;
use crate::advise::setting::Family;
use crate::advise::tape::Tape;
use crate::analysis::category::Categories;
use crate::analysis::lives::Lives;
use crate::analysis::recorded::{failure_at_end, judge_end};
use crate::failure::Failure;
use crate::inputs::DeviceRecording;
use crate::job::{Input, Place};

/// Runs that a page holds whole, of each history: its own, the best, and those that were asked for.
pub const RUNS_MAX: usize = 4;

/// One history on the page.
#[derive(Debug, Serialize)]
pub struct History {
    /// As it is called.
    pub name: String,
    /// In words.
    pub answer: Vec<answer::Said>,
    /// What does not add up in the recording.
    pub warnings: Vec<String>,
    /// The table.
    pub what_if: Vec<Line>,
    buffers: Buffers,
    runs: Vec<Run>,
    /// Which of them the page shows first.
    first_run: usize,
    /// Some settings were ended by the driver or the strategy.
    #[serde(skip)]
    pub broke: bool,
    /// What it is compared by.
    #[serde(skip)]
    held: Held,
}

/// The page's data beside the columns.
#[derive(Debug, Serialize)]
pub struct Data {
    /// Version of the program that wrote it.
    pub vramlab: &'static str,
    /// In the order in which they were given.
    pub histories: Vec<History>,
}

/// What is shown of a history.
pub struct Subject<'r, 'a> {
    /// The history.
    pub input: &'r Input<'a>,
    /// On which device.
    pub place: &'r Place,
    /// The allocator that recorded it, or the default one.
    pub own: &'r Spec,
    /// What does not add up in it.
    pub warnings: &'r [String],
    /// Of a snapshot: the device's history, and the state that it ends with.
    pub device: Option<&'r DeviceRecording>,
}

/// How much is tried.
pub struct Asked<'r> {
    /// Strategies that are shown beside the history's own.
    pub strategies: &'r [Spec],
    /// Settings that are tried at most.
    pub budget: usize,
    /// No progress on standard error.
    pub quiet: bool,
}

/// Runs a history, tries settings and strategies, and writes the columns.
///
/// # Errors
/// Bad options or bad input, a history without requests.
pub fn history(
    columns: &mut Columns,
    subject: &Subject<'_, '_>,
    asked: &Asked<'_>,
) -> Result<History, Failure> {
    let Subject { input, place, own, .. } = *subject;
    let lives = Lives::read(input)?;
    if lives.list.is_empty() {
        return Err(Failure::input(format!(
            "{}: no requests in it, so there is nothing to show; vramlab inspect tells what it has",
            input.origin
        )));
    }
    let categories = Categories::of(&lives, input);
    let kept = Kept::of(&lives);
    let (family, conf) = Family::of(own);
    let mut table = match Tape::of(input)?.map(Arc::new) {
        Some(tape) => tried(&tape.input(input), place, (&family, &conf), asked)?,
        None => tried(input, place, (&family, &conf), asked)?,
    };

    let cast = Cast { input, lives: &lives, kept: &kept, place };
    let label = if conf.is_empty() { "the defaults" } else { "the recorded settings" };
    let mut shown_runs = vec![(own.clone(), label.to_owned())];
    if let Some(best) = table.best() {
        shown_runs.push((family.spec(&best.setting), best.conf.clone()));
    }
    shown_runs.extend(asked.strategies.iter().map(|spec| (spec.clone(), spec.to_string())));
    shown_runs.truncate(RUNS_MAX);
    let (mut runs, mut worst, mut first_run) = (Vec::new(), None, 0);
    for (number, (spec, label)) in shown_runs.iter().enumerate() {
        let Some(shown) = cast.run(columns, spec, label)? else { continue };
        if number == 0 {
            worst = shown.worst;
        }
        table.shows(&spec.to_string(), runs.len());
        runs.push(shown.run);
    }
    let seen = answer::Seen { place, lives: &lives, categories: &categories };
    let mut answer = answer::answer(&seen, &table, worst.as_ref());
    if let Some(device) = subject.device
        && let Some(judged) = judge_end(device, own, &lives, failure_at_end(device, &lives))?
            .filter(|j| j.reserved > 0)
    {
        let no_history = device.recording.entries().is_empty();
        let at = if no_history { 0 } else { answer.len() };
        answer.insert(at, answer::recorded(&judged, no_history));
        if no_history {
            first_run = runs.len();
        }
        runs.push(cast.recorded(columns, judged));
    }
    Ok(History {
        name: shown(&input.name),
        answer,
        warnings: subject.warnings.iter().map(|warning| shown(warning)).collect(),
        buffers: Buffers::put(columns, input, &lives, &categories, &kept),
        what_if: table.lines(),
        runs,
        first_run,
        broke: table.broke(),
        held: Held::of(&lives, &categories, table.own()),
    })
}

fn tried(
    input: &Input<'_>,
    place: &Place,
    (family, conf): (&Family, &str),
    asked: &Asked<'_>,
) -> Result<Table, Failure> {
    let settings = search(input, place, family, conf, asked.budget, asked.quiet)?;
    let mut table = Table::new(settings, conf);
    table.add_others(input, place, asked.strategies)?;
    Ok(table)
}
