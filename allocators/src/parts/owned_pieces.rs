//! Blocks and free pieces with boundary tags, exact to the byte, each of which belongs to an owner: a free list, a superblock.
//!
//! ```text
//! chunk     ┌────────┬──────────────┬─────┐       slots of a flat array, a cache line each, linked by u32;
//!           │ used 7 │    free 2    │ 5   │       NONE at both ends: pieces of two chunks never touch
//!           └────────┴──────────────┴─────┘
//!              prev ◀── 7 ⇄ 2 ⇄ 5 ──▶ next       a cut leaves the low part in the slot, a join leaves the low slot
//! ```
//! So the first piece of a chunk has the same slot for as long as the chunk is there. [`super::pieces`] is the smaller kind for strategies whose
//! sizes are whole units and whose free pieces are all alike.

use vramlab_sim::allocator::{Block, BlockState, LayoutBlock, LayoutSegment};
use vramlab_sim::units::StreamId;

use super::free_set::Links;
pub(crate) use super::free_set::NONE;

/// What a slot means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing.
    #[default]
    Vacant,
    /// A free piece.
    Free,
    /// A block in use.
    Used,
    /// In use by the strategy itself: it has no token.
    Kept,
}

/// A block in use, or a free piece.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct OwnedPiece {
    /// Where it begins.
    pub(crate) address: u64,
    /// Its bytes; 0 in slot 0 only.
    pub(crate) size: u64,
    /// In use: the bytes asked for.
    pub(crate) requested: u64,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Rises with every use of the slot for a block, so that an old token is known.
    generation: u32,
    /// Whose it is, or was when it was taken into use.
    pub(crate) owner: u32,
    /// In use: the stream of the request.
    pub(crate) stream: StreamId,
    /// Free: links of a free set.
    pub(crate) links: Links,
    pub(crate) state: State,
}

const _: () = assert!(size_of::<OwnedPiece>() == 64, "a piece is one cache line");

impl OwnedPiece {
    /// Is it a whole chunk?
    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.prev == NONE && self.next == NONE
    }
}

/// All pieces of a strategy. Slot 0 is none.
#[derive(Debug)]
pub(crate) struct OwnedPieces {
    pub(super) list: Vec<OwnedPiece>,
    /// First vacant slot; the others follow through `next`.
    vacant: u32,
}

impl Default for OwnedPieces {
    fn default() -> Self {
        Self { list: vec![OwnedPiece::default()], vacant: NONE }
    }
}

impl OwnedPieces {
    /// The piece in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &OwnedPiece {
        &self.list[slot as usize]
    }

    /// The piece in a slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut OwnedPiece {
        &mut self.list[slot as usize]
    }

    #[inline]
    fn slot(&mut self, piece: OwnedPiece) -> u32 {
        if self.vacant == NONE {
            self.list.push(piece);
            return (self.list.len() - 1) as u32;
        }
        let slot = self.vacant;
        let old = self.get_mut(slot);
        let (vacant, generation) = (old.next, old.generation);
        *old = OwnedPiece { generation, ..piece };
        self.vacant = vacant;
        slot
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        let vacant = self.vacant;
        let piece = self.get_mut(slot);
        piece.state = State::Vacant;
        piece.next = vacant;
        self.vacant = slot;
    }

    /// A free piece that is a whole new chunk.
    pub(crate) fn add(&mut self, address: u64, size: u64, owner: u32) -> u32 {
        self.slot(OwnedPiece { address, size, owner, state: State::Free, ..OwnedPiece::default() })
    }

    /// Drops a free piece that is a whole chunk; where it was.
    pub(crate) fn remove(&mut self, slot: u32) -> u64 {
        let piece = self.get(slot);
        debug_assert!(piece.state == State::Free && piece.is_whole());
        let address = piece.address;
        self.vacate(slot);
        address
    }

    /// Cuts a free piece after `size` bytes; the slot of the rest.
    #[inline]
    pub(crate) fn split(&mut self, slot: u32, size: u64) -> u32 {
        let low = self.get_mut(slot);
        debug_assert!(low.state == State::Free && size < low.size);
        let OwnedPiece { address, size: whole, next, owner, .. } = *low;
        low.size = size;
        let rest = self.slot(OwnedPiece {
            address: address + size,
            size: whole - size,
            prev: slot,
            next,
            owner,
            state: State::Free,
            ..OwnedPiece::default()
        });
        self.get_mut(slot).next = rest;
        if next != NONE {
            self.get_mut(next).prev = rest;
        }
        rest
    }

    /// The piece takes in its upper neighbour, whose slot is vacated.
    #[inline]
    pub(crate) fn absorb_next(&mut self, slot: u32) {
        let high = self.get(slot).next;
        let OwnedPiece { size, next, .. } = *self.get(high);
        let low = self.get_mut(slot);
        low.size += size;
        low.next = next;
        if next != NONE {
            self.get_mut(next).prev = slot;
        }
        self.vacate(high);
    }

    /// Makes the rest that [`OwnedPieces::split`] cut off a chunk of its own.
    pub(crate) fn part(&mut self, low: u32, rest: u32) {
        self.get_mut(low).next = NONE;
        self.get_mut(rest).prev = NONE;
    }

    /// Makes one chunk of two whole ones that touch.
    pub(crate) fn fuse(&mut self, low: u32, high: u32) {
        self.get_mut(low).next = high;
        self.absorb_next(low);
    }

    /// Takes a free piece into use; its token.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32, requested: u64, stream: StreamId) -> Block {
        let piece = self.get_mut(slot);
        debug_assert!(piece.state == State::Free);
        piece.state = State::Used;
        piece.requested = requested;
        piece.stream = stream;
        piece.generation = piece.generation.wrapping_add(1);
        Block(u64::from(piece.generation) << 32 | u64::from(slot))
    }

    /// The strategy keeps a block to itself: its token means nothing any more.
    pub(crate) fn keep(&mut self, token: Block) {
        self.get_mut(token.0 as u32).state = State::Kept;
    }

    /// A block is free again.
    #[inline]
    pub(crate) fn give(&mut self, slot: u32) {
        self.get_mut(slot).state = State::Free;
    }

    /// The slot of a live block.
    #[inline]
    pub(crate) fn find(&self, token: Block) -> Option<u32> {
        let slot = token.0 as u32;
        let piece = self.list.get(slot as usize)?;
        let live = piece.state == State::Used && u64::from(piece.generation) == token.0 >> 32;
        live.then_some(slot)
    }

    /// The neighbour below, if it is free.
    #[inline]
    pub(crate) fn free_before(&self, slot: u32) -> Option<u32> {
        let prev = self.get(slot).prev;
        (self.get(prev).state == State::Free).then_some(prev)
    }

    /// The neighbour above, if it is free.
    #[inline]
    pub(crate) fn free_after(&self, slot: u32) -> Option<u32> {
        let next = self.get(slot).next;
        (self.get(next).state == State::Free).then_some(next)
    }

    /// A piece and all that follow it in its chunk.
    pub(crate) fn from(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let link = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(link(slot), move |slot| link(self.get(*slot).next))
    }

    /// All free pieces, in order of their slots.
    pub(crate) fn free(&self) -> impl Iterator<Item = u32> + '_ {
        let slots = (0_u32..).zip(&self.list);
        slots.filter(|(_, piece)| piece.state == State::Free).map(|(slot, _)| slot)
    }

    /// The first piece of each chunk, in address order.
    pub(crate) fn heads(&self) -> Vec<u32> {
        let slots = (0_u32..).zip(&self.list).skip(1);
        let heads = slots.filter(|(_, piece)| piece.prev == NONE && piece.state != State::Vacant);
        let mut heads: Vec<u32> = heads.map(|(slot, _)| slot).collect();
        heads.sort_unstable_by_key(|slot| self.get(*slot).address);
        heads
    }

    /// What is where: a segment for each chunk, with what `label` says of the pool and the stream of its owner.
    pub(crate) fn walk(
        &self,
        label: impl Fn(u32) -> (&'static str, StreamId),
    ) -> Vec<LayoutSegment> {
        let segment = |head: u32| {
            let blocks: Vec<LayoutBlock> = self.from(head).map(|slot| self.layout(slot)).collect();
            let (pool, stream) = label(self.get(head).owner);
            LayoutSegment {
                address: self.get(head).address,
                size: blocks.iter().map(|block| block.size).sum(),
                stream,
                pool,
                blocks,
                ..LayoutSegment::default()
            }
        };
        self.heads().into_iter().map(segment).collect()
    }

    fn layout(&self, slot: u32) -> LayoutBlock {
        let OwnedPiece { address, size, requested, state, .. } = *self.get(slot);
        let (requested, state) = match state {
            State::Used | State::Kept => (requested, BlockState::Allocated),
            State::Free | State::Vacant => (0, BlockState::Free),
        };
        LayoutBlock { address, size, requested, state, age: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pieces: &OwnedPieces) -> Vec<Vec<u64>> {
        let chunk = |head: &u32| pieces.from(*head).map(|slot| pieces.get(slot).size).collect();
        pieces.heads().iter().map(chunk).collect()
    }

    #[test]
    fn a_cut_and_a_join_keep_the_low_slot() {
        let mut pieces = OwnedPieces::default();
        let first = pieces.add(1 << 20, 1000, 3);
        let second = pieces.split(first, 600);
        let middle = pieces.split(first, 100);
        assert_eq!(sizes(&pieces), [[100, 500, 400]]);
        assert_eq!((pieces.get(middle).address, pieces.get(second).owner), ((1 << 20) + 100, 3));
        pieces.absorb_next(middle);
        assert_eq!(sizes(&pieces), [[100, 900]]);
        pieces.part(first, middle);
        assert_eq!(sizes(&pieces), [[100], [900]]);
        pieces.fuse(first, middle);
        assert_eq!(sizes(&pieces), [[1000]]);
        assert_eq!(pieces.remove(first), 1 << 20);
    }

    #[test]
    fn a_token_dies_with_its_block() {
        let mut pieces = OwnedPieces::default();
        let slot = pieces.add(1 << 20, 512, 0);
        let first = pieces.take(slot, 100, StreamId(0));
        assert_eq!(pieces.find(first), Some(slot));
        pieces.give(slot);
        assert_eq!(pieces.find(first), None, "freed");
        let second = pieces.take(slot, 100, StreamId(0));
        assert_eq!(pieces.find(first), None, "its slot serves another block");
        assert_eq!(pieces.find(second), Some(slot));
        assert_eq!(pieces.find(Block(0)), None, "slot 0 is none");
    }
}
