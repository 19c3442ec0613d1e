//! Memory for a request that no idle block serves, and giving the cache back.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `order` | stitch (level 0), create, release oversize blocks and create, stitch (1), release all and create, stitch (2), out of memory | 1086-1117, gm13, gm17 |
//! | `retry` | creating after a full release counts as a retry, whatever it gives | 3093-3095, gm12, gm13 |
//! | `realloc` | with `reAlloc` only what the free blocks of the stream lack is created, and stitched in; if they would suffice, nothing is. The new block stays if it cannot be stitched | 3112-3152, 3229-3246, gm18 |
//! | `collect_for` | pieces that cannot be mapped though the device has room: idle stitched blocks are collected, if they are as large | 3165-3205 |
//! | `oversize` | with a split limit: one free block of at least max(request, limit), or such blocks from the largest downwards | 3318-3362 |
//! | `release_all` | events are waited for; then whole free blocks go, large pool first; idle stitched blocks over them go too, whatever their events say | 3364-3500, gm13, gm15 |
//! | `spared` | a block under the idle tail of a stitched block in use stays. Departure: the real one releases it and ends with a segmentation fault when that block is freed | 3418-3428, 1682-1700 |

use vramlab_sim::allocator::{AllocError, OutOfMemory};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};

use super::memory::{self, Segment, or_none};
use super::primitive::{Mark, Set};
use super::sizes::{self, PIECE, UNIT};
use super::stitched::State;
use super::{GmLake, Need};
use crate::parts::pieces;

/// The level at which what was created is stitched in (3239).
const AFTER_CREATION: i32 = 4;

/// What serves a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Got {
    /// A free primitive block, in its set.
    Primitive(u32),
    /// A stitched block whose parts are in use already.
    Stitched(u32),
}

impl GmLake {
    /// Rule `order`.
    #[cold]
    pub(super) fn obtain(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<Got, AllocError> {
        if let Some(id) = self.stitch(driver, need, 0)? {
            return Ok(Got::Stitched(id));
        }
        if let Some(got) = self.create(driver, need, false)? {
            return Ok(got);
        }
        if self.release_oversize(driver, need)?
            && let Some(got) = self.create(driver, need, false)?
        {
            return Ok(got);
        }
        if let Some(id) = self.stitch(driver, need, 1)? {
            return Ok(Got::Stitched(id));
        }
        self.release_all(driver)?;
        if let Some(got) = self.create(driver, need, true)? {
            return Ok(got);
        }
        if let Some(id) = self.stitch(driver, need, 2)? {
            return Ok(Got::Stitched(id));
        }
        self.ooms += 1;
        let largest =
            |set: &Set| set.order.last(&self.pieces).map_or(0, |slot| self.pieces.get(slot).units);
        Err(AllocError::from(OutOfMemory {
            asked: need.segment,
            device_free: driver.mem_info()?.0,
            reserved: self.reserved,
            active: self.active_units * UNIT,
            largest_free: u64::from(self.sets.iter().map(largest).max().unwrap_or(0)) * UNIT,
            limit: None,
        }))
    }

    /// New memory (rules `retry` and `realloc`).
    fn create(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
        retry: bool,
    ) -> Result<Option<Got>, DriverError> {
        self.retries += u64::from(retry);
        let set = &self.sets[need.set as usize];
        if !self.settings.mapped || set.is_small {
            let Some(base) = or_none(driver.malloc(need.segment))? else { return Ok(None) };
            let segment = Segment { base, ..Segment::default() };
            return self.add(driver, need, need.segment, segment);
        }
        let (mut bytes, free) = (need.segment, set.free_units * UNIT);
        if self.settings.realloc && free >= need.bytes {
            return Ok(None);
        }
        if self.settings.realloc && free > 0 {
            bytes = sizes::segment(need.bytes - free);
        }
        let Some(segment) = self.map_new(driver, need, bytes)? else { return Ok(None) };
        let got = self.add(driver, need, bytes, segment)?;
        if bytes < need.bytes && got.is_some() {
            return Ok(self.stitch(driver, need, AFTER_CREATION)?.map(Got::Stitched));
        }
        Ok(got)
    }

    /// Pieces in a range of their own (rule `collect_for`).
    fn map_new(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
        bytes: u64,
    ) -> Result<Option<Segment>, DriverError> {
        for round in 0..3 {
            if let Some(handles) = memory::create(driver, bytes)? {
                if let Some(base) = memory::map(driver, &handles)? {
                    return Ok(Some(Segment { base, handles, ..Segment::default() }));
                }
                memory::release(driver, &handles)?;
            }
            let idle = self.table.idle(need.set).pieces * PIECE;
            if driver.mem_info()?.0 <= bytes || idle < bytes {
                break;
            }
            self.collect(driver, round, need.segment)?;
        }
        Ok(None)
    }

    /// A new segment becomes a free block. One of 2 TiB or more, which no device has, is given back: blocks cannot describe it.
    fn add(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
        bytes: u64,
        mut segment: Segment,
    ) -> Result<Option<Got>, DriverError> {
        let base = segment.base;
        if self.pieces.units(bytes).is_none() {
            give_to(driver, &segment)?;
            return Ok(None);
        }
        let slot = self.pieces.add(pieces::Segment { address: base, size: bytes });
        segment.tail = slot;
        let segment = self.segments.add(segment);
        self.mark(slot, Mark { segment, set: need.set, ..Mark::default() });
        self.reserved += bytes;
        self.segments_made += 1;
        self.put_in(slot);
        Ok(Some(Got::Primitive(slot)))
    }

    /// Rule `oversize`. Is it worth another attempt?
    fn release_oversize(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<bool, DriverError> {
        if self.settings.max_split.is_none() {
            return Ok(false);
        }
        let wanted = need.units.max(self.split_limit);
        let order = &self.sets[need.set as usize].order;
        if let Some(slot) = order.smallest_from(&self.pieces, wanted) {
            return self.release_block(driver, slot);
        }
        let mut released = 0_u64;
        while released < u64::from(wanted)
            && let Some(slot) = self.sets[need.set as usize].order.last(&self.pieces)
        {
            let units = self.pieces.get(slot).units;
            if units < self.split_limit || !self.release_block(driver, slot)? {
                break;
            }
            released += u64::from(units);
        }
        Ok(released >= u64::from(wanted))
    }

    /// Rule `release_all`.
    pub(super) fn release_all(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        self.wait_for_events(driver)?;
        let mut whole = self.pieces.whole_free();
        whole.sort_by_key(|slot| {
            let (piece, set) = (self.pieces.get(*slot), self.marks[*slot as usize].set);
            let Set { is_small, stream, .. } = &self.sets[set as usize];
            (*is_small, *stream, piece.units, piece.address())
        });
        for slot in whole {
            self.release_block(driver, slot)?;
        }
        Ok(())
    }

    /// Gives the segment of a free block back, if it is a whole one and rule `spared` allows it; did it?
    fn release_block(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<bool, DriverError> {
        let number = self.marks[slot as usize].segment;
        let over: Vec<u32> =
            self.segments.get(number).covers.iter().map(|cover| cover.stitched).collect();
        let in_use = |id: &u32| matches!(self.table.get(*id).state, State::Active | State::Waiting);
        if !self.pieces.get(slot).is_whole() || over.iter().any(in_use) {
            return Ok(false);
        }
        for id in over {
            if self.table.get(id).state != State::Vacant {
                self.drop_stitched(driver, id)?;
            }
        }
        give_to(driver, self.segments.get(number))?;
        self.segments.remove(number);
        self.take_out(slot);
        self.reserved -= self.pieces.remove(slot).size;
        self.segments_made -= 1;
        Ok(true)
    }
}

/// Gives a segment's memory and addresses back.
fn give_to(driver: &mut dyn Driver, segment: &Segment) -> Result<(), DriverError> {
    if segment.handles.is_empty() {
        return driver.free(segment.base);
    }
    memory::unmap(driver, segment.base, segment.handles.len() as u64)?;
    memory::release(driver, &segment.handles)
}
