//! Which blocks hold which prefix. Blocks of the same content stay apart; the one that was registered first is found.

use rustc_hash::FxHashMap;

/// Neighbours in the ring of blocks with the same content.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Number of the prefix that ends with this block; 0 if it is not registered.
    hash: u64,
    next: u32,
    previous: u32,
    /// It is the one that is found.
    first: bool,
}

/// Blocks by the prefix that ends with them.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The block of each prefix that was registered first.
    first: FxHashMap<u64, u32>,
    entries: Vec<Entry>,
}

impl Index {
    /// For blocks below `blocks`.
    pub(super) fn new(blocks: u32) -> Self {
        Self { first: FxHashMap::default(), entries: vec![Entry::default(); blocks as usize] }
    }

    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        self.first.get(&hash).copied()
    }

    /// Is this the block that is found by this number?
    pub(super) fn finds(&self, block: u32, hash: u64) -> bool {
        let entry = &self.entries[block as usize];
        entry.first && entry.hash == hash
    }

    pub(super) fn is_registered(&self, block: u32) -> bool {
        self.entries[block as usize].hash != 0
    }

    /// Registers a block that is not registered, behind others of the same content.
    pub(super) fn register(&mut self, block: u32, hash: u64) {
        let first = *self.first.entry(hash).or_insert(block);
        let (next, previous) = if first == block {
            (block, block)
        } else {
            (first, std::mem::replace(&mut self.entries[first as usize].previous, block))
        };
        self.entries[block as usize] = Entry { hash, next, previous, first: first == block };
        self.entries[previous as usize].next = block;
    }

    /// Forgets a block; says whether it was registered.
    pub(super) fn forget(&mut self, block: u32) -> bool {
        let Entry { hash, next, previous, first } =
            std::mem::take(&mut self.entries[block as usize]);
        if hash == 0 {
            return false;
        }
        if next == block {
            self.first.remove(&hash);
            return true;
        }
        self.entries[previous as usize].next = next;
        self.entries[next as usize].previous = previous;
        if first {
            self.entries[next as usize].first = true;
            self.first.insert(hash, next);
        }
        true
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.entries.fill(Entry::default());
    }

    /// How many prefixes are known.
    pub(super) fn len(&self) -> u64 {
        self.first.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_that_was_registered_first_is_found_and_the_next_after_it() {
        let mut index = Index::new(10);
        [3, 1, 7].into_iter().for_each(|block| index.register(block, 99));
        index.register(5, 98);
        assert_eq!((index.find(99), index.len()), (Some(3), 2));
        assert!(index.forget(1) && !index.forget(1));
        index.register(1, 99);
        assert!(index.forget(3));
        assert_eq!(index.find(99), Some(7));
        assert!(index.finds(7, 99) && !index.finds(7, 98) && !index.finds(1, 99));
        assert!(index.forget(7));
        assert_eq!((index.find(99), index.is_registered(7)), (Some(1), false));
        assert!(index.forget(1));
        assert_eq!((index.find(99), index.find(98), index.len()), (None, Some(5), 1));
    }
}
