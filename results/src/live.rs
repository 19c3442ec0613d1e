//! Live buffers of an input, without any strategy: the peak of requested bytes and what held it.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashSet;
use serde::Serialize;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::{Bytes, Nanos};

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

/// What was found. Bytes are requested bytes.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Peak {
    pub ops: u64,
    pub allocs: u64,
    pub frees: u64,
    pub gaps: u64,
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

struct Live {
    size: u64,
    site: Rc<str>,
}

/// Texts of sites, each kept once, and those of dead buffers not for long: a file may name a new one with every request.
#[derive(Default)]
struct Sites {
    texts: FxHashSet<Rc<str>>,
    kept_max: usize,
}

impl Sites {
    fn keep(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.texts.get(text) {
            return Rc::clone(known);
        }
        if self.texts.len() >= self.kept_max {
            self.texts.retain(|text| Rc::strong_count(text) > 1);
            self.kept_max = (2 * self.texts.len()).max(1024);
        }
        let text: Rc<str> = text.into();
        self.texts.insert(Rc::clone(&text));
        text
    }
}

/// Highest sum of live requests, in bytes: one walk.
///
/// # Errors
/// A bad input.
pub fn peak_bytes(input: &Input<'_>) -> Result<u64, Failure> {
    let (mut source, mut peak) = ((input.make)()?, 0);
    walk(&mut *source, |_op, now, _source| {
        peak = peak.max(now);
        true
    })?;
    Ok(peak)
}

/// Walks the input twice: to find the peak, and to see what is live there. The `top` largest shares are kept, the rest is one more.
///
/// # Errors
/// A bad input.
pub fn find_peak(input: &Input<'_>, top: usize) -> Result<Peak, Failure> {
    let mut peak = Peak::default();
    let mut source = (input.make)()?;
    let mut phase: Option<Phase> = None;
    let at_end = walk(&mut *source, |op, now, source| {
        peak.ops += 1;
        match op {
            Op::Alloc { .. } => peak.allocs += 1,
            Op::Free { .. } | Op::FreeDeferred { .. } => peak.frees += 1,
            Op::Mark { name } => {
                let next = Phase {
                    name: source.text(*name).to_owned(),
                    op: peak.ops - 1,
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
            (peak.peak_bytes, peak.peak_op) = (now, peak.ops - 1);
        }
        peak.end_bytes = now;
        true
    })?;
    peak.live_at_end = at_end.buffers.iter().flatten().count() as u64;
    peak.saturated = at_end.saturated;
    peak.growth.extend(phase.filter(|_| peak.growth.len() < PHASES_KEPT));
    peak.gaps = source.gaps();
    let mut source = (input.make)()?;
    let mut seen = 0;
    let (mut sites, mut sizes) = (BTreeMap::new(), BTreeMap::new());
    let live = walk(&mut *source, |_op, _now, _source| {
        seen += 1;
        seen <= peak.peak_op
    })?;
    for one in live.buffers.iter().flatten() {
        let text = if one.site.is_empty() { "(no site recorded)" } else { &*one.site };
        add(&mut sites, text.to_owned(), one.size);
        add(&mut sizes, size_class(one.size), one.size);
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

/// What is live at some moment.
struct Walked {
    buffers: Vec<Option<Live>>,
    saturated: bool,
}

/// Calls `see` after each op with the live bytes, until it says no; gives the live buffers then.
fn walk(
    source: &mut dyn Source,
    mut see: impl FnMut(&Op, u64, &dyn Source) -> bool,
) -> Result<Walked, Failure> {
    let mut walked = Walked { buffers: Vec::new(), saturated: false };
    let (mut sites, mut now) = (Sites::default(), 0_u64);
    loop {
        match source.next(Nanos(0), Answered::Done).map_err(Failure::input)? {
            Step::End => return Ok(walked),
            Step::WaitUntil(_) => {}
            Step::Op(op) => {
                let live = &mut walked.buffers;
                let mut grow = |by: u64| {
                    let (sum, over) = now.overflowing_add(by);
                    now = if over { u64::MAX } else { sum };
                    walked.saturated |= over;
                };
                match op {
                    Op::Alloc { id, size, site, .. } => {
                        let slot = id.0 as usize;
                        live.resize_with(live.len().max(slot + 1), || None);
                        grow(size);
                        live[slot] = Some(Live { size, site: sites.keep(source.text(site)) });
                    }
                    Op::Realloc { id, size } => {
                        if let Some(Some(buffer)) = live.get_mut(id.0 as usize) {
                            let old = std::mem::replace(&mut buffer.size, size);
                            grow(size.saturating_sub(old));
                            now = now.saturating_sub(old.saturating_sub(size));
                        }
                    }
                    Op::Free { id, .. } | Op::FreeDeferred { id } => {
                        let gone = live.get_mut(id.0 as usize).and_then(Option::take);
                        now = now.saturating_sub(gone.map_or(0, |g| g.size));
                    }
                    _ => {}
                }
                if !see(&op, now, source) {
                    return Ok(walked);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
