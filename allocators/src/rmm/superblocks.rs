//! The superblocks of `rmm.arena` and the free blocks in them, by the arena that owns them.
//!
//! ```text
//! superblocks   ├──── global ────┼─ stream 1 ─┼──── global ────┼─ stream 0 ─┤    tile the arena; neighbours are linked
//! pieces        [used|  free     ] [used|used ] [     free     ] [free|used ]    never join over the edge of a superblock
//! free pieces   one tree for each owner, by address, that knows the largest of each part
//! ```
//! RMM looks for the first superblock with a fitting free block, and in it for the first that fits: since superblocks do not overlap, that is the
//! lowest fitting free block of the owner.

use vramlab_sim::allocator::{Block, LayoutSegment};
use vramlab_sim::units::StreamId;

use super::ALIGNMENT;
use crate::parts::max_tree::MaxTree;
use crate::parts::owned_pieces::{OwnedPiece, OwnedPieces, State};

/// The owner of superblocks that belong to no stream.
pub(super) const GLOBAL: u32 = 0;
/// Least size of a superblock, and largest block of a stream's own superblocks (`superblock::minimum_size`).
pub(super) const SUPERBLOCK_MIN: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Superblock {
    owner: u32,
    /// Its first piece; the same for as long as it lives.
    first: u32,
    /// Neighbours by address.
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

/// What a tree has of a size: units of 256 B. All sizes from 1 TiB on are alike in it.
#[inline]
fn units(size: u64) -> u32 {
    (size / ALIGNMENT).min(UNITS_MAX.into()) as u32
}

const UNITS_MAX: u32 = u32::MAX;

impl Default for Superblocks {
    fn default() -> Self {
        let (list, vacant, trees) = (Vec::new(), Vec::new(), vec![MaxTree::new()]);
        Self { pieces: OwnedPieces::default(), list, vacant, trees }
    }
}

impl Superblocks {
    /// The memory of the arena, as one global superblock.
    pub(super) fn fill(&mut self, address: u64, size: u64) {
        let first = self.pieces.add(address, size, LOWEST);
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
    fn tree(&mut self, owner: u32) -> &mut MaxTree {
        &mut self.trees[owner as usize]
    }

    fn insert(&mut self, owner: u32, slot: u32) {
        let OwnedPiece { address, size, .. } = *self.pieces.get(slot);
        self.tree(owner).insert(address, units(size), slot);
    }

    /// A free piece that the tree has at address `known`, or does not have, changed its size, its slot or its beginning.
    #[inline]
    fn renew(&mut self, owner: u32, known: Option<u64>, slot: u32) {
        let OwnedPiece { address, size, .. } = *self.pieces.get(slot);
        match known {
            Some(known) => self.tree(owner).update(known, address, units(size), slot),
            None => self.insert(owner, slot),
        }
    }

    /// The lowest free block of an owner that has at least `size` bytes, and the way to it in the owner's tree.
    #[inline]
    fn seek(&mut self, owner: u32, size: u64) -> Option<u32> {
        let (tree, units) = (&mut self.trees[owner as usize], units(size));
        let mut slot = tree.seek(units)?;
        while units == UNITS_MAX && self.pieces.get(slot).size < size {
            slot = tree.first_from(self.pieces.get(slot).address + 1, units)?;
            tree.seek_at(self.pieces.get(slot).address);
        }
        Some(slot)
    }

    /// Cuts the free block that was sought last after `size` bytes; the rest stays in the tree.
    #[inline]
    fn cut_sought(&mut self, owner: u32, slot: u32, size: u64) {
        let whole = self.pieces.get(slot).size;
        if whole == size {
            return self.tree(owner).remove_sought();
        }
        let rest = self.pieces.split(slot, size);
        let begin = self.pieces.get(rest).address;
        self.tree(owner).update_sought(begin, units(whole - size), rest);
    }

    /// Takes a block of up to 1 MiB from an owner's own superblocks.
    #[inline]
    pub(super) fn take_own(&mut self, owner: u32, size: u64) -> Option<u32> {
        let slot = self.seek(owner, size)?;
        self.cut_sought(owner, slot, size);
        Some(slot)
    }

    /// Takes a block of more than 1 MiB from the global superblocks.
    #[inline]
    pub(super) fn take_global(&mut self, size: u64) -> Option<u32> {
        let slot = self.seek(GLOBAL, size)?;
        if self.splits(slot, size) {
            self.split_sought(slot, size);
        } else {
            self.cut_sought(GLOBAL, slot, size);
        }
        Some(slot)
    }

    /// Takes a block of up to 1 MiB from a superblock that goes from the global arena to an owner.
    pub(super) fn acquire(&mut self, owner: u32, size: u64) -> Option<u32> {
        let slot = self.seek(GLOBAL, size)?;
        let superblock = self.pieces.get(slot).owner;
        if self.splits(slot, SUPERBLOCK_MIN) {
            self.split_sought(slot, SUPERBLOCK_MIN);
            self.list[superblock as usize].owner = owner;
            self.insert(owner, slot);
        } else {
            self.pass(superblock, owner);
        }
        let address = self.pieces.get(slot).address;
        self.tree(owner).seek_at(address);
        self.cut_sought(owner, slot, size);
        Some(slot)
    }

    /// Is the superblock of a free block wholly free, and so large that another one is left above `head` bytes?
    #[inline]
    fn splits(&self, slot: u32, head: u64) -> bool {
        let piece = self.pieces.get(slot);
        piece.is_whole() && piece.size >= head.saturating_add(SUPERBLOCK_MIN)
    }

    /// Makes the first `head` bytes of the wholly free global superblock that was sought last a superblock, whose block is in no tree.
    fn split_sought(&mut self, slot: u32, head: u64) {
        let low = self.pieces.get(slot).owner;
        let rest = self.pieces.split(slot, head);
        self.pieces.part(slot, rest);
        let after = self.list[low as usize].after;
        let high = self.number(Superblock { owner: GLOBAL, first: rest, before: low, after });
        self.list[low as usize].after = high;
        if after != END {
            self.list[after as usize].before = high;
        }
        self.pieces.get_mut(rest).owner = high;
        let OwnedPiece { address, size, .. } = *self.pieces.get(rest);
        self.tree(GLOBAL).update_sought(address, units(size), rest);
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

    /// A free block that was taken is in use; its token.
    #[inline]
    pub(super) fn hand_out(&mut self, slot: u32, requested: u64, stream: StreamId) -> Block {
        self.pieces.take(slot, requested, stream)
    }

    /// A superblock and its free blocks go to another owner.
    fn pass(&mut self, superblock: u32, to: u32) {
        let Superblock { owner, first, .. } = self.list[superblock as usize];
        let is_free = |slot: &u32| self.pieces.get(*slot).state == State::Free;
        let free: Vec<u32> = self.pieces.from(first).filter(is_free).collect();
        for slot in free {
            let address = self.pieces.get(slot).address;
            self.tree(owner).remove(address);
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
                let known = self.pieces.get(first).address;
                let (joined, known) = self.join_neighbours(first, Some(known));
                at = self.pieces.get(joined).owner;
                if let Some(known) = known.filter(|_| self.is_idle(at)) {
                    self.renew(GLOBAL, Some(known), joined);
                }
            }
            at = self.list[at as usize].after;
        }
    }

    /// A block is free again, and joins its free neighbours in its superblock. If that is global and wholly free now, it joins those of its kind.
    #[inline]
    pub(super) fn give(&mut self, slot: u32) {
        let owner = self.owner(slot);
        self.pieces.give(slot);
        let (low, high) = (self.pieces.free_before(slot), self.pieces.free_after(slot));
        let mut known = low.or(high).map(|slot| self.pieces.get(slot).address);
        if let Some(high) = high {
            if low.is_some() {
                let address = self.pieces.get(high).address;
                self.tree(owner).remove(address);
            }
            self.pieces.absorb_next(slot);
        }
        if let Some(low) = low {
            self.pieces.absorb_next(low);
        }
        let mut joined = low.unwrap_or(slot);
        if owner == GLOBAL {
            (joined, known) = self.join_neighbours(joined, known);
        }
        self.renew(owner, known, joined);
    }

    /// If a free piece of the global arena is a whole superblock, it joins neighbours that are so too. `known` is where the tree has it, if it does;
    /// the joined piece, and where the tree has that.
    fn join_neighbours(&mut self, piece: u32, mut known: Option<u64>) -> (u32, Option<u64>) {
        let number = self.pieces.get(piece).owner;
        if !self.is_idle(number) {
            return (piece, known);
        }
        let Superblock { before, after, .. } = self.list[number as usize];
        if self.is_idle(after) {
            let high = self.address(after);
            match known {
                Some(_) => self.tree(GLOBAL).remove(high),
                None => known = Some(high),
            }
            self.fuse(number, after);
        }
        if !self.is_idle(before) {
            return (piece, known);
        }
        if let Some(known) = known {
            self.tree(GLOBAL).remove(known);
        }
        self.fuse(before, number);
        (self.list[before as usize].first, Some(self.address(before)))
    }

    fn address(&self, number: u32) -> u64 {
        self.pieces.get(self.list[number as usize].first).address
    }

    /// Is it a global superblock that is wholly free?
    fn is_idle(&self, number: u32) -> bool {
        let superblock = self.list.get(number as usize).filter(|s| s.owner == GLOBAL);
        superblock.is_some_and(|superblock| {
            let piece = self.pieces.get(superblock.first);
            piece.state == State::Free && piece.is_whole()
        })
    }

    /// Makes one superblock of two that are wholly free.
    fn fuse(&mut self, low: u32, high: u32) {
        let Superblock { first, after, .. } = self.list[high as usize];
        self.pieces.fuse(self.list[low as usize].first, first);
        self.list[low as usize].after = after;
        if after != END {
            self.list[after as usize].before = low;
        }
        self.vacant.push(high);
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
        match self.trees.iter().map(MaxTree::most).max().unwrap_or_default() {
            UNITS_MAX => {
                let sizes = self.pieces.free().map(|slot| self.pieces.get(slot).size);
                sizes.max().unwrap_or_default()
            }
            most => u64::from(most) * ALIGNMENT,
        }
    }

    /// What is where: a segment for each superblock. `streams` names the streams of owners from 1 on.
    pub(super) fn walk(&self, streams: &[StreamId]) -> Vec<LayoutSegment> {
        self.pieces.walk(|number| match self.list[number as usize].owner {
            GLOBAL => ("global", StreamId(0)),
            owner => ("stream", streams[owner as usize - 1]),
        })
    }
}
