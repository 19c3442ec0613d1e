//! In which order private pools without a use give their memory back: that of the hash table in which PyTorch keeps them.
//!
//! ```text
//!  bucket   0    1    2    3  │ room to run over
//!  pool     5    2    7    -  │  -    -    -    -         walked from the left; pool 7 wanted bucket 1
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `bucket` | a pool wants the bucket that Fibonacci hashing of its number gives |
//! | `robin-hood` | it walks right from there and takes the place of the first pool that is nearer to where that one wants to be, which walks on |
//! | `growth` | 4 buckets, doubled when the next pool would make it more than half full or would have to walk too far; never fewer again |
//! | `removal` | pools right of a gap that are not where they want to be move left by one |
//!
//! Source: `ska::flat_hash_map`, `c10/util/flat_hash_map.h`, and what the compiled libraries do.

use vramlab_sim::units::PoolId;

/// 2^64 over the golden ratio, as the table has it.
const FIBONACCI: u64 = 11_400_714_819_323_198_485;
const BUCKETS_MIN: usize = 4;
/// A pool walks less than this far, or than log2 of the number of buckets if that is more.
const WALK_MIN: u32 = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct Freeable {
    /// A power of two, or 0.
    buckets: usize,
    /// More than the buckets: the last ones have room to walk.
    places: Vec<Option<PoolId>>,
    len: usize,
}

impl Freeable {
    pub(super) fn in_order(&self) -> Vec<PoolId> {
        self.places.iter().flatten().copied().collect()
    }

    fn bucket(&self, pool: PoolId) -> usize {
        let hash = u64::from(pool.0).wrapping_mul(FIBONACCI);
        (hash >> (u64::BITS - self.buckets.ilog2())) as usize
    }

    fn walk_max(buckets: usize) -> usize {
        buckets.ilog2().max(WALK_MIN) as usize
    }

    /// Puts a pool in that is not there.
    pub(super) fn insert(&mut self, pool: PoolId) {
        while (self.len + 1) * 2 > self.buckets || !self.settle(pool) {
            self.grow();
        }
        self.len += 1;
    }

    /// Rule `robin-hood`. False if a pool would walk too far: that one then has the new one's place, and the new one none.
    fn settle(&mut self, pool: PoolId) -> bool {
        let (mut walking, mut at, mut place) = (pool, self.bucket(pool), None);
        loop {
            let walked = at - self.bucket(walking);
            if walked >= Self::walk_max(self.buckets) {
                if let Some(place) = place {
                    self.places[place] = Some(walking);
                }
                return false;
            }
            match self.places[at] {
                None => {
                    self.places[at] = Some(walking);
                    return true;
                }
                Some(there) if at - self.bucket(there) < walked => {
                    self.places[at] = Some(std::mem::replace(&mut walking, there));
                    place.get_or_insert(at);
                }
                Some(_) => {}
            }
            at += 1;
        }
    }

    fn grow(&mut self) {
        let pools = self.in_order();
        self.buckets = (self.buckets * 2).max(BUCKETS_MIN);
        self.places = vec![None; self.buckets + Self::walk_max(self.buckets)];
        self.len = 0;
        pools.into_iter().for_each(|pool| self.insert(pool));
    }

    pub(super) fn remove(&mut self, pool: PoolId) {
        let Some(mut gap) = self.places.iter().position(|there| *there == Some(pool)) else {
            return;
        };
        while let Some(Some(next)) = self.places.get(gap + 1).copied()
            && self.bucket(next) != gap + 1
        {
            self.places[gap] = Some(next);
            gap += 1;
        }
        self.places[gap] = None;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_come_in_order_of_buckets() {
        let mut table = Freeable::default();
        (1..=5).map(PoolId).for_each(|pool| table.insert(pool));
        assert_eq!(table.buckets, 16);
        // Fibonacci hashes of 1 to 5 on 16 buckets: 9, 3, 13, 7, 1.
        assert_eq!(table.in_order(), [5, 2, 4, 1, 3].map(PoolId));
        table.remove(PoolId(4));
        table.remove(PoolId(9));
        assert_eq!(table.in_order(), [5, 2, 1, 3].map(PoolId));
    }

    #[test]
    fn neighbours_walk_and_come_back() {
        let mut table = Freeable::default();
        // On 4 buckets pools 1 and 4 both want bucket 2 or its neighbour: whoever comes, all are found again.
        for pool in (1..200).map(PoolId) {
            table.insert(pool);
        }
        for pool in (1..200).step_by(2).map(PoolId) {
            table.remove(pool);
        }
        let mut left = table.in_order();
        left.sort_unstable();
        assert_eq!(left, (1..200).filter(|n| n % 2 == 0).map(PoolId).collect::<Vec<_>>());
        assert_eq!(table.len, left.len());
    }
}
