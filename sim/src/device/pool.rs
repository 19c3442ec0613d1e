//! One stream-ordered pool: its blocks, and which of the free ones a stream may use. The rules are those of [`super::pools`].

use std::collections::{BTreeMap, BTreeSet};

use super::timeline::{Moment, Slot, Timeline};
use crate::driver::Address;
use crate::units::PoolId;

/// Owner of a free block that every stream may use (rule `synced`).
pub(super) const ANYONE: Slot = Slot::MAX;

#[derive(Clone, Debug)]
pub(super) enum State {
    /// Bytes asked for.
    Used(u64),
    /// Whose, and when that stream passes the free.
    Free(Slot, Moment),
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) size: u64,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) size: u64,
    pub(super) pool: PoolId,
    pub(super) ordinal: u32,
    pub(super) physical: u64,
    /// Blocks in use.
    pub(super) used: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) release_threshold: u64,
    pub(super) follow: bool,
    pub(super) opportunistic: bool,
    pub(super) internal: bool,
    pub(super) reserved: u64,
    pub(super) reserved_high: u64,
    pub(super) used: u64,
    pub(super) used_high: u64,
    pub(super) destroyed: bool,
    pub(super) blocks: BTreeMap<Address, Block>,
    /// Free blocks by owner, each by size and address.
    pub(super) free: BTreeMap<Slot, BTreeSet<(u64, Address)>>,
    /// Chunks without a used block.
    pub(super) empty: BTreeSet<Address>,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            release_threshold: 0,
            follow: true,
            opportunistic: true,
            internal: true,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            destroyed: false,
            blocks: BTreeMap::new(),
            free: BTreeMap::new(),
            empty: BTreeSet::new(),
        }
    }

    pub(super) fn put_free(&mut self, address: Address, size: u64, owner: Slot, moment: Moment) {
        self.free.entry(owner).or_default().insert((size, address));
        self.blocks.insert(address, Block { size, state: State::Free(owner, moment) });
    }

    /// Takes a free block out of the pool; its owner and moment.
    pub(super) fn take_free(&mut self, size: u64, address: Address) -> (Slot, Moment) {
        let Some(Block { state: State::Free(owner, moment), .. }) = self.blocks.remove(&address)
        else {
            unreachable!("the free sets name free blocks")
        };
        if let Some(set) = self.free.get_mut(&owner) {
            set.remove(&(size, address));
        }
        (owner, moment)
    }

    pub(super) fn moment(&self, address: Address) -> &Moment {
        match self.blocks.get(&address) {
            Some(Block { state: State::Free(_, moment), .. }) => moment,
            _ => unreachable!("the free sets name free blocks"),
        }
    }

    /// May `slot` use a block with this owner and moment, without a wait?
    fn usable(&self, time: &Timeline, slot: Slot, owner: Slot, moment: &Moment) -> bool {
        owner == slot
            || owner == ANYONE
            || self.follow && time.is_after(Some(slot), moment)
            || self.opportunistic && moment.at <= time.now
    }

    /// The smallest block of at least `size` bytes that `slot` may use: rules `own` and `synced`, then `follow` and `opportunistic`.
    pub(super) fn find(&self, time: &Timeline, slot: Slot, size: u64) -> Option<(u64, Address)> {
        let smallest = |owner: &Slot| {
            let set = self.free.get(owner)?;
            set.range((size, 0)..).next().copied()
        };
        let own = smallest(&slot).into_iter().chain(smallest(&ANYONE)).min();
        own.or_else(|| {
            let others = self.free.iter().filter(|(owner, _)| **owner != slot && **owner != ANYONE);
            let usable = others.filter_map(|(owner, set)| {
                let mut large = set.range((size, 0)..);
                large.find(|(_, at)| self.usable(time, slot, *owner, self.moment(*at))).copied()
            });
            usable.min()
        })
    }

    /// Joins neighbours that `slot` may use until one block has `size` bytes; the block.
    pub(super) fn gather(
        &mut self,
        time: &Timeline,
        chunks: &BTreeMap<Address, Chunk>,
        slot: Slot,
        size: u64,
    ) -> Option<(u64, Address)> {
        let (mut start, mut end) = (0, 0);
        for (address, block) in &self.blocks {
            let State::Free(owner, moment) = &block.state else { continue };
            if !self.usable(time, slot, *owner, moment) {
                continue;
            }
            if *address != end || chunks.contains_key(address) {
                start = *address;
            }
            end = address + block.size;
            if end - start >= size {
                break;
            }
        }
        if end - start < size {
            return None;
        }
        self.join(start, end, slot);
        Some((end - start, start))
    }

    /// Makes one free block of all from `start` to `end`.
    fn join(&mut self, start: Address, end: Address, owner: Slot) {
        let mut whole = Moment::default();
        let mut at = start;
        while at < end {
            let Some(size) = self.blocks.get(&at).map(|block| block.size) else { break };
            let (_, moment) = self.take_free(size, at);
            whole.join(&moment);
            at += size;
        }
        self.put_free(start, end - start, owner, whole);
    }

    /// Puts a free block beside those of the same owner in the chunk.
    pub(super) fn put_joined(
        &mut self,
        chunks: &BTreeMap<Address, Chunk>,
        address: Address,
        size: u64,
        owner: Slot,
        moment: Moment,
    ) {
        let is_owned = |block: &Block| matches!(block.state, State::Free(by, _) if by == owner);
        let (mut start, mut end, mut whole) = (address, address + size, moment);
        if !chunks.contains_key(&address)
            && let Some((at, block)) = self.blocks.range(..address).next_back()
            && at + block.size == address
            && is_owned(block)
        {
            start = *at;
            whole.join(&self.take_free(address - start, start).1);
        }
        if !chunks.contains_key(&end)
            && let Some(size) =
                self.blocks.get(&end).filter(|block| is_owned(block)).map(|b| b.size)
        {
            whole.join(&self.take_free(size, end).1);
            end += size;
        }
        self.put_free(start, end - start, owner, whole);
    }
}
