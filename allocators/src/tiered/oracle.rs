//! Foresees everything: reads the workload's own list of uses.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `next_use` | the next use of a buffer is the one that the workload will make | Belady, MIN |
//! | `least` | so what comes back is least, where sizes are alike; what leaves need not be, since what is not written again leaves without a copy from the second time on | - |
//! | `dead` | a buffer that is freed without another use leaves without a copy: nobody will ask for what it holds | SuperNeurons (PPoPP 2018) 3.2, liveness |
//!
//! A use list is in works that list uses; the works that are announced are the same ones, but for those whose buffers all failed. So the next
//! work is looked for by a buffer that it uses.

use vramlab_sim::future::Future;

use super::foresight::{Foresight, Used};

/// No slot has this number.
const NONE: u32 = u32::MAX;

/// The oracle.
#[derive(Debug)]
pub(super) struct Oracle {
    /// Ordinals used, work by work.
    uses: Vec<u32>,
    /// Where each work begins in `uses`; one more at the end.
    works: Vec<usize>,
    /// Works that use an ordinal, in order; where each ordinal begins in it, and one more at the end.
    times: Vec<u32>,
    begins: Vec<usize>,
    /// By ordinal: where its next use is in `times`, and the slot of its buffer.
    next: Vec<usize>,
    slots: Vec<u32>,
    /// By ordinal: the workload frees it, after its last use.
    freed: Vec<bool>,
    /// By slot.
    ordinals: Vec<u32>,
    /// The work that comes next.
    cursor: usize,
    changed: Vec<u32>,
}

impl Oracle {
    pub(super) fn new(future: &Future) -> Self {
        let requests = future.requests.len();
        let (mut uses, mut works, mut begins) = (Vec::new(), Vec::new(), vec![0; requests + 1]);
        for (at, used) in future.uses.iter().enumerate() {
            if at == 0 || future.uses[at - 1].op != used.op {
                works.push(at);
            }
            uses.push(used.ordinal);
            begins[used.ordinal as usize + 1] += 1;
        }
        works.push(uses.len());
        for at in 0..requests {
            begins[at + 1] += begins[at];
        }
        let (mut times, mut filled) = (vec![0; uses.len()], begins.clone());
        for (work, range) in works.windows(2).enumerate() {
            for ordinal in &uses[range[0]..range[1]] {
                times[filled[*ordinal as usize]] = work as u32;
                filled[*ordinal as usize] += 1;
            }
        }
        let next = begins[..requests].to_vec();
        let slots = vec![NONE; requests];
        let freed = future.requests.iter().map(|life| life.freed.is_some() && !life.shared);
        Self {
            uses,
            works,
            times,
            begins,
            next,
            slots,
            freed: freed.collect(),
            ordinals: Vec::new(),
            cursor: 0,
            changed: Vec::new(),
        }
    }

    fn ordinal(&self, slot: u32) -> Option<usize> {
        self.ordinals.get(slot as usize).filter(|o| **o != NONE).map(|o| *o as usize)
    }

    /// Where in `times` the ordinal's first use from `work` on stands.
    fn seek(&self, ordinal: usize, work: usize) -> usize {
        let end = self.begins[ordinal + 1];
        (self.next[ordinal]..end).find(|at| self.times[*at] as usize >= work).unwrap_or(end)
    }
}

impl Foresight for Oracle {
    fn born(&mut self, slot: u32, ordinal: u64, _size: u64) {
        if self.ordinals.len() <= slot as usize {
            self.ordinals.resize(slot as usize + 1, NONE);
        }
        if let Some(known) = self.slots.get_mut(ordinal as usize) {
            *known = slot;
            self.ordinals[slot as usize] = ordinal as u32;
        }
    }

    fn gone(&mut self, slot: u32) {
        if let Some(ordinal) = self.ordinal(slot) {
            self.slots[ordinal] = NONE;
            self.ordinals[slot as usize] = NONE;
        }
    }

    fn announced(&mut self, uses: &[Used]) {
        // the work is the next one that uses the first of them
        let first = uses.iter().find_map(|used| self.ordinal(used.slot));
        let work = first.and_then(|ordinal| {
            let at = self.seek(ordinal, self.cursor);
            (at < self.begins[ordinal + 1]).then(|| self.times[at] as usize)
        });
        self.cursor = work.unwrap_or(self.cursor) + 1;
        for used in uses {
            if let Some(ordinal) = self.ordinal(used.slot) {
                self.next[ordinal] = self.seek(ordinal, self.cursor);
                self.changed.push(used.slot);
            }
        }
    }

    fn next_use(&self, slot: u32) -> Option<u64> {
        let ordinal = self.ordinal(slot)?;
        let at = self.next[ordinal];
        (at < self.begins[ordinal + 1]).then(|| u64::from(self.times[at]))
    }

    fn is_dead(&self, slot: u32) -> bool {
        let ends = self.ordinal(slot).is_some_and(|ordinal| self.freed[ordinal]);
        ends && self.next_use(slot).is_none()
    }

    fn changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }

    fn coming(&self, lead: u64, found: &mut Vec<(u64, u32)>) {
        let last = (self.works.len() - 1).min(self.cursor.saturating_add(lead as usize));
        for work in self.cursor..last {
            for ordinal in &self.uses[self.works[work]..self.works[work + 1]] {
                let slot = self.slots[*ordinal as usize];
                if slot != NONE {
                    found.push((work as u64, slot));
                }
            }
        }
    }

    fn counters(&mut self, _counters: &mut Vec<(&'static str, u64)>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::future::PlannedUse;

    fn oracle() -> Oracle {
        let uses = [(3, 0), (3, 1), (5, 2), (9, 0), (12, 1)];
        let future = Future {
            requests: vec![
                vramlab_sim::future::Life {
                    size: 1,
                    stream: vramlab_sim::StreamId(0),
                    born: 0,
                    freed: None,
                    shared: false
                };
                3
            ],
            uses: uses.map(|(op, ordinal)| PlannedUse { op, ordinal, write: false }).to_vec(),
            ..Future::default()
        };
        let mut oracle = Oracle::new(&future);
        (0..3).for_each(|i| oracle.born(10 + i, i.into(), 1));
        oracle
    }

    fn used(slot: u32) -> Used {
        Used { slot, write: false }
    }

    #[test]
    fn it_knows_the_next_use_of_each_buffer() {
        let mut oracle = oracle();
        assert_eq!([10, 11, 12].map(|slot| oracle.next_use(slot)), [Some(0), Some(0), Some(1)]);
        oracle.announced(&[used(10), used(11)]);
        assert_eq!([10, 11, 12].map(|slot| oracle.next_use(slot)), [Some(2), Some(3), Some(1)]);
        let mut found = Vec::new();
        oracle.coming(2, &mut found);
        assert_eq!(found, [(1, 12), (2, 10)]);
        assert_eq!(oracle.changed(), [10, 11]);
        oracle.gone(12);
        assert_eq!(oracle.next_use(12), None);
    }

    /// The work that uses buffer 12 did not take place: it could not be resident.
    #[test]
    fn it_finds_its_place_again_after_a_work_that_was_left_out() {
        let mut oracle = oracle();
        oracle.announced(&[used(10), used(11)]);
        oracle.announced(&[used(10)]);
        assert_eq!((oracle.next_use(10), oracle.next_use(11)), (None, Some(3)));
    }
}
