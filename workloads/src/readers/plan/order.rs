//! The requests and frees of buffers in the order of their times (rules `half_open` and `order`).
//!
//! What is sorted are single words, since there may be millions of them, in any order in the file:
//!
//! ```text
//! time │ in the second half of the time: 1 │ buffer │ free: 1
//! ```
//!
//! In the first half of a time are its frees; in the second its requests, each with its free behind it if it lives no longer.

use super::{BUFFERS_MAX, PlanBuffer};
use crate::readers::events::{Builder, Events};

/// Bits of a word that number the buffer.
const BUFFER_BITS: u32 = usize::BITS - BUFFERS_MAX.leading_zeros();
/// The bit that is set in frees.
const FREE: u64 = 1;
/// The bit of the second half of a time.
const SECOND_HALF: u64 = 2 << BUFFER_BITS;
/// The time is in the bits from here on.
const TIME_SHIFT: u32 = BUFFER_BITS + 2;

/// Requests and frees in order of time. A buffer without a life's length is one of a moment: it is freed right after its request.
pub(super) fn events(buffers: &[PlanBuffer]) -> Events {
    let clock = Clock::of(buffers);
    let mut order = Vec::with_capacity(2 * buffers.len());
    for (buffer, at) in buffers.iter().zip(0..) {
        let begin = clock.read(buffer.lower) << TIME_SHIFT | SECOND_HALF | at << 1;
        let end = match buffer.lower == buffer.upper {
            true => begin,
            false => clock.read(buffer.upper) << TIME_SHIFT | at << 1,
        };
        order.extend([begin, end | FREE]);
    }
    order.sort_unstable();
    let place = |word: u64| ((word % SECOND_HALF) >> 1) as usize;
    // The buffers are far apart in memory: in a loop of their own many are fetched at a time.
    let mut builder = Builder::untimed(buffers.len());
    for word in order.iter().filter(|word| **word & FREE == 0) {
        let PlanBuffer { id, size, .. } = buffers[place(*word)];
        builder.ask(id, size);
    }
    let mut slots = vec![0; buffers.len()];
    for word in order {
        match word & FREE {
            0 => slots[place(word)] = builder.alloc_asked(0),
            _ => builder.free(0, slots[place(word)]),
        }
    }
    builder.finish()
}

/// Times that fit into a word beside the buffer's number.
enum Clock {
    /// Since the first.
    Since(u64),
    /// Their places among all times.
    Places(Vec<u64>),
}

impl Clock {
    fn of(buffers: &[PlanBuffer]) -> Self {
        let first = buffers.iter().map(|buffer| buffer.lower).min().unwrap_or(0);
        let last = buffers.iter().map(|buffer| buffer.upper).max().unwrap_or(0);
        if (last - first).leading_zeros() >= TIME_SHIFT {
            return Self::Since(first);
        }
        let mut times: Vec<u64> = buffers.iter().flat_map(|b| [b.lower, b.upper]).collect();
        times.sort_unstable();
        times.dedup();
        Self::Places(times)
    }

    fn read(&self, time: u64) -> u64 {
        match self {
            Self::Since(first) => time - first,
            Self::Places(times) => times.partition_point(|earlier| *earlier < time) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::events::tests::steps;

    #[test]
    fn half_open_lives_end_before_others_begin() {
        for (first, scale) in [(0, 1), (u64::MAX - 9, 1), (3, u64::MAX / 10)] {
            let life = |id, lower: u64, upper: u64| PlanBuffer {
                id,
                lower: first + lower * scale,
                upper: first + upper * scale,
                size: id * 10,
            };
            let lives = [life(3, 5, 9), life(1, 0, 5), life(2, 5, 5), life(4, 0, 9)];
            assert_eq!(
                steps(events(&lives), false),
                ["+1 10", "+4 40", "-1", "+3 30", "+2 20", "-2", "-3", "-4"]
            );
        }
    }
}
