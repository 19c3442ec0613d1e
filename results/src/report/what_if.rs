//! The what-if table: settings of the history's own allocator as `advise` ranks them, and other strategies, each a replay.

use serde::Serialize;
use vramlab_allocators::{Options, Spec};

use super::history::shown;
use crate::advise::setting::{Family, Setting};
use crate::advise::trial::Trial;
use crate::failure::Failure;
use crate::job::{Input, Place};

/// Strategies that every table has: the least that any can reserve, and what the driver offers.
const OTHERS: [&str; 3] = ["bound.live_floor", "cuda.malloc", "cuda.async_pool"];
/// Lines of settings that are kept: the best ones.
const LINES_MAX: usize = 60;

/// One line. Bytes and ns.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Line {
    pub input: String,
    pub setting: String,
    /// It is a setting of the history's own allocator.
    pub own: bool,
    pub verdict: String,
    pub failed: u64,
    pub peak_reserved: u64,
    /// Against the history's own settings.
    pub saved: i64,
    pub calls: u64,
    pub stall_ns: u64,
    /// What is pasted for it; empty if nothing is.
    pub paste: String,
    /// The run of the page that shows it.
    pub run: Option<usize>,
}

/// All that was tried.
pub struct Table {
    tried: Vec<Trial>,
    others: Vec<Trial>,
    own: String,
    shows: Vec<(String, usize)>,
}

impl Table {
    /// Of settings, ranked; `own` are those in force.
    pub fn new(tried: Vec<Trial>, own: &str) -> Self {
        Self { tried, others: Vec::new(), own: own.to_owned(), shows: Vec::new() }
    }

    /// Runs other strategies: those asked for, and `OTHERS`.
    ///
    /// # Errors
    /// Bad options or bad input.
    pub fn add_others(
        &mut self,
        input: &Input<'_>,
        place: &Place,
        asked: &[Spec],
    ) -> Result<(), Failure> {
        let fixed = OTHERS.iter().map(|name| Spec::new(name, Options::default()));
        let mut specs: Vec<Spec> = asked.to_vec();
        specs.extend(fixed.filter(|spec| !asked.contains(spec)));
        for base in specs {
            let family = Family { base };
            self.others.push(Trial::run(input, place, &family, &Setting::default(), None)?);
        }
        Ok(())
    }

    /// The run of the page that shows a spec.
    pub fn shows(&mut self, spec: &str, run: usize) {
        self.shows.push((spec.to_owned(), run));
    }

    /// With the settings in force.
    pub fn own(&self) -> Option<&Trial> {
        self.tried.iter().find(|trial| trial.conf == self.own)
    }

    /// Are there recorded settings?
    pub fn has_settings(&self) -> bool {
        !self.own.is_empty()
    }

    /// What `advise` advises instead of the settings in force; none if these cannot be bettered.
    pub fn best(&self) -> Option<&Trial> {
        Trial::advised(&self.tried, self.own()?)
    }

    /// How many settings were tried.
    pub fn count(&self) -> usize {
        self.tried.len()
    }

    /// Of those that did not run to their end, some were ended by the driver or the strategy.
    pub fn broke(&self) -> bool {
        self.tried.iter().any(|trial| trial.row.broke())
    }

    /// The lines that are shown: settings, the best first, then other strategies.
    pub fn lines(&self) -> Vec<Line> {
        let own = self.own();
        let in_force = |trial: &Trial| own.is_some_and(|own| own.conf == trial.conf);
        let settings = self.tried.iter().filter(|trial| trial.ran());
        let settings = settings.filter(|trial| trial.rank <= LINES_MAX || in_force(trial));
        let mut lines: Vec<Line> = settings
            .map(|trial| {
                let setting = if trial.conf.is_empty() { "(defaults)" } else { &trial.conf };
                let verdict = match in_force(trial) {
                    true => "in force",
                    false => self.verdict(trial, own),
                };
                self.line(trial, setting, verdict, own)
            })
            .collect();
        for trial in &self.others {
            let name = &trial.row.strategy;
            let verdict = match (&trial.row.reason, trial.ran()) {
                (Some(reason), false) => format!("left out: {reason}"),
                _ if name.starts_with("bound.") => "a bound".to_owned(),
                _ => "another allocator".to_owned(),
            };
            let mut line = self.line(trial, name, &verdict, own);
            (line.own, line.paste) = (false, String::new());
            lines.push(line);
        }
        lines
    }

    /// Beside the settings in force, not beside the defaults.
    fn verdict(&self, trial: &Trial, own: Option<&Trial>) -> &'static str {
        let mut beside = trial.clone();
        if let Some(own) = own {
            beside.judge(&self.own, own);
        }
        beside.verdict
    }

    fn line(&self, trial: &Trial, setting: &str, verdict: &str, own: Option<&Trial>) -> Line {
        let row = &trial.row;
        let shown_by = self.shows.iter().find(|(spec, _)| *spec == row.strategy);
        let before = own.map_or(row.peak_reserved, |own| own.row.peak_reserved);
        Line {
            input: shown(&row.input),
            setting: shown(setting),
            own: true,
            verdict: shown(verdict),
            failed: row.failed(),
            peak_reserved: row.peak_reserved,
            saved: row.peak_reserved as i64 - before as i64,
            calls: row.memory_calls(),
            stall_ns: row.stall_total_ns,
            paste: trial.paste.clone(),
            run: shown_by.map(|(_, run)| *run),
        }
    }
}
