//! What of an input is live, without any strategy: the peak of requested bytes and what held it.

use std::collections::BTreeMap;

use serde::Serialize;
use vramlab_sim::op::Op;
use vramlab_sim::units::Bytes;
use vramlab_workloads::live::walk;

use crate::failure::Failure;
use crate::job::Input;

/// Part of the bytes at the peak.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// Site or size.
    pub what: String,
    /// How many buffers.
    pub buffers: u64,
    /// Their requested bytes.
    pub bytes: u64,
}

/// From one mark to the next.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Phase {
    pub name: String,
    pub op: u64,
    pub start_bytes: u64,
    pub end_bytes: u64,
    pub peak_bytes: u64,
}

/// What was found. Bytes are requested bytes, and those of the tokens of sequences, of all devices together.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Peak {
    pub ops: u64,
    pub allocs: u64,
    pub frees: u64,
    pub gaps: u64,
    /// Sequences of a cache that began, forks among them.
    pub sequences: u64,
    pub sequences_at_end: u64,
    /// Bytes of a token, where there are sequences.
    pub token_bytes: Option<u64>,
    pub live_at_end: u64,
    pub end_bytes: u64,
    pub peak_bytes: u64,
    pub peak_op: u64,
    pub by_site: Vec<Share>,
    pub by_size: Vec<Share>,
    pub growth: Vec<Phase>,
    /// The sum of live requests passed 2^64 − 1 bytes, where it is cut.
    pub saturated: bool,
}

/// Phases that are kept; later ones are left out.
const PHASES_KEPT: usize = 200;

/// Highest sum of live requests on one device, in bytes: one walk.
///
/// # Errors
/// A bad input.
pub fn device_peak(input: &Input<'_>) -> Result<u64, Failure> {
    let mut source = (input.make)()?;
    let live = walk(&mut *source, |_op, _live, _source| true).map_err(Failure::input)?;
    Ok(live.device_peak())
}

/// Walks the input twice: to find the peak, and to see what is live there. The `top` largest shares are kept, the rest is one more.
///
/// # Errors
/// A bad input.
pub fn find_peak(input: &Input<'_>, top: usize) -> Result<Peak, Failure> {
    let mut peak = Peak::default();
    let mut source = (input.make)()?;
    let mut phase: Option<Phase> = None;
    let at_end = walk(&mut *source, |op, live, source| {
        let now = live.bytes();
        match op {
            Op::Alloc { .. } => peak.allocs += 1,
            Op::KvNew { .. } | Op::KvFork { .. } => peak.sequences += 1,
            Op::Free { .. } | Op::FreeDeferred { .. } => peak.frees += 1,
            Op::Mark { name } => {
                let next = Phase {
                    name: source.text(*name).to_owned(),
                    op: live.ops() - 1,
                    start_bytes: now,
                    end_bytes: now,
                    peak_bytes: now,
                };
                if let Some(done) = phase.replace(next).filter(|_| peak.growth.len() < PHASES_KEPT)
                {
                    peak.growth.push(done);
                }
            }
            _ => {}
        }
        if let Some(phase) = &mut phase {
            phase.end_bytes = now;
            phase.peak_bytes = phase.peak_bytes.max(now);
        }
        if now > peak.peak_bytes {
            (peak.peak_bytes, peak.peak_op) = (now, live.ops() - 1);
        }
        true
    })
    .map_err(Failure::input)?;
    (peak.ops, peak.end_bytes) = (at_end.ops(), at_end.bytes());
    peak.live_at_end = at_end.buffers().count() as u64;
    peak.sequences_at_end = at_end.sequences().count() as u64;
    peak.token_bytes = (peak.sequences > 0).then(|| at_end.token_bytes());
    peak.saturated = at_end.saturated();
    peak.growth.extend(phase.filter(|_| peak.growth.len() < PHASES_KEPT));
    peak.gaps = source.gaps();
    let mut source = (input.make)()?;
    let (mut sites, mut sizes) = (BTreeMap::new(), BTreeMap::new());
    let live = walk(&mut *source, |_op, live, _source| live.ops() <= peak.peak_op)
        .map_err(Failure::input)?;
    for one in live.buffers() {
        let text = if one.site.is_empty() { "(no site recorded)" } else { &*one.site };
        add(&mut sites, text.to_owned(), one.size);
        add(&mut sizes, size_class(one.size), one.size);
    }
    for bytes in live.sequences() {
        add(&mut sites, "(sequences)".to_owned(), bytes);
        add(&mut sizes, "(sequences)".to_owned(), bytes);
    }
    (peak.by_site, peak.by_size) = (largest(sites, top), largest(sizes, top));
    Ok(peak)
}

/// Power-of-two classes from 512 B up.
fn size_class(size: u64) -> String {
    let upper = size.max(512).checked_next_power_of_two().unwrap_or(u64::MAX);
    if upper == 512 {
        "up to 512 B".to_owned()
    } else {
        format!("{} to {}", Bytes(upper / 2), Bytes(upper))
    }
}

fn add(list: &mut BTreeMap<String, (u64, u64)>, what: String, bytes: u64) {
    let entry = list.entry(what).or_default();
    entry.0 += 1;
    entry.1 = entry.1.saturating_add(bytes);
}

fn largest(list: BTreeMap<String, (u64, u64)>, top: usize) -> Vec<Share> {
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
    use vramlab_sim::Source;
    use vramlab_sim::trace::JsonlSource;

    use super::*;

    fn peak_of(lines: &[&str]) -> Peak {
        let text = lines.join("\n");
        let make = move || -> Result<Box<dyn Source>, Failure> {
            Ok(Box::new(JsonlSource::new(std::io::Cursor::new(text.clone()), "t")))
        };
        find_peak(&Input::new("t", Box::new(make)), 10).expect("reads")
    }

    #[test]
    fn a_realloc_changes_what_is_live() {
        let grown = [
            r#"{"op":"alloc","id":1,"size":100,"site":"a"}"#,
            r#"{"op":"realloc","id":1,"size":700}"#,
            r#"{"op":"realloc","id":1,"size":300}"#,
        ];
        let peak = peak_of(&grown);
        assert_eq!((peak.peak_bytes, peak.peak_op, peak.end_bytes), (700, 1, 300));
        assert_eq!((peak.by_site[0].what.as_str(), peak.by_site[0].bytes), ("a", 700));
    }

    #[test]
    fn sites_are_told_apart_by_their_text() {
        let two = [
            r#"{"op":"alloc","id":1,"size":100,"site":"a"}"#,
            r#"{"op":"alloc","id":2,"size":50,"site":"b"}"#,
            r#"{"op":"alloc","id":3,"size":1,"site":"a"}"#,
        ];
        let shares: Vec<(String, u64)> =
            peak_of(&two).by_site.into_iter().map(|s| (s.what, s.bytes)).collect();
        assert_eq!(shares, [("a".to_owned(), 101), ("b".to_owned(), 50)]);
    }

    #[test]
    fn a_sum_beyond_2_to_64_is_said_to_be_cut() {
        let huge = [
            r#"{"op":"alloc","id":1,"size":18446744073709551615}"#,
            r#"{"op":"alloc","id":2,"size":1}"#,
        ];
        assert!(peak_of(&huge).saturated);
        assert!(!peak_of(&huge[..1]).saturated);
    }
}
