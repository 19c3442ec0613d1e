//! Making stitched blocks, and using them again.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `stitch` | from `fragLimit` on; at least two free blocks of the stream that add up | 2743-2775, gm05, gm06, gm08 |
//! | `largest_first` | blocks from the largest downwards, of equal ones the highest; the last is cut and its low end used | 2761-2882, gm07, gm10 |
//! | `reuse` | the smallest idle block that is large enough, if it is at most `reuseLimit` times the request | 2287-2298, gm09, gm10 |
//! | `leading` | a shorter request takes the leading pieces only; blocks under them are cut at the border | 2299-2470, gm09 |
//! | `blocked` | while any piece under it is in use, an idle block serves nobody | 2484-2545, gm11 |
//! | `auto_gc` | when the sum of stitched sizes passes `autoGC`, idle ones are collected | 2974-2988, gm14 |
//! | `unmapped` | if the range cannot be had even after collection, everything is as before. Departure: the real one leaves the blocks marked as used | 2884-2923 |

use vramlab_sim::driver::{Address, Driver, DriverError, Handle};

use super::memory;
use super::sizes::{PIECE, PIECE_UNITS, UNIT};
use super::stitched::{Cover, Run, State};
use super::{GmLake, Need};

impl GmLake {
    /// Rule `stitch`; `level` says when it is tried.
    pub(super) fn stitch(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
        level: i32,
    ) -> Result<Option<u32>, DriverError> {
        let set = &self.sets[need.set as usize];
        let wanted = !set.is_small
            && self.settings.mapped
            && level >= self.settings.defrag_level
            && need.bytes >= self.settings.frag_limit;
        if !wanted || set.free_count < 2 || set.free_units * UNIT < need.bytes {
            return Ok(None);
        }
        let slots = self.take_largest(need);
        let Some(address) = self.map_stitched(driver, &slots, need)? else {
            slots.into_iter().for_each(|slot| self.put_in(slot));
            return Ok(None);
        };
        let id = self.stitch_at(address, slots, need);
        self.segments_made += 1;
        self.stitched_bytes += need.bytes;
        if self.settings.auto_gc.is_some_and(|limit| self.stitched_bytes > limit) {
            self.collect(driver, 2, 0)?;
        }
        Ok(Some(id))
    }

    /// Takes blocks out of the set until they suffice (rule `largest_first`).
    fn take_largest(&mut self, need: &Need) -> Vec<u32> {
        let (mut slots, mut units) = (Vec::new(), 0_u64);
        while units < u64::from(need.units)
            && let Some(slot) = self.sets[need.set as usize].order.last(&self.pieces)
        {
            units += u64::from(self.pieces.get(slot).units);
            self.take_out(slot);
            slots.push(slot);
        }
        slots
    }

    /// A range over the pieces of the blocks; `None` if there is none even after collection.
    fn map_stitched(
        &mut self,
        driver: &mut dyn Driver,
        slots: &[u32],
        need: &Need,
    ) -> Result<Option<Address>, DriverError> {
        let mut handles: Vec<Handle> = Vec::new();
        for slot in slots {
            let Run { segment, first, count } = self.run(*slot);
            let all = &self.segments.get(segment).handles;
            handles.extend(&all[first as usize..(first + count) as usize]);
        }
        handles.truncate((need.bytes / PIECE) as usize);
        for round in 0..3 {
            if let Some(address) = memory::map(driver, &handles)? {
                return Ok(Some(address));
            }
            self.collect(driver, round, need.bytes)?;
        }
        Ok(None)
    }

    /// The blocks, the last of them cut, become the parts of a new stitched block.
    fn stitch_at(&mut self, address: Address, mut parts: Vec<u32>, need: &Need) -> u32 {
        let units = |slot: &u32| u64::from(self.pieces.get(*slot).units);
        let surplus = (parts.iter().map(units).sum::<u64>() - u64::from(need.units)) as u32;
        if let Some(last) = parts.pop() {
            let keep = self.pieces.get(last).units - surplus;
            let low = if surplus > 0 { self.split_low(last, keep) } else { last };
            if surplus > 0 {
                self.put_in(last);
            }
            parts.push(low);
        }
        parts.iter().for_each(|slot| self.tell_covers(*slot, true));
        let runs: Vec<Run> = parts.iter().map(|slot| self.run(*slot)).collect();
        let id = self.table.add(need.set, address, runs.clone());
        for run in runs {
            self.segments.get_mut(run.segment).covers.push(Cover { run, stitched: id });
        }
        self.use_parts(id, parts, need);
        id
    }

    /// The blocks under a stitched block come into use with it.
    fn use_parts(&mut self, id: u32, parts: Vec<u32>, need: &Need) {
        let mut requested = need.requested;
        for &slot in &parts {
            let bytes = self.pieces.bytes(self.pieces.get(slot).units);
            self.pieces.take(slot, requested.min(bytes));
            requested -= requested.min(bytes);
            self.marks[slot as usize].under = true;
            self.active_units += bytes / UNIT;
        }
        self.table.get_mut(id).parts = parts;
    }

    /// Rule `reuse`.
    pub(super) fn usable(&mut self, need: &Need) -> Option<u32> {
        let pieces = need.units / PIECE_UNITS;
        let &(found, _, id) = self.table.idle(need.set).usable.range((pieces, 0, 0)..).next()?;
        let limit = need.bytes as f64 * self.settings.reuse_limit;
        ((u64::from(found) * PIECE) as f64 <= limit).then_some(id)
    }

    /// Rule `leading`: an idle stitched block all of whose pieces are free serves a request.
    pub(super) fn reuse(&mut self, id: u32, need: &Need) {
        self.table.leave(id);
        let (mut left, mut parts) = (need.units / PIECE_UNITS, Vec::new());
        let block = self.table.get_mut(id);
        block.state = State::Active;
        for run in block.runs.clone() {
            let run = Run { count: run.count.min(left), ..run };
            left -= run.count;
            self.cut_out(&run, &mut parts);
        }
        parts.iter().for_each(|slot| self.tell_covers(*slot, true));
        self.use_parts(id, parts, need);
    }

    /// Takes the free blocks that lie in a run out of their set, cut at its borders; appends them in order of address.
    fn cut_out(&mut self, run: &Run, parts: &mut Vec<u32>) {
        let from = parts.len();
        let (begin, end) = (run.first, run.first + run.count);
        let mut slot = self.segments.get(run.segment).tail;
        if begin == end {
            return;
        }
        loop {
            let block = self.run(slot);
            let mut before = self.pieces.before(slot);
            if block.first < end && begin < block.first + block.count {
                self.take_out(slot);
                let mut part = slot;
                if end < block.first + block.count {
                    part = self.split_low(slot, (end - block.first) * PIECE_UNITS);
                    self.put_in(slot);
                }
                if block.first < begin {
                    before = self.split_low(part, (begin - block.first) * PIECE_UNITS);
                    self.put_in(before);
                }
                parts.push(part);
            }
            if block.first <= begin {
                break;
            }
            slot = before;
        }
        parts[from..].reverse();
    }

    /// A stitched block is no longer in use: its parts are free, and it is idle.
    pub(super) fn give_stitched(&mut self, id: u32) {
        for slot in std::mem::take(&mut self.table.get_mut(id).parts) {
            self.give(slot);
        }
        self.table.rest(id);
    }
}
