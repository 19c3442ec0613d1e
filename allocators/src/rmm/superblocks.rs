//! The superblocks of `rmm.arena` and the free blocks in them, by the arena that owns them.
//!
//! ```text
//! superblocks   ├──── global ────┼─ stream 1 ─┼──── global ────┼─ stream 0 ─┤    tile the arena; neighbours are linked
//! pieces        [used|  free     ] [used|used ] [     free     ] [free|used ]    never join over the edge of a superblock
//! free pieces   one tree for each owner, by address, that knows the largest of each part
//! ```
//! RMM looks for the first superblock with a fitting free block, and in it for the first that fits: since superblocks do not overlap, that is the lowest
//! fitting free block of the owner.

use vramlab_sim::allocator::{Block, LayoutSegment};
use vramlab_sim::units::StreamId;

use super::ALIGNMENT;
use crate::parts::max_tree::MaxTree;
use crate::parts::owned_pieces::{OwnedPiece, OwnedPieces, State};

/// The owner of superblocks that belong to no stream.
pub(super) const GLOBAL: u32 = 0;
/// Least size of a superblock, and largest block of a stream's own superblocks (`superblock::minimum_size`).
pub(super) const SUPERBLOCK_MIN: u64 = 1 << 20;
/// Sizes below this are counted in units of 256 B (`superblock::maximum_size`).
pub(super) const SUPERBLOCK_MAX: u64 = 1 << 40;

#[derive(Clone, Copy, Debug)]
struct Superblock {
    owner: u32,
    /// Its first piece; the same for as long as it lives.
    first: u32,
    /// Neighbours by address; `END` at the ends of the arena.
    before: u32,
    after: u32,
}

/// No superblock.
const END: u32 = u32::MAX;
/// The lowest superblock: it is never joined to a lower one.
const LOWEST: u32 = 0;

/// All superblocks. Owners are numbered from 0, the global one.
#[derive(Debug)]
pub(super) struct Superblocks {
    /// The owner of a piece is its superblock.
    pieces: OwnedPieces,
    list: Vec<Superblock>,
    /// Numbers that mean nothing.
    vacant: Vec<u32>,
    /// Free pieces by owner.
    trees: Vec<MaxTree>,
}

/// What a tree has of the size of a piece.
#[inline]
fn units(size: u64) -> u32 {
    (size / ALIGNMENT) as u32
}

impl Default for Superblocks {
    fn default() -> Self {
        let (list, vacant, trees) = (Vec::new(), Vec::new(), vec![MaxTree::new()]);
        Self { pieces: OwnedPieces::default(), list, vacant, trees }
    }
}

impl Superblocks {
    /// The memory of the arena, as one global superblock.
    pub(super) fn fill(&mut self, address: u64, size: u64) {
        let first = self.pieces.add(address, size, 0);
        self.list.push(Superblock { owner: GLOBAL, first, before: END, after: END });
        self.insert(GLOBAL, first);
    }

    /// Another owner.
    pub(super) fn add_owner(&mut self) -> u32 {
        self.trees.push(MaxTree::new());
        (self.trees.len() - 1) as u32
    }

    pub(super) fn pieces(&self) -> &OwnedPieces {
        &self.pieces
    }

    /// The owner of the superblock that a piece is in.
    #[inline]
    pub(super) fn owner(&self, slot: u32) -> u32 {
        self.list[self.pieces.get(slot).owner as usize].owner
    }

    #[inline]
    fn insert(&mut self, owner: u32, slot: u32) {
        let OwnedPiece { address, size, .. } = *self.pieces.get(slot);
        self.trees[owner as usize].insert(address, units(size), slot);
    }

    #[inline]
    fn remove(&mut self, owner: u32, slot: u32) {
        self.trees[owner as usize].remove(self.pieces.get(slot).address);
    }

    /// The lowest free block of an owner that has at least `size` bytes.
    #[inline]
    pub(super) fn first_fit(&self, owner: u32, size: u64) -> Option<u32> {
        let units = u32::try_from(size / ALIGNMENT).ok()?;
        self.trees[owner as usize].first_from(0, units)
    }

    /// Hands out the low end of a free block.
    #[inline]
    pub(super) fn cut(&mut self, slot: u32, size: u64, requested: u64, stream: StreamId) -> Block {
        let (owner, OwnedPiece { address, size: whole, .. }) =
            (self.owner(slot), *self.pieces.get(slot));
        if whole > size {
            let rest = self.pieces.split(slot, size);
            self.update(owner, address, rest);
        } else {
            self.remove(owner, slot);
        }
        self.pieces.take(slot, requested, stream)
    }

    /// If the superblock of a global free block is wholly free and leaves another one, its low end of max(1 MiB, `size`) becomes a superblock.
    /// The superblock that has the block now.
    fn split(&mut self, slot: u32, size: u64) -> u32 {
        let (piece, head_size) = (*self.pieces.get(slot), size.max(SUPERBLOCK_MIN));
        if !piece.is_whole() || piece.size < head_size + SUPERBLOCK_MIN {
            return piece.owner;
        }
        let (head, rest) = (piece.owner, self.pieces.split(slot, head_size));
        self.pieces.part(slot, rest);
        let after = self.list[head as usize].after;
        let tail = self.number(Superblock { owner: GLOBAL, first: rest, before: head, after });
        self.list[head as usize].after = tail;
        if after != END {
            self.list[after as usize].before = tail;
        }
        self.pieces.get_mut(rest).owner = tail;
        self.update(GLOBAL, piece.address, slot);
        self.insert(GLOBAL, rest);
        head
    }

    fn number(&mut self, superblock: Superblock) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.list[number as usize] = superblock;
                number
            }
            None => {
                self.list.push(superblock);
                (self.list.len() - 1) as u32
            }
        }
    }

    /// The block of the global arena that serves `size` bytes; its superblock is split if it may be.
    pub(super) fn global_fit(&mut self, size: u64) -> Option<u32> {
        let slot = self.first_fit(GLOBAL, size)?;
        self.split(slot, size);
        Some(slot)
    }

    /// A superblock with a block of `size` bytes goes from the global arena to an owner; the block.
    pub(super) fn acquire(&mut self, owner: u32, size: u64) -> Option<u32> {
        let slot = self.first_fit(GLOBAL, size)?;
        let superblock = self.split(slot, size);
        self.pass(superblock, owner);
        Some(slot)
    }

    /// A superblock and its free blocks go to another owner.
    fn pass(&mut self, superblock: u32, to: u32) {
        let Superblock { owner, first, .. } = self.list[superblock as usize];
        let is_free = |slot: &u32| self.pieces.get(*slot).state == State::Free;
        let free: Vec<u32> = self.pieces.from(first).filter(is_free).collect();
        for slot in free {
            self.remove(owner, slot);
            self.insert(to, slot);
        }
        self.list[superblock as usize].owner = to;
    }

    /// All superblocks go to the global arena; neighbours that are wholly free join.
    pub(super) fn collect(&mut self) {
        let mut at = LOWEST;
        while let Some(Superblock { owner, first, .. }) = self.list.get(at as usize).copied() {
            if owner != GLOBAL {
                self.pass(at, GLOBAL);
                at = self.join_neighbours(first);
            }
            at = self.list[at as usize].after;
        }
    }

    /// A block is free again, and joins its free neighbours in its superblock.
    #[inline]
    pub(super) fn give(&mut self, slot: u32) {
        let owner = self.owner(slot);
        self.pieces.give(slot);
        let (low, high) = (self.pieces.free_before(slot), self.pieces.free_after(slot));
        // where the tree has the piece that the block becomes part of
        let known = low.or(high).map(|slot| self.pieces.get(slot).address);
        if let Some(high) = high {
            if low.is_some() {
                self.remove(owner, high);
            }
            self.pieces.absorb_next(slot);
        }
        if let Some(low) = low {
            self.pieces.absorb_next(low);
        }
        let joined = low.unwrap_or(slot);
        match known {
            None => self.insert(owner, joined),
            Some(old) => self.update(owner, old, joined),
        }
    }

    /// A free piece that the tree has at address `old` changed its size, or its slot and beginning too.
    #[inline]
    fn update(&mut self, owner: u32, old: u64, slot: u32) {
        let OwnedPiece { address, size, .. } = *self.pieces.get(slot);
        self.trees[owner as usize].update(old, address, units(size), slot);
    }

    /// If the global superblock that begins with this piece is wholly free, it joins neighbours that are global and wholly free. The superblock
    /// that has the piece now.
    pub(super) fn join_neighbours(&mut self, first: u32) -> u32 {
        let number = self.pieces.get(first).owner;
        let Superblock { before, after, .. } = self.list[number as usize];
        if self.joins(number) && self.joins(after) {
            self.fuse(number, after);
        }
        if self.joins(number) && self.joins(before) {
            self.fuse(before, number);
            return before;
        }
        number
    }

    /// Is it a global superblock that is wholly free?
    fn joins(&self, number: u32) -> bool {
        let superblock = self.list.get(number as usize).filter(|s| s.owner == GLOBAL);
        superblock.is_some_and(|superblock| {
            let piece = self.pieces.get(superblock.first);
            piece.state == State::Free && piece.is_whole()
        })
    }

    fn fuse(&mut self, low: u32, high: u32) {
        let (first, gone) = (self.list[low as usize].first, self.list[high as usize]);
        self.remove(GLOBAL, gone.first);
        self.pieces.fuse(first, gone.first);
        self.list[low as usize].after = gone.after;
        if gone.after != END {
            self.list[gone.after as usize].before = low;
        }
        self.vacant.push(high);
        self.update(GLOBAL, self.pieces.get(first).address, first);
    }

    /// First piece of the superblock that a piece is in.
    pub(super) fn first_of(&self, slot: u32) -> u32 {
        self.list[self.pieces.get(slot).owner as usize].first
    }

    /// Superblocks of the global arena, and of all streams.
    pub(super) fn count(&self) -> (u64, u64) {
        let all = (self.list.len() - self.vacant.len()) as u64;
        let heads = self.pieces.heads();
        let global = heads.iter().filter(|head| self.owner(**head) == GLOBAL).count() as u64;
        (global, all - global)
    }

    /// Bytes of the largest free block.
    pub(super) fn largest(&self) -> u64 {
        let most = self.trees.iter().map(MaxTree::most).max().unwrap_or_default();
        u64::from(most) * ALIGNMENT
    }

    /// What is where: a segment for each superblock. `streams` names the streams of owners from 1 on.
    pub(super) fn walk(&self, streams: &[StreamId]) -> Vec<LayoutSegment> {
        self.pieces.walk(|number| match self.list[number as usize].owner {
            GLOBAL => ("global", StreamId(0)),
            owner => ("stream", streams[owner as usize - 1]),
        })
    }
}
