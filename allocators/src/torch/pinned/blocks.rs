//! Blocks of pinned host memory, their lists and what waits for them.

use std::collections::VecDeque;

use vramlab_sim::allocator::{AllocError, Block as Token};
use vramlab_sim::driver::Address;
use vramlab_sim::units::{EventId, StreamId};

/// Lists: one for each power of two.
const LISTS: usize = 65;

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The slot has none.
    Vacant,
    /// In use.
    Live,
    /// Freed, and so many events are not complete; 0: nothing will ever tell (rule `captured`).
    Waiting(u32),
    /// In its list.
    Free,
    /// A part of the reserve segment that nothing uses any more (rule `reserve_segment`).
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) address: Address,
    pub(super) size: u64,
    /// Bytes asked for.
    pub(super) requested: u64,
    pub(super) state: State,
    pub(super) pool: u32,
    generation: u32,
    /// Cut from the reserve segment.
    pub(super) reserve: bool,
    /// Made, or handed out again, during a capture.
    pub(super) captured: bool,
    /// Streams were recorded for it.
    pub(super) recorded: bool,
}

/// The lists of a pool.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    free: Vec<Vec<u32>>,
    /// Events and the blocks that wait for them, oldest first.
    pub(super) events: VecDeque<(EventId, u32)>,
    /// Blocks of the pool that are not vacant or lost.
    pub(super) blocks: u64,
}

impl Default for Lists {
    fn default() -> Self {
        Self { free: vec![Vec::new(); LISTS], events: VecDeque::new(), blocks: 0 }
    }
}

/// The list of a size: the power of two that it is, or the next.
fn list_of(size: u64) -> usize {
    (u64::BITS - (size - 1).leading_zeros()) as usize
}

impl Lists {
    pub(super) fn put(&mut self, slot: u32, size: u64) {
        self.free[list_of(size)].push(slot);
    }

    /// Rules `own_list` and `large_enough`.
    pub(super) fn take(&mut self, blocks: &[Block], size: u64) -> Option<u32> {
        let list = &mut self.free[list_of(size)];
        let at = list.iter().rposition(|slot| blocks[*slot as usize].size >= size)?;
        Some(list.remove(at))
    }

    /// All free blocks, small ones first.
    pub(super) fn drain(&mut self) -> Vec<u32> {
        self.free.iter_mut().flat_map(|list| list.drain(..)).collect()
    }
}

/// All blocks, and the streams recorded for them.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<u32>,
    /// By slot; looked up, never walked.
    recorded: rustc_hash::FxHashMap<u32, Vec<StreamId>>,
}

impl Blocks {
    pub(super) fn all(&self) -> &[Block] {
        &self.slots
    }

    pub(super) fn get(&self, slot: u32) -> &Block {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Block {
        &mut self.slots[slot as usize]
    }

    /// A new one, live.
    pub(super) fn add(&mut self, address: Address, size: u64, pool: u32, reserve: bool) -> u32 {
        let block = Block {
            address,
            size,
            requested: 0,
            state: State::Live,
            pool,
            generation: 0,
            reserve,
            captured: false,
            recorded: false,
        };
        match self.vacant.pop() {
            Some(slot) => {
                let generation = self.get(slot).generation;
                *self.get_mut(slot) = Block { generation, ..block };
                slot
            }
            None => {
                self.slots.push(block);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// The block serves a request; its token.
    pub(super) fn hand_out(&mut self, slot: u32, requested: u64, captured: bool) -> Token {
        let block = self.get_mut(slot);
        block.generation = block.generation.wrapping_add(1);
        (block.requested, block.captured, block.state) = (requested, captured, State::Live);
        Token(u64::from(block.generation) << 32 | u64::from(slot))
    }

    /// The slot of a live token.
    pub(super) fn live(&self, token: Token) -> Result<u32, AllocError> {
        let slot = token.0 as u32;
        let live = self.slots.get(slot as usize).is_some_and(|block| {
            block.state == State::Live && u64::from(block.generation) == token.0 >> 32
        });
        if live { Ok(slot) } else { Err(AllocError::UnknownBlock(token)) }
    }

    /// The slot has no block any more.
    pub(super) fn remove(&mut self, slot: u32) {
        self.get_mut(slot).state = State::Vacant;
        self.vacant.push(slot);
    }

    pub(super) fn record(&mut self, slot: u32, stream: StreamId) {
        let streams = self.recorded.entry(slot).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        self.get_mut(slot).recorded = true;
    }

    /// The streams that were recorded, in the order of recording.
    pub(super) fn recorded(&self, slot: u32) -> &[StreamId] {
        self.recorded.get(&slot).map_or(&[], Vec::as_slice)
    }

    pub(super) fn forget_recorded(&mut self, slot: u32) {
        self.recorded.remove(&slot);
        self.get_mut(slot).recorded = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_lies_in_the_list_of_the_next_power_of_two() {
        for (size, list) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 63, 63)] {
            assert_eq!(list_of(size), list, "{size}");
        }
        assert_eq!(list_of((1 << 63) + 1), LISTS - 1);
    }
}
