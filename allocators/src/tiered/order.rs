//! Who leaves first.

use std::collections::BTreeSet;

/// Classes, the first leaves first.
pub(super) mod class {
    /// Nobody knows of a use to come.
    pub(in super::super) const UNFORESEEN: u8 = 0;
    /// A use to come is known, or thought to be.
    pub(in super::super) const FORESEEN: u8 = 1;
    /// Too small to be worth a copy.
    pub(in super::super) const SMALL: u8 = 2;
}

/// A place in the order: class, rank within it.
pub(super) type Key = (u8, u64);

/// Slots in order of their keys.
#[derive(Debug, Default)]
pub(super) struct Order {
    set: BTreeSet<(u8, u64, u32)>,
    keys: Vec<Option<Key>>,
}

impl Order {
    /// Gives the slot this key, whether it had one or not.
    pub(super) fn put(&mut self, slot: u32, key: Key) {
        if self.keys.len() <= slot as usize {
            self.keys.resize(slot as usize + 1, None);
        }
        if self.keys[slot as usize] != Some(key) {
            self.remove(slot);
            self.keys[slot as usize] = Some(key);
            self.set.insert((key.0, key.1, slot));
        }
    }

    /// Takes the slot out, if it is in.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some((class, rank)) = self.keys.get_mut(slot as usize).and_then(Option::take) {
            self.set.remove(&(class, rank, slot));
        }
    }

    /// All slots in order, with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, u32)> + '_ {
        self.set.iter().map(|(class, rank, slot)| ((*class, *rank), *slot))
    }
}
