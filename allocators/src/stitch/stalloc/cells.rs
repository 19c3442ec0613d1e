//! Requests of up to 512 B: cells of one size.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `last_freed` | the cell freed last is used first; of new ones the highest | `VarAllocator.hpp` 32-60 |
//! | `streams` | ours: a cell that another stream used before is reused at once, after a stream wait | `parts/last_uses.rs` |
//! | `double` | the area begins at twice the profile's peak, and as much again is taken when no cell is free. Departure: at least one cell, where the real one would never end | `main.cpp` 228, `VarAllocator.hpp` 62-73 |

use vramlab_sim::allocator::{Block, BlockState, LayoutBlock, LayoutSegment, Placement, Usage};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::profile::CELL;
use crate::parts::last_uses::LastUses;
use crate::parts::nulls::Nulls;

/// In the low half of a token: it names a cell.
const OWN: u32 = 0b11 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Live,
    Waiting,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    state: State,
    generation: u32,
    requested: u32,
    address: Address,
}

/// The cells.
#[derive(Debug, Default)]
pub(super) struct Cells {
    list: Vec<Cell>,
    free: Vec<u32>,
    /// Beginning and bytes.
    areas: Vec<(Address, u64)>,
    reserved: u64,
    live: u64,
    waiting: Vec<u32>,
    uses: LastUses,
}

impl Cells {
    /// Is the token one of a cell, live or not?
    pub(super) fn owns(block: Block) -> bool {
        block.0 as u32 & OWN == OWN && !Nulls::owns(block)
    }

    /// Takes another area of so many bytes from the driver.
    pub(super) fn grow(&mut self, driver: &mut dyn Driver, bytes: u64) -> Result<(), DriverError> {
        let bytes = bytes.max(CELL);
        let base = driver.malloc(bytes)?;
        self.areas.push((base, bytes));
        self.reserved += bytes;
        for address in (base..base + bytes).step_by(CELL as usize) {
            self.uses.fresh(self.list.len() as u32);
            self.free.push(self.list.len() as u32);
            self.list.push(Cell { state: State::Free, generation: 0, requested: 0, address });
        }
        Ok(())
    }

    /// Rules `last_freed` and `double`.
    pub(super) fn take(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        requested: u64,
    ) -> Result<Placement, DriverError> {
        self.uses.see(stream);
        if self.free.is_empty() {
            self.grow(driver, self.reserved)?;
        }
        let at = self.free.pop().unwrap_or_default();
        self.uses.hand_out(driver, at, stream)?;
        let cell = &mut self.list[at as usize];
        cell.state = State::Live;
        cell.generation = cell.generation.wrapping_add(1);
        cell.requested = requested as u32;
        self.live += 1;
        let block = Block(u64::from(cell.generation) << 32 | u64::from(at | OWN));
        Ok(Placement { block, address: cell.address, size: CELL })
    }

    /// The number of a live cell.
    pub(super) fn find(&self, block: Block) -> Option<u32> {
        let at = block.0 as u32 & !OWN;
        let cell = self.list.get(at as usize)?;
        (cell.state == State::Live && u64::from(cell.generation) == block.0 >> 32).then_some(at)
    }

    /// The cell is also used on `stream`.
    pub(super) fn record(&mut self, at: u32, stream: StreamId) {
        self.uses.record(at, stream);
    }

    /// The cell is freed, ordered in `stream` if one is given.
    pub(super) fn free(&mut self, at: u32, stream: Option<StreamId>) {
        self.uses.freed(at, stream);
        self.live -= 1;
        self.give(at);
    }

    /// The cell is freed, and waits.
    pub(super) fn hold(&mut self, at: u32) {
        self.uses.freed(at, None);
        self.live -= 1;
        self.list[at as usize].state = State::Waiting;
        self.waiting.push(at);
    }

    fn give(&mut self, at: u32) {
        self.list[at as usize].state = State::Free;
        self.free.push(at);
    }

    /// The cell that waits under this token, if it does, waits no longer.
    pub(super) fn arrive(&mut self, block: Block) {
        let at = block.0 as u32 & !OWN;
        let waits = self.waiting.iter().position(|waiting| *waiting == at);
        let same = |cell: &Cell| u64::from(cell.generation) == block.0 >> 32;
        if let Some(place) = waits.filter(|_| same(&self.list[at as usize])) {
            self.waiting.remove(place);
            self.give(at);
        }
    }

    /// Waits for the device, if a cell waits.
    pub(super) fn wait(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        if !self.waiting.is_empty() {
            driver.device_synchronize()?;
            self.uses.device_waited();
            std::mem::take(&mut self.waiting).into_iter().for_each(|at| self.give(at));
        }
        Ok(())
    }

    pub(super) fn usage(&self) -> Usage {
        let allocated = self.live * CELL;
        let active = allocated + self.waiting.len() as u64 * CELL;
        Usage { allocated, active, reserved: self.reserved }
    }

    /// What is where.
    pub(super) fn layout(&self) -> Vec<LayoutSegment> {
        let mut cells = self.list.iter();
        let segment = |&(address, size): &(Address, u64)| {
            let block = |cell: &Cell| {
                let (state, requested) = match cell.state {
                    State::Free => (BlockState::Free, 0),
                    State::Live => (BlockState::Allocated, cell.requested.into()),
                    State::Waiting => (BlockState::Pending, cell.requested.into()),
                };
                LayoutBlock { address: cell.address, size: CELL, requested, state, age: 0 }
            };
            let blocks = cells.by_ref().take((size / CELL) as usize).map(block).collect();
            LayoutSegment { address, size, pool: "var", blocks, ..LayoutSegment::default() }
        };
        self.areas.iter().map(segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    const S0: StreamId = StreamId(0);

    #[test]
    fn last_freed_is_used_first_and_of_new_ones_the_highest() -> Result<(), DriverError> {
        let (mut cells, mut machine) = (Cells::default(), ScriptedMachine::of_capacity(1 << 30));
        cells.grow(&mut machine, 4 * CELL)?;
        let taken =
            [1, 2, 3].map(|size| cells.take(&mut machine, S0, size).expect("there is room"));
        let steps = [taken[0].address - taken[1].address, taken[1].address - taken[2].address];
        assert_eq!(steps, [CELL, CELL]);
        for placement in &taken[..2] {
            cells.free(cells.find(placement.block).expect("is live"), None);
        }
        assert_eq!(cells.take(&mut machine, S0, 1)?.address, taken[1].address);
        assert_eq!(cells.find(taken[0].block), None, "it is freed");
        Ok(())
    }

    #[test]
    fn double_when_no_cell_is_free() -> Result<(), DriverError> {
        let (mut cells, mut machine) = (Cells::default(), ScriptedMachine::of_capacity(1 << 30));
        let reserved = [1, 2, 3, 4, 5].map(|size| {
            cells.take(&mut machine, S0, size).expect("there is room");
            cells.usage().reserved / CELL
        });
        assert_eq!(reserved, [1, 2, 4, 4, 8]);
        assert_eq!(cells.layout().len(), 4);
        Ok(())
    }
}
