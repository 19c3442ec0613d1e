//! The order in which freeable private pools give their memory back: that of the real allocator's hash table.
//!
//! The table is one of open addressing: a pool wants the slot that Fibonacci hashing of its number gives, takes the next ones if
//! others have as much right to it, and pushes aside those that are nearer to their own (Robin Hood). It doubles when more than
//! half full, and never shrinks. Its slots are visited in order.

/// 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 11_400_714_819_323_198_485;

#[derive(Clone, Debug, Default)]
pub(crate) struct Freeable {
    /// Slots by Fibonacci hash, a power of two, 0 at first.
    buckets: usize,
    /// The pool in each slot; some slots beyond `buckets` take what is pushed over the end.
    slots: Vec<Option<u64>>,
}

impl Freeable {
    /// How far from the slot it wants a pool may lie.
    fn reach(buckets: usize) -> usize {
        (buckets.ilog2() as usize).max(4)
    }

    fn wanted(&self, pool: u64) -> usize {
        let hash = MULTIPLIER.wrapping_mul(pool) >> (64 - self.buckets.ilog2());
        usize::try_from(hash).expect("below the number of buckets")
    }

    /// The pools, in the order of the table.
    pub(super) fn pools(&self) -> Vec<u64> {
        self.slots.iter().flatten().copied().collect()
    }

    pub(super) fn insert(&mut self, pool: u64) {
        if 2 * (self.pools().len() + 1) > self.buckets || !self.place(pool) {
            self.grow();
            self.insert(pool);
        }
    }

    /// False, with the table unchanged, if some pool would end up out of reach.
    fn place(&mut self, pool: u64) -> bool {
        let before = self.slots.clone();
        let (mut moving, mut at) = (pool, self.wanted(pool));
        loop {
            if at - self.wanted(moving) >= Self::reach(self.buckets) {
                self.slots = before;
                return false;
            }
            match self.slots[at] {
                None => {
                    self.slots[at] = Some(moving);
                    return true;
                }
                Some(settled) if at - self.wanted(settled) < at - self.wanted(moving) => {
                    self.slots[at] = Some(moving);
                    moving = settled;
                }
                Some(_) => {}
            }
            at += 1;
        }
    }

    fn grow(&mut self) {
        let pools = self.pools();
        self.buckets = (2 * self.buckets).max(4);
        self.slots = vec![None; self.buckets + Self::reach(self.buckets)];
        for pool in pools {
            self.insert(pool);
        }
    }

    /// Those behind it that do not lie in the slot they want move up by one.
    pub(super) fn remove(&mut self, pool: u64) {
        let mut at =
            self.slots.iter().position(|slot| *slot == Some(pool)).expect("a freeable pool");
        while let Some(next) =
            self.slots.get(at + 1).copied().flatten().filter(|next| self.wanted(*next) != at + 1)
        {
            self.slots[at] = Some(next);
            at += 1;
        }
        self.slots[at] = None;
    }
}
