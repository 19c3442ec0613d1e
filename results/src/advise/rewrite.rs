//! What a program could do otherwise, tried on its recording: other orders, a warm-up, lengths in buckets, caches emptied at other moments.
//!
//! A rewrite is no recording: it says what the allocator would do if the program asked for the same buffers in another order.
//!
//! | rewrite | what is done |
//! |---|---|
//! | `largest first` | iterations by falling peak, behind the first, which makes what stays |
//! | `alike together` | iterations by rising peak, so that neighbours are of about one size |
//! | `warm-up` | a copy of the largest iteration runs once before all others, and leaves nothing |
//! | `buckets of N` | iterations, ordered as they are, become copies of the largest of theirs in N classes of about as many: as if each batch were padded to the longest of its class |
//! | `empty_cache` | after every iteration, or only before the largest |
//! | `no empty_cache` | the calls that the recording has are left out |

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use vramlab_sim::op::Op;
use vramlab_sim::source::Step;

use super::iterations::{CARRIED_MAX, Iteration};
use super::parts::{Parts, numbered};
use super::tape::Tape;

/// Numbers of classes of lengths that are tried.
const BUCKETS: [usize; 3] = [2, 4, 8];

/// A recording as it could have been.
pub struct Rewrite {
    /// Short name.
    pub name: String,
    /// What was rewritten.
    pub what: String,
    /// Its ops.
    pub tape: Tape,
}

/// Every rewrite of a recording that its ops allow; and why others are not tried.
pub fn all(
    tape: &Tape,
    iterations: &Result<Vec<Iteration>, String>,
) -> (Vec<Rewrite>, Vec<String>) {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    if !tape.is_plain() {
        let why = "not rewritten: it has work, events, times or several devices, whose order is part of it";
        return (found, vec![why.to_owned()]);
    }
    found.extend(without_empty_cache(tape));
    let iterations = match iterations {
        Ok(iterations) => iterations,
        Err(why) => {
            left_out.push(format!("order, warm-up, buckets and empty_cache are not tried: {why}"));
            return (found, left_out);
        }
    };
    found.extend(emptied(tape, iterations));
    let parts = Parts::of(tape, iterations);
    let peak = iterations.iter().map(|i| i.peak).max().unwrap_or(0);
    let carried = parts.carried.iter().copied().max().unwrap_or(0);
    if carried as f64 > CARRIED_MAX * peak as f64 {
        left_out.push(format!(
            "order, warm-up and buckets are not tried: {carried} B of an iteration live on in the next, and are freed there"
        ));
        return (found, left_out);
    }
    found.extend(orders(tape, &parts, iterations));
    found.push(warm_up(tape, &parts, iterations));
    found.extend(BUCKETS.iter().filter_map(|count| buckets(tape, &parts, iterations, *count)));
    (found, left_out)
}

fn without_empty_cache(tape: &Tape) -> Option<Rewrite> {
    let is_call = |step: &&Step| matches!(step, Step::Op(Op::EmptyCache));
    let calls = tape.steps.iter().filter(is_call).count();
    let steps = tape.steps.iter().filter(|step| !is_call(step)).copied().collect();
    (calls > 0).then(|| Rewrite {
        name: "no empty_cache".to_owned(),
        what: format!("the {calls} moments at which the cache was emptied are left out"),
        tape: tape.with(steps),
    })
}

fn emptied(tape: &Tape, iterations: &[Iteration]) -> [Rewrite; 2] {
    let at = |ops: &BTreeSet<u64>| {
        let mut steps = Vec::with_capacity(tape.steps.len() + ops.len());
        let mut last = None;
        for (op, step) in numbered(tape) {
            if ops.contains(&op) && last != Some(op) {
                steps.push(Step::Op(Op::EmptyCache));
                last = Some(op);
            }
            steps.push(step);
        }
        tape.with(steps)
    };
    let borders: BTreeSet<u64> = iterations.iter().skip(1).map(|i| i.from).collect();
    let largest = largest(iterations);
    let before = &iterations[largest];
    [
        Rewrite {
            name: "empty_cache after every iteration".to_owned(),
            what: format!("the cache is emptied {} times, between iterations", borders.len()),
            tape: at(&borders),
        },
        Rewrite {
            name: "empty_cache before the largest".to_owned(),
            what: format!("the cache is emptied once, before {} (op {})", before.name, before.from),
            tape: at(&BTreeSet::from([before.from])),
        },
    ]
}

/// The first of those with the highest peak.
fn largest(iterations: &[Iteration]) -> usize {
    let peak = |at: &usize| (iterations[*at].peak, std::cmp::Reverse(*at));
    (0..iterations.len()).max_by_key(peak).unwrap_or(0)
}

fn orders(tape: &Tape, parts: &Parts, iterations: &[Iteration]) -> Vec<Rewrite> {
    // the last one, if it stopped on the way, stays the last
    let count = iterations.len();
    let stays = iterations.last().is_some_and(|last| last.kept > 0);
    let movable = 1..if stays { count - 1 } else { count };
    let ordered = |falling: bool| {
        let mut middle: Vec<usize> = movable.clone().collect();
        middle.sort_by_key(|&at| (iterations[at].peak, at));
        if falling {
            middle.reverse();
        }
        let order: Vec<usize> = std::iter::once(0)
            .chain(middle)
            .chain((movable.end < count).then_some(count - 1))
            .collect();
        (order.windows(2).any(|pair| pair[0] > pair[1])).then(|| tape.with(parts.in_order(&order)))
    };
    let moved = movable.len();
    let rewrite = |name: &str, what: String, falling| {
        ordered(falling).map(|tape| Rewrite { name: name.to_owned(), what, tape })
    };
    [
        rewrite(
            "largest first",
            format!("{moved} iterations by falling peak, behind the first"),
            true,
        ),
        rewrite(
            "alike together",
            format!("{moved} iterations by rising peak, behind the first"),
            false,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn warm_up(tape: &Tape, parts: &Parts, iterations: &[Iteration]) -> Rewrite {
    let at = largest(iterations);
    let mut next_id = parts.next_id;
    let copy = parts.copy(at, &mut next_id);
    let all = parts.list.iter().flatten();
    let steps = parts.before.iter().chain(&copy).chain(all).chain(&parts.behind).copied().collect();
    let far = if iterations[at].kept > 0 { ", as far as it went," } else { "" };
    Rewrite {
        name: "warm-up".to_owned(),
        what: format!(
            "a copy of {}{far} runs before all others, and leaves nothing",
            iterations[at].name
        ),
        tape: tape.with(steps),
    }
}

/// None if there are no more lengths than classes, or an iteration keeps something.
fn buckets(tape: &Tape, parts: &Parts, iterations: &[Iteration], count: usize) -> Option<Rewrite> {
    let whole: Vec<usize> = (1..iterations.len()).filter(|&at| iterations[at].kept == 0).collect();
    let mut order = whole.clone();
    order.sort_by_key(|&at| (iterations[at].peak, at));
    let lengths: BTreeSet<u64> = order.iter().map(|&at| iterations[at].peak).collect();
    if lengths.len() <= count {
        return None;
    }
    let mut stands_for: FxHashMap<usize, usize> = FxHashMap::default();
    for class in order.chunks(order.len().div_ceil(count)) {
        let longest = *class.last()?;
        stands_for.extend(class.iter().map(|&at| (at, longest)));
    }
    let mut next_id = parts.next_id;
    let mut steps = parts.before.clone();
    let (mut asked, mut before) = (0_u64, 0_u64);
    for (at, part) in parts.list.iter().enumerate() {
        match stands_for.get(&at) {
            Some(&longest) if longest != at => {
                let copy = parts.copy(longest, &mut next_id);
                (asked, before) =
                    (asked.saturating_add(bytes(&copy)), before.saturating_add(bytes(part)));
                steps.extend(copy);
            }
            _ => {
                (asked, before) =
                    (asked.saturating_add(bytes(part)), before.saturating_add(bytes(part)));
                steps.extend(part);
            }
        }
    }
    steps.extend(&parts.behind);
    Some(Rewrite {
        name: format!("lengths in {count} buckets"),
        what: format!(
            "{} iterations are padded to the longest of their class: {:.0} % more bytes asked for in all",
            stands_for.iter().filter(|(at, longest)| at != longest).count(),
            (asked as f64 / before.max(1) as f64 - 1.0) * 100.0
        ),
        tape: tape.with(steps),
    })
}

/// Bytes that are asked for.
fn bytes(steps: &[Step]) -> u64 {
    let size = |step: &Step| match step {
        Step::Op(Op::Alloc { size, .. }) => *size,
        _ => 0,
    };
    steps.iter().map(size).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::super::iterations::find;
    use super::*;
    use crate::analysis::lives::Lives;
    use crate::analysis::lives::tests::input;
    use crate::job::Input;
    use std::sync::Arc;

    /// Five steps of these MiB, each of two buffers; weights before them, and a state that the first makes.
    fn steps() -> Vec<String> {
        let mut lines = vec![r#"{"op":"alloc","id":1,"size":4096}"#.to_owned()];
        for (n, mib) in [8_u64, 2, 64, 4, 32].into_iter().enumerate() {
            lines.push(format!(r#"{{"op":"mark","name":"step {n}"}}"#));
            for id in [10, 11] {
                lines.push(format!(r#"{{"op":"alloc","id":{id},"size":{}}}"#, mib << 20));
            }
            if n == 0 {
                lines.push(r#"{"op":"alloc","id":2,"size":4096}"#.to_owned());
            }
            lines.extend([11, 10].map(|id| format!(r#"{{"op":"free","id":{id}}}"#)));
        }
        lines
    }

    fn rewritten() -> Vec<(String, Lives, usize)> {
        let lines = steps();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let original = input(&lines);
        let lives = Lives::read(&original).expect("reads");
        let tape = Tape::of(&original).expect("reads").expect("taped");
        let (rewrites, left_out) = all(&tape, &find(&lives));
        assert_eq!(left_out, Vec::<String>::new());
        let read = |rewrite: Rewrite| {
            let calls = rewrite.tape.steps.iter().filter(|s| **s == Step::Op(Op::EmptyCache));
            let calls = calls.count();
            let tape = Arc::new(rewrite.tape);
            let again: Input<'_> = tape.input(&original);
            (rewrite.name, Lives::read(&again).expect("frees only what is live"), calls)
        };
        rewrites.into_iter().map(read).collect()
    }

    #[test]
    fn every_rewrite_leaves_what_the_recording_leaves() {
        let all = rewritten();
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "empty_cache after every iteration",
                "empty_cache before the largest",
                "largest first",
                "alike together",
                "warm-up",
                "lengths in 2 buckets",
            ]
        );
        for (name, lives, calls) in &all {
            assert_eq!(lives.end_bytes, 8192, "{name}");
            assert_eq!(lives.peak_bytes, (128 << 20) + 8192, "{name}");
            let want = if name.ends_with("every iteration") {
                4
            } else {
                usize::from(name.starts_with("empty"))
            };
            assert_eq!(*calls, want, "{name}");
        }
    }

    #[test]
    fn the_largest_goes_first_and_buckets_pad() {
        let sizes = |wanted: &str| -> Vec<u64> {
            let all = rewritten();
            let (_, lives, _) = all.iter().find(|(name, ..)| name == wanted).expect("tried");
            let large = lives.list.iter().filter(|life| life.size > 4096);
            large.step_by(2).map(|life| life.size >> 20).collect()
        };
        assert_eq!(sizes("largest first"), [8, 64, 32, 4, 2]);
        assert_eq!(sizes("alike together"), [8, 2, 4, 32, 64]);
        assert_eq!(sizes("warm-up"), [64, 8, 2, 64, 4, 32]);
        assert_eq!(sizes("lengths in 2 buckets"), [8, 4, 64, 4, 64]);
    }
}
