//! Pages of slots that are free, in the order in which they are taken (rule `free_order`).

use std::collections::VecDeque;

/// Free pages. Page 0 is never among them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    free: VecDeque<u32>,
    pages: u32,
    /// Freed pages go to the end, as they come.
    to_the_end: bool,
}

impl Slots {
    /// Pages 1 to `pages` of `page` tokens.
    pub(super) fn new(pages: u32, page: u64) -> Self {
        Self { free: (1..=pages).collect(), pages, to_the_end: page == 1 }
    }

    /// Pages that there are, without page 0.
    pub(super) const fn pages(&self) -> u32 {
        self.pages
    }

    pub(super) fn len(&self) -> u64 {
        self.free.len() as u64
    }

    /// Takes pages from the front; there must be so many.
    pub(super) fn take(&mut self, count: u64) -> impl Iterator<Item = u32> + '_ {
        self.free.drain(..count as usize)
    }

    /// Takes back what is in `freed`.
    pub(super) fn give(&mut self, freed: &mut Vec<u32>) {
        if self.to_the_end {
            self.free.extend(freed.drain(..));
            return;
        }
        freed.sort_unstable();
        while let Some(page) = freed.pop() {
            self.free.push_front(page);
        }
    }

    /// All are free, in their first order.
    pub(super) fn reset(&mut self) {
        self.free = (1..=self.pages).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_pages_go_to_the_end_or_sorted_to_the_front() {
        for (page, order) in [(1, vec![4, 5, 3, 1]), (16, vec![1, 3, 4, 5])] {
            let mut slots = Slots::new(5, page);
            assert_eq!(slots.take(3).collect::<Vec<_>>(), [1, 2, 3]);
            slots.give(&mut vec![3, 1]);
            assert_eq!(slots.take(4).collect::<Vec<_>>(), order);
            assert_eq!(slots.len(), 0);
            slots.reset();
            assert_eq!((slots.len(), slots.take(1).next()), (5, Some(1)));
        }
    }
}
