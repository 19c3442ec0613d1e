//! What `vramlab advise` tells a person: the tables of settings, rewrites and cards.

use std::collections::BTreeMap;

use vramlab_sim::units::Bytes;

use super::Advice;
use crate::advise::card::Card;
use crate::advise::trial::Trial;
use crate::analysis::category::Categories;
use crate::analysis::lives::Lives;
use crate::job::{Input, Place};
use crate::output::{Grid, mib, plain};

/// A recording and what is known of it.
pub(super) struct Seen<'r, 'a> {
    pub(super) input: &'r Input<'a>,
    pub(super) lives: &'r Lives,
    pub(super) categories: &'r Categories,
}

/// Refused settings that are named for each reason.
const REFUSED: usize = 5;

/// Heading and tables, the figures of each device, and what else there is to say of the runs.
pub(super) fn table(seen: &Seen<'_, '_>, advice: &Advice, top: usize, markdown: bool) -> String {
    let tried = &advice.tried;
    let mut text = heading(seen.input, &advice.place, tried, markdown);
    text += &settings(tried, top, markdown);
    text += &of_each_device(tried);
    text += &remarks(tried);
    text += &rewrites(advice, markdown);
    text += &cards(&advice.cards, markdown);
    text
}

/// Refused settings by what refused them, settings that do nothing, and why; each said once.
fn remarks(tried: &[Trial]) -> String {
    let mut refused: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for one in tried.iter().filter(|t| !t.row.ran()) {
        let reason = one.row.reason.as_deref().unwrap_or_default();
        refused.entry((one.verdict, reason)).or_default().push(&one.conf);
    }
    let mut text = String::new();
    for ((verdict, reason), settings) in refused {
        let more = settings.len().saturating_sub(REFUSED);
        let more = if more > 0 { format!(" and {more} others") } else { String::new() };
        let named = settings[..settings.len().min(REFUSED)].join(" ");
        text += &format!("{verdict}: {named}{more}: {reason}\n");
    }
    let idle = |t: &&Trial| t.verdict == "does nothing here" && t.setting.pairs.len() == 1;
    let mut idle: Vec<&Trial> = tried.iter().filter(idle).collect();
    idle.sort_by_key(|trial| &trial.conf);
    if !idle.is_empty() {
        let names: Vec<&str> = idle.iter().map(|trial| trial.conf.as_str()).collect();
        text += &format!(
            "do nothing here, every request at the same address as with the defaults: {}\n",
            names.join(" ")
        );
    }
    let mut notes: Vec<&str> = Vec::new();
    for note in idle.iter().flat_map(|trial| &trial.row.notes) {
        if !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    text + &notes.iter().map(|note| format!("note: {note}\n")).collect::<String>()
}

fn heading(input: &Input<'_>, place: &Place, tried: &[Trial], markdown: bool) -> String {
    let first = tried.iter().find(|trial| trial.row.ran());
    let floor = mib(first.map_or(0, |t| t.row.live_floor));
    let (capacity, devices) = (Bytes(place.capacity()), first.map_or(0, |t| t.row.devices.len()));
    let name = plain(&input.name);
    let heading = if devices > 1 {
        format!(
            "{name} on {devices} devices of {capacity} each; of all together: live floor {floor} MiB, and what the table says"
        )
    } else {
        format!("{name} on {capacity} of device memory, live floor {floor} MiB")
    };
    if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") }
}

/// The best, and in any case the defaults and the recorded settings.
fn settings(tried: &[Trial], top: usize, markdown: bool) -> String {
    let mut grid = Grid::new(&[
        "rank",
        "setting<",
        "verdict<",
        "ooms",
        "retries",
        "peak reserved MiB",
        "against default",
        "driver calls",
        "stall ms",
    ]);
    let ours = |t: &Trial| matches!(t.verdict, "default" | "recorded");
    let mut shown: Vec<&Trial> = Vec::new();
    for one in tried.iter().filter(|trial| trial.ran()) {
        // of settings that do the same only the simplest
        let known = shown.iter().any(|other| other.same(one));
        if ours(one) || (shown.len() < top && !known) {
            shown.push(one);
        }
    }
    for one in shown {
        grid.row(vec![
            one.rank.to_string(),
            setting(one).to_owned(),
            one.verdict.to_owned(),
            one.row.ooms.to_string(),
            one.row.alloc_retries.unwrap_or(0).to_string(),
            mib(one.row.peak_reserved),
            one.saved.map_or_else(String::new, signed),
            one.row.memory_calls().to_string(),
            ms(one.row.stall_total_ns),
        ]);
    }
    let mut text = grid.print(markdown) + "\n\n";
    let count = |verdict: &str| tried.iter().filter(|t| t.verdict == verdict).count();
    let words = [
        ("helps", "help"),
        ("not enough", "are not enough"),
        ("no help", "do not help"),
        ("costs", "cost memory"),
        ("does nothing here", "do nothing here"),
        ("dominated", "were stopped, since a better one was known"),
        ("not in this version", "are not in this version"),
        ("refused", "are refused"),
    ];
    let counted = words.iter().map(|(verdict, words)| (count(verdict), words));
    let counted: Vec<String> =
        counted.filter(|(n, _)| *n > 0).map(|(n, words)| format!("{n} {words}")).collect();
    text += &format!("{} settings tried: {}\n", tried.len(), counted.join(", "));
    text
}

fn rewrites(advice: &Advice, markdown: bool) -> String {
    let mut text = String::new();
    if !advice.rewritten.is_empty() {
        let mut grid = Grid::new(&[
            "if the program did<",
            "failed",
            "peak reserved MiB",
            "against now",
            "driver calls",
            "stall ms",
            "what was rewritten<",
        ]);
        for one in &advice.rewritten {
            let row = &one.own.row;
            grid.row(vec![
                one.name.clone(),
                row.failed().to_string(),
                mib(row.peak_reserved),
                signed(one.saved),
                row.memory_calls().to_string(),
                ms(row.stall_total_ns),
                one.what.clone(),
            ]);
        }
        text += &format!(
            "\nthe recording rewritten, with the settings that it has now (a rewrite is no recording: it asks for the same buffers in another order):\n{}\n",
            grid.print(markdown)
        );
    }
    for why in &advice.left_out {
        text += &format!("{why}\n");
    }
    text
}

fn cards(cards: &[Card], markdown: bool) -> String {
    let Some(first) = cards.first() else { return String::new() };
    let mut grid =
        Grid::new(&["setting<", "least MiB", "smallest card", "left on it MiB", "remark<"]);
    for card in cards {
        let name = if card.conf.is_empty() { "(defaults)" } else { &card.conf };
        let again = card.fails_again.map(|more| format!("fails again with {}", Bytes(more)));
        grid.row(vec![
            name.to_owned(),
            card.least.map_or_else(|| "no device is large enough".to_owned(), mib),
            card.card.map_or_else(|| "none".to_owned(), |bytes| Bytes(bytes).to_string()),
            card.margin.map_or_else(String::new, mib),
            again.unwrap_or_default(),
        ]);
    }
    format!(
        "\nthe smallest card on which no request fails (searched by replay; {} MiB of a card are the context\u{2019}s):\n{}\n\n",
        mib(first.context),
        grid.print(markdown)
    )
}

pub(super) fn setting(tried: &Trial) -> &str {
    if tried.conf.is_empty() { "(defaults)" } else { &tried.conf }
}

fn signed(bytes: i64) -> String {
    format!("{:+.1}", bytes as f64 / f64::from(1 << 20))
}

pub(super) fn ms(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e6)
}

/// Lines for the devices of a run that has several: with the defaults, and with the best setting.
fn of_each_device(tried: &[Trial]) -> String {
    let mut text = String::new();
    let (Some(default), Some(best)) = (tried.iter().find(|t| t.conf.is_empty()), tried.first())
    else {
        return text;
    };
    for (number, one) in &default.row.devices {
        text += &format!(
            "device {number}: live floor {} MiB, peak reserved {} MiB with the defaults",
            mib(one.live_floor),
            mib(one.peak_reserved)
        );
        if let Some(other) = best.row.devices.get(number).filter(|_| !best.conf.is_empty()) {
            text += &format!(", {} MiB with {}", mib(other.peak_reserved), best.conf);
        }
        text += "\n";
    }
    text
}
