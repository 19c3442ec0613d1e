//! Several free lists over one set of pieces: best fit in each, and pieces of different lists never join.
//!
//! ```text
//! chunk   ┌──────────┬─────────┬───────┬──────────┐
//!         │ free, A  │ free, B │ used  │ free, A  │      A and B touch, but belong to different streams
//!         └──────────┴─────────┴───────┴──────────┘
//! ```
//! A list is in order of (size, address), exactly. A freed piece joins its free neighbours of the same list at once. Two lists become one by
//! moving the pieces of the shorter one, so a piece is moved a logarithm of times at most.

use vramlab_sim::allocator::Block;
use vramlab_sim::units::StreamId;

use super::free_set::{FreeSet, Links, NONE, Nodes, SIZE_MAX};
use super::owned_pieces::{OwnedPiece, OwnedPieces};

/// Sizes are classed by steps of 256 B; within a class, order is by the exact size.
const STEP_SHIFT: u32 = 8;

/// The class of a size: 0 only for the size 0, that of the slot that is none. All sizes from 1 TiB on share the last.
#[inline]
fn class(size: u64) -> u32 {
    let steps = (size >> STEP_SHIFT).min(u64::from(SIZE_MAX - 1)) as u32;
    steps + u32::from(size > 0)
}

/// The pieces, as a free set sees them.
struct View<'a>(&'a mut [OwnedPiece]);

impl Nodes for View<'_> {
    type Brief<'b>
        = View<'b>
    where
        Self: 'b;
    #[inline(always)]
    fn brief(&mut self) -> View<'_> {
        View(self.0)
    }
    #[inline(always)]
    fn size(&self, node: u32) -> u32 {
        class(self.0[node as usize].size)
    }
    #[inline(always)]
    fn before(&self, a: u32, b: u32) -> bool {
        let (a, b) = (&self.0[a as usize], &self.0[b as usize]);
        (a.size, a.address) < (b.size, b.address)
    }
    #[inline(always)]
    fn links(&self, node: u32) -> Links {
        self.0[node as usize].links
    }
    #[inline(always)]
    fn links_mut(&mut self, node: u32) -> &mut Links {
        &mut self.0[node as usize].links
    }
}

#[derive(Debug, Default)]
struct List {
    set: FreeSet,
    count: usize,
}

/// The lists, by number, and the pieces. The owner of a piece is its list.
#[derive(Debug, Default)]
pub(crate) struct FreeLists {
    pub(crate) pieces: OwnedPieces,
    lists: Vec<List>,
    closed: Vec<u32>,
}

impl FreeLists {
    fn view(&mut self, list: u32) -> (&mut List, View<'_>) {
        (&mut self.lists[list as usize], View(&mut self.pieces.list))
    }

    /// A new empty list.
    pub(crate) fn open(&mut self) -> u32 {
        self.closed.pop().unwrap_or_else(|| {
            self.lists.push(List::default());
            (self.lists.len() - 1) as u32
        })
    }

    /// A new chunk, as one free piece of the list.
    pub(crate) fn add(&mut self, list: u32, address: u64, size: u64) -> u32 {
        let slot = self.pieces.add(address, size, list);
        self.put(list, slot);
        slot
    }

    #[inline]
    fn put(&mut self, list: u32, slot: u32) {
        self.pieces.get_mut(slot).owner = list;
        let (list, mut view) = self.view(list);
        list.set.insert(&mut view, slot);
        list.count += 1;
    }

    /// Takes a free piece out of its list.
    #[inline]
    pub(crate) fn pull(&mut self, slot: u32) {
        let (list, mut view) = self.view(self.pieces.get(slot).owner);
        list.set.remove(&mut view, slot);
        list.count -= 1;
    }

    /// The smallest free piece of at least `size` bytes (1 or more), the lowest of equal ones.
    #[inline]
    pub(crate) fn find(&mut self, list: u32, size: u64) -> Option<u32> {
        let (list, view) = self.view(list);
        let found = list.set.find(&view, class(size));
        if found == NONE || view.0[found as usize].size >= size {
            return (found != NONE).then_some(found);
        }
        // only in the size's own class can a piece be too small
        let mut rest = list.set.from(&view, class(size));
        rest.find(|slot| view.0[*slot as usize].size >= size)
    }

    /// Makes a block of `size` bytes from the low end of a free piece. The rest stays in the list of the piece.
    #[inline]
    pub(crate) fn cut(&mut self, slot: u32, size: u64, requested: u64, stream: StreamId) -> Block {
        self.pull(slot);
        let OwnedPiece { size: whole, owner, .. } = *self.pieces.get(slot);
        if whole > size {
            let rest = self.pieces.split(slot, size);
            self.put(owner, rest);
        }
        self.pieces.take(slot, requested, stream)
    }

    /// A block comes back to a list; the slot of the piece that it is part of now.
    #[inline]
    pub(crate) fn give(&mut self, list: u32, slot: u32) -> u32 {
        self.pieces.give(slot);
        self.join(list, slot)
    }

    /// Puts a free piece, which is in no list, into one, joined with its neighbours there.
    #[inline]
    fn join(&mut self, list: u32, mut slot: u32) -> u32 {
        if let Some(high) = self.pieces.free_after(slot)
            && self.pieces.get(high).owner == list
        {
            self.pull(high);
            self.pieces.absorb_next(slot);
        }
        if let Some(low) = self.pieces.free_before(slot)
            && self.pieces.get(low).owner == list
        {
            self.pull(low);
            self.pieces.absorb_next(low);
            slot = low;
        }
        self.put(list, slot);
        slot
    }

    /// Makes one list of two; its number, which is that of the longer one. The other number means nothing any more.
    pub(crate) fn merge(&mut self, a: u32, b: u32) -> u32 {
        let shorter = self.count(a) < self.count(b);
        let (into, from) = if shorter { (b, a) } else { (a, b) };
        for slot in self.in_order(from) {
            self.pull(slot);
            self.join(into, slot);
        }
        self.closed.push(from);
        into
    }

    /// Free pieces of a list.
    pub(crate) fn count(&self, list: u32) -> usize {
        self.lists[list as usize].count
    }

    /// The free pieces of a list, by size, then by address.
    pub(crate) fn in_order(&mut self, list: u32) -> Vec<u32> {
        let (list, view) = self.view(list);
        list.set.from(&view, 1).collect()
    }

    /// Bytes of the largest free piece of a list.
    pub(crate) fn largest(&mut self, list: u32) -> u64 {
        let (list, view) = self.view(list);
        let class = list.set.largest(&view);
        if class == 0 {
            return 0;
        }
        list.set.from(&view, class).map(|slot| view.0[slot as usize].size).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    /// Beyond the classes of the free set sizes are told apart one by one.
    #[test]
    fn pieces_of_terabytes_are_found_by_their_exact_size() {
        let mut lists = FreeLists::default();
        let list = lists.open();
        let [c, a, b] = [5, 2, 3].map(|tib| lists.add(list, tib << 50, tib * TIB));
        let found = [1, 2 * TIB, 2 * TIB + 1, 4 * TIB, 5 * TIB + 1].map(|s| lists.find(list, s));
        assert_eq!(found, [Some(a), Some(a), Some(b), Some(c), None]);
        assert_eq!(lists.largest(list), 5 * TIB);
    }

    #[test]
    fn a_merge_joins_what_touches_and_keeps_the_longer_list() {
        let mut lists = FreeLists::default();
        let [a, b] = [lists.open(), lists.open()];
        let whole = lists.add(a, 1 << 20, 4096);
        let slots = [0; 4].map(|_| {
            let slot = lists.find(a, 1024).expect("a free piece");
            lists.cut(slot, 1024, 1000, StreamId(0));
            slot
        });
        for (slot, list) in [(slots[0], b), (slots[2], b), (slots[1], a)] {
            lists.give(list, slot);
        }
        assert_eq!((lists.count(a), lists.count(b)), (1, 2), "neighbours of different lists");
        assert_eq!(lists.merge(a, b), b);
        assert_eq!((lists.count(b), lists.largest(b)), (1, 3072));
        assert_eq!(
            (lists.find(b, 3072), lists.open()),
            (Some(whole), a),
            "its number is used again"
        );
    }
}
