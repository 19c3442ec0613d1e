//! The advice in words.

use serde::Serialize;

use super::text::{Seen, ms};
use super::{Advice, Rewritten};
use crate::advise::climb::{Climb, climb};
use crate::advise::ladder::RECORDS_SINCE;
use crate::advise::trial::{HELPS_FROM, Trial};
use crate::analysis::shares;
use crate::job::Place;
use crate::output::{mib, plain};

/// Sites and categories that are named where a run is out of memory.
const HOLDERS: usize = 4;

/// The advice in words: beside the settings that the run had, if it had any.
pub(super) fn answer(seen: &Seen<'_, '_>, advice: &Advice) -> String {
    let tried = &advice.tried;
    let Some(default) = tried.iter().find(|t| t.conf.is_empty()) else { return String::new() };
    let recorded = tried.iter().find(|t| t.verdict == "recorded");
    let Some(now) = advice.now() else { return String::new() };
    let row = &now.row;
    if !row.ran() {
        let why = row.reason.as_deref().unwrap_or_default();
        return format!("no advice: the run with {} ended early: {why}\n", words(now));
    }
    let text = match advice.advised() {
        Some(best) if best.conf.is_empty() => {
            format!("advice: leave out the settings {}\n{}", plain(&now.conf), helps(best, now))
        }
        Some(best) => {
            format!("advice: {}\n{}{}", best.paste, helps(best, now), since(best))
                + &what_comes_next(seen, best, now, &advice.place)
        }
        None if row.failed() > 0 => {
            let best = tried.iter().find(|t| t.ran()).unwrap_or(now);
            format!("no setting helps: {}\n", why_all_fail(best, now, &advice.place))
                + &holders(seen, now, &advice.place)
        }
        None if recorded.is_some_and(|own| own.helps(default)) => format!(
            "advice: keep the settings {}: peak reserved is {} MiB with them, {} MiB with the defaults, and no other setting saves {:.0} % more\n",
            plain(&now.conf),
            mib(row.peak_reserved),
            mib(default.row.peak_reserved),
            HELPS_FROM * 100.0
        ),
        None => format!(
            "no setting helps: {} reserve {} MiB for {} MiB of live buffers, and the best setting saves under {:.0} %\n",
            words(now),
            mib(row.peak_reserved),
            mib(row.live_floor),
            HELPS_FROM * 100.0
        ),
    };
    let climb = climb(seen.lives).map(|climb| format!("  {}\n", climb.words()));
    text + &program(advice, now) + &climb.unwrap_or_default()
}

/// The advice for a program; `record.md` lists the fields.
#[derive(Serialize)]
pub(super) struct Answered<'a> {
    schema: u32,
    input: &'a str,
    /// Bytes of the device.
    capacity: u64,
    /// The settings that the run had.
    conf_now: Option<&'a str>,
    /// Those advised instead; empty to leave out all.
    advised: Option<&'a str>,
    paste: Option<&'a str>,
    since: Option<&'a str>,
    /// What the program could do, if that helps.
    rewrite: Option<&'a str>,
    /// Live buffers alone are more than the device has, and by so many bytes.
    exhausted: bool,
    more_bytes: u64,
    climb: Option<Climb>,
    /// Why some rewrites are not tried.
    not_tried: &'a [String],
    text: String,
}

/// The advice for a program.
pub(super) fn record<'a>(seen: &Seen<'a, '_>, advice: &'a Advice) -> Answered<'a> {
    let now = advice.now();
    let advised = advice.advised();
    let capacity = advice.place.capacity();
    let more_bytes = now.map_or(0, |now| now.row.live_floor_of_one.saturating_sub(capacity));
    Answered {
        schema: crate::row::SCHEMA,
        input: &seen.input.name,
        capacity,
        conf_now: now.map(|now| now.conf.as_str()),
        advised: advised.map(|best| best.conf.as_str()),
        paste: advised.map(|best| best.paste.as_str()),
        since: advised.and_then(|best| best.since.as_deref()),
        rewrite: now.and_then(|now| best_rewrite(advice, now)).map(|one| one.name.as_str()),
        exhausted: more_bytes > 0,
        more_bytes,
        climb: climb(seen.lives),
        not_tried: &advice.left_out,
        text: answer(seen, advice),
    }
}

/// A setting in a sentence.
fn words(tried: &Trial) -> String {
    match tried.conf.is_empty() {
        true => "the defaults".to_owned(),
        false => format!("the recorded settings ({})", plain(&tried.conf)),
    }
}

fn helps(best: &Trial, now: &Trial) -> String {
    let (row, new) = (&now.row, &best.row);
    let gain = if row.failed() > 0 {
        format!("requests that failed: {} with {}, none with it", row.failed(), words(now))
    } else {
        format!(
            "peak reserved falls from {} to {} MiB",
            mib(row.peak_reserved),
            mib(new.peak_reserved)
        )
    };
    let cost = format!(
        "driver calls: {} instead of {}; time lost to them: {} instead of {} ms",
        new.memory_calls(),
        row.memory_calls(),
        ms(new.stall_total_ns),
        ms(row.stall_total_ns)
    );
    format!("  {gain}\n  {cost}\n")
}

/// Which release the advice needs, where histories of older ones are recorded.
fn since(best: &Trial) -> String {
    match best.setting.since() {
        Some((release @ (major, minor), option)) if release > RECORDS_SINCE => {
            format!("  {option} is there since PyTorch {major}.{minor}; older ones refuse it\n")
        }
        _ => String::new(),
    }
}

/// Left of a device is next to nothing below this share of it.
const LEFT_MIN: f64 = 0.01;

/// A recording that ends with its failure does not tell what the program would have asked for next.
fn what_comes_next(seen: &Seen<'_, '_>, best: &Trial, now: &Trial, place: &Place) -> String {
    let ends = |op: u64| op + 2 >= seen.lives.ops; // the request, and the end of its buffer
    if !now.row.first_oom_op.is_some_and(ends) {
        return String::new();
    }
    let left = place.capacity().saturating_sub(best.row.device_used_of_one);
    let next_to_nothing = match (left as f64) < LEFT_MIN * place.capacity() as f64 {
        true => {
            ", which is next to nothing: take it for exhaustion unless the next requests are smaller"
        }
        false => "",
    };
    format!(
        "  the recording ends with the request that failed: with this setting it is served, and {} MiB of the device are left{next_to_nothing}; what the program would have asked for next is not known\n",
        mib(left)
    )
}

/// Of the rewrites that gain most, within a hundredth, the one that loses least time.
fn best_rewrite<'a>(advice: &'a Advice, now: &Trial) -> Option<&'a Rewritten> {
    let gains = |one: &&Rewritten| one.own.helps(now) && one.saved < 0;
    let passes = |one: &&Rewritten| now.row.failed() > 0 && one.own.row.failed() == 0;
    let gain = || advice.rewritten.iter().filter(|one| gains(one) || passes(one));
    let least = gain().map(|one| one.own.row.peak_reserved).min().unwrap_or(0);
    let near =
        |one: &&Rewritten| one.own.row.peak_reserved as f64 <= least as f64 * (1.0 + HELPS_FROM);
    gain().filter(near).min_by_key(|one| one.own.row.stall_total_ns)
}

fn program(advice: &Advice, now: &Trial) -> String {
    match best_rewrite(advice, now) {
        Some(best) => format!(
            "  in the program: {} ({}): {} MiB reserved at the peak, {} requests fail; time lost to driver calls: {} instead of {} ms\n",
            best.name,
            best.what,
            mib(best.own.row.peak_reserved),
            best.own.row.failed(),
            ms(best.own.row.stall_total_ns),
            ms(now.row.stall_total_ns)
        ),
        None => String::new(),
    }
}

fn why_all_fail(best: &Trial, default: &Trial, place: &Place) -> String {
    // The floor counts what fails, too.
    let (needed, capacity) = (default.row.live_floor_of_one, place.capacity());
    if needed > capacity {
        let highest = default.row.devices.iter().find(|(_, one)| one.live_floor == needed);
        let device = highest.map(|(number, _)| number);
        return format!(
            "the live buffers alone reach {}{} MiB on {} of {} MiB: it is exhaustion",
            if needed == u64::MAX { "at least " } else { "" }, // where the sum is cut
            mib(needed),
            device.map_or_else(|| "a device".to_owned(), |number| format!("device {number}")),
            mib(capacity)
        );
    }
    let first = default.row.first_oom.as_deref().unwrap_or("a request failed");
    let fewest = if best.row.failed() < default.row.failed() {
        format!(
            "{} fail with {}, and the best, {}, which is not enough, leaves {}",
            default.row.failed(),
            words(default),
            best.conf,
            best.row.failed()
        )
    } else {
        format!("{} fail at best", best.row.failed())
    };
    let device =
        default.row.first_oom_device.map_or_else(String::new, |n| format!(", on device {n}"));
    format!("requests fail with every setting tried ({fewest}); the first{device}: {first}")
}

/// Of an exhaustion: how many bytes are missing, and what holds the peak.
fn holders(seen: &Seen<'_, '_>, default: &Trial, place: &Place) -> String {
    let (needed, capacity) = (default.row.live_floor_of_one, place.capacity());
    if needed <= capacity {
        return String::new();
    }
    let lives = seen.lives;
    let list = |shares: Vec<(String, u64)>| {
        let one = |(what, bytes): &(String, u64)| format!("{} {} MiB", plain(what), mib(*bytes));
        shares.iter().take(HOLDERS).map(one).collect::<Vec<_>>().join(", ")
    };
    // where the failing request makes the peak, what is there without it is what holds the memory; one that failed when recorded is in no peak
    let fails = default.row.first_oom_op.and_then(|op| lives.born_at(op)).map(|at| lives.list[at]);
    let fails = fails.filter(|life| life.failed || life.birth == lives.peak_op);
    let asked = fails.map(|life| life.size);
    let op = match fails {
        Some(life) if !life.failed => lives.peak_op.saturating_sub(1),
        _ => lives.peak_op,
    };
    let sites = shares::by_site(lives, op, HOLDERS);
    let sites = sites.into_iter().map(|share| (share.what, share.bytes)).collect();
    let mut categories = shares::by_category(lives, seen.categories, op);
    categories.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    let categories =
        categories.into_iter().map(|share| (share.category.text().to_owned(), share.bytes));
    let asked = asked.map_or_else(String::new, |bytes| {
        format!("the request that fails is of {} MiB; ", mib(bytes))
    });
    format!(
        "  it needs {} MiB ({} B) more; {asked}memory is held by {} (after op {op}); by site: {}\n",
        mib(needed - capacity),
        needed - capacity,
        list(categories.collect()),
        list(sites)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::setting::Setting;
    use crate::analysis::category::Categories;
    use crate::analysis::lives::Lives;
    use crate::analysis::lives::tests::input;
    use crate::row::Row;
    use vramlab_sim::units::Bytes;

    /// A setting with so many failures and so many MiB at the peak.
    fn tried(conf: &str, ooms: u64, peak_mib: u64) -> Trial {
        let (peak_reserved, live_floor) = (peak_mib << 20, 900 << 20);
        let row = Row {
            outcome: "ok",
            ooms,
            peak_reserved,
            live_floor,
            live_floor_of_one: live_floor,
            ..Row::default()
        };
        Trial {
            rank: 1,
            conf: conf.into(),
            verdict: "",
            saved: Some(0),
            paste: format!("PASTE={conf}"),
            since: None,
            setting: Setting::recorded(conf),
            digest: peak_mib,
            stopped: false,
            row,
        }
    }

    fn answer_of(best: Trial, default: Trial, capacity: u64) -> String {
        let place = Place::for_recording(None, Some(Bytes(capacity << 20))).expect("a device");
        let mut tried = vec![best, default.clone()];
        tried.iter_mut().for_each(|trial| trial.judge("", &default));
        let (rewritten, left_out, cards) = (Vec::new(), Vec::new(), Vec::new());
        let advice = Advice { place, tried, rewritten, left_out, cards };
        let input = input(&[r#"{"op":"alloc","id":1,"size":943718400,"site":"a\u001b[2J"}"#]);
        let lives = Lives::read(&input).expect("reads");
        let categories = Categories::of(&lives, &input);
        answer(&Seen { input: &input, lives: &lives, categories: &categories }, &advice)
    }

    #[test]
    fn a_lower_peak_is_no_help_while_requests_fail() {
        let text = answer_of(tried("a:1", 1, 500), tried("", 1, 1000), 1000);
        assert_eq!(
            text,
            "no setting helps: requests fail with every setting tried (1 fail at best); the first: a request failed\n"
        );
    }

    #[test]
    fn fewer_failures_are_told_and_are_not_enough() {
        let text = answer_of(tried("a:1", 306, 500), tried("", 315, 1000), 1000);
        assert!(text.starts_with("no setting helps: "), "{text}");
        assert!(
            text.contains(
                "315 fail with the defaults, and the best, a:1, which is not enough, leaves 306"
            ),
            "{text}"
        );
    }

    /// What holds the peak is named; a name with control characters moves no cursor.
    #[test]
    fn more_live_bytes_than_the_device_has_are_exhaustion() {
        let text = answer_of(tried("a:1", 1, 500), tried("", 1, 500), 800);
        assert_eq!(
            text,
            "no setting helps: the live buffers alone reach 900.0 MiB on a device of 800.0 MiB: it is exhaustion\n  it needs 100.0 MiB (104857600 B) more; memory is held by parameters 900.0 MiB (after op 0); by site: a·[2J 900.0 MiB\n"
        );
    }

    #[test]
    fn no_failure_any_more_is_help_even_at_a_higher_peak() {
        let text = answer_of(tried("a:1", 0, 1100), tried("", 2, 1000), 1000);
        assert!(
            text.starts_with(
                "advice: PASTE=a:1\n  requests that failed: 2 with the defaults, none with it\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_small_saving_is_no_help() {
        let text = answer_of(tried("a:1", 0, 995), tried("", 0, 1000), 2000);
        assert_eq!(
            text,
            "no setting helps: the defaults reserve 1000.0 MiB for 900.0 MiB of live buffers, and the best setting saves under 1 %\n"
        );
        let text = answer_of(tried("a:1", 0, 900), tried("", 0, 1000), 2000);
        assert!(
            text.starts_with("advice: PASTE=a:1\n  peak reserved falls from 1000.0 to 900.0 MiB\n"),
            "{text}"
        );
    }
}
