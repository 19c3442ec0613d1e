//! A run of a history through a strategy, as the page reads it: where each buffer lies, what was reserved, and the state at a grid of moments.
//!
//! | rule | what it says |
//! |---|---|
//! | `places` | addresses of all segments and buffers, put end to end without the gaps between them; a buffer that was refused, or has no bytes, has none |
//! | `levels` | reserved bytes at each op that changes them; allocated bytes at `LEVELS_MAX` ops, evenly spread, if there are more |
//! | `grid` | moments: evenly spread over the ops, and the requests that made the run grow, evenly chosen of them; in any case the peak, the first that was refused, the first and the last op. Fewer where more buffers are live, so that all moments together have about `PIECES_MAX` pieces |
//! | `recorded` | of a snapshot also the state that the file itself ends with: its segments, and buffers that lie where they were recorded |
//! | `pieces` | only what holds nothing that was asked for; what a block was rounded up by stands with its buffer |

use std::collections::BTreeSet;

use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::op::Op;

use super::columns::{Column, Columns};
use super::history::{Kept, shown};
use crate::analysis::causes::{Causes, Judged, What};
use crate::analysis::lives::Lives;
use crate::analysis::replayed::Replayed;
use crate::failure::Failure;
use crate::job::{Input, Place, run_pair};

const MOMENTS_MAX: u64 = 240;
const MOMENTS_MIN: u64 = 16;
const PIECES_MAX: u64 = 400_000;
const LEVELS_MAX: usize = 8192;
/// Requests that were refused, of which the page shows the place.
const REFUSED_MAX: usize = 10_000;

/// One run. Bytes and ops.
#[derive(Debug, Serialize)]
pub struct Run {
    /// The strategy, and what the page calls it.
    spec: String,
    label: String,
    capacity: u64,
    failed: u64,
    first_oom: Option<u64>,
    peak_op: u64,
    peak_reserved: u64,
    /// Real begin and length of each stretch that has memory.
    stretch_begin: Column,
    stretch_size: Column,
    /// One more than a buffer's place; 0 is none.
    place: Column,
    /// Bytes of its block beyond its own.
    more: Column,
    reserved_op: Column,
    reserved: Column,
    allocated_op: Column,
    allocated: Column,
    refused: Column,
    moments: Moments,
}

/// States, judged.
#[derive(Debug, Serialize)]
struct Moments {
    causes: Vec<&'static str>,
    pools: Vec<&'static str>,
    op: Column,
    reserved: Column,
    requested: Column,
    /// As many for each moment as there are causes.
    bytes: Column,
    largest: Column,
    /// Size of the request by which free memory is judged; 0 is none.
    wanted: Column,
    segments: Column,
    begin: Column,
    size: Column,
    stream: Column,
    pool: Column,
    /// 1: private, 2: expandable.
    flags: Column,
    /// One more than the buffer that keeps it; 0 is none.
    pin: Column,
    live: Column,
    pieces: Column,
    /// From the end of the piece before it, or the segment's begin.
    gap: Column,
    bytes_of: Column,
    what: Column,
}

/// A run, written.
pub struct Shown {
    /// What the page reads.
    pub run: Run,
    /// Its state after the first refused request, or else at its peak, if the strategy tells of it.
    pub worst: Option<(u64, Judged)>,
}

/// Who runs it.
pub struct Cast<'r, 'a> {
    /// The history.
    pub input: &'r Input<'a>,
    /// Its buffers.
    pub lives: &'r Lives,
    /// Those that the page holds.
    pub kept: &'r Kept,
    /// The device.
    pub place: &'r Place,
}

impl Cast<'_, '_> {
    /// Runs it and writes the columns. None if the strategy does not fit the input, or ended the run.
    ///
    /// # Errors
    /// Bad options or bad input.
    pub fn run(
        &self,
        columns: &mut Columns,
        spec: &Spec,
        label: &str,
    ) -> Result<Option<Shown>, Failure> {
        let run = Replayed::run(self.input, spec, self.place, true)?;
        if !run.row.ran() {
            return Ok(None);
        }
        let mut placed = Placed::new(self.lives);
        run_pair(self.input, spec, self.place, Some(&mut placed))?;
        let mut states: Vec<(u64, Judged)> = Vec::new();
        let grid = self.grid(&run);
        run.moments(self.input, spec, self.place, self.lives, &grid, &mut |op, judged| {
            states.push((op, judged));
        })?;
        let every = run.levels.len().div_ceil(LEVELS_MAX).max(1);
        let allocated = run.levels.iter().step_by(every).map(|l| (l.op, l.allocated)).collect();
        let refused = run.grew.iter().filter(|wanted| wanted.failed).take(REFUSED_MAX);
        let told = Told {
            spec: spec.to_string(),
            label: label.to_owned(),
            failed: run.row.failed(),
            first_oom: run.first_oom,
            peak: (run.peak_op, run.peak_reserved),
            reserved: run.levels.iter().map(|level| (level.op, level.reserved)).collect(),
            allocated,
            refused: refused.map(|wanted| wanted.op).collect(),
        };
        let shown = self.put(columns, told, &placed.at, &states);
        let worst = run.first_oom.unwrap_or(run.peak_op);
        let worst = states.into_iter().find(|(op, _)| *op == worst);
        Ok(Some(Shown { run: shown, worst }))
    }

    /// The state that a recording ends with, as a run of one moment: rule `recorded`.
    pub fn recorded(&self, columns: &mut Columns, judged: Judged) -> Run {
        let op = self.lives.ops.saturating_sub(1);
        let mut placed = vec![(0, 0); self.lives.list.len()];
        for at in self.lives.live_at(op) {
            placed[at] = (self.lives.list[at].name, self.lives.list[at].size);
        }
        let told = Told {
            spec: String::new(),
            label: "as the file ends, not replayed".to_owned(),
            failed: 0,
            first_oom: None,
            peak: (op, judged.reserved),
            reserved: vec![(op, judged.reserved)],
            allocated: Vec::new(),
            refused: Vec::new(),
        };
        self.put(columns, told, &placed, &[(op, judged)])
    }

    fn put(
        &self,
        columns: &mut Columns,
        mut told: Told,
        placed: &[(u64, u64)],
        states: &[(u64, Judged)],
    ) -> Run {
        told.reserved.dedup_by_key(|(_, bytes)| *bytes);
        let map = Stretches::of(placed, states);
        let kept = || self.kept.list.iter().map(|at| *at as usize);
        let places: Vec<u64> = kept()
            .map(|at| placed[at])
            .map(|(address, size)| if size == 0 { 0 } else { map.place(address) + 1 })
            .collect();
        let more = kept().map(|at| placed[at].1.saturating_sub(self.lives.list[at].size));
        let more: Vec<u64> = more.collect();
        Run {
            spec: shown(&told.spec),
            label: shown(&told.label),
            capacity: self.place.capacity(),
            failed: told.failed,
            first_oom: told.first_oom,
            peak_op: told.peak.0,
            peak_reserved: told.peak.1,
            stretch_begin: columns.delta(map.0.iter().map(|stretch| stretch.begin)),
            stretch_size: columns.plain(map.0.iter().map(|stretch| stretch.end - stretch.begin)),
            place: columns.words(&places),
            more: columns.words(&more),
            reserved_op: columns.delta(told.reserved.iter().map(|level| level.0)),
            reserved: columns.delta(told.reserved.iter().map(|level| level.1)),
            allocated_op: columns.delta(told.allocated.iter().map(|level| level.0)),
            allocated: columns.delta(told.allocated.iter().map(|level| level.1)),
            refused: columns.delta(told.refused),
            moments: Moments::put(columns, states, &map, self.kept),
        }
    }

    /// Rule `grid`.
    fn grid(&self, run: &Replayed) -> Vec<u64> {
        let last = self.lives.ops.saturating_sub(1);
        let live = self.lives.live_at(self.lives.peak_op).count() as u64;
        let most = (PIECES_MAX / (live + 1)).clamp(MOMENTS_MIN, MOMENTS_MAX);
        let mut ops = BTreeSet::from([0, run.peak_op, self.lives.peak_op, last]);
        ops.extend(run.first_oom);
        let even = most / 2;
        ops.extend((0..even).map(|n| last / even * n + last % even * n / even));
        let every = run.grew.len().div_ceil(even as usize).max(1);
        ops.extend(run.grew.iter().step_by(every).map(|wanted| wanted.op));
        ops.into_iter().filter(|op| *op <= last).collect()
    }
}

/// What of a run is told beside its places and states: pairs are op and bytes.
struct Told {
    spec: String,
    label: String,
    failed: u64,
    first_oom: Option<u64>,
    peak: (u64, u64),
    reserved: Vec<(u64, u64)>,
    allocated: Vec<(u64, u64)>,
    refused: Vec<u64>,
}

/// Address and size of each life's block; size 0 where it has none.
struct Placed<'r> {
    lives: &'r Lives,
    at: Vec<(u64, u64)>,
    next: usize,
}

impl<'r> Placed<'r> {
    fn new(lives: &'r Lives) -> Self {
        Self { lives, at: vec![(0, 0); lives.list.len()], next: 0 }
    }
}

impl Observer for Placed<'_> {
    fn after(&mut self, seen: &Seen<'_>) {
        let list = &self.lives.list;
        while list.get(self.next).is_some_and(|life| life.birth < seen.index) {
            self.next += 1;
        }
        let asks = matches!(seen.op, Op::Alloc { .. } | Op::Realloc { .. });
        if let (true, Outcome::Placed(placement)) = (asks, seen.outcome)
            && list.get(self.next).is_some_and(|life| life.birth == seen.index)
        {
            self.at[self.next] = (placement.address, placement.size);
        }
    }
}

struct Stretch {
    begin: u64,
    end: u64,
    /// Bytes of all stretches before it.
    place: u64,
}

/// Rule `places`.
pub(crate) struct Stretches(Vec<Stretch>);

impl Stretches {
    pub(crate) fn of(placed: &[(u64, u64)], states: &[(u64, Judged)]) -> Self {
        let segments = states.iter().flat_map(|(_, judged)| &judged.segments);
        let mut all: Vec<(u64, u64)> = segments.map(|one| (one.address, one.size)).collect();
        all.extend(placed);
        all.retain(|(_, size)| *size > 0);
        all.sort_unstable();
        let mut list: Vec<Stretch> = Vec::new();
        for (begin, size) in all {
            let end = begin.saturating_add(size);
            match list.last_mut().filter(|last| begin <= last.end) {
                Some(last) => last.end = last.end.max(end),
                None => {
                    let before = list.last().map_or(0, |last| last.place + last.end - last.begin);
                    list.push(Stretch { begin, end, place: before });
                }
            }
        }
        Self(list)
    }

    pub(crate) fn place(&self, address: u64) -> u64 {
        let at = self.0.partition_point(|stretch| stretch.begin <= address);
        let Some(stretch) = at.checked_sub(1).map(|at| &self.0[at]) else { return 0 };
        stretch.place + (address - stretch.begin)
    }
}

impl Moments {
    fn put(columns: &mut Columns, states: &[(u64, Judged)], map: &Stretches, kept: &Kept) -> Self {
        let judged = || states.iter().map(|(_, judged)| judged);
        let segments = || judged().flat_map(|judged| &judged.segments);
        let mut pools: Vec<&'static str> = segments().map(|segment| segment.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        let pool = |name| pools.iter().position(|known| *known == name).unwrap_or(0) as u64;
        let pin = |life: Option<usize>| match life.map(|at| kept.place[at]) {
            Some(place) if place != u32::MAX => u64::from(place) + 1,
            _ => 0,
        };
        let (mut counts, mut gaps, mut sizes, mut whats) = (vec![], vec![], vec![], vec![]);
        for segment in segments() {
            let (mut end, before) = (segment.address, sizes.len());
            for piece in &segment.pieces {
                if let Some(cause) = cause(piece.what) {
                    gaps.push(piece.address.saturating_sub(end));
                    sizes.push(piece.size);
                    whats.push(cause);
                    end = piece.address + piece.size;
                }
            }
            counts.push((sizes.len() - before) as u64);
        }
        Self {
            causes: Causes::default().named().iter().map(|(name, _)| *name).collect(),
            op: columns.delta(states.iter().map(|(op, _)| *op)),
            reserved: columns.delta(judged().map(|judged| judged.reserved)),
            requested: columns.delta(judged().map(|judged| judged.requested)),
            bytes: columns
                .plain(judged().flat_map(|judged| judged.causes.named()).map(|(_, bytes)| bytes)),
            largest: columns.plain(judged().map(|judged| judged.largest_free)),
            wanted: columns.plain(judged().map(|j| j.wanted.map_or(0, |wanted| wanted.size))),
            segments: columns.plain(judged().map(|judged| judged.segments.len() as u64)),
            begin: columns.delta(segments().map(|segment| map.place(segment.address))),
            size: columns.plain(segments().map(|segment| segment.size)),
            stream: columns.plain(segments().map(|segment| u64::from(segment.stream))),
            pool: columns.plain(segments().map(|segment| pool(segment.pool))),
            flags: columns
                .plain(segments().map(|s| u64::from(s.private) + 2 * u64::from(s.expandable))),
            pin: columns.plain(segments().map(|s| pin(s.pin.and_then(|pin| pin.life)))),
            live: columns.plain(segments().map(|s| s.pin.map_or(0, |pin| pin.of))),
            pieces: columns.plain(counts),
            gap: columns.plain(gaps),
            bytes_of: columns.plain(sizes),
            what: columns.plain(whats),
            pools,
        }
    }
}

/// Rule `pieces`: the number of a piece's cause among [`Causes::named`].
const fn cause(what: What) -> Option<u64> {
    match what {
        What::Requested(_) | What::Rounding => None,
        What::UnsplitRemainder => Some(1),
        What::Waiting => Some(2),
        What::WrongPool => Some(3),
        What::WrongStream => Some(4),
        What::Cached => Some(5),
        What::SplitRemainder => Some(6),
        What::Pinned => Some(7),
    }
}
