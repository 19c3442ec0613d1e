//! Giving memory back to the device: oversize blocks, everything that is cached, garbage (rules 11, 12, 14).

use super::{PoolKey, Reference};

impl Reference {
    /// Rule 11. True if enough was released that asking again is worth it.
    pub(super) fn release_oversize(&mut self, pool: PoolKey, size: u64, stream: u64) -> bool {
        let limit = self.settings.max_split_size;
        if limit == u64::MAX {
            return false;
        }
        let wanted = size.max(limit);
        let own = self.free_blocks(pool, |block| block.stream == stream);
        let (smaller, enough): (Vec<_>, Vec<_>) =
            own.into_iter().partition(|at| self.block(*at).size < wanted);
        if let Some(at) = enough.first().copied().filter(|at| !self.block(*at).expandable) {
            self.release_segment(at);
            return true;
        }
        let mut released = 0;
        for at in smaller.into_iter().rev() {
            if released >= wanted || self.block(at).size < limit {
                break;
            }
            if !self.block(at).expandable {
                released += self.block(at).size;
                self.release_segment(at);
            }
        }
        released >= wanted
    }

    /// Rule 12: waits for all events, then gives back whatever is not in use. During a capture nothing waits, and the
    /// default pools are left alone too.
    pub(super) fn release_everything(&mut self) {
        if !self.events_blocked() {
            self.wait_for_events();
            self.release_pool(PoolKey { owner: 0, small: false });
            self.release_pool(PoolKey { owner: 0, small: true });
        }
        for owner in self.freeable.pools() {
            self.release_pool(PoolKey { owner, small: true });
            self.release_pool(PoolKey { owner, small: false });
            self.forget_if_empty(owner);
        }
    }

    /// Unsplit segments first, then the whole pages inside the free blocks of expandable ranges, each in search order.
    fn release_pool(&mut self, pool: PoolKey) {
        let free = self.free_blocks(pool, |_| true);
        let (expandable, fixed): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|at| self.block(*at).expandable);
        for at in fixed {
            if !self.is_split(at) {
                self.release_segment(at);
            }
        }
        for at in expandable {
            self.unmap_block(at);
        }
    }

    /// Gives an unsplit cudaMalloc segment back. The oversize release does not look whether the block is one: a split block can
    /// be oversize if the limit was lowered, or was split by the rule for expandable segments. The real allocator then frees
    /// memory that is in use.
    fn release_segment(&mut self, at: u64) {
        if self.is_split(at) {
            let size = self.block(at).size;
            self.broken =
                Some(format!("oversize release of {size} bytes that are a part of a segment"));
            return;
        }
        let block = self.blocks.remove(&at).expect("a free block");
        self.device.free(at);
        self.segments.remove(&block.segment);
        self.reserved -= block.size;
        self.count_segment_gone(block.pool);
        self.stats.num_device_free += 1;
        self.stats.segment.decrease(block.pool.small, 1);
        self.stats.reserved_bytes.decrease(block.pool.small, block.size);
        if block.size >= self.settings.max_split_size {
            self.stats.oversize_segments.decrease(1);
        }
    }

    /// Searches in the pool since the block was put there.
    pub(super) fn age(&self, at: u64) -> u64 {
        let block = self.block(at);
        self.searches.get(&block.pool).copied().unwrap_or(0) - block.searches_base
    }

    /// Rule 14.
    pub(super) fn collect_garbage(&mut self) {
        let limit = self.limit.expect("collection is on only with a limit");
        let threshold = (self.settings.gc_threshold * limit as f64) as u64;
        if self.reserved <= threshold {
            return;
        }
        let target = self.reserved - threshold;
        let pool = PoolKey { owner: 0, small: false };
        let mut reclaimed = 0;
        while reclaimed < target {
            let mut left = self.free_blocks(pool, |block| !block.expandable);
            left.retain(|at| !self.is_split(*at));
            if left.is_empty() {
                return;
            }
            let total: u64 = left.iter().map(|at| self.age(*at)).sum();
            let average = total as f64 / left.len() as f64;
            for at in left {
                if self.age(at) as f64 >= average {
                    reclaimed += self.block(at).size;
                    self.release_segment(at);
                }
            }
        }
    }
}
