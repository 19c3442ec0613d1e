//! Streams by number, in the order in which a strategy first heard of them.

use rustc_hash::FxHashMap;
use vramlab_sim::units::StreamId;

/// The numbers.
#[derive(Debug, Default)]
pub(crate) struct StreamNumbers {
    /// Looked up, never walked.
    numbers: FxHashMap<StreamId, u32>,
    /// The stream that was asked for last, and its number: mostly it is the next one too.
    last: Option<(StreamId, u32)>,
}

impl StreamNumbers {
    /// The number of a stream, if it has one.
    #[inline]
    pub(crate) fn get(&mut self, stream: StreamId) -> Option<u32> {
        match self.last {
            Some((last, number)) if last == stream => Some(number),
            _ => {
                let number = *self.numbers.get(&stream)?;
                self.last = Some((stream, number));
                Some(number)
            }
        }
    }

    /// Gives a stream that has none the next number.
    pub(crate) fn add(&mut self, stream: StreamId) -> u32 {
        let number = self.numbers.len() as u32;
        self.numbers.insert(stream, number);
        number
    }
}
