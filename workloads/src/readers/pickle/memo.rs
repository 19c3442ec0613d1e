//! The memo: what PUT and MEMOIZE stored, by number.

use rustc_hash::FxHashMap;

use super::value::Value;

/// An entry is kept in the dense part if it lies below this plus twice the number of entries. Real writers number
/// from 0 up without gaps.
const DENSE_FREE: usize = 4096;

/// Room is never made for more entries than this at once: sizes of files can be lies (sparse ones).
const GUESS_MAX: usize = 1 << 27;

#[derive(Debug, Default)]
pub(super) struct Memo {
    dense: Vec<Value>,
    /// Entries far from the others, so that one PUT of entry 4294967295 does not cost 32 GiB.
    sparse: FxHashMap<u32, Value>,
    count: u32,
}

impl Memo {
    /// The entry that MEMOIZE stores next.
    pub(super) fn next(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Value> {
        match self.dense.get(index as usize) {
            Some(value) if *value != Value::ABSENT => Some(*value),
            _ => self.sparse.get(&index).copied(),
        }
    }

    /// Stores, or says what is there already.
    #[inline]
    pub(super) fn put(&mut self, index: u32, value: Value) -> Result<(), Value> {
        if index as usize == self.dense.len() && self.sparse.is_empty() {
            self.dense.push(value);
            self.count = self.count.saturating_add(1);
            return Ok(());
        }
        self.put_out_of_order(index, value)
    }

    /// Stores as the last of a memo without gaps; `false` if that is not how this one is.
    #[inline]
    pub(super) fn put_last(&mut self, index: u32, value: Value) -> bool {
        let last = index as usize == self.dense.len() && index == self.count && index < u32::MAX;
        if last {
            self.dense.push(value);
            self.count += 1;
        }
        last
    }

    /// Takes back what [`Memo::put_last`] stored since there were `count` entries.
    pub(super) fn rewind(&mut self, count: u32) {
        if self.count > count {
            self.dense.truncate(count as usize);
            self.count = count;
        }
    }

    #[cold]
    fn put_out_of_order(&mut self, index: u32, value: Value) -> Result<(), Value> {
        if let Some(old) = self.get(index) {
            return if old == value { Ok(()) } else { Err(old) };
        }
        self.replace(index, value);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Says what an entry became (an empty list that was filled).
    pub(super) fn replace(&mut self, index: u32, value: Value) {
        let at = index as usize;
        if let Some(slot) = self.dense.get_mut(at) {
            *slot = value;
        } else if at < DENSE_FREE + 2 * self.count as usize {
            self.dense.resize(at, Value::ABSENT);
            self.dense.push(value);
        } else {
            self.sparse.insert(index, value);
        }
    }

    /// Makes room for what the rest of the data is likely to store.
    pub(super) fn expect(&mut self, done: u64, total: u64) {
        let stored = self.dense.len();
        if stored <= DENSE_FREE || done == 0 {
            return;
        }
        let all = stored as u128 * u128::from(total) / u128::from(done);
        let all = usize::try_from(all).unwrap_or(usize::MAX).min(GUESS_MAX);
        if all > self.dense.capacity() {
            // A guess: that the room cannot be had is no error.
            let _ = self.dense.try_reserve_exact((all + all / 32).saturating_sub(stored));
        }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.dense.len() * 8 + self.sparse.len() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memo_takes_far_entries_without_filling_the_gap() {
        let mut memo = Memo::default();
        assert_eq!(memo.put(u32::MAX, Value::NONE), Ok(()));
        assert_eq!(memo.put(3, Value::TRUE), Ok(()));
        assert_eq!(memo.get(u32::MAX), Some(Value::NONE));
        assert_eq!(memo.get(3), Some(Value::TRUE));
        assert_eq!(memo.get(2), None);
        assert_eq!(memo.next(), 2);
        assert!(memo.bytes() < 100);
    }

    #[test]
    fn memo_refuses_a_second_value() {
        let mut memo = Memo::default();
        assert_eq!(memo.put(0, Value::NONE), Ok(()));
        assert_eq!(memo.put(0, Value::NONE), Ok(()));
        assert_eq!(memo.put(0, Value::TRUE), Err(Value::NONE));
    }
}
