//! Free pieces with the largest on top, the lowest of equal ones: a heap of four children a node, keys beside the slots.
//!
//! ```text
//! entry 0                 the largest
//!       1  2  3  4        each no larger than the entry above it
//!       5 6 7 8 …
//! ```
//! A piece that shrinks a little sinks a little, and a small one that comes in hardly rises, so an op touches few entries.
//! Source: D. Johnson, "Priority queues with update and finding minimum spanning trees", Information Processing Letters 4(3), 1975 (d-heaps).

use super::pieces::Pieces;

const CHILDREN: usize = 4;
/// Bits of an address that the key leaves out: its other 32 bits reach to 2^48.
const ADDRESS_SHIFT: u32 = 16;

/// A piece in the heap.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Units, then the complement of the address without its low bits: of equal pieces the lowest is greatest.
    key: u64,
    slot: u32,
}

/// The heap.
#[derive(Debug, Default)]
pub(crate) struct MaxHeap {
    entries: Vec<Entry>,
    /// By slot: the place of its entry. Packed, since an op that moves entries writes one for each.
    places: Vec<u32>,
}

/// Is `a` larger, or as large and lower? Pieces of one size in the same 64 KiB, for which it reads the pieces, are few.
#[inline]
fn exceeds(pieces: &Pieces, a: Entry, b: Entry) -> bool {
    if a.key == b.key {
        return pieces.get(a.slot).address() < pieces.get(b.slot).address();
    }
    a.key > b.key
}

impl MaxHeap {
    #[inline]
    fn entry(pieces: &Pieces, slot: u32) -> Entry {
        let piece = pieces.get(slot);
        let low = !((piece.address() >> ADDRESS_SHIFT) as u32);
        Entry { key: u64::from(piece.units) << 32 | u64::from(low), slot }
    }

    #[inline]
    fn put(&mut self, at: usize, entry: Entry) {
        self.entries[at] = entry;
        self.places[entry.slot as usize] = at as u32;
    }

    /// Puts an entry at `at`, or above.
    #[inline]
    fn rise(&mut self, pieces: &Pieces, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if !exceeds(pieces, entry, self.entries[parent]) {
                break;
            }
            self.put(at, self.entries[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    /// The larger of two places; of one and none, the one.
    #[inline]
    fn larger(&self, pieces: &Pieces, a: usize, b: usize) -> usize {
        if exceeds(pieces, self.entries[b], self.entries[a]) { b } else { a }
    }

    /// Puts an entry at `at`, or below.
    #[inline]
    fn sink(&mut self, pieces: &Pieces, mut at: usize, entry: Entry) {
        loop {
            let first = at * CHILDREN + 1;
            let largest = if first + CHILDREN <= self.entries.len() {
                let (a, b) = (
                    self.larger(pieces, first, first + 1),
                    self.larger(pieces, first + 2, first + 3),
                );
                self.larger(pieces, a, b)
            } else if first < self.entries.len() {
                let others = first + 1..self.entries.len();
                others.fold(first, |a, b| self.larger(pieces, a, b))
            } else {
                break;
            };
            if !exceeds(pieces, self.entries[largest], entry) {
                break;
            }
            self.put(at, self.entries[largest]);
            at = largest;
        }
        self.put(at, entry);
    }

    /// Takes a piece in.
    pub(crate) fn insert(&mut self, pieces: &Pieces, slot: u32) {
        let entry = Self::entry(pieces, slot);
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, 0);
        }
        self.entries.push(entry);
        self.rise(pieces, self.entries.len() - 1, entry);
    }

    /// Takes a piece out.
    pub(crate) fn remove(&mut self, pieces: &Pieces, slot: u32) {
        let at = self.places[slot as usize] as usize;
        let Some(last) = self.entries.pop() else { return };
        if last.slot != slot {
            self.replace(pieces, at, last);
        }
    }

    /// A piece changed its size or its beginning.
    pub(crate) fn resized(&mut self, pieces: &Pieces, slot: u32) {
        let (at, entry) = (self.places[slot as usize] as usize, Self::entry(pieces, slot));
        self.replace(pieces, at, entry);
    }

    fn replace(&mut self, pieces: &Pieces, at: usize, entry: Entry) {
        if at > 0 && exceeds(pieces, entry, self.entries[(at - 1) / CHILDREN]) {
            self.rise(pieces, at, entry);
        } else {
            self.sink(pieces, at, entry);
        }
    }

    /// The largest piece and its units.
    #[inline]
    pub(crate) fn largest(&self) -> Option<(u32, u32)> {
        self.entries.first().map(|entry| (entry.slot, (entry.key >> 32) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::pieces::Segment;
    use std::collections::BTreeSet;
    use vramlab_sim::testing::Dice;

    #[test]
    fn heap_agrees_with_an_ordered_set() {
        let (mut pieces, mut heap) = (Pieces::new(512), MaxHeap::default());
        let (mut model, mut live) = (BTreeSet::new(), Vec::new());
        let mut dice = Dice::of_step_1(7);
        for step in 0..20_000_u64 {
            if live.is_empty() || dice.below(5) < 3 {
                let (address, units) = ((step + 1) << 22, 1 + dice.below(40));
                let slot = pieces.add(Segment { address, size: units * 512 });
                heap.insert(&pieces, slot);
                model.insert((units as u32, !address, slot));
                live.push((units as u32, !address, slot));
            } else {
                let key = live.swap_remove(dice.below(live.len() as u64) as usize);
                heap.remove(&pieces, key.2);
                pieces.remove(key.2);
                model.remove(&key);
            }
            let want = model.last().map(|(units, _, slot)| (*slot, *units));
            assert_eq!(heap.largest(), want);
            if let Some(key) = live.pop() {
                // the one that came last is cut, or grows
                let units = 1 + dice.below(60) as u32;
                model.remove(&key);
                model.insert((units, key.1, key.2));
                live.push((units, key.1, key.2));
                pieces.get_mut(key.2).units = units;
                heap.resized(&pieces, key.2);
            }
        }
    }
}
