//! Which settings are tried: in rounds, each decided by the rounds before it, so that the same input gives the same settings on any machine.
//!
//! 1. The defaults, the recorded settings, and each step of each ladder alone.
//! 2. From the best three (`BEAM`) of all so far, every setting one step away, as far as it is new; a run is stopped where it is worse than the best
//!    of the rounds before. Again, until a round finds nothing better or the budget is spent.
//!
//! Steps that did nothing alone are left out of the later rounds, and so are options that the version lacks.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::ladder::{self, Ladder};
use super::setting::{Family, Setting};
use super::trial::{Bound, Trial};
use crate::failure::Failure;
use crate::job::{Input, Place};
use crate::progress::Progress;

/// Settings from which a round goes on.
const BEAM: usize = 3;

/// Tries settings of a family, `budget` at most but the defaults and the recorded ones in any case. Ranked, best first.
///
/// # Errors
/// Bad input.
pub fn search(
    input: &Input<'_>,
    place: &Place,
    family: &Family,
    own: &str,
    budget: usize,
    quiet: bool,
) -> Result<Vec<Trial>, Failure> {
    let ladders = ladder::of(family).map_err(Failure::usage)?;
    let mut first = vec![Setting::default()];
    if !own.is_empty() {
        first.push(Setting::recorded(own));
    }
    first.extend(ladder::singles(&ladders));
    first.truncate(budget.max(1 + usize::from(!own.is_empty())));
    let mut search = Search { input, place, family, quiet, seen: BTreeSet::new(), all: Vec::new() };
    search.round(first, None)?;
    let ladders = search.worth_going_on(ladders);
    loop {
        let left = budget.saturating_sub(search.all.len());
        let best = search.best(BEAM);
        let Some(leader) = best.first() else { break };
        let bound = Bound { failed: leader.row.failed(), reserved: leader.row.peak_reserved };
        let before = leader.key();
        let mut next: Vec<Setting> = Vec::new();
        for one in best.iter().filter(|one| one.setting.verbatim.is_none()) {
            for setting in ladder::neighbours(&one.setting, &ladders) {
                if !search.seen.contains(&setting.text()) && !next.contains(&setting) {
                    next.push(setting);
                }
            }
        }
        next.truncate(left);
        if next.is_empty() {
            break;
        }
        search.round(next, Some(bound))?;
        if search.best(1).first().is_none_or(|now| now.key() == before) {
            break;
        }
    }
    Ok(search.ranked(own))
}

struct Search<'r, 'a> {
    input: &'r Input<'a>,
    place: &'r Place,
    family: &'r Family,
    quiet: bool,
    /// Texts of settings that were tried.
    seen: BTreeSet<String>,
    all: Vec<Trial>,
}

impl Search<'_, '_> {
    fn round(&mut self, settings: Vec<Setting>, bound: Option<Bound>) -> Result<(), Failure> {
        let seen = &mut self.seen;
        let new: Vec<Setting> = settings.into_iter().filter(|s| seen.insert(s.text())).collect();
        let progress = Progress::new(new.len() as u64, self.quiet);
        let tried: Vec<Trial> = new
            .par_iter()
            .map(|setting| {
                let trial = Trial::run(self.input, self.place, self.family, setting, bound);
                progress.step();
                trial
            })
            .collect::<Result<_, _>>()?;
        progress.finish();
        self.all.extend(tried);
        Ok(())
    }

    /// The best settings so far that ran to their end, the first of those that do the same.
    fn best(&self, count: usize) -> Vec<&Trial> {
        let mut ran: Vec<&Trial> = self.all.iter().filter(|trial| trial.ran()).collect();
        ran.sort_by_cached_key(|trial| trial.key());
        let mut best: Vec<&Trial> = Vec::new();
        for trial in ran {
            if best.len() < count && !best.iter().any(|other| other.same(trial)) {
                best.push(trial);
            }
        }
        best
    }

    /// Ladders without the steps that did nothing, alone or with what they need, or were refused.
    fn worth_going_on(&self, ladders: Vec<Ladder>) -> Vec<Ladder> {
        let find = |text: &str| self.all.iter().find(|trial| trial.conf == text);
        let Some(default) = find("") else { return ladders };
        let counts = |setting: &Setting| {
            find(&setting.text()).is_none_or(|trial| trial.ran() && !trial.same(default))
        };
        let worth = |ladder: &Ladder, value: &String| {
            let alone = Setting::default().with(ladder.key, value);
            counts(&alone)
                || ladder.with.is_some_and(|(key, needed)| counts(&alone.with(key, needed)))
        };
        let kept = |mut ladder: Ladder| {
            let values = ladder.values.iter().filter(|value| worth(&ladder, value)).cloned();
            ladder.values = values.collect();
            (!ladder.values.is_empty()).then_some(ladder)
        };
        ladders.into_iter().filter_map(kept).collect()
    }

    fn ranked(self, own: &str) -> Vec<Trial> {
        let mut all = self.all;
        let Some(default) = all.iter().find(|trial| trial.setting.is_default()).cloned() else {
            return all;
        };
        all.iter_mut().for_each(|trial| trial.judge(own, &default));
        all.sort_by_cached_key(Trial::key);
        for (index, trial) in all.iter_mut().enumerate() {
            trial.rank = index + 1;
        }
        all
    }
}
