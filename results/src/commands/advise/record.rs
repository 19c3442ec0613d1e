//! What `advise --format json` prints: all that is told in words, one object a line, each with its `kind`. `record.md` lists the fields for readers.

use serde::Serialize;

use super::answer::{self, Answered};
use super::text::Seen;
use super::{Advice, Rewritten};
use crate::advise::card::Card;
use crate::advise::setting::Family;
use crate::advise::trial::Trial;
use crate::analysis::inspection::{Fragmentation, Peak, When, Window, fragmentation, peak};
use crate::failure::Failure;
use crate::row::{Row, SCHEMA};

/// Sites, sizes and segments that the evidence names.
const TOP: usize = 8;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Record<'a> {
    Setting(&'a Trial),
    Rewrite(Rewrite<'a>),
    Card(OfCard<'a>),
    Evidence(Box<Evidence<'a>>),
    Answer(Answered<'a>),
}

/// The recording rewritten, with the settings that it has now.
#[derive(Serialize)]
struct Rewrite<'a> {
    rewrite: &'a str,
    what: &'a str,
    conf: &'a str,
    /// No request fails, and some did or the reserved peak falls by at least 1 %.
    helps: bool,
    /// Reserved peak against the recording as it is, in bytes (negative: less).
    saved: i64,
    #[serde(flatten)]
    row: &'a Row,
}

#[derive(Serialize)]
struct OfCard<'a> {
    schema: u32,
    input: &'a str,
    paste: String,
    reason: String,
    #[serde(flatten)]
    card: &'a Card,
}

#[derive(Serialize)]
struct Evidence<'a> {
    schema: u32,
    input: &'a str,
    /// What was asked for, and what held the peak of it.
    peak: Peak,
    /// With the settings that the run had, then with those advised: its first failure, or else its peak, by cause.
    states: Vec<Fragmentation>,
}

/// All records of one history.
pub(super) fn records(
    seen: &Seen<'_, '_>,
    advice: &Advice,
    family: &Family,
) -> Result<String, Failure> {
    let now = advice.now().filter(|now| now.ran());
    let input = seen.input.name.as_str();
    let mut all: Vec<Record<'_>> = advice.tried.iter().map(Record::Setting).collect();
    all.extend(advice.rewritten.iter().map(|one| Record::Rewrite(rewrite(one, now))));
    all.extend(advice.cards.iter().map(|card| {
        let setting = advice.tried.iter().find(|trial| trial.conf == card.conf);
        let paste = setting.map_or_else(String::new, |trial| trial.paste.clone());
        let reason = card.reason();
        Record::Card(OfCard { schema: SCHEMA, input, paste, reason, card })
    }));
    let mut states = Vec::new();
    for trial in [now, advice.advised()].into_iter().flatten() {
        let run = (seen.input, &family.spec(&trial.setting), &advice.place);
        let when = (When::Worst, Window::ALL);
        states.extend(fragmentation(run, (seen.lives, seen.categories), when, TOP)?);
    }
    let peak = peak(seen.lives, seen.categories, Window::ALL, TOP);
    all.push(Record::Evidence(Box::new(Evidence { schema: SCHEMA, input, peak, states })));
    all.push(Record::Answer(answer::record(seen, advice)));
    Ok(crate::output::to_json(&all))
}

fn rewrite<'a>(one: &'a Rewritten, now: Option<&Trial>) -> Rewrite<'a> {
    Rewrite {
        rewrite: &one.name,
        what: &one.what,
        conf: &one.own.conf,
        helps: now.is_some_and(|now| one.own.helps(now)),
        saved: one.saved,
        row: &one.own.row,
    }
}
