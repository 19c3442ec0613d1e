//! Live buffers of an input, without any strategy: the peak of requested bytes and what held it.

use std::collections::BTreeMap;

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
}

/// Phases that are kept; later ones are left out.
const PHASES_KEPT: usize = 200;

#[derive(Clone, Default)]
struct Live {
    size: u64,
    site: u32,
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
    peak.live_at_end = at_end.iter().flatten().count() as u64;
    peak.growth.extend(phase.filter(|_| peak.growth.len() < PHASES_KEPT));
    peak.gaps = source.gaps();
    let mut source = (input.make)()?;
    let mut seen = 0;
    let (mut sites, mut sizes) = (BTreeMap::new(), BTreeMap::new());
    let mut texts: BTreeMap<u32, String> = BTreeMap::new();
    let live = walk(&mut *source, |op, _now, source| {
        if let Op::Alloc { site, .. } = op {
            texts.entry(site.0).or_insert_with(|| source.text(*site).to_owned());
        }
        seen += 1;
        seen <= peak.peak_op
    })?;
    for one in live.iter().flatten() {
        let text = texts
            .get(&one.site)
            .filter(|t| !t.is_empty())
            .map_or("(no site recorded)", String::as_str);
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
    entry.1 += bytes;
}

fn largest(list: BTreeMap<String, (u64, u64)>, top: usize) -> Vec<Share> {
    let mut shares: Vec<Share> =
        list.into_iter().map(|(what, (buffers, bytes))| Share { what, buffers, bytes }).collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.what.cmp(&b.what)));
    if shares.len() > top {
        let rest = shares.split_off(top);
        let sum = |f: fn(&Share) -> u64| rest.iter().map(f).sum();
        shares.push(Share {
            what: format!("({} others)", rest.len()),
            buffers: sum(|s| s.buffers),
            bytes: sum(|s| s.bytes),
        });
    }
    shares
}

/// Calls `see` after each op with the live bytes, until it says no; gives the live buffers then.
fn walk(
    source: &mut dyn Source,
    mut see: impl FnMut(&Op, u64, &dyn Source) -> bool,
) -> Result<Vec<Option<Live>>, Failure> {
    let (mut live, mut now): (Vec<Option<Live>>, u64) = (Vec::new(), 0);
    loop {
        match source.next(Nanos(0), Answered::Done).map_err(Failure::input)? {
            Step::End => return Ok(live),
            Step::WaitUntil(_) => {}
            Step::Op(op) => {
                match op {
                    Op::Alloc { id, size, site, .. } => {
                        let slot = id.0 as usize;
                        live.resize_with(live.len().max(slot + 1), || None);
                        now = now.saturating_add(size);
                        live[slot] = Some(Live { size, site: site.0 });
                    }
                    Op::Free { id, .. } | Op::FreeDeferred { id } => {
                        let gone = live.get_mut(id.0 as usize).and_then(Option::take);
                        now = now.saturating_sub(gone.map_or(0, |g| g.size));
                    }
                    _ => {}
                }
                if !see(&op, now, source) {
                    return Ok(live);
                }
            }
        }
    }
}
