//! The event queue: what is due next.
//!
//! Times are integer ns; equal times come out in the order in which they went in. Time only moves forward: what is pushed at a time before
//! the last popped one is due at once.
//!
//! ```text
//! bottom    sorted, short: all that is due before `horizon`
//! level 0   64 slots of 1 ns       │ a slot holds what agrees with `base` in all higher digits (of 6 bits)
//! level 1   64 slots of 64 ns      │ and differs in this one; in order of insertion
//! …         (11 levels hold 2^64)
//! ```
//!
//! A pop takes from the bottom. When that is empty, the first slot of the lowest level in use becomes the bottom if it is short, and
//! else is dealt out over the levels below it; so each event moves a few times, along sequential memory, however many wait. Dealing out
//! keeps the order of insertion, and equal times always share a slot: no sequence numbers are kept.
//!
//! ```
//! use vramlab_sim::queue::EventQueue;
//!
//! let mut queue = EventQueue::new();
//! queue.push(20, 'c');
//! queue.push(10, 'a');
//! queue.push(10, 'b');
//! assert_eq!(queue.pop(), Some((10, 'a')));
//! assert_eq!(queue.pop(), Some((10, 'b')));
//! assert_eq!(queue.peek_time(), Some(20));
//! ```

use std::collections::VecDeque;

/// Bits of a digit, and of a level.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 64_usize.div_ceil(DIGIT_BITS as usize);
/// A slot of up to this many events becomes the bottom as it is.
const BOTTOM_LEN_MAX: usize = 32;
/// A bottom of more events than this goes back to the slots when an event must go into its middle.
const BOTTOM_LEN_SPILL: usize = 2 * BOTTOM_LEN_MAX;
/// Events for which a slot keeps its memory when it is emptied.
const SLOT_CAPACITY_KEPT: usize = 64;

/// Events by time, first in first out at equal times.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// In order of time and insertion.
    bottom: VecDeque<(u64, T)>,
    /// All events before it are in the bottom, all others in slots.
    horizon: u64,
    /// What the digits of slots are compared with.
    base: u64,
    /// By level, one bit for each slot with events.
    used: [u64; LEVELS],
    slots: Vec<Vec<(u64, T)>>,
    /// Time of the last popped event.
    last: u64,
    len: usize,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> EventQueue<T> {
    /// An empty queue at time 0.
    pub fn new() -> Self {
        Self {
            bottom: VecDeque::new(),
            horizon: 0,
            base: 0,
            used: [0; LEVELS],
            slots: std::iter::repeat_with(Vec::new).take(LEVELS * SLOTS).collect(),
            last: 0,
            len: 0,
        }
    }

    /// Events that wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Does nothing wait?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Time of the last popped event, in ns; 0 before the first.
    pub const fn now(&self) -> u64 {
        self.last
    }

    /// Adds an event at `time` ns, or now if that is past.
    #[inline]
    pub fn push(&mut self, time: u64, event: T) {
        let time = time.max(self.last);
        self.len += 1;
        if time >= self.horizon {
            self.put(time, event);
        } else {
            self.put_bottom(time, event);
        }
    }

    /// The next event and its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let next = self.bottom.pop_front().or_else(|| self.refill())?;
        self.last = next.0;
        self.len -= 1;
        Some(next)
    }

    /// The time of the next event.
    pub fn peek_time(&self) -> Option<u64> {
        let due = self.bottom.front().map(|(time, _)| *time);
        due.or_else(|| self.slots[self.lowest()?].iter().map(|(time, _)| *time).min())
    }

    #[inline]
    fn put(&mut self, time: u64, event: T) {
        // the highest digit in which it differs from the base; with none it is level 0
        let level = (63 - ((time ^ self.base) | 1).leading_zeros()) / DIGIT_BITS;
        let digit = (time >> (level * DIGIT_BITS)) as usize % SLOTS;
        self.used[level as usize] |= 1 << digit;
        self.slots[level as usize * SLOTS + digit].push((time, event));
    }

    fn put_bottom(&mut self, time: u64, event: T) {
        if self.bottom.back().is_none_or(|(last, _)| *last <= time) {
            self.bottom.push_back((time, event));
            return;
        }
        if self.bottom.len() > BOTTOM_LEN_SPILL {
            self.spill();
            self.put(time, event);
            return;
        }
        let mut at = self.bottom.len() - 1;
        while at > 0 && self.bottom[at - 1].0 > time {
            at -= 1;
        }
        self.bottom.insert(at, (time, event));
    }

    /// Puts the bottom back into slots. They begin at the last popped time, which lies in the bottom's range: the other slots, outside
    /// of it, agree with the new base as far as they did with the old one.
    #[cold]
    fn spill(&mut self) {
        self.base = self.last;
        self.horizon = self.last;
        for (time, event) in std::mem::take(&mut self.bottom) {
            self.put(time, event);
        }
    }

    /// The first slot of the lowest level in use.
    fn lowest(&self) -> Option<usize> {
        let level = self.used.iter().position(|used| *used != 0)?;
        Some(level * SLOTS + self.used[level].trailing_zeros() as usize)
    }

    /// Makes a bottom of the events that are due next, and takes the first.
    fn refill(&mut self) -> Option<(u64, T)> {
        loop {
            let slot = self.lowest()?;
            let (level, digit) = (slot / SLOTS, slot % SLOTS);
            self.used[level] &= !(1 << digit);
            let shift = level as u32 * DIGIT_BITS;
            // the slot's range: the base's digits above this level, this digit, and any below
            let above = self.base.checked_shr(shift + DIGIT_BITS).unwrap_or_default();
            let above = above.checked_shl(shift + DIGIT_BITS).unwrap_or_default();
            self.base = above | (digit as u64) << shift;
            self.horizon = self.base.saturating_add(1 << shift);
            let mut events = std::mem::take(&mut self.slots[slot]);
            if level == 0 || events.len() <= BOTTOM_LEN_MAX {
                if level > 0 {
                    events.sort_by_key(|(time, _)| *time);
                }
                self.bottom.extend(events.drain(..));
                self.keep(slot, events);
                return self.bottom.pop_front();
            }
            self.horizon = self.base;
            for (time, event) in events.drain(..) {
                self.put(time, event);
            }
            self.keep(slot, events);
        }
    }

    /// Gives a slot its emptied memory back, if that is little.
    fn keep(&mut self, slot: usize, memory: Vec<(u64, T)>) {
        if memory.capacity() <= SLOT_CAPACITY_KEPT {
            self.slots[slot] = memory;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;

    /// Sorted by time; equal times in order of insertion.
    #[derive(Default)]
    struct Model {
        events: Vec<(u64, u32)>,
        last: u64,
    }

    impl Model {
        fn push(&mut self, time: u64, event: u32) {
            let time = time.max(self.last);
            let at = self.events.partition_point(|(other, _)| *other <= time);
            self.events.insert(at, (time, event));
        }

        fn pop(&mut self) -> Option<(u64, u32)> {
            if self.events.is_empty() {
                return None;
            }
            let next = self.events.remove(0);
            self.last = next.0;
            Some(next)
        }
    }

    /// Runs pushes (`Some(delay)`) and pops beside the model, then pops what is left.
    fn agrees(steps: impl Iterator<Item = Option<u64>>) {
        let (mut queue, mut model) = (EventQueue::new(), Model::default());
        for (event, step) in (0..).zip(steps) {
            match step {
                Some(delay) => {
                    let time = model.last.saturating_add(delay);
                    queue.push(time, event);
                    model.push(time, event);
                }
                None => assert_eq!(queue.pop(), model.pop()),
            }
            assert_eq!(queue.peek_time(), model.events.first().map(|(time, _)| *time));
            assert_eq!(queue.len(), model.events.len());
        }
        while let Some(next) = model.pop() {
            assert_eq!(queue.pop(), Some(next));
            assert_eq!(queue.now(), next.0);
        }
        assert!(queue.pop().is_none() && queue.is_empty());
    }

    #[test]
    fn agrees_with_a_sorted_list_whatever_the_scale() {
        let mut dice = Dice::of_step_1(3);
        let mut draw = move || dice.bits() >> 20;
        for bits in [0, 1, 3, 7, 12, 20, 30, 43] {
            for pending in [1, 20, 100, 1000] {
                let mut waiting = 0;
                agrees((0..4000).map(|_| {
                    if waiting < pending && draw() % 8 < 5 || waiting == 0 {
                        waiting += 1;
                        // now and then a scale of its own
                        let bits = if draw() % 16 == 0 { draw() % 44 } else { bits };
                        Some(draw() & ((1 << bits) - 1))
                    } else {
                        waiting -= 1;
                        None
                    }
                }));
            }
        }
    }

    #[test]
    fn the_ends_of_time_are_no_exception() {
        let mut queue = EventQueue::new();
        queue.push(u64::MAX, 1);
        queue.push(u64::MAX, 2);
        queue.push(0, 0);
        assert_eq!(queue.pop(), Some((0, 0)));
        queue.push(u64::MAX - 1, 3);
        assert_eq!(queue.pop(), Some((u64::MAX - 1, 3)));
        assert_eq!(queue.pop(), Some((u64::MAX, 1)));
        queue.push(5, 4);
        assert_eq!(queue.pop(), Some((u64::MAX, 2)));
        assert_eq!(queue.pop(), Some((u64::MAX, 4)), "the past is now");
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn crowds_before_a_far_event_keep_their_order() {
        // each round makes the bottom spill between the last popped time and a far event
        let round = |n: u64| match n % 200 {
            0 => Some(1 << 30),
            1 => Some(0),
            2 | 180.. => None,
            k => Some((k * 7919) % ((1 << 20) >> (n / 200))),
        };
        agrees((0..4000).map(round));
    }

    #[test]
    fn a_crowd_at_one_time_comes_out_in_order() {
        agrees((0..5000).map(|n| (n % 3 != 2 || n < 2000).then_some(1_000_000)));
        agrees((0..3000).map(|n| (n % 2 == 0).then_some(0)));
    }
}

#[cfg(test)]
mod properties {
    use super::EventQueue;
    use proptest::prelude::*;

    proptest! {
        /// What comes out is what went in, stably sorted.
        #[test]
        fn popping_all_is_a_stable_sort(times in prop::collection::vec(prop_oneof![0..50_u64, any::<u64>()], 0..400)) {
            let mut queue = EventQueue::new();
            for (event, time) in times.iter().enumerate() {
                queue.push(*time, event);
            }
            let mut sorted: Vec<_> = times.iter().copied().zip(0..).collect();
            sorted.sort_by_key(|(time, _)| *time);
            let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(popped, sorted);
        }

        /// Pushes and pops in any order give times that never go back, and equal times in order.
        #[test]
        fn time_only_moves_forward(steps in prop::collection::vec((any::<bool>(), 0..63_u32, any::<u64>()), 0..600)) {
            let mut queue = EventQueue::new();
            let mut last = (0, 0);
            for (event, (push, bits, draw)) in steps.into_iter().enumerate() {
                if push {
                    queue.push(last.0 + (draw & ((1 << bits) - 1)) / 2, event);
                } else if let Some(next) = queue.pop() {
                    prop_assert!(next > last || next.0 == last.0);
                    prop_assert!(next.0 != last.0 || next.1 > last.1 || last == (0, 0));
                    last = next;
                }
            }
        }
    }
}
