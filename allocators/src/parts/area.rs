//! One range from the driver, with blocks at offsets that its owner chooses. For strategies that plan, beside one that serves the rest.
//!
//! ```text
//! base ├──live──┤      ├─waiting─┤   ├──live──┤        │ base + bytes        taken ranges, by offset
//! past ├─── b ──┤├──── a ────┤├─── c ─────────┤        │                     who used what last, once there are two streams
//! ```
//! | rule | what it says |
//! |---|---|
//! | `streams` | freed memory is reusable at once, on another stream after a stream wait: see [`Past`] |
//! | `deferred` | a deferred free holds its range until it is completed, or until the owner waits for the device |

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    Block, BlockState, LayoutBlock, LayoutSegment, Notice, Placement, Usage,
};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::nulls::NULL_SLOT;
use super::past::Past;

/// In the low half of a token: the block lies in an area. No other strategy has so many slots.
const OWN: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Vacant,
    Live,
    /// Live for its owner, but its memory is free for others.
    Over,
    /// Freed, waits.
    Waiting,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    generation: u32,
    /// Number of its users.
    users: u32,
    offset: u64,
    size: u64,
    requested: u64,
}

/// The area. Offsets and sizes in bytes.
#[derive(Debug)]
pub(crate) struct Area {
    /// Name in layouts.
    pool: &'static str,
    base: Option<Address>,
    bytes: u64,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// Taken ranges: the slot by offset.
    taken: BTreeMap<u64, u32>,
    past: Past,
    allocated: u64,
    waiting: u64,
}

impl Area {
    pub(crate) fn new(pool: &'static str) -> Self {
        Self {
            pool,
            base: None,
            bytes: 0,
            slots: Vec::new(),
            vacant: Vec::new(),
            taken: BTreeMap::new(),
            past: Past::default(),
            allocated: 0,
            waiting: 0,
        }
    }

    /// Is the token one of an area's, live or not?
    #[inline]
    pub(crate) const fn owns(block: Block) -> bool {
        block.0 as u32 & OWN != 0 && block.0 as u32 != NULL_SLOT
    }

    /// Does it hold memory?
    pub(crate) fn is_there(&self) -> bool {
        self.base.is_some()
    }

    /// Is no byte of it taken?
    pub(crate) fn is_idle(&self) -> bool {
        self.taken.is_empty()
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn usage(&self) -> Usage {
        let active = self.allocated + self.waiting;
        Usage { allocated: self.allocated, active, reserved: self.bytes }
    }

    /// Takes its memory from the driver.
    pub(crate) fn obtain(
        &mut self,
        driver: &mut dyn Driver,
        bytes: u64,
    ) -> Result<(), DriverError> {
        self.base = Some(driver.malloc(bytes)?);
        self.bytes = bytes;
        Ok(())
    }

    /// Gives the memory back, if no byte is taken; did it?
    pub(crate) fn give_back(&mut self, driver: &mut dyn Driver) -> Result<bool, DriverError> {
        let Some(base) = self.base.filter(|_| self.is_idle()) else { return Ok(false) };
        driver.free(base)?;
        self.past.clear();
        (self.base, self.bytes) = (None, 0);
        Ok(true)
    }

    /// Is this range free?
    pub(crate) fn is_free(&self, offset: u64, size: u64) -> bool {
        let Some(end) = offset.checked_add(size).filter(|end| *end <= self.bytes) else {
            return false;
        };
        let before = self.taken.range(..end).next_back();
        before.is_none_or(|(begin, slot)| begin + self.slots[*slot as usize].size <= offset)
    }

    /// The lowest of the smallest free ranges of at least `size`.
    pub(crate) fn smallest_gap(&self, size: u64) -> Option<u64> {
        let (mut at, mut best) = (0, None);
        let ends = self.taken.iter().map(|(begin, slot)| (*begin, *slot));
        for (begin, slot) in ends.chain([(self.bytes, NULL_SLOT)]) {
            let gap = begin - at;
            if gap >= size && best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, at));
            }
            at = begin + self.slots.get(slot as usize).map_or(0, |slot| slot.size);
        }
        best.map(|(_, offset)| offset)
    }

    /// A block for `stream` in a free range; `None` without memory.
    pub(crate) fn take(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        (offset, size): (u64, u64),
        requested: u64,
    ) -> Result<Option<Placement>, DriverError> {
        let Some(base) = self.base else { return Ok(None) };
        let users = self.past.hand_out(driver, stream, offset, offset + size)?;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            let (users, offset, size, requested) = (0, 0, 0, 0);
            let (state, generation) = (State::Vacant, 0);
            self.slots.push(Slot { state, generation, users, offset, size, requested });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        let generation = place.generation.wrapping_add(1);
        *place = Slot { state: State::Live, generation, users, offset, size, requested };
        self.taken.insert(offset, slot);
        self.allocated += size;
        let block = Block(u64::from(generation) << 32 | u64::from(slot | OWN));
        Ok(Some(Placement { block, address: base + offset, size }))
    }

    /// The slot of a live block.
    #[inline]
    pub(crate) fn find(&self, block: Block) -> Option<u32> {
        let slot = block.0 as u32 & !OWN;
        let place = self.slots.get(slot as usize)?;
        let live = matches!(place.state, State::Live | State::Over);
        (live && u64::from(place.generation) == block.0 >> 32).then_some(slot)
    }

    /// The block is also used on `stream`.
    pub(crate) fn record(&mut self, slot: u32, stream: StreamId) {
        let place = &mut self.slots[slot as usize];
        if place.state == State::Live {
            self.past.record(&mut place.users, stream);
        }
    }

    /// The range of a slot is free.
    fn vacate_range(&mut self, slot: u32, stream: Option<StreamId>) {
        let Slot { offset, size, users, .. } = self.slots[slot as usize];
        self.taken.remove(&offset);
        self.past.freed(users, stream, offset, offset + size);
    }

    fn vacate(&mut self, slot: u32) {
        self.slots[slot as usize].state = State::Vacant;
        self.vacant.push(slot);
    }

    /// The block's memory is free for others, though it lives on.
    pub(crate) fn end(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if place.state == State::Live {
            place.state = State::Over;
            self.allocated -= place.size;
            self.vacate_range(slot, None);
        }
    }

    /// The block is freed, ordered in `stream` if one is given.
    pub(crate) fn free(&mut self, slot: u32, stream: Option<StreamId>) {
        if self.slots[slot as usize].state == State::Live {
            self.allocated -= self.slots[slot as usize].size;
            self.vacate_range(slot, stream);
        }
        self.vacate(slot);
    }

    /// The block is freed, and waits (rule `deferred`).
    pub(crate) fn hold(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if place.state == State::Over {
            return self.vacate(slot);
        }
        place.state = State::Waiting;
        let size = place.size;
        self.allocated -= size;
        self.waiting += size;
    }

    /// The block that waits under this token, if it does, waits no longer.
    pub(crate) fn arrive(&mut self, block: Block) {
        let slot = block.0 as u32 & !OWN;
        let waits = self.slots.get(slot as usize).is_some_and(|place| {
            place.state == State::Waiting && u64::from(place.generation) == block.0 >> 32
        });
        if waits {
            self.arrive_at(slot);
        }
    }

    fn arrive_at(&mut self, slot: u32) {
        self.waiting -= self.slots[slot as usize].size;
        self.vacate_range(slot, None);
        self.vacate(slot);
    }

    /// Waits for the device, if a block waits; did one?
    pub(crate) fn wait(&mut self, driver: &mut dyn Driver) -> Result<bool, DriverError> {
        let waited = self.waiting > 0;
        if waited {
            driver.device_synchronize()?;
            for slot in 0..self.slots.len() as u32 {
                if self.slots[slot as usize].state == State::Waiting {
                    self.arrive_at(slot);
                }
            }
            self.past.uses.device_waited();
        }
        Ok(waited)
    }

    /// Stream waits that were inserted.
    pub(crate) fn stream_waits(&self) -> u64 {
        self.past.uses.waits()
    }

    /// What is where; nothing without memory.
    pub(crate) fn layout(&self) -> Option<LayoutSegment> {
        let base = self.base?;
        let (mut blocks, mut at) = (Vec::new(), 0);
        let gap = |blocks: &mut Vec<LayoutBlock>, at: u64, end: u64| {
            if at < end {
                let (address, size, state) = (base + at, end - at, BlockState::Free);
                blocks.push(LayoutBlock { address, size, requested: 0, state, age: 0 });
            }
        };
        for (&offset, &slot) in &self.taken {
            gap(&mut blocks, at, offset);
            let Slot { state, size, requested, .. } = self.slots[slot as usize];
            let waits = state == State::Waiting;
            let state = if waits { BlockState::Pending } else { BlockState::Allocated };
            let address = base + offset;
            blocks.push(LayoutBlock { address, size, requested, state, age: 0 });
            at = offset + size;
        }
        gap(&mut blocks, at, self.bytes);
        let (size, pool) = (self.bytes, self.pool);
        Some(LayoutSegment { address: base, size, pool, blocks, ..LayoutSegment::default() })
    }
}

/// The block that a notice is about.
pub(crate) fn subject(notice: &Notice<'_>) -> Option<Block> {
    match *notice {
        Notice::RecordStream { block, .. }
        | Notice::FreeDeferred { block }
        | Notice::Completed { block }
        | Notice::Resize { block, .. } => Some(block),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    const S0: StreamId = StreamId(0);

    fn area() -> (Area, ScriptedMachine) {
        let (mut area, mut machine) = (Area::new("test"), ScriptedMachine::of_capacity(1 << 30));
        area.obtain(&mut machine, 4096).expect("there is room");
        (area, machine)
    }

    fn take(area: &mut Area, machine: &mut ScriptedMachine, offset: u64, size: u64) -> Block {
        let taken = area.take(machine, S0, (offset, size), 1).expect("no driver error");
        taken.expect("has memory").block
    }

    #[test]
    fn ranges_are_free_or_taken() {
        let (mut area, mut machine) = area();
        let a = take(&mut area, &mut machine, 512, 1024);
        let free = [(0, 512), (1536, 1), (1536, 2560)];
        let taken = [(0, 513), (511, 2), (1535, 1), (0, 4096), (4095, 2), (u64::MAX, 2)];
        assert!(free.iter().all(|(offset, size)| area.is_free(*offset, *size)));
        assert!(!taken.iter().any(|(offset, size)| area.is_free(*offset, *size)));
        let gaps = [1, 512, 513, 2560, 2561].map(|size| area.smallest_gap(size));
        assert_eq!(gaps, [Some(0), Some(0), Some(1536), Some(1536), None]);
        assert!(!area.give_back(&mut machine).expect("no driver error"), "a block lies in it");
        let slot = area.find(a).expect("is live");
        area.free(slot, None);
        assert_eq!((area.find(a), area.usage().active), (None, 0));
        assert!(area.give_back(&mut machine).expect("no driver error"));
        assert!(!area.is_free(0, 1), "it has no memory");
    }

    #[test]
    fn deferred_holds_the_range_until_it_is_told_or_the_device_is_waited_for() {
        for told in [true, false] {
            let (mut area, mut machine) = area();
            let block = take(&mut area, &mut machine, 0, 512);
            area.hold(area.find(block).expect("is live"));
            assert_eq!(area.usage(), Usage { allocated: 0, active: 512, reserved: 4096 });
            assert_eq!(area.find(block), None, "it is freed");
            if told {
                area.arrive(block);
                area.arrive(block);
            } else {
                area.wait(&mut machine).expect("no driver error");
            }
            assert_eq!((area.usage().active, area.is_idle()), (0, true));
        }
    }

    #[test]
    fn a_block_that_is_over_makes_room_and_can_still_be_freed() {
        let (mut area, mut machine) = area();
        let first = take(&mut area, &mut machine, 0, 512);
        area.end(area.find(first).expect("is live"));
        assert!(area.is_free(0, 512));
        let second = take(&mut area, &mut machine, 0, 1024);
        area.free(area.find(first).expect("is live"), None);
        assert_eq!((area.find(first), area.usage().allocated), (None, 1024));
        assert!(area.find(second).is_some());
    }
}
