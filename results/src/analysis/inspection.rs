//! All that `inspect` tells of one history: its figures, its peak and what held it, its growth, and its fragmentation by cause.

use serde::Serialize;
use vramlab_allocators::Spec;

use super::category::{Categories, Category};
use super::causes::{Causes, Judged, Segment, Wanted};
use super::lives::{Lives, NEVER};
use super::replayed::Replayed;
use super::shares::{self, CategoryShare, Growth, NO_SITE, Share, StreamShare};
use crate::failure::Failure;
use crate::job::{Input, Place};

/// Phases that are kept: those with the highest peaks, in their order.
const PHASES_KEPT: usize = 200;

/// Ops from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

impl Window {
    /// Everything.
    pub const ALL: Self = Self { from: 0, to: u64::MAX };

    const fn has(&self, op: u64) -> bool {
        self.from <= op && op <= self.to
    }
}

/// What was asked for. Bytes are requested bytes, and those of the tokens of sequences, of all devices together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Peak {
    pub ops: u64,
    pub allocs: u64,
    /// Of these, the ones that failed when they were recorded: they are never live.
    pub failed: u64,
    pub failed_largest_bytes: u64,
    pub frees: u64,
    pub gaps: u64,
    /// Sequences of a cache that began, forks among them.
    pub sequences: u64,
    pub sequences_at_end: u64,
    /// Bytes of a token, where there are sequences.
    pub token_bytes: Option<u64>,
    pub live_at_end: u64,
    pub end_bytes: u64,
    /// Highest in the window.
    pub peak_bytes: u64,
    pub peak_op: u64,
    pub by_site: Vec<Share>,
    pub by_category: Vec<CategoryShare>,
    pub by_size: Vec<Share>,
    pub by_phase: Vec<Share>,
    /// How many phases the window has.
    pub phases: u64,
    /// Of these, the ones with the highest peaks, in their order.
    pub growth: Vec<Growth>,
    pub streams: Vec<StreamShare>,
    /// The sum of live requests passed 2^64 − 1 bytes, where it is cut.
    pub saturated: bool,
}

/// A buffer, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Named {
    /// The input's own number: an address in a recording of PyTorch.
    pub name: u64,
    pub size: u64,
    pub site: String,
    pub category: Category,
    pub birth: u64,
    /// The op that frees it; none if nothing does.
    pub death: Option<u64>,
}

/// A segment that cannot go back, or has memory that nobody else can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Kept {
    pub address: u64,
    pub size: u64,
    pub pool: &'static str,
    pub stream: u32,
    /// Free bytes that are kept: pinned, and split remainders.
    pub kept: u64,
    /// Blocks that live in it.
    pub live_blocks: u64,
    pub pin_address: u64,
    pub pin_size: u64,
    /// Whose block the pin is, if that is known.
    pub pin: Option<Named>,
}

/// A state by cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Fragmentation {
    /// The strategy; none for the state that the file itself tells.
    pub strategy: Option<String>,
    pub capacity: Option<u64>,
    /// After this op.
    pub op: u64,
    pub reserved: u64,
    pub requested: u64,
    pub segments: u64,
    pub causes: Causes,
    pub largest_free: u64,
    pub largest_free_for_wanted: u64,
    pub wanted: Option<Wanted>,
    /// Segments with the most free bytes that are kept.
    pub kept: Vec<Kept>,
}

/// At which moment a replay is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Its first refused request, or else its peak.
    Worst,
    /// When most is reserved.
    Peak,
    /// Its first refused request.
    Oom,
    /// Its end.
    End,
    /// After this op.
    Op(u64),
}

/// What an input's buffers were asked for, in a window; the `top` largest shares are kept, the rest is one more.
pub fn peak(lives: &Lives, categories: &Categories, window: Window, top: usize) -> Peak {
    let curve = lives.curve();
    let (peak_op, peak_bytes) = highest(&curve, window, lives.ops);
    let mut growth = shares::growth(lives);
    let last = growth.iter().rposition(|phase| phase.op <= window.from).unwrap_or(0);
    growth.drain(..last.min(growth.len()));
    growth.retain(|phase| phase.op <= window.to);
    let phases = growth.len() as u64;
    growth.sort_by_key(|phase| std::cmp::Reverse(phase.peak_bytes));
    growth.truncate(PHASES_KEPT);
    growth.sort_by_key(|phase| phase.op);
    let at_end = || lives.list.iter().filter(|life| life.death == NEVER);
    Peak {
        ops: lives.ops,
        allocs: lives.allocs,
        failed: lives.failed,
        failed_largest_bytes: lives.failed_largest,
        frees: lives.frees,
        gaps: lives.gaps,
        sequences: lives.sequences,
        sequences_at_end: at_end().filter(|life| life.sequence).count() as u64,
        token_bytes: lives.token_bytes,
        live_at_end: at_end().filter(|life| !life.sequence).count() as u64,
        end_bytes: lives.end_bytes,
        peak_bytes,
        peak_op,
        by_site: shares::by_site(lives, peak_op, top),
        by_category: shares::by_category(lives, categories, peak_op),
        by_size: shares::by_size(lives, peak_op, top),
        by_phase: match lives.phases.is_empty() {
            true => Vec::new(),
            false => shares::by_phase(lives, peak_op, top),
        },
        phases,
        growth,
        streams: shares::by_stream(lives),
        saturated: lives.saturated,
    }
}

/// The first op in the window after which most bytes were requested, and how many.
fn highest(curve: &[(u64, u64)], window: Window, ops: u64) -> (u64, u64) {
    let before = curve.partition_point(|(op, _)| *op < window.from);
    let begin = before.checked_sub(1).map_or(0, |at| curve[at].1);
    let first = (window.from.min(ops.saturating_sub(1)), begin);
    let within = curve[before..].iter().take_while(|(op, _)| window.has(*op));
    within.fold(first, |best, &(op, bytes)| if bytes > best.1 { (op, bytes) } else { best })
}

/// The n-th life, as messages name it.
pub fn named(lives: &Lives, categories: &Categories, at: usize) -> Named {
    let life = &lives.list[at];
    let site = match lives.site(life) {
        "" => NO_SITE.to_owned(),
        site => site.to_owned(),
    };
    Named {
        name: life.name,
        size: life.size,
        site,
        category: categories.get(at).category,
        birth: life.birth,
        death: Some(life.death).filter(|op| *op != NEVER),
    }
}

/// Replays an input and judges its state at a moment. None if the strategy cannot tell what is where, or if no request fails and one should.
///
/// # Errors
/// Bad options or bad input.
pub fn fragmentation(
    (input, spec, place): (&Input<'_>, &Spec, &Place),
    (lives, categories): (&Lives, &Categories),
    (when, window): (When, Window),
    top: usize,
) -> Result<Option<Fragmentation>, Failure> {
    let run = Replayed::run(input, spec, place, window != Window::ALL)?;
    let peak = match window {
        Window::ALL => run.peak_op,
        window => reserved_most(&run, window),
    };
    let first_oom = run.grew.iter().find(|w| w.failed && window.has(w.op)).map(|w| w.op);
    let op = match when {
        When::Worst => first_oom.unwrap_or(peak),
        When::Peak => peak,
        When::Oom => match first_oom {
            Some(op) => op,
            None => return Ok(None),
        },
        When::End => lives.ops.saturating_sub(1).min(window.to),
        When::Op(op) => op,
    };
    let judged = run.moment(input, spec, place, lives, op)?;
    let made = Made { strategy: Some(spec.to_string()), capacity: Some(place.capacity()), op };
    Ok(judged.map(|judged| told(judged, made, lives, categories, top)))
}

fn reserved_most(run: &Replayed, window: Window) -> u64 {
    let mut best = (window.from, 0);
    for level in run.levels.iter().filter(|level| window.has(level.op)) {
        if level.reserved > best.1 {
            best = (level.op, level.reserved);
        }
    }
    best.0
}

/// Who made a state, and when.
pub struct Made {
    /// The strategy; none for the state that the file itself tells.
    pub strategy: Option<String>,
    /// Bytes of its device.
    pub capacity: Option<u64>,
    /// After this op.
    pub op: u64,
}

/// A judged state in what is told of it.
pub fn told(
    judged: Judged,
    made: Made,
    lives: &Lives,
    categories: &Categories,
    top: usize,
) -> Fragmentation {
    let mut most: Vec<&Segment> = judged.segments.iter().filter(|s| s.kept() > 0).collect();
    most.sort_by_key(|segment| (std::cmp::Reverse(segment.kept()), segment.address));
    let kept = |segment: &&Segment| {
        let pin = segment.pin?;
        Some(Kept {
            address: segment.address,
            size: segment.size,
            pool: segment.pool,
            stream: segment.stream,
            kept: segment.kept(),
            live_blocks: pin.of,
            pin_address: pin.address,
            pin_size: pin.size,
            pin: pin.life.map(|at| named(lives, categories, at)),
        })
    };
    Fragmentation {
        strategy: made.strategy,
        capacity: made.capacity,
        op: made.op,
        reserved: judged.reserved,
        requested: judged.requested,
        segments: judged.segments.len() as u64,
        causes: judged.causes,
        largest_free: judged.largest_free,
        largest_free_for_wanted: judged.largest_free_for_wanted,
        wanted: judged.wanted,
        kept: most.iter().filter_map(kept).take(top).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_window_counts_what_was_there_before() {
        let curve = [(0, 10), (4, 90), (6, 30), (8, 40)];
        assert_eq!(highest(&curve, Window::ALL, 10), (4, 90));
        assert_eq!(highest(&curve, Window { from: 5, to: 7 }, 10), (5, 90));
        assert_eq!(highest(&curve, Window { from: 7, to: 9 }, 10), (8, 40));
        assert_eq!(highest(&[], Window::ALL, 0), (0, 0));
    }
}
