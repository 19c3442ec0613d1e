//! A run of an input through a strategy, looked at while it goes: its curve, the requests that made it grow, and its state after any op.
//!
//! A run is made once to learn what only its end tells (which requests made it grow, the least block of each size), and once more for the
//! moments that are asked for: the same ops get the same places.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramlab_allocators::Spec;
use vramlab_allocators::torch::Sizes;
use vramlab_sim::allocator::{Layout, LayoutBlock, LayoutSegment, Placement};
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::machine::{Machine, RangeKind};
use vramlab_sim::op::Op;
use vramlab_sim::units::{BufferId, PoolId, StreamId};

use super::causes::{Judged, Knows, Owner, Wanted, judge};
use super::lives::{Lives, NEVER};
use crate::failure::Failure;
use crate::job::{Input, Place, run_pair};
use crate::row::Row;

/// A climb to the peak begins at this share of it.
const CLIMB: f64 = 0.95;

/// Bytes after an op at which one of them changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // vramlab_sim::report
pub struct Level {
    pub op: u64,
    pub requested: u64,
    pub allocated: u64,
    pub active: u64,
    pub reserved: u64,
}

/// A run and what it told.
pub struct Replayed {
    /// Its figures.
    pub row: Row,
    /// The op after which most bytes were reserved (on the device of the op), the first of several.
    pub peak_op: u64,
    /// Bytes then.
    pub peak_reserved: u64,
    /// The first op that was refused memory.
    pub first_oom: Option<u64>,
    /// Requests that made it take more memory, or failed, in order.
    pub grew: Vec<Wanted>,
    /// In order; empty unless asked for.
    pub levels: Vec<Level>,
    /// Reserved bytes after each of `grew`.
    grew_to: Vec<u64>,
    blocks: Blocks,
}

impl Replayed {
    /// Runs it. With `levels` the curve is kept: 40 bytes for each op that moves it.
    ///
    /// # Errors
    /// Bad options or bad input.
    pub fn run(
        input: &Input<'_>,
        spec: &Spec,
        place: &Place,
        levels: bool,
    ) -> Result<Self, Failure> {
        let mut watch = First { keep: levels, ..First::default() };
        let row = run_pair(input, spec, place, Some(&mut watch))?;
        Ok(Self {
            row,
            peak_op: watch.peak_op,
            peak_reserved: watch.peak_reserved,
            first_oom: watch.grew.iter().find(|wanted| wanted.failed).map(|wanted| wanted.op),
            grew: watch.grew,
            grew_to: watch.grew_to,
            levels: watch.levels,
            blocks: Blocks::new(watch.least, spec)?,
        })
    }

    /// The request by which free memory after op `op` is judged: the next that made the run grow, or else the last. Of the peak, the largest
    /// that took it there from `CLIMB` of its bytes on: the last one may be a small one of another pool.
    pub fn wanted_at(&self, op: u64) -> Option<Wanted> {
        if op == self.peak_op && self.first_oom != Some(op) {
            let low = (self.peak_reserved as f64 * CLIMB) as u64;
            let climb = self.grew.iter().zip(&self.grew_to).rev();
            let climb = climb.skip_while(|(wanted, _)| wanted.op > op);
            let climb =
                climb.take_while(|(_, reserved)| **reserved >= low).map(|(wanted, _)| wanted);
            return climb.max_by_key(|wanted| (wanted.size, wanted.op)).copied();
        }
        let next = self.grew.partition_point(|wanted| wanted.op < op);
        self.grew.get(next).or(self.grew.last()).copied()
    }

    /// Runs it again, and shows its judged state after each of these ops, in order. Not shown is the state of a strategy that cannot tell
    /// what is where, or of which the layout does not add up.
    ///
    /// # Errors
    /// As [`Replayed::run`].
    pub fn moments(
        &self,
        input: &Input<'_>,
        spec: &Spec,
        place: &Place,
        lives: &Lives,
        ops: &[u64],
        see: &mut dyn FnMut(u64, Judged),
    ) -> Result<(), Failure> {
        let mut ops = ops.to_vec();
        ops.sort_unstable();
        let mut watch = Second { run: self, lives, ops, now: Places::default(), see };
        run_pair(input, spec, place, Some(&mut watch)).map(drop)
    }

    /// The judged state after one op.
    ///
    /// # Errors
    /// As [`Replayed::run`].
    pub fn moment(
        &self,
        input: &Input<'_>,
        spec: &Spec,
        place: &Place,
        lives: &Lives,
        op: u64,
    ) -> Result<Option<Judged>, Failure> {
        let mut found = None;
        self.moments(input, spec, place, lives, &[op], &mut |_, judged| found = Some(judged))?;
        Ok(found)
    }
}

/// What requests are rounded up to.
struct Blocks {
    /// By `torch.caching`'s settings.
    sizes: Option<Sizes>,
    /// Of other strategies: request to the least block of one at least as large, both rising.
    least: Vec<(u64, u64)>,
}

impl Blocks {
    fn new(least: BTreeMap<u64, u64>, spec: &Spec) -> Result<Self, Failure> {
        let own = spec.strategy().name == vramlab_allocators::torch::STRATEGY.name;
        let sizes = match own && spec.parts.len() == 1 {
            true => Sizes::of(&spec.strategy().options).map_err(Failure::usage)?,
            false => None,
        };
        let mut least: Vec<(u64, u64)> = least.into_iter().collect();
        let mut smallest = u64::MAX;
        for (_, block) in least.iter_mut().rev() {
            smallest = smallest.min(*block);
            *block = smallest;
        }
        Ok(Self { sizes, least })
    }

    fn rounded(&self, size: u64) -> u64 {
        if let Some(sizes) = &self.sizes {
            return sizes.rounded(size);
        }
        let at = self.least.partition_point(|(request, _)| *request < size);
        self.least.get(at).map_or(size, |(_, block)| (*block).max(size))
    }
}

/// What the first run notes.
#[derive(Default)]
struct First {
    keep: bool,
    peak_op: u64,
    peak_reserved: u64,
    last: Level,
    grew: Vec<Wanted>,
    grew_to: Vec<u64>,
    levels: Vec<Level>,
    least: BTreeMap<u64, u64>,
    pools: FxHashMap<StreamId, PoolId>,
}

impl Observer for First {
    fn after(&mut self, seen: &Seen<'_>) {
        note_pool(&mut self.pools, seen.op);
        let reserved = seen.held.reserved;
        if let Op::Alloc { size, stream, .. } = *seen.op {
            let failed = matches!(seen.outcome, Outcome::Refused(_));
            if failed || reserved > self.last.reserved {
                let private_pool = self.pools.get(&stream).copied();
                let stream = stream.0;
                self.grew_to.push(reserved);
                self.grew.push(Wanted { op: seen.index, size, stream, private_pool, failed });
            }
            if let Outcome::Placed(Placement { size: block, .. }) = *seen.outcome
                && block > 0
            {
                self.least
                    .entry(size)
                    .and_modify(|least| *least = block.min(*least))
                    .or_insert(block);
            }
        }
        if reserved > self.peak_reserved {
            (self.peak_op, self.peak_reserved) = (seen.index, reserved);
        }
        let now = Level {
            op: seen.index,
            requested: seen.requested,
            allocated: seen.usage.allocated,
            active: seen.usage.active,
            reserved,
        };
        if self.keep && now != (Level { op: seen.index, ..self.last }) {
            self.levels.push(now);
        }
        self.last = now;
    }
}

fn note_pool(pools: &mut FxHashMap<StreamId, PoolId>, op: &Op) {
    match *op {
        Op::PoolBegin { pool, stream } => drop(pools.insert(stream, pool)),
        Op::PoolEnd { pool } => pools.retain(|_, known| *known != pool),
        _ => {}
    }
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
struct Held {
    birth: u64,
    requested: u64,
    stream: u32,
    range: Option<(RangeKind, u32)>,
}

/// What was used of a driver's range since nothing lived in it.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    live: u64,
    from: u64,
    to: u64,
}

/// Where buffers are.
#[derive(Default)]
struct Places {
    blocks: FxHashMap<u64, Held>,
    slots: FxHashMap<BufferId, (u64, u64)>,
    ranges: FxHashMap<(RangeKind, u32), Used>,
}

impl Places {
    fn put(&mut self, seen: &Seen<'_>, id: BufferId, held: Held, placement: &Placement) {
        if placement.size == 0 {
            return;
        }
        let address = placement.address;
        let range = seen.machine.origin(address).map(|origin| (origin.kind, origin.ordinal));
        if let Some(range) = range {
            let used = self.ranges.entry(range).or_default();
            let end = address + placement.size;
            (used.from, used.to) = match used.live {
                0 => (address, end),
                _ => (used.from.min(address), used.to.max(end)),
            };
            used.live += 1;
        }
        self.slots.insert(id, (address, held.birth));
        self.blocks.insert(address, Held { range, ..held });
    }

    /// The buffer is gone, and its block with it.
    fn take(&mut self, id: BufferId) -> Option<Held> {
        let (address, birth) = self.slots.remove(&id)?;
        // a block that waited may have come back by itself, and be another's now
        let held = *self.blocks.get(&address).filter(|held| held.birth == birth)?;
        self.blocks.remove(&address);
        if let Some(used) = held.range.and_then(|range| self.ranges.get_mut(&range)) {
            used.live = used.live.saturating_sub(1);
        }
        Some(held)
    }

    fn note(&mut self, seen: &Seen<'_>) {
        match (*seen.op, seen.outcome) {
            (Op::Alloc { id, size, stream, .. }, Outcome::Placed(placement)) => {
                let held =
                    Held { birth: seen.index, requested: size, stream: stream.0, range: None };
                self.put(seen, id, held, placement);
            }
            (Op::Realloc { id, size }, Outcome::Placed(placement)) => {
                let stream = self.take(id).map_or(0, |held| held.stream);
                let held = Held { birth: seen.index, requested: size, stream, range: None };
                self.put(seen, id, held, placement);
            }
            (Op::Free { id, .. } | Op::FreeCompleted { id }, Outcome::Done) => drop(self.take(id)),
            _ => {}
        }
    }
}

/// What the second run looks at.
struct Second<'a> {
    run: &'a Replayed,
    lives: &'a Lives,
    /// In order.
    ops: Vec<u64>,
    now: Places,
    see: &'a mut dyn FnMut(u64, Judged),
}

impl Observer for Second<'_> {
    fn after(&mut self, seen: &Seen<'_>) {
        self.now.note(seen);
    }

    fn wants_layout(&self, index: u64) -> bool {
        self.ops.binary_search(&index).is_ok()
    }

    fn layout(&mut self, seen: &Seen<'_>, layout: &Layout) {
        let knows = State { second: self, machine: seen.machine };
        let wanted = self.run.wanted_at(seen.index);
        let sums = (seen.held.reserved, seen.requested);
        if let Some(judged) = judge(layout, sums, wanted, &knows) {
            (self.see)(seen.index, judged);
        }
    }
}

struct State<'a, 'b> {
    second: &'a Second<'b>,
    machine: &'a dyn Machine,
}

impl Knows for State<'_, '_> {
    fn owner(&self, block: &LayoutBlock) -> Option<Owner> {
        let held = self.second.now.blocks.get(&block.address)?;
        let life = self.second.lives.born_at(held.birth);
        let death = life.map_or(NEVER, |at| self.second.lives.list[at].death);
        Some(Owner { life, requested: held.requested, stream: Some(held.stream), death })
    }

    fn rounded(&self, size: u64) -> u64 {
        self.second.run.blocks.rounded(size)
    }

    fn pool(&self, size: u64) -> Option<&'static str> {
        self.second.run.blocks.sizes.map(|sizes| sizes.pool(size))
    }

    fn page(&self, pool: &str) -> u64 {
        self.second.run.blocks.sizes.map_or(1, |sizes| sizes.page(pool))
    }

    fn used(&self, segment: &LayoutSegment) -> Option<(u64, u64)> {
        let origin = self.machine.origin(segment.address)?;
        let used = self.second.now.ranges.get(&(origin.kind, origin.ordinal));
        Some(used.map_or((0, 0), |used| (used.from, used.to)))
    }
}
