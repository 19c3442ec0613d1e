//! Blocks and free pieces with boundary tags: each knows its neighbours in address order, so that a freed block is joined in O(1).
//!
//! ```text
//! segment   ┌────────┬──────────────┬─────┐       slots of a flat array, 32 bytes each, linked by u32;
//!           │ used 7 │    free 2    │ 5   │       NIL at both ends: pieces of two segments never touch
//!           └────────┴──────────────┴─────┘
//!              prev ◀── 7 ⇄ 2 ⇄ 5 ──▶ next
//! ```
//! Source: the boundary tags of D. Knuth, The Art of Computer Programming 1, section 2.5, kept beside the memory instead of in it.

use vramlab_sim::allocator::{Block, BlockState, LayoutBlock, LayoutSegment, Placement};
use vramlab_sim::units::StreamId;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// Addresses are multiples of this at least, which leaves low bits for the state.
pub(crate) const UNIT_SIZE_MIN: u64 = 256;

const STATE: u64 = 3;
const FREE: u64 = 1;
const VACANT: u64 = 2;

/// A block in use, or a free piece.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Piece {
    /// Bytes; the state is in the low bits.
    address: u64,
    pub(crate) units: u32,
    /// Rises with every use of the slot for a block, so that an old token is known.
    generation: u32,
    prev: u32,
    next: u32,
    /// Free: two links of the index. In use: the bytes asked for, low and high half.
    pub(crate) a: u32,
    pub(crate) b: u32,
}

const _: () =
    assert!(size_of::<Piece>() == 32, "two pieces share a cache line, and none lies in two");

/// A run of memory from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it begins.
    pub(crate) address: u64,
    /// Its bytes.
    pub(crate) size: u64,
}

impl Piece {
    /// Where it begins, in bytes.
    #[inline]
    pub(crate) const fn address(&self) -> u64 {
        self.address & !STATE
    }

    #[inline]
    const fn state(&self) -> u64 {
        self.address & STATE
    }

    #[inline]
    pub(crate) const fn is_free(&self) -> bool {
        self.state() == FREE
    }

    /// Bytes asked for, of a block in use.
    #[inline]
    pub(crate) const fn requested(&self) -> u64 {
        (self.b as u64) << 32 | self.a as u64
    }

    /// Is it a whole segment?
    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.prev == NIL && self.next == NIL
    }
}

/// All pieces of a strategy. Sizes are counted in units.
#[derive(Debug)]
pub(crate) struct Pieces {
    list: Vec<Piece>,
    /// First slot that means nothing; the others follow through `next`.
    vacant: u32,
    shift: u32,
}

impl Pieces {
    /// With units of `unit` bytes, a power of two.
    pub(crate) fn new(unit: u64) -> Self {
        debug_assert!(unit.is_power_of_two() && unit >= UNIT_SIZE_MIN);
        Self { list: Vec::new(), vacant: NIL, shift: unit.trailing_zeros() }
    }

    /// The first `count` slots hold no memory, only the ends of an index's lists: both links of each lead to itself.
    pub(crate) fn with_ends(mut self, count: usize) -> Self {
        debug_assert!(self.list.is_empty());
        let end = |slot: u32| Piece {
            address: VACANT,
            units: 0,
            generation: 0,
            prev: NIL,
            next: NIL,
            a: slot,
            b: slot,
        };
        self.list = (0..count as u32).map(end).collect();
        self
    }

    /// Bytes of a unit.
    pub(crate) fn unit(&self) -> u64 {
        1 << self.shift
    }

    /// Units that hold `size` bytes; `None` if there are 2^32 or more.
    #[inline]
    pub(crate) fn units(&self, size: u64) -> Option<u32> {
        let whole = size >> self.shift;
        let rest = u64::from(size & ((1 << self.shift) - 1) != 0);
        u32::try_from(whole + rest).ok()
    }

    /// Bytes of so many units.
    #[inline]
    pub(crate) fn bytes(&self, units: u32) -> u64 {
        u64::from(units) << self.shift
    }

    /// The piece in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Piece {
        &self.list[slot as usize]
    }

    /// The piece in a slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Piece {
        &mut self.list[slot as usize]
    }

    #[inline]
    fn slot(&mut self, piece: Piece) -> u32 {
        if self.vacant == NIL {
            self.list.push(piece);
            return (self.list.len() - 1) as u32;
        }
        let slot = self.vacant;
        let old = &mut self.list[slot as usize];
        self.vacant = old.next;
        *old = Piece { generation: old.generation, ..piece };
        slot
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        let piece = &mut self.list[slot as usize];
        piece.address = VACANT;
        piece.next = self.vacant;
        self.vacant = slot;
    }

    /// A free piece that is a whole new segment.
    pub(crate) fn add(&mut self, segment: Segment) -> u32 {
        let units = (segment.size >> self.shift) as u32;
        debug_assert!(segment.address & STATE == 0 && self.bytes(units) == segment.size);
        let address = segment.address | FREE;
        self.slot(Piece { address, units, generation: 0, prev: NIL, next: NIL, a: NIL, b: NIL })
    }

    /// Drops a free piece that is a whole segment.
    pub(crate) fn remove(&mut self, slot: u32) -> Segment {
        debug_assert!(self.get(slot).is_free() && self.get(slot).is_whole());
        let segment = self.extent(slot);
        self.vacate(slot);
        segment
    }

    /// The memory of a piece.
    pub(crate) fn extent(&self, slot: u32) -> Segment {
        let piece = self.get(slot);
        Segment { address: piece.address(), size: self.bytes(piece.units) }
    }

    /// Cuts `units` off the low end of a piece, as a new slot; the rest stays where it was, in its slot.
    #[inline(always)]
    pub(crate) fn split_low(&mut self, slot: u32, units: u32) -> u32 {
        let bytes = self.bytes(units);
        let piece = self.get_mut(slot);
        debug_assert!(units < piece.units);
        let low = Piece { units, next: slot, generation: 0, ..*piece };
        let prev = piece.prev;
        piece.address += bytes;
        piece.units -= units;
        let new = self.slot(low);
        self.get_mut(slot).prev = new;
        if prev != NIL {
            self.get_mut(prev).next = new;
        }
        new
    }

    /// Leaves `units` at the low end of a piece in its slot, and cuts the rest off as a new slot.
    #[inline(always)]
    pub(crate) fn split_rest(&mut self, slot: u32, units: u32) -> u32 {
        let bytes = self.bytes(units);
        let piece = self.get_mut(slot);
        debug_assert!(units < piece.units);
        let (address, rest) = (piece.address + bytes, piece.units - units);
        let high = Piece { address, units: rest, prev: slot, generation: 0, ..*piece };
        piece.units = units;
        let next = high.next;
        let new = self.slot(high);
        self.get_mut(slot).next = new;
        if next != NIL {
            self.get_mut(next).prev = new;
        }
        new
    }

    /// The segment that begins with the piece `head` continues the one that ends with the piece `tail`.
    pub(crate) fn append(&mut self, tail: u32, head: u32) {
        debug_assert!(self.get(tail).next == NIL && self.get(head).prev == NIL);
        self.get_mut(tail).next = head;
        self.get_mut(head).prev = tail;
    }

    /// Drops all pieces of the segment that begins with the piece `head`, in address order; all are free.
    pub(crate) fn remove_all(&mut self, head: u32) {
        let mut at = head;
        while at != NIL {
            let Piece { next, .. } = *self.get(at);
            debug_assert!(self.get(at).is_free());
            self.vacate(at);
            at = next;
        }
    }

    /// Marks a free piece as a block of `requested` bytes; gives its generation.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32, requested: u64) -> u32 {
        let piece = self.get_mut(slot);
        debug_assert!(piece.is_free());
        piece.address &= !STATE;
        piece.generation = piece.generation.wrapping_add(1);
        (piece.a, piece.b) = (requested as u32, (requested >> 32) as u32);
        piece.generation
    }

    /// Marks a block as free.
    #[inline]
    pub(crate) fn give(&mut self, slot: u32) {
        self.get_mut(slot).address |= FREE;
    }

    /// The neighbour below, or [`NIL`].
    #[inline]
    pub(crate) fn before(&self, slot: u32) -> u32 {
        self.get(slot).prev
    }

    /// The neighbour above, or [`NIL`].
    #[inline]
    pub(crate) fn after(&self, slot: u32) -> u32 {
        self.get(slot).next
    }

    /// The neighbour below, if it is free.
    #[inline]
    pub(crate) fn free_before(&self, slot: u32) -> Option<u32> {
        let prev = self.get(slot).prev;
        (prev != NIL && self.get(prev).is_free()).then_some(prev)
    }

    /// The neighbour above, if it is free.
    #[inline]
    pub(crate) fn free_after(&self, slot: u32) -> Option<u32> {
        let next = self.get(slot).next;
        (next != NIL && self.get(next).is_free()).then_some(next)
    }

    /// The piece `low` takes in its upper neighbour `high`, whose slot is vacated.
    #[inline]
    pub(crate) fn join_up(&mut self, low: u32, high: u32) {
        let Piece { units, next, .. } = *self.get(high);
        let piece = self.get_mut(low);
        piece.units += units;
        piece.next = next;
        if next != NIL {
            self.get_mut(next).prev = low;
        }
        self.vacate(high);
    }

    /// The piece `high` takes in its lower neighbour `low`, whose slot is vacated.
    #[inline]
    pub(crate) fn join_down(&mut self, high: u32, low: u32) {
        let Piece { units, prev, .. } = *self.get(low);
        let bytes = self.bytes(units);
        let piece = self.get_mut(high);
        piece.address -= bytes;
        piece.units += units;
        piece.prev = prev;
        if prev != NIL {
            self.get_mut(prev).next = high;
        }
        self.vacate(low);
    }

    /// The block in a slot, as a whole.
    #[inline]
    pub(crate) fn placement(&self, slot: u32) -> Placement {
        let piece = self.get(slot);
        Placement {
            block: Block(u64::from(piece.generation) << 32 | u64::from(slot)),
            address: piece.address(),
            size: self.bytes(piece.units),
        }
    }

    /// The slot of a live block.
    #[inline]
    pub(crate) fn find(&self, token: Block) -> Option<u32> {
        let slot = token.0 as u32;
        let piece = self.list.get(slot as usize)?;
        (piece.state() == 0 && u64::from(piece.generation) == token.0 >> 32).then_some(slot)
    }

    /// The first piece of each segment, in address order.
    pub(crate) fn heads(&self) -> Vec<u32> {
        let is_head = |piece: &Piece| piece.prev == NIL && piece.state() != VACANT;
        let mut heads: Vec<u32> = (0_u32..)
            .zip(&self.list)
            .filter(|(_, piece)| is_head(piece))
            .map(|(slot, _)| slot)
            .collect();
        heads.sort_unstable_by_key(|slot| self.get(*slot).address());
        heads
    }

    /// A piece and all that follow it in its segment.
    pub(crate) fn from(&self, slot: u32) -> impl Iterator<Item = (u32, &Piece)> {
        let link = |slot: u32| (slot != NIL).then_some(slot);
        std::iter::successors(link(slot), move |slot| link(self.get(*slot).next))
            .map(|slot| (slot, self.get(slot)))
    }

    /// Whole segments that are one free piece, highest address first.
    pub(crate) fn whole_free(&self) -> Vec<u32> {
        let mut whole: Vec<u32> = (0_u32..)
            .zip(&self.list)
            .filter(|(_, piece)| piece.is_free() && piece.is_whole())
            .map(|(slot, _)| slot)
            .collect();
        whole.sort_unstable_by_key(|slot| std::cmp::Reverse(self.get(*slot).address()));
        whole
    }

    /// What is where.
    pub(crate) fn walk(&self, pool: &'static str) -> Vec<LayoutSegment> {
        let segment = |head: u32| {
            let blocks: Vec<LayoutBlock> = self.from(head).map(|(_, p)| self.layout(p)).collect();
            LayoutSegment {
                address: self.get(head).address(),
                size: blocks.iter().map(|block| block.size).sum(),
                stream: StreamId(0),
                pool,
                blocks,
                ..LayoutSegment::default()
            }
        };
        self.heads().into_iter().map(segment).collect()
    }

    fn layout(&self, piece: &Piece) -> LayoutBlock {
        let (address, size) = (piece.address(), self.bytes(piece.units));
        if piece.is_free() {
            return LayoutBlock { address, size, requested: 0, state: BlockState::Free, age: 0 };
        }
        let (requested, state) = (piece.requested(), BlockState::Allocated);
        LayoutBlock { address, size, requested, state, age: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pieces: &Pieces) -> Vec<Vec<u32>> {
        pieces.heads().iter().map(|h| pieces.from(*h).map(|(_, p)| p.units).collect()).collect()
    }

    #[test]
    fn split_and_join_keep_address_order() {
        let mut pieces = Pieces::new(512);
        let rest = pieces.add(Segment { address: 1 << 21, size: 64 * 512 });
        let a = pieces.split_low(rest, 4);
        let b = pieces.split_low(rest, 8);
        assert_eq!(sizes(&pieces), [[4, 8, 52]]);
        assert_eq!(pieces.get(b).address(), (1 << 21) + 4 * 512);
        pieces.join_up(a, b);
        assert_eq!(sizes(&pieces), [[12, 52]]);
        pieces.join_down(rest, a);
        assert_eq!(sizes(&pieces), [[64]]);
        assert!(pieces.get(rest).is_whole());
    }

    #[test]
    fn a_rest_gets_a_new_slot_and_segments_can_be_chained() {
        let mut pieces = Pieces::new(512);
        let low = pieces.add(Segment { address: 1 << 21, size: 64 * 512 });
        let rest = pieces.split_rest(low, 4);
        let middle = pieces.split_rest(rest, 10);
        assert_eq!(sizes(&pieces), [[4, 10, 50]]);
        assert_eq!(pieces.get(rest).address(), (1 << 21) + 4 * 512);
        let next = pieces.add(Segment { address: (1 << 21) + 64 * 512, size: 512 });
        pieces.append(middle, next);
        assert_eq!(sizes(&pieces), [[4, 10, 50, 1]]);
        pieces.remove_all(low);
        assert_eq!(sizes(&pieces), [[0_u32; 0]; 0]);
    }

    #[test]
    fn a_token_dies_with_its_block() {
        let mut pieces = Pieces::new(512);
        let slot = pieces.add(Segment { address: 1 << 21, size: 512 });
        let token = |generation: u32| Block(u64::from(generation) << 32 | u64::from(slot));
        let first = token(pieces.take(slot, 100));
        assert_eq!(pieces.find(first), Some(slot));
        pieces.give(slot);
        assert_eq!(pieces.find(first), None, "freed");
        let second = token(pieces.take(slot, 100));
        assert_eq!(pieces.find(first), None, "its slot serves another block");
        assert_eq!(pieces.find(second), Some(slot));
    }

    #[test]
    fn units_round_up_and_never_wrap() {
        let pieces = Pieces::new(512);
        for (size, units) in
            [(1, Some(1)), (512, Some(1)), (513, Some(2)), (u64::MAX, None), (1 << 63, None)]
        {
            assert_eq!(pieces.units(size), units, "for {size}");
        }
    }
}
