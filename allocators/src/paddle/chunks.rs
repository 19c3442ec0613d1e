//! The pieces that chunks of device memory are cut into, and the free ones in order of (size, address).
//!
//! ```text
//! chunk     ┌──────────────┬────────┬─────┐     neighbours by address; a piece is a slot of a flat array
//!           │ free 3       │ used 7 │ 5   │     the lowest piece of a chunk has the same slot as long as the chunk is there,
//!           └──────────────┴────────┴─────┘     so that slot is the chunk's number
//! ```
//! Sizes are bytes, since a chunk of the buddy strategy may have any size. Free pieces are in [`FreeSet`]s by grains of 256 B; within a grain
//! they are ordered by their bytes, and then by address, which makes the order exact. Slot 0 is a wall: it stands before the first and
//! after the last piece of every chunk, is never free, and may be written to.

use vramlab_sim::allocator::{Block, BlockState, LayoutBlock, LayoutSegment, Placement};

use crate::parts::free_set::{FreeSet, Links, NONE, Nodes, SIZE_MAX};
use crate::parts::last_uses::LastUses;

/// Log2 of the bytes of a grain.
const GRAIN: u32 = 8;
const WALL: u32 = NONE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The slot means nothing; the next such slot is in `next`.
    #[default]
    Vacant,
    Free,
    Used,
}

/// A block in use, or a free piece.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) size: u64,
    links: Links,
    prev: u32,
    next: u32,
    /// Rises with every use of the slot for a block, so that an old token is known.
    generation: u32,
    /// In use: bytes that were not asked for.
    waste: u32,
    state: State,
    /// Number of its pool.
    pub(super) pool: u8,
}

impl Piece {
    /// Is it a whole chunk?
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        (self.prev | self.next) == WALL
    }

    /// Is it the last of its chunk?
    #[inline]
    pub(super) fn is_last(&self) -> bool {
        self.next == WALL
    }
}

fn grains(size: u64) -> u32 {
    u32::try_from(size >> GRAIN).unwrap_or(SIZE_MAX).min(SIZE_MAX - 1) + u32::from(size > 0)
}

/// The pieces, as a free set sees them.
struct View<'p>(&'p mut [Piece]);

impl Nodes for View<'_> {
    type Brief<'a>
        = View<'a>
    where
        Self: 'a;
    #[inline]
    fn brief(&mut self) -> View<'_> {
        View(self.0)
    }
    #[inline]
    fn size(&self, node: u32) -> u32 {
        grains(self.0[node as usize].size)
    }
    #[inline]
    fn before(&self, a: u32, b: u32) -> bool {
        let key = |node: u32| (self.0[node as usize].size, self.0[node as usize].address);
        key(a) < key(b)
    }
    #[inline]
    fn links(&self, node: u32) -> Links {
        self.0[node as usize].links
    }
    #[inline]
    fn links_mut(&mut self, node: u32) -> &mut Links {
        &mut self.0[node as usize].links
    }
}

/// All pieces of a strategy.
#[derive(Debug)]
pub(super) struct Chunks {
    list: Vec<Piece>,
    vacant: u32,
    /// By number of the pool.
    free: Vec<FreeSet>,
    free_pieces: u64,
    chunks: u64,
}

impl Chunks {
    /// With so many pools, which share nothing.
    pub(super) fn new(pools: usize) -> Self {
        let free = (0..pools).map(|_| FreeSet::new()).collect();
        Self { list: vec![Piece::default()], vacant: WALL, free, free_pieces: 0, chunks: 0 }
    }

    /// Counters that all strategies of chunks have.
    pub(super) fn counters(&self, uses: &LastUses) -> Vec<(&'static str, u64)> {
        vec![
            ("curr_chunks_num", self.chunks),
            ("free_blocks_num", self.free_pieces),
            ("stream_waits", uses.waits()),
        ]
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Piece {
        &self.list[slot as usize]
    }

    #[inline]
    fn get_mut(&mut self, slot: u32) -> &mut Piece {
        &mut self.list[slot as usize]
    }

    #[inline]
    fn slot(&mut self, piece: Piece) -> u32 {
        if self.vacant == WALL {
            self.list.push(piece);
            return (self.list.len() - 1) as u32;
        }
        let slot = self.vacant;
        let old = self.get_mut(slot);
        let Piece { next, generation, .. } = *old;
        *old = Piece { generation, ..piece };
        self.vacant = next;
        slot
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        let vacant = self.vacant;
        let piece = self.get_mut(slot);
        (piece.state, piece.size, piece.next) = (State::Vacant, 0, vacant);
        self.vacant = slot;
    }

    /// Into the free set.
    #[inline]
    fn file(&mut self, slot: u32) {
        let piece = self.get_mut(slot);
        piece.state = State::Free;
        let pool = usize::from(piece.pool);
        self.free_pieces += 1;
        self.free[pool].insert(&mut View(&mut self.list), slot);
    }

    /// Out of the free set, before anything of the piece changes.
    #[inline]
    fn unfile(&mut self, slot: u32) {
        let pool = usize::from(self.get(slot).pool);
        self.free_pieces -= 1;
        self.free[pool].remove(&mut View(&mut self.list), slot);
    }

    #[inline]
    fn mark_used(&mut self, slot: u32, requested: u64) {
        let piece = self.get_mut(slot);
        piece.state = State::Used;
        piece.generation = piece.generation.wrapping_add(1);
        piece.waste = (piece.size - requested) as u32;
    }

    /// A new chunk, as one free piece.
    pub(super) fn add(&mut self, address: u64, size: u64, pool: u8, uses: &mut LastUses) -> u32 {
        let slot = self.slot(Piece { address, size, pool, ..Piece::default() });
        self.chunks += 1;
        self.file(slot);
        uses.fresh(slot);
        slot
    }

    /// Memory right behind the last piece `tail` of a chunk; a free tail takes it in.
    pub(super) fn extend(&mut self, tail: u32, size: u64, uses: &mut LastUses) -> u32 {
        let Piece { address, size: before, pool, .. } = *self.get(tail);
        let new = Piece { address: address + before, size, pool, prev: tail, ..Piece::default() };
        let slot = self.slot(new);
        self.get_mut(tail).next = slot;
        uses.fresh(slot);
        self.give(slot, uses)
    }

    /// A new chunk that is one block, and is in no free set before and after.
    pub(super) fn add_used(
        &mut self,
        address: u64,
        size: u64,
        requested: u64,
        uses: &mut LastUses,
    ) -> u32 {
        let slot = self.slot(Piece { address, size, ..Piece::default() });
        self.chunks += 1;
        uses.fresh(slot);
        self.mark_used(slot, requested);
        slot
    }

    /// The smallest free piece of the pool that has at least `size` bytes (whole grains); of equal ones the lowest.
    #[inline]
    pub(super) fn find(&mut self, pool: u8, size: u64) -> Option<u32> {
        let set = &self.free[usize::from(pool)];
        let nodes = &View(&mut self.list);
        let found = set.find(nodes, grains(size));
        if found == NONE {
            return None;
        }
        if nodes.0[found as usize].size >= size {
            return Some(found);
        }
        // only where many sizes share the last grain, from 1 TiB on
        set.from(nodes, grains(size)).find(|slot| nodes.0[*slot as usize].size >= size)
    }

    /// Bytes of the largest free piece; 0 if there is none.
    pub(super) fn largest(&mut self) -> u64 {
        let nodes = &View(&mut self.list);
        let largest = |set: &FreeSet| {
            let last = set.from(nodes, set.largest(nodes));
            last.map(|slot| nodes.0[slot as usize].size).max().unwrap_or(0)
        };
        self.free.iter().map(largest).max().unwrap_or(0)
    }

    /// The whole free piece becomes a block.
    #[inline]
    pub(super) fn take(&mut self, slot: u32, requested: u64) {
        self.unfile(slot);
        self.mark_used(slot, requested);
    }

    /// Makes a block of `size` bytes out of the high end of a free piece.
    #[inline]
    pub(super) fn take_high(
        &mut self,
        slot: u32,
        size: u64,
        requested: u64,
        uses: &mut LastUses,
    ) -> u32 {
        self.unfile(slot);
        let rest = self.get(slot).size - size;
        if rest == 0 {
            self.mark_used(slot, requested);
            return slot;
        }
        let block = self.split(slot, rest, uses);
        self.mark_used(block, requested);
        self.file(slot);
        block
    }

    /// Makes a block of `size` bytes, less than it has, out of the low end of a free piece.
    #[inline]
    pub(super) fn take_low(&mut self, slot: u32, size: u64, requested: u64, uses: &mut LastUses) {
        self.unfile(slot);
        let rest = self.split(slot, size, uses);
        self.mark_used(slot, requested);
        self.file(rest);
    }

    /// Cuts a piece that is not filed; what is behind its first `low` bytes is a new slot.
    #[inline]
    fn split(&mut self, slot: u32, low: u64, uses: &mut LastUses) -> u32 {
        let piece = *self.get(slot);
        debug_assert!(low > 0 && low < piece.size);
        let Piece { next, pool, .. } = piece;
        let (address, size) = (piece.address + low, piece.size - low);
        let high = self.slot(Piece { address, size, prev: slot, next, pool, ..Piece::default() });
        self.get_mut(next).prev = high;
        let piece = self.get_mut(slot);
        (piece.size, piece.next) = (low, high);
        uses.cut(slot, high);
        high
    }

    /// Takes a block back; gives the free piece that it became part of.
    #[inline]
    pub(super) fn give(&mut self, slot: u32, uses: &mut LastUses) -> u32 {
        let prev = self.get(slot).prev;
        let mut low = slot;
        if self.get(prev).state == State::Free {
            self.unfile(prev);
            self.join(prev, uses);
            low = prev;
        }
        let next = self.get(low).next;
        if self.get(next).state == State::Free {
            self.unfile(next);
            self.join(low, uses);
        }
        self.file(low);
        low
    }

    /// A piece takes in the one behind it.
    #[inline]
    fn join(&mut self, low: u32, uses: &mut LastUses) {
        let high = self.get(low).next;
        let Piece { size, next, .. } = *self.get(high);
        let piece = self.get_mut(low);
        piece.size += size;
        piece.next = next;
        self.get_mut(next).prev = low;
        self.vacate(high);
        uses.join(low, high);
    }

    /// Drops a chunk that is one free piece.
    pub(super) fn remove(&mut self, slot: u32, uses: &mut LastUses) {
        self.unfile(slot);
        self.remove_used(slot, uses);
    }

    /// Drops a chunk that is one block.
    pub(super) fn remove_used(&mut self, slot: u32, uses: &mut LastUses) {
        debug_assert!(self.get(slot).is_whole());
        self.chunks -= 1;
        self.vacate(slot);
        uses.forget(slot);
    }

    /// A block as a whole.
    #[inline]
    pub(super) fn placement(&self, slot: u32) -> Placement {
        let Piece { address, size, generation, .. } = *self.get(slot);
        Placement { block: Block(u64::from(generation) << 32 | u64::from(slot)), address, size }
    }

    /// The slot of a live block.
    #[inline]
    pub(super) fn live(&self, token: Block) -> Option<u32> {
        let slot = token.0 as u32;
        let piece = self.list.get(slot as usize)?;
        let same = u64::from(piece.generation) == token.0 >> 32;
        (piece.state == State::Used && same).then_some(slot)
    }

    /// Free pieces that are whole chunks, in order of (size, address).
    pub(super) fn whole_free(&mut self) -> Vec<u32> {
        let nodes = &View(&mut self.list);
        let whole = |slot: &u32| nodes.0[*slot as usize].is_whole();
        self.free.iter().flat_map(|set| set.from(nodes, 1)).filter(whole).collect()
    }

    /// What is where; `pools` are the pools' names.
    pub(super) fn walk(&self, pools: &[&'static str], expandable: bool) -> Vec<LayoutSegment> {
        let is_head = |piece: &&Piece| piece.prev == WALL && piece.state != State::Vacant;
        let segment = |head: &Piece| {
            let next = |piece: &&Piece| (piece.next != WALL).then(|| self.get(piece.next));
            let pieces = std::iter::successors(Some(head), next);
            let blocks: Vec<LayoutBlock> = pieces.map(Self::layout).collect();
            LayoutSegment {
                address: head.address,
                size: blocks.iter().map(|block| block.size).sum(),
                pool: pools[usize::from(head.pool)],
                expandable,
                blocks,
                ..LayoutSegment::default()
            }
        };
        let mut segments: Vec<LayoutSegment> =
            self.list[1..].iter().filter(is_head).map(segment).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }

    fn layout(piece: &Piece) -> LayoutBlock {
        let Piece { address, size, .. } = *piece;
        let (requested, state) = match piece.state {
            State::Used => (size - u64::from(piece.waste), BlockState::Allocated),
            State::Free | State::Vacant => (0, BlockState::Free),
        };
        LayoutBlock { address, size, requested, state, age: 0 }
    }
}
