//! A climb from message to message: what is allocated rises with each failure of one device, as when something is kept from step to step.
//!
//! Named from three messages (or tables) on that rise each time, by at least a hundredth in all. One failure may come from a larger batch; a row of them that only
//! rises is what a leak looks like, though a cache that fills on purpose looks the same.

use super::super::log::Seen;
use super::super::message::{Framework, Kind, shown};

/// Failures in a row that make a climb.
const CLIMB_MIN: usize = 3;

/// Where it began, where it came to, in how many messages.
struct Climb {
    first: u64,
    last: u64,
    messages: usize,
}

/// For each message, the climb that it is the end or a part of, in words.
pub fn climbs(seen: &[Seen]) -> Vec<Option<String>> {
    let mut words = vec![None; seen.len()];
    let mut done: Vec<(Framework, Kind, Option<u64>)> = Vec::new();
    for one in seen {
        let message = &one.message;
        let key = (message.framework, message.kind, message.figures.count("gpu"));
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let same: Vec<(usize, u64)> = seen
            .iter()
            .enumerate()
            .filter(|(_, other)| {
                let other = &other.message;
                (other.framework, other.kind, other.figures.count("gpu")) == key
            })
            .filter_map(|(at, other)| Some((at, allocated(other)?)))
            .collect();
        if let Some(climb) = rises(&same) {
            let text = format!(
                "allocated memory only rises from message to message: {} in the first of {}, {} in the last; something may be kept from step to step",
                shown(climb.first),
                climb.messages,
                shown(climb.last)
            );
            same.iter().for_each(|(at, _)| words[*at] = Some(text.clone()));
        }
    }
    words
}

fn allocated(seen: &Seen) -> Option<u64> {
    let figures = &seen.message.figures;
    figures.bytes("allocated_bytes").or_else(|| figures.bytes("allocated_current_bytes"))
}

fn rises(same: &[(usize, u64)]) -> Option<Climb> {
    let (first, last) = (same.first()?.1, same.last()?.1);
    let always = same.windows(2).all(|pair| pair[0].1 < pair[1].1);
    (same.len() >= CLIMB_MIN && always && last - first >= last / 100).then_some(Climb {
        first,
        last,
        messages: same.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::message::{Message, Value};
    use super::*;

    fn seen(allocated: &[u64]) -> Vec<Seen> {
        let one = |bytes: &u64| {
            let mut message = Message::new(Framework::Pytorch, "any");
            message.figures.keep("allocated_bytes", Value::bytes(*bytes));
            Seen { message, times: 1, last_line: 1 }
        };
        allocated.iter().map(one).collect()
    }

    #[test]
    fn three_that_only_rise_are_a_climb() {
        let climb = climbs(&seen(&[1 << 30, 2 << 30, 3 << 30]));
        assert!(
            climb.iter().flatten().all(|text| text.contains("1 GiB") && text.contains("3 GiB"))
        );
        assert_eq!(climb.iter().flatten().count(), 3);
        assert_eq!(climbs(&seen(&[1 << 30, 3 << 30, 2 << 30])), [None, None, None]);
        assert_eq!(climbs(&seen(&[1 << 30, 2 << 30])), [None, None]);
        assert_eq!(climbs(&seen(&[1 << 30, (1 << 30) + 1, (1 << 30) + 2])), [None, None, None]);
    }
}
