//! A request from start to end (rules 8–10, 13, 25).

use super::settings::SMALL_SIZE_MAX;
use super::{Answer, Block, PoolKey, Reference, Segment, State};
use std::collections::{BTreeMap, BTreeSet};

/// How one attempt to get memory from the device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Got(u64),
    Failed,
    /// Refused by `throw_on_cudamalloc_oom`: nothing else is tried.
    Rejected,
}

impl Reference {
    pub(super) fn allocate(&mut self, requested: u64, stream: u64) -> Answer {
        if !self.events_blocked() {
            self.process_events();
        }
        let size = self.settings.round(requested);
        let pool = PoolKey { owner: self.route(stream), small: size <= SMALL_SIZE_MAX };
        let found = match self.find_free_block(pool, size, stream) {
            Some(at) => Attempt::Got(at),
            None => self.get_memory(pool, size, stream),
        };
        match found {
            Attempt::Got(at) => {
                self.hand_out(at, size, requested);
                Answer::At(at)
            }
            Attempt::Failed => {
                self.stats.num_ooms += 1;
                Answer::OutOfMemory
            }
            Attempt::Rejected => {
                self.stats.num_oom_rejections += 1;
                Answer::OutOfMemory
            }
        }
    }

    /// Rule 8: collect garbage, ask, release oversize blocks and ask again, release everything and ask again.
    fn get_memory(&mut self, pool: PoolKey, size: u64, stream: u64) -> Attempt {
        if self.collects_garbage() {
            self.collect_garbage();
        }
        let mut attempt = self.ask_device(pool, size, stream);
        if attempt == Attempt::Failed && self.release_oversize(pool, size, stream) {
            attempt = self.ask_device(pool, size, stream);
        }
        if attempt == Attempt::Failed && !self.events_blocked() {
            self.release_everything();
            self.stats.num_alloc_retries += 1;
            attempt = self.ask_device(pool, size, stream);
        }
        attempt
    }

    /// Rule 9: one attempt. The limit and `throw_on_cudamalloc_oom` are tested with the size of a segment, expandable or not.
    fn ask_device(&mut self, pool: PoolKey, size: u64, stream: u64) -> Attempt {
        let segment_size = self.settings.segment_size(size);
        let after = self.reserved.saturating_add(segment_size);
        if self.limit.is_some_and(|limit| after > limit) {
            return Attempt::Failed;
        }
        // This goes by the option as it is now, whatever the limit was set to since the start.
        let share = self.settings.fraction.unwrap_or(1.0) * self.device.capacity as f64;
        if self.settings.throw_on_cudamalloc_oom && after > share as u64 {
            return Attempt::Rejected;
        }
        let got = if self.settings.expandable {
            self.grow_expandable(pool, size, stream)
        } else {
            self.new_segment(pool, segment_size, stream)
        };
        if got.is_some()
            && let Some(private) = self.private.get_mut(&pool.owner)
        {
            private.segments += 1;
        }
        got.map_or(Attempt::Failed, Attempt::Got)
    }

    fn new_segment(&mut self, pool: PoolKey, size: u64, stream: u64) -> Option<u64> {
        let start = self.device.malloc(size)?;
        let registration =
            self.register(Segment { start, size, stream, page: 0, handles: BTreeMap::new() });
        self.blocks.insert(start, new_block(size, stream, pool, registration, false, State::Free));
        self.put_in_pool(start);
        self.reserved += size;
        self.stats.segment.increase(pool.small, 1);
        self.stats.reserved_bytes.increase(pool.small, size);
        if size >= self.settings.max_split_size {
            self.stats.oversize_segments.increase(1);
        }
        self.stats.num_device_alloc += 1;
        Some(start)
    }

    /// Segments and ranges share one counter; it gives their age.
    pub(super) fn register(&mut self, segment: Segment) -> u64 {
        let registration = self.registrations;
        self.registrations += 1;
        self.segments.insert(registration, segment);
        registration
    }

    /// Takes a free block out of its pool, splits it if it should be, and counts it. What is handed out is the low end.
    fn hand_out(&mut self, at: u64, size: u64, requested: u64) {
        let counts_inactive = !self.block(at).expandable;
        let small = self.block(at).pool.small;
        let was_split = self.is_split(at);
        if self.should_split(at, size) {
            let rest = self.cut(at, size);
            self.put_in_pool(rest);
            if counts_inactive && was_split {
                self.stats.inactive_split_bytes.decrease(small, size);
            } else if counts_inactive {
                let rest_size = self.block(rest).size;
                self.stats.inactive_split_bytes.increase(small, rest_size);
                self.stats.inactive_split.increase(small, 1);
            }
        } else if counts_inactive && was_split {
            let whole = self.block(at).size;
            self.stats.inactive_split_bytes.decrease(small, whole);
            self.stats.inactive_split.decrease(small, 1);
        }
        let block = self.block_mut(at);
        block.state = State::Allocated;
        block.requested = requested;
        let size = block.size;
        self.stats.allocation.increase(small, 1);
        self.stats.allocated_bytes.increase(small, size);
        self.stats.active.increase(small, 1);
        self.stats.active_bytes.increase(small, size);
        self.stats.requested_bytes.increase(small, requested);
        if size >= self.settings.max_split_size {
            self.stats.oversize_allocations.increase(1);
        }
    }
}

pub(super) fn new_block(
    size: u64,
    stream: u64,
    pool: PoolKey,
    segment: u64,
    expandable: bool,
    state: State,
) -> Block {
    Block {
        size,
        stream,
        pool,
        segment,
        expandable,
        state,
        requested: 0,
        uses: BTreeSet::new(),
        uses_in_capture: BTreeSet::new(),
        events_open: 0,
        searches_base: 0,
    }
}
