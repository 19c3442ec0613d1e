//! Which other streams a block in use was recorded on, in 32 bits beside the block.
//!
//! ```text
//!  0 │ a bit for each of streams 0 to 30          the usual case: no memory of its own
//!  1 │ number of an entry in a table              other streams, or streams recorded during a capture
//! ```

use vramlab_sim::units::StreamId;

/// Streams that have a bit.
const FEW: u32 = 31;
const ENTRY: u32 = 1 << FEW;

/// An entry of the table. Both ascend.
#[derive(Clone, Debug, Default)]
struct Entry {
    streams: Vec<StreamId>,
    /// Those of them that were recorded during a capture.
    captured: Vec<StreamId>,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
}

fn insert(list: &mut Vec<StreamId>, stream: StreamId) {
    if let Err(at) = list.binary_search(&stream) {
        list.insert(at, stream);
    }
}

impl Recorded {
    /// `mark` (0: no stream so far) with one stream more.
    #[inline]
    pub(super) fn add(&mut self, mark: u32, stream: StreamId, captured: bool) -> u32 {
        if mark & ENTRY == 0 && stream.0 < FEW && !captured {
            return mark | (1 << stream.0);
        }
        let number = self.entry(mark);
        let entry = &mut self.entries[number as usize];
        insert(&mut entry.streams, stream);
        if captured {
            insert(&mut entry.captured, stream);
        }
        ENTRY | number
    }

    /// The number of the mark's entry, made from its bits if it has none.
    #[cold]
    fn entry(&mut self, mark: u32) -> u32 {
        if mark & ENTRY != 0 {
            return mark & !ENTRY;
        }
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        let bits = (0..FEW).filter(|bit| mark >> bit & 1 == 1).map(StreamId);
        self.entries[number as usize].streams.extend(bits);
        number
    }

    /// The mark without what was recorded during a capture.
    pub(super) fn forget_captured(&mut self, mark: u32) -> u32 {
        if mark & ENTRY != 0 {
            let entry = &mut self.entries[(mark & !ENTRY) as usize];
            let captured = std::mem::take(&mut entry.captured);
            entry.streams.retain(|stream| captured.binary_search(stream).is_err());
        }
        mark
    }

    /// Takes the lowest stream out of the mark. At the end the mark's entry, if it has one, is free for others.
    #[inline]
    pub(super) fn pop(&mut self, mark: &mut u32) -> Option<StreamId> {
        if *mark & ENTRY != 0 {
            return self.pop_entry(mark);
        }
        let lowest = mark.trailing_zeros();
        *mark &= mark.wrapping_sub(1);
        (lowest < FEW).then_some(StreamId(lowest))
    }

    #[cold]
    fn pop_entry(&mut self, mark: &mut u32) -> Option<StreamId> {
        let number = *mark & !ENTRY;
        let entry = &mut self.entries[number as usize];
        if entry.streams.is_empty() {
            entry.captured.clear();
            self.vacant.push(number);
            *mark = 0;
            return None;
        }
        Some(entry.streams.remove(0))
    }

    /// Forgets a mark.
    pub(super) fn drop(&mut self, mut mark: u32) {
        while self.pop(&mut mark).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(recorded: &mut Recorded, mut mark: u32) -> Vec<u32> {
        std::iter::from_fn(|| recorded.pop(&mut mark)).map(|stream| stream.0).collect()
    }

    #[test]
    fn streams_come_out_ascending_and_once() {
        let mut recorded = Recorded::default();
        for streams in [&[3, 1, 3, 30][..], &[31, 2, 500, 2], &[0]] {
            let mark = streams.iter().fold(0, |mark, s| recorded.add(mark, StreamId(*s), false));
            let mut want = streams.to_vec();
            want.sort_unstable();
            want.dedup();
            assert_eq!(all(&mut recorded, mark), want);
        }
        assert_eq!(recorded.vacant.len(), recorded.entries.len(), "entries are used again");
    }

    #[test]
    fn what_a_capture_recorded_is_forgotten() {
        let mut recorded = Recorded::default();
        let before = recorded.add(0, StreamId(1), false);
        let during = recorded.add(before, StreamId(2), true);
        let after = recorded.forget_captured(during);
        assert_eq!(all(&mut recorded, after), [1]);
        let only = recorded.add(0, StreamId(2), true);
        let none = recorded.forget_captured(only);
        assert!(all(&mut recorded, none).is_empty());
        assert_eq!(recorded.vacant.len(), 1);
    }
}
