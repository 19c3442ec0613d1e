//! What happened and what helps, in words: did it fit, why not, what held the peak, what to change.

use serde::Serialize;
use vramlab_sim::units::Bytes;

use super::history::shown;
use super::what_if::Table;
use crate::advise::climb::climb;
use crate::advise::trial::{HELPS_FROM, Trial};
use crate::analysis::category::Categories;
use crate::analysis::causes::Judged;
use crate::analysis::lives::Lives;
use crate::analysis::shares;
use crate::job::Place;

/// Sites, categories and causes that are named.
const NAMED: usize = 3;

/// A sentence or two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    /// What it is about.
    pub about: &'static str,
    /// In words.
    pub text: String,
    /// What is pasted into an environment, if that is the advice.
    pub paste: Option<String>,
}

/// A history and what is known of it.
pub struct Seen<'r> {
    /// On which device.
    pub place: &'r Place,
    /// Its buffers.
    pub lives: &'r Lives,
    /// What they are for.
    pub categories: &'r Categories,
}

/// The answer, from the run with the settings in force, and its worst moment: the first refused request, or else the peak.
pub fn answer(seen: &Seen<'_>, table: &Table, worst: Option<&(u64, Judged)>) -> Vec<Said> {
    let mut all = Vec::new();
    let Some(own) = table.own() else { return all };
    let mut say = |about, text| all.push(Said { about, text, paste: None });
    if !own.row.ran() {
        let why = shown(own.row.reason.as_deref().unwrap_or_default());
        say("did it fit", format!("Not known: the run ended early: {why}."));
        return all;
    }
    say("did it fit", fit(seen, table, own));
    let about = if own.row.failed() > 0 { "why" } else { "what is lost" };
    say(about, why(seen, own, worst));
    say("what held the peak", holders(seen));
    if let Some(climb) = climb(seen.lives) {
        say("a climb", format!("Here {}.", climb.words()));
    }
    all.push(helps(seen, table, own));
    let lives = seen.lives;
    if lives.gaps > 0 {
        let text = format!(
            "The recording is cut: {} frees have no request in it. What was live before it began is missing here.",
            lives.gaps
        );
        all.push(Said { about: "gaps", text, paste: None });
    }
    if table.broke() {
        let text =
            "Some settings were ended by the driver or the strategy; vramlab advise names them.";
        all.push(Said { about: "not tried", text: text.to_owned(), paste: None });
    }
    all
}

fn fit(seen: &Seen<'_>, table: &Table, own: &Trial) -> String {
    let (row, capacity) = (&own.row, Bytes(seen.place.capacity()));
    let settings = match table.has_settings() {
        true => format!("with the recorded settings ({})", shown(&own.conf)),
        false => "with default settings".to_owned(),
    };
    if row.failed() == 0 {
        return format!(
            "It fits on {capacity}, {settings}: at most {} are reserved, and live buffers take {} at most.",
            Bytes(row.peak_reserved),
            Bytes(row.live_floor)
        );
    }
    let first = row.first_oom.as_deref().map_or_else(String::new, |text| {
        let text = text.trim_start_matches("out of device memory: ");
        format!(" The first is op {}: {}.", row.first_oom_op.unwrap_or(0), shown(text))
    });
    format!(
        "Out of memory on {capacity}, {settings}: {} of {} requests find no room.{first}",
        row.failed(),
        row.allocs
    )
}

fn why(seen: &Seen<'_>, own: &Trial, worst: Option<&(u64, Judged)>) -> String {
    let (needed, capacity) = (own.row.live_floor_of_one, seen.place.capacity());
    if needed > capacity {
        return format!(
            "Exhaustion: live buffers alone reach {}, which is {} more than there is. No allocator and no setting can help; buffers have to shrink or go.",
            Bytes(needed),
            Bytes(needed - capacity)
        );
    }
    let Some((op, judged)) = worst else {
        return "This strategy does not tell what lies where, so free memory has no causes here."
            .to_owned();
    };
    let when = if own.row.failed() > 0 { "the first failure" } else { "the reserved peak" };
    let total = Bytes(judged.causes.total());
    let mut text = format!(
        "At {when} (op {op}) {} are reserved for {} of live buffers; {total} between them hold nothing that was asked for",
        Bytes(judged.reserved),
        Bytes(judged.requested)
    );
    text += &format!("{}.", causes(judged));
    if let Some(wanted) = judged.wanted.filter(|wanted| wanted.failed) {
        text += &format!(
            " The largest free piece that the request of {} could have come from is {}.",
            Bytes(wanted.size),
            Bytes(judged.largest_free_for_wanted)
        );
    }
    text
}

/// The largest causes, behind a colon; nothing if there are none.
fn causes(judged: &Judged) -> String {
    let mut causes = judged.causes.named().to_vec();
    causes.retain(|(_, bytes)| *bytes > 0);
    causes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named = causes.iter().take(NAMED);
    let named: Vec<String> =
        named.map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

/// What a snapshot itself ends with. Without a history, a replay asks for what was live and for nothing else, and cannot be as bad.
pub fn recorded(judged: &Judged, no_history: bool) -> Said {
    let mut text = format!(
        "The file itself ends with {} reserved for {} of live buffers; {} between them hold nothing that was asked for{}.",
        Bytes(judged.reserved),
        Bytes(judged.requested),
        Bytes(judged.causes.total()),
        causes(judged)
    );
    if no_history {
        text += " It has no history: the replays below only ask for what is live at the end, one after the other, so that they show less waste than there was.";
    }
    Said { about: "as recorded", text, paste: None }
}

fn holders(seen: &Seen<'_>) -> String {
    let lives = seen.lives;
    let part = |bytes: u64| bytes as f64 * 100.0 / lives.peak_bytes.max(1) as f64;
    let list = |shares: Vec<(String, u64)>| {
        let one = |(what, bytes): &(String, u64)| {
            format!("{} {} ({:.0} %)", shown(what), Bytes(*bytes), part(*bytes))
        };
        shares.iter().take(NAMED).map(one).collect::<Vec<_>>().join(", ")
    };
    let mut categories = shares::by_category(lives, seen.categories, lives.peak_op);
    categories.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    let derived = categories.iter().map(|share| share.derived_bytes).fold(0, u64::saturating_add);
    let categories =
        categories.into_iter().map(|share| (share.category.text().to_owned(), share.bytes));
    let sites = shares::by_site(lives, lives.peak_op, NAMED);
    let sites = sites.into_iter().map(|share| (share.what, share.bytes));
    let sure = match derived {
        0 => String::new(),
        bytes => format!(
            " For {} of it only times of birth and end say what it is for, and may be wrong.",
            Bytes(bytes)
        ),
    };
    format!(
        "Live buffers reach {} at op {}: {}. By site: {}.{sure}",
        Bytes(lives.peak_bytes),
        lives.peak_op,
        list(categories.collect()),
        list(sites.collect())
    )
}

fn helps(seen: &Seen<'_>, table: &Table, own: &Trial) -> Said {
    let (row, about) = (&own.row, "what helps");
    if let Some(best) = table.best() {
        let new = &best.row;
        let gain = if row.failed() > 0 {
            format!("no request fails with it, instead of {}", row.failed())
        } else {
            format!(
                "the reserved peak falls from {} to {}",
                Bytes(row.peak_reserved),
                Bytes(new.peak_reserved)
            )
        };
        let since =
            best.since.as_ref().map(|release| format!(" PyTorch {release} or later reads it."));
        let text = format!(
            "This setting: {gain}. Driver calls: {} instead of {}.{}",
            new.memory_calls(),
            row.memory_calls(),
            since.unwrap_or_default()
        );
        return Said { about, text, paste: Some(best.paste.clone()) };
    }
    let count = table.count();
    let text = if row.live_floor_of_one > seen.place.capacity() {
        format!("No setting: {count} were tried, and memory is exhausted with each.")
    } else if row.failed() > 0 {
        format!("No setting: {count} were tried, and requests fail with each.")
    } else {
        format!(
            "No setting: {count} were tried, and none lowers the peak by {:.0} % or more.",
            HELPS_FROM * 100.0
        )
    };
    Said { about, text, paste: None }
}
