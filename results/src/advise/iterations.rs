//! The iterations of a recording: steps of a training, requests of a service. What a program could have ordered otherwise.
//!
//! | rule | what it says |
//! |---|---|
//! | `names` | phases whose names are equal up to and with their first number (`step 21 forward`, `step 21 optimizer`) are one iteration; phases without a number belong to the one before. Of several kinds the most frequent counts |
//! | `borders` | an iteration begins where, between the middles of the one before and its own, least is live of what is freed some time: gradients that the next step frees belong to the one that made them |
//! | `apart` | iterations can be put in another order if what of each crosses its border and is freed later is at most [`CARRIED_MAX`] of the peak; its frees are put at the end of its own iteration |

use std::collections::BTreeMap;

use crate::analysis::lives::{Lives, NEVER};

/// Bytes of an iteration that may cross its border, as a share of the peak.
pub const CARRIED_MAX: f64 = 0.02;
/// Fewer iterations are none.
const COUNT_MIN: usize = 3;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Its name, such as `step 21`.
    pub name: String,
    /// Its first op.
    pub from: u64,
    /// The op behind its last.
    pub to: u64,
    /// Most bytes live in it.
    pub peak: u64,
    /// Bytes born in it that are never freed.
    pub kept: u64,
}

/// A name up to and with its first number, and what stands before the number.
fn key(name: &str) -> Option<(&str, &str)> {
    let begin = name.find(|c: char| c.is_ascii_digit())?;
    let rest = &name[begin..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((&name[..begin + digits], &name[..begin]))
}

/// The iterations of a run, in order; or why there are none.
///
/// # Errors
/// In words, for a person.
pub fn find(lives: &Lives) -> Result<Vec<Iteration>, String> {
    let keyed = || lives.phases.iter().filter_map(|phase| Some((key(&phase.name)?, phase.op)));
    let mut kinds: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for ((name, kind), op) in keyed() {
        let begun = kinds.entry(kind).or_default();
        if begun.last().is_none_or(|(last, _)| *last != name) {
            begun.push((name, op));
        }
    }
    let most = kinds.into_values().max_by_key(Vec::len).unwrap_or_default();
    if most.len() < COUNT_MIN {
        return Err(format!(
            "found {} named iterations, and {COUNT_MIN} are needed: name steps with marks, or in a recording with torch.cuda.memory._set_memory_metadata(\"step 1\")",
            most.len()
        ));
    }
    let mut names: Vec<&str> = most.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < most.len() {
        return Err(
            "iterations run interleaved: their order is not the program's to choose".to_owned()
        );
    }
    let passes = |at: &usize| lives.list[*at].death != NEVER;
    let passing = lives.curve_of((0..lives.list.len()).filter(passes));
    let mut borders = Vec::new();
    for (n, (_, op)) in most.iter().enumerate() {
        let before = n.checked_sub(1).map_or(*op, |n| most[n].1);
        let after = most.get(n + 1).map_or(lives.ops, |(_, next)| *next);
        let (low, high) = (before.midpoint(*op), op.midpoint(after));
        let least = within(&passing, low, high).iter().rev().min_by_key(|(_, bytes)| *bytes);
        borders.push(if n == 0 { *op } else { least.map_or(*op, |(at, _)| at + 1) });
    }
    borders.push(lives.ops);
    let curve = lives.curve();
    let mut all: Vec<Iteration> = Vec::new();
    for (pair, (name, _)) in borders.windows(2).zip(&most) {
        let (from, to) = (pair[0], pair[1].max(pair[0]));
        let peak = within(&curve, from, to).iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        all.push(Iteration { name: (*name).to_owned(), from, to, peak, kept: 0 });
    }
    for life in lives.list.iter().filter(|life| life.death == NEVER) {
        if let Some(own) = all.iter_mut().find(|i| i.from <= life.birth && life.birth < i.to) {
            own.kept = own.kept.saturating_add(life.size);
        }
    }
    Ok(all)
}

/// The part of a curve in these ops, the last not included.
fn within(curve: &[(u64, u64)], from: u64, to: u64) -> &[(u64, u64)] {
    let at = |op: u64| curve.partition_point(|(other, _)| *other < op);
    curve.get(at(from)..at(to)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::lives::tests::input;

    fn lives(lines: &[&str]) -> Lives {
        Lives::read(&input(lines)).expect("reads")
    }

    #[test]
    fn a_key_ends_with_its_first_number() {
        assert_eq!(key("step 21 seq 1024 forward"), Some(("step 21", "step ")));
        assert_eq!(key("model to device"), None);
    }

    #[test]
    fn what_the_next_step_frees_belongs_to_the_one_that_made_it() {
        let step = |n: usize| {
            [
                format!(r#"{{"op":"mark","name":"step {n} forward"}}"#),
                format!(r#"{{"op":"free","id":{}}}"#, n + 100),
                format!(r#"{{"op":"alloc","id":{n},"size":900}}"#),
                format!(r#"{{"op":"alloc","id":{},"size":50}}"#, n + 101),
                format!(r#"{{"op":"free","id":{n}}}"#),
            ]
        };
        let mut lines = vec![r#"{"op":"alloc","id":100,"size":50}"#.to_owned()];
        lines.extend((0..4).flat_map(step));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let found = find(&lives(&lines)).expect("iterations");
        let told: Vec<_> = found.iter().map(|i| (i.name.as_str(), i.from, i.to)).collect();
        // each border lies behind the free that the next step begins with
        assert_eq!(
            told,
            [("step 0", 1, 8), ("step 1", 8, 13), ("step 2", 13, 18), ("step 3", 18, 21)]
        );
        assert_eq!(found.iter().map(|i| i.peak).max(), Some(950));
    }

    #[test]
    fn interleaved_or_unnamed_ones_are_refused_in_words() {
        let mark = |name: &str| format!(r#"{{"op":"mark","name":"{name}"}}"#);
        let lines = ["p 1", "p 2", "p 1", "p 2"].map(mark);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(find(&lives(&lines)).expect_err("interleaved").contains("interleaved"));
        assert!(find(&lives(&lines[..1])).expect_err("too few").contains("named iterations"));
    }
}
