//! A tape cut into iterations, whose steps can stand in another order since each request has a buffer of its own.

use rustc_hash::FxHashMap;
use vramlab_sim::op::{NameId, Op};
use vramlab_sim::source::Step;
use vramlab_sim::units::{BufferId, StreamId};

use super::iterations::Iteration;
use super::tape::Tape;

/// The steps of a tape with a buffer of its own for each request, cut into what is before, the iterations, and what is behind.
pub(super) struct Parts {
    /// What is before the first iteration.
    pub(super) before: Vec<Step>,
    /// The iterations.
    pub(super) list: Vec<Vec<Step>>,
    /// What is behind the last.
    pub(super) behind: Vec<Step>,
    /// Of each iteration: bytes whose frees were put at its end.
    pub(super) carried: Vec<u64>,
    /// A number that no buffer has.
    pub(super) next_id: u32,
}

fn is_counted(step: &Step) -> bool {
    matches!(step, Step::Op(op) if !op.is_setting())
}

/// Steps with the number of each op.
pub(super) fn numbered(tape: &Tape) -> impl Iterator<Item = (u64, Step)> + '_ {
    let mut next = 0;
    tape.steps.iter().map(move |step| {
        let op = next;
        next += u64::from(is_counted(step));
        (op, *step)
    })
}

impl Parts {
    /// Cuts a tape.
    pub(super) fn of(tape: &Tape, iterations: &[Iteration]) -> Self {
        let mut parts = Self {
            before: Vec::new(),
            list: vec![Vec::new(); iterations.len()],
            behind: Vec::new(),
            carried: vec![0; iterations.len()],
            next_id: 0,
        };
        let part_of = |op: u64| {
            let at = iterations.partition_point(|i| i.from <= op).checked_sub(1)?;
            (op < iterations[at].to).then_some(at)
        };
        // the buffer of each slot, where it was born, and its bytes
        let mut live: FxHashMap<BufferId, (BufferId, Option<usize>, u64)> = FxHashMap::default();
        for (op, step) in numbered(tape) {
            let Step::Op(one) = step else { continue };
            let here = part_of(op);
            let (one, own) = match one {
                Op::Alloc { id, stream, size, .. } => {
                    let new = BufferId(parts.next_id);
                    parts.next_id += 1;
                    live.insert(id, (new, here, size));
                    (Op::Alloc { id: new, stream, site: NameId(0), size }, here)
                }
                Op::Free { id, stream } => match live.remove(&id) {
                    Some((id, home, size)) => {
                        parts.carry(home, here, size);
                        (Op::Free { id, stream }, home.or(here))
                    }
                    None => continue,
                },
                Op::FreeDeferred { id } => match live.get(&id) {
                    Some((id, home, size)) => {
                        parts.carry(*home, here, *size);
                        (Op::FreeDeferred { id: *id }, home.or(here))
                    }
                    None => continue,
                },
                Op::FreeCompleted { id } => match live.remove(&id) {
                    Some((id, home, _)) => (Op::FreeCompleted { id }, home.or(here)),
                    None => continue,
                },
                Op::Realloc { id, size } => match live.get(&id) {
                    Some((id, ..)) => (Op::Realloc { id: *id, size }, here),
                    None => continue,
                },
                Op::RecordStream { id, stream } => match live.get(&id) {
                    Some((id, ..)) => (Op::RecordStream { id: *id, stream }, here),
                    None => continue,
                },
                other => (other, here),
            };
            match own {
                Some(at) => parts.list[at].push(Step::Op(one)),
                None if iterations.first().is_some_and(|first| op < first.from) => {
                    parts.before.push(Step::Op(one));
                }
                None => parts.behind.push(Step::Op(one)),
            }
        }
        parts
    }

    fn carry(&mut self, home: Option<usize>, here: Option<usize>, size: u64) {
        if let Some(at) = home.filter(|_| home != here) {
            self.carried[at] = self.carried[at].saturating_add(size);
        }
    }

    /// All steps, with the iterations in this order.
    pub(super) fn in_order(&self, order: &[usize]) -> Vec<Step> {
        let parts = order.iter().flat_map(|at| &self.list[*at]);
        self.before.iter().chain(parts).chain(&self.behind).copied().collect()
    }

    /// A copy of an iteration with buffers of its own, which leaves nothing. What it frees that is not its own stays.
    pub(super) fn copy(&self, at: usize, next_id: &mut u32) -> Vec<Step> {
        // its new buffer, and whether that is freed and still waits
        let mut own: FxHashMap<BufferId, (BufferId, bool)> = FxHashMap::default();
        let mut steps = Vec::with_capacity(self.list[at].len());
        for step in &self.list[at] {
            let Step::Op(op) = *step else { continue };
            let renamed = match op {
                Op::Alloc { id, stream, site, size } => {
                    let new = BufferId(*next_id);
                    *next_id += 1;
                    own.insert(id, (new, false));
                    Op::Alloc { id: new, stream, site, size }
                }
                Op::Free { id, stream } => match own.remove(&id) {
                    Some((id, _)) => Op::Free { id, stream },
                    None => continue,
                },
                Op::FreeDeferred { id } => match own.get_mut(&id) {
                    Some((id, deferred)) => {
                        *deferred = true;
                        Op::FreeDeferred { id: *id }
                    }
                    None => continue,
                },
                Op::FreeCompleted { id } => match own.remove(&id) {
                    Some((id, _)) => Op::FreeCompleted { id },
                    None => continue,
                },
                Op::Realloc { id, size } => match own.get(&id) {
                    Some((id, _)) => Op::Realloc { id: *id, size },
                    None => continue,
                },
                Op::RecordStream { id, stream } => match own.get(&id) {
                    Some((id, _)) => Op::RecordStream { id: *id, stream },
                    None => continue,
                },
                other => other,
            };
            steps.push(Step::Op(renamed));
        }
        let end = |(id, deferred): (BufferId, bool)| match deferred {
            true => Op::FreeCompleted { id },
            false => Op::Free { id, stream: None::<StreamId> },
        };
        let mut left: Vec<(BufferId, bool)> = own.into_values().collect();
        left.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id)); // the youngest goes first
        steps.extend(left.into_iter().map(end).map(Step::Op));
        steps
    }
}
