//! What held the bytes of a moment: by site, category, size, stream or phase.

use std::collections::BTreeMap;

use serde::Serialize;
use vramlab_sim::units::Bytes;

use super::category::{CATEGORIES, Categories, Category};
use super::lives::{Life, Lives, NEVER};

/// Said where a recording has no site.
pub const NO_SITE: &str = "(no site recorded)";

/// Part of the bytes at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Site, size, stream or phase.
    pub what: String,
    /// How many buffers.
    pub buffers: u64,
    /// Their requested bytes.
    pub bytes: u64,
}

/// Of one category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CategoryShare {
    /// Which.
    pub category: Category,
    /// How many buffers.
    pub buffers: u64,
    /// Their requested bytes.
    pub bytes: u64,
    /// Of these, the bytes of which no text of the recording says what they are for: times of birth and end speak for it, and may be wrong.
    pub derived_bytes: u64,
}

/// One stream over a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct StreamShare {
    pub stream: u32,
    pub requests: u64,
    pub requested_bytes: u64,
    /// Highest sum of its live buffers.
    pub peak_bytes: u64,
    /// What of it was live at the run's peak.
    pub bytes_at_peak: u64,
}

/// From one mark to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Growth {
    pub name: String,
    pub op: u64,
    /// Requested bytes before its first op, after its last, and at most.
    pub start_bytes: u64,
    pub end_bytes: u64,
    pub peak_bytes: u64,
    /// Of what was born in it, what is never freed.
    pub kept_bytes: u64,
}

/// What is live after op `op`, by site.
pub fn by_site(lives: &Lives, op: u64, top: usize) -> Vec<Share> {
    let name = |life: &Life| match lives.site(life) {
        _ if life.sequence => "(sequences)",
        "" => NO_SITE,
        text => text,
    };
    shares(lives, op, top, |_, life| name(life).to_owned())
}

/// By classes of sizes: powers of two from 512 B up.
pub fn by_size(lives: &Lives, op: u64, top: usize) -> Vec<Share> {
    shares(lives, op, top, |_, life| {
        if life.sequence { "(sequences)".to_owned() } else { size_class(life.size) }
    })
}

/// By the phase of its birth.
pub fn by_phase(lives: &Lives, op: u64, top: usize) -> Vec<Share> {
    shares(lives, op, top, |_, life| match lives.phase_at(life.birth) {
        Some(phase) => lives.phases[phase].name.clone(),
        None => "(before the first phase)".to_owned(),
    })
}

/// By category: all that have bytes, in the order of [`CATEGORIES`].
pub fn by_category(lives: &Lives, categories: &Categories, op: u64) -> Vec<CategoryShare> {
    let none = |category| CategoryShare { category, buffers: 0, bytes: 0, derived_bytes: 0 };
    let mut shares = CATEGORIES.map(none);
    for at in lives.live_at(op) {
        let (told, size) = (categories.get(at), lives.list[at].size);
        let share = &mut shares[told.category as usize];
        share.buffers += 1;
        share.bytes = share.bytes.saturating_add(size);
        if !told.stated {
            share.derived_bytes = share.derived_bytes.saturating_add(size);
        }
    }
    shares.into_iter().filter(|share| share.buffers > 0).collect()
}

/// Each stream that asked for memory.
pub fn by_stream(lives: &Lives) -> Vec<StreamShare> {
    let mut streams: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, life) in lives.list.iter().enumerate().filter(|(_, life)| !life.sequence) {
        streams.entry(life.stream).or_default().push(at);
    }
    let share = |(stream, own): (u32, Vec<usize>)| {
        let lives_of = || own.iter().map(|at| &lives.list[*at]);
        let sizes = lives_of().map(|life| life.size);
        let at_peak = lives_of().filter(|life| life.at(lives.peak_op)).map(|life| life.size);
        StreamShare {
            stream,
            requests: own.len() as u64,
            requested_bytes: sizes.fold(0, u64::saturating_add),
            bytes_at_peak: at_peak.fold(0, u64::saturating_add),
            peak_bytes: lives.curve_of(own).into_iter().map(|(_, bytes)| bytes).max().unwrap_or(0),
        }
    };
    streams.into_iter().map(share).collect()
}

/// Each phase of a run.
pub fn growth(lives: &Lives) -> Vec<Growth> {
    let curve = lives.curve();
    let before = |op: u64| {
        let at = curve.partition_point(|(at, _)| *at < op);
        at.checked_sub(1).map_or(0, |at| curve[at].1)
    };
    let mut growth: Vec<Growth> = Vec::with_capacity(lives.phases.len());
    for (index, phase) in lives.phases.iter().enumerate() {
        let end = lives.phases.get(index + 1).map_or(lives.ops, |next| next.op);
        let start_bytes = before(phase.op);
        let from = curve.partition_point(|(at, _)| *at < phase.op);
        let to = curve.partition_point(|(at, _)| *at < end);
        let within = curve.get(from..to).unwrap_or(&[]).iter().map(|(_, bytes)| *bytes).max();
        growth.push(Growth {
            name: phase.name.clone(),
            op: phase.op,
            start_bytes,
            end_bytes: before(end),
            peak_bytes: within.unwrap_or(0).max(start_bytes),
            kept_bytes: 0,
        });
    }
    for life in lives.list.iter().filter(|life| life.death == NEVER) {
        if let Some(phase) = lives.phase_at(life.birth) {
            growth[phase].kept_bytes = growth[phase].kept_bytes.saturating_add(life.size);
        }
    }
    growth
}

/// Power-of-two classes from 512 B up.
pub fn size_class(size: u64) -> String {
    let upper = size.max(512).checked_next_power_of_two().unwrap_or(u64::MAX);
    if upper == 512 {
        "up to 512 B".to_owned()
    } else {
        format!("{} to {}", Bytes(upper / 2), Bytes(upper))
    }
}

fn shares(lives: &Lives, op: u64, top: usize, what: impl Fn(usize, &Life) -> String) -> Vec<Share> {
    let mut list: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for at in lives.live_at(op) {
        let life = &lives.list[at];
        let entry = list.entry(what(at, life)).or_default();
        entry.0 += 1;
        entry.1 = entry.1.saturating_add(life.size);
    }
    let mut shares: Vec<Share> =
        list.into_iter().map(|(what, (buffers, bytes))| Share { what, buffers, bytes }).collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.what.cmp(&b.what)));
    if shares.len() > top {
        let rest = shares.split_off(top);
        let sum = |f: fn(&Share) -> u64| rest.iter().map(f).fold(0, u64::saturating_add);
        shares.push(Share {
            what: format!("({} others)", rest.len()),
            buffers: sum(|s| s.buffers),
            bytes: sum(|s| s.bytes),
        });
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::lives::tests::input;
    use super::*;

    fn read(lines: &[&str]) -> Lives {
        Lives::read(&input(lines)).expect("reads")
    }

    #[test]
    fn sites_are_told_apart_by_their_text_and_the_rest_is_summed() {
        let lives = read(&[
            r#"{"op":"alloc","id":1,"size":100,"site":"a"}"#,
            r#"{"op":"alloc","id":2,"size":50,"site":"b"}"#,
            r#"{"op":"alloc","id":3,"size":1,"site":"a"}"#,
            r#"{"op":"alloc","id":4,"size":7}"#,
        ]);
        let told = |top| -> Vec<(String, u64)> {
            by_site(&lives, 3, top).into_iter().map(|s| (s.what, s.bytes)).collect()
        };
        let own = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
            list.iter().map(|(what, bytes)| ((*what).to_owned(), *bytes)).collect()
        };
        assert_eq!(told(9), own(&[("a", 101), ("b", 50), (NO_SITE, 7)]));
        assert_eq!(told(1), own(&[("a", 101), ("(2 others)", 57)]));
    }

    #[test]
    fn a_phase_begins_with_what_was_there_and_keeps_what_is_never_freed() {
        let lives = read(&[
            r#"{"op":"mark","name":"one"}"#,
            r#"{"op":"alloc","id":1,"size":100}"#,
            r#"{"op":"alloc","id":2,"size":30}"#,
            r#"{"op":"mark","name":"two"}"#,
            r#"{"op":"free","id":2}"#,
            r#"{"op":"alloc","id":3,"size":5}"#,
        ]);
        let figures: Vec<_> = growth(&lives)
            .into_iter()
            .map(|g| (g.start_bytes, g.end_bytes, g.peak_bytes, g.kept_bytes))
            .collect();
        assert_eq!(figures, [(0, 130, 130, 100), (130, 105, 130, 5)]);
    }

    #[test]
    fn streams_have_peaks_of_their_own() {
        let lives = read(&[
            r#"{"op":"alloc","id":1,"size":100}"#,
            r#"{"op":"alloc","id":2,"size":30,"stream":3}"#,
            r#"{"op":"free","id":2}"#,
            r#"{"op":"alloc","id":3,"size":200}"#,
        ]);
        let told: Vec<_> = by_stream(&lives)
            .into_iter()
            .map(|s| (s.stream, s.requests, s.peak_bytes, s.bytes_at_peak))
            .collect();
        assert_eq!(told, [(0, 2, 300, 300), (3, 1, 30, 0)]);
    }
}
