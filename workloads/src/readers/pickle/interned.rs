//! Equal slices kept once and named by a small number: the strings, tuples and stacks of a file.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Most slots are found at the first or second try while at most this share (of 8) is in use.
const LOAD_MAX_EIGHTHS: usize = 6;
const SLOTS_MIN: usize = 64;

/// Hash of a sequence of words: a folded multiply per word, started from a secret seed, so that a file cannot be
/// built to make all its strings collide. The seed never reaches a result: ids are given in order of arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(u64);

impl Default for Seed {
    fn default() -> Seed {
        Seed(RandomState::new().build_hasher().finish() | 1)
    }
}

impl Seed {
    fn fold(a: u64, b: u64) -> u64 {
        let wide = u128::from(a) * u128::from(b);
        (wide as u64) ^ ((wide >> 64) as u64)
    }

    pub(crate) fn words(self, words: impl Iterator<Item = u64>) -> u64 {
        let mut hash = self.0;
        for word in words {
            hash = Seed::fold(hash ^ word, 0x9e37_79b9_7f4a_7c15 ^ self.0);
        }
        hash ^ (hash >> 32)
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> u64 {
        let (chunks, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let head = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk));
        self.words(head.chain([u64::from_le_bytes(last), bytes.len() as u64]))
    }
}

/// A set of slices, each with an id from 0 up in order of first arrival.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    items: Vec<T>,
    /// Slice `i` is `items[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
    hashes: Vec<u32>,
    /// Open addressing; 0 is empty, else id + 1. Length is a power of two.
    slots: Vec<u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Interned {
            items: Vec::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            slots: vec![0; SLOTS_MIN],
        }
    }
}

impl<T: Copy + Eq> Interned<T> {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The slice with this id, if there is one.
    pub(crate) fn get(&self, id: u32) -> Option<&[T]> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        Some(&self.items[start..end])
    }

    /// The id of `slice`, and whether it is new; `None` once 2^32 - 1 items are kept.
    pub(crate) fn intern(&mut self, slice: &[T], hash: u64) -> Option<(u32, bool)> {
        let hash = hash as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            if self.hashes[slot as usize - 1] == hash && self.get(slot - 1) == Some(slice) {
                return Some((slot - 1, false));
            }
            at = (at + 1) & mask;
        }
        let id = u32::try_from(self.ends.len()).ok().filter(|id| *id < u32::MAX)?;
        let end = u32::try_from(self.items.len() + slice.len()).ok()?;
        self.items.extend_from_slice(slice);
        self.ends.push(end);
        self.hashes.push(hash);
        self.slots[at] = id + 1;
        if self.ends.len() * 8 > self.slots.len() * LOAD_MAX_EIGHTHS {
            self.grow();
        }
        Some((id, true))
    }

    fn grow(&mut self) {
        let length = self.slots.len() * 2;
        let mask = length - 1;
        let mut slots = vec![0; length];
        for (id, hash) in self.hashes.iter().enumerate() {
            let mut at = *hash as usize & mask;
            while slots[at] != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = id as u32 + 1;
        }
        self.slots = slots;
    }
}

/// Names a string of [`Strings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(pub u32);

/// Every distinct string of a file, once.
#[derive(Debug, Default)]
pub struct Strings {
    seed: Seed,
    table: Interned<u8>,
}

impl Strings {
    /// The id of `text`; `None` once the strings take 4 GiB.
    pub fn intern(&mut self, text: &str) -> Option<StrId> {
        self.intern_bytes(text.as_bytes())
    }

    /// As [`Strings::intern`]; whatever is not UTF-8 (a lone surrogate in a file name) becomes U+FFFD.
    pub(crate) fn intern_lossy(&mut self, bytes: &[u8]) -> Option<StrId> {
        match std::str::from_utf8(bytes) {
            Ok(_) => self.intern_bytes(bytes),
            Err(_) => self.intern_bytes(String::from_utf8_lossy(bytes).as_bytes()),
        }
    }

    fn intern_bytes(&mut self, bytes: &[u8]) -> Option<StrId> {
        let hash = self.seed.bytes(bytes);
        self.table.intern(bytes, hash).map(|(id, _)| StrId(id))
    }

    /// The text of an id; empty for an id of another table.
    pub fn get(&self, id: StrId) -> &str {
        self.table.get(id.0).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("")
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of text kept.
    pub fn text_bytes(&self) -> usize {
        self.table.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_equal_text_once_and_ids_in_order() {
        let mut strings = Strings::default();
        for round in 0..2 {
            for number in 0..1000_u32 {
                let id = strings.intern(&format!("name {number}"));
                assert_eq!(id, Some(StrId(number)), "in round {round}");
            }
        }
        assert_eq!(strings.get(StrId(999)), "name 999");
        assert_eq!(strings.intern(""), Some(StrId(1000)));
        assert_eq!(strings.len(), 1001);
    }

    #[test]
    fn strings_replace_what_is_not_utf8() {
        let mut strings = Strings::default();
        let id = strings.intern_lossy(b"a\xffb").expect("room");
        assert_eq!(strings.get(id), "a\u{fffd}b");
    }
}
