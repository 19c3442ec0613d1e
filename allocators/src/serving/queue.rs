//! Free blocks in the order in which they are handed out; one can be taken out of the middle.

/// Neighbours in the queue; the block's own number where it is not in the queue.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
}

/// A queue of blocks, linked through their numbers. Block 0 stands for both ends and is never in it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    links: Vec<Link>,
    len: u64,
}

impl Queue {
    /// Blocks 1, 2, 3, … below `blocks`.
    pub(super) fn new(blocks: u32) -> Self {
        let link = |block: u32| Link {
            next: if block + 1 == blocks { 0 } else { block + 1 },
            previous: block.checked_sub(1).unwrap_or(blocks - 1),
        };
        Self { links: (0..blocks).map(link).collect(), len: u64::from(blocks.saturating_sub(1)) }
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Puts a block, which is not in it, behind another (0: to the front).
    fn insert(&mut self, block: u32, previous: u32) {
        let next = std::mem::replace(&mut self.links[previous as usize].next, block);
        self.links[next as usize].previous = block;
        self.links[block as usize] = Link { next, previous };
        self.len += 1;
    }

    pub(super) fn push_front(&mut self, block: u32) {
        self.insert(block, 0);
    }

    pub(super) fn push_back(&mut self, block: u32) {
        self.insert(block, self.links[0].previous);
    }

    /// Takes a block out, which is in it.
    pub(super) fn remove(&mut self, block: u32) {
        let Link { next, previous } = self.links[block as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        self.len -= 1;
    }

    pub(super) fn pop_front(&mut self) -> Option<u32> {
        let first = self.links.first()?.next;
        if first == 0 {
            return None;
        }
        self.remove(first);
        Some(first)
    }

    /// From the front to the back.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let next =
            |block: u32| Some(self.links.get(block as usize)?.next).filter(|next| *next != 0);
        std::iter::successors(next(0), move |block| next(*block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &Queue) -> Vec<u32> {
        queue.iter().collect()
    }

    #[test]
    fn a_block_can_be_taken_out_of_the_middle_and_comes_back_at_either_end() {
        let mut queue = Queue::new(5);
        assert_eq!(order(&queue), [1, 2, 3, 4]);
        queue.remove(3);
        assert_eq!(queue.pop_front(), Some(1));
        queue.push_back(3);
        queue.push_front(1);
        assert_eq!((order(&queue), queue.len()), (vec![1, 2, 4, 3], 4));
        [1, 2, 4, 3].into_iter().for_each(|block| assert_eq!(queue.pop_front(), Some(block)));
        assert_eq!((queue.pop_front(), queue.len()), (None, 0));
        queue.push_front(2);
        assert_eq!(order(&queue), [2]);
    }

    #[test]
    fn with_the_null_block_alone_nothing_is_free() {
        for blocks in [0, 1] {
            let mut queue = Queue::new(blocks);
            assert_eq!((queue.len(), queue.pop_front(), order(&queue)), (0, None, vec![]));
        }
    }
}
