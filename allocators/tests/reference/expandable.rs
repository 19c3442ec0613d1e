//! Expandable segments: address ranges that get and lose memory page by page (rules 18–23).

use super::request::new_block;
use super::settings::SMALL_SEGMENT_SIZE;
use super::{PoolKey, Reference, Segment, State, Version};
use std::collections::BTreeMap;

impl Reference {
    /// A free block of at least `size` bytes, by mapping pages. What was mapped before a failure stays.
    pub(super) fn grow_expandable(&mut self, pool: PoolKey, size: u64, stream: u64) -> Option<u64> {
        let mut at = match self.find_room(pool, size, stream) {
            Some(at) => at,
            None => self.new_range(pool, size, stream)?,
        };
        if self.block(at).state == State::Unmapped {
            at = self.map_block(at, size.min(self.block(at).size))?;
        }
        while self.block(at).size < size {
            let next = self.next(at).expect("there is room, so a piece follows");
            at = self.map_block(next, (size - self.block(at).size).min(self.block(next).size))?;
        }
        Some(at)
    }

    /// Rule 19: the first unmapped piece, by address, around which free and unmapped neighbours make up the size.
    fn find_room(&self, pool: PoolKey, size: u64, stream: u64) -> Option<u64> {
        let usable = |at: &u64| matches!(self.block(*at).state, State::Free | State::Unmapped);
        let unmapped = |at: &&u64| {
            let block = self.block(**at);
            block.state == State::Unmapped && block.pool == pool && block.stream == stream
        };
        for piece in self.blocks.keys().filter(unmapped).copied() {
            let start = self.previous(piece).filter(usable).unwrap_or(piece);
            let mut room = 0;
            let mut at = Some(start);
            while let Some(here) = at.filter(usable).filter(|_| room < size) {
                room += self.block(here).size;
                at = self.next(here);
            }
            if room >= size {
                return Some(start);
            }
        }
        None
    }

    /// Rules 18 and 20.
    fn new_range(&mut self, pool: PoolKey, size: u64, stream: u64) -> Option<u64> {
        let page = if pool.small { SMALL_SEGMENT_SIZE } else { self.settings.large_segment_size };
        let length = self.settings.range_size(self.device.capacity, page);
        let start = self.device.address_reserve(length);
        if length < size && self.version == Version::V2_15 {
            self.device.address_free(start);
            return None;
        }
        let registration =
            self.register(Segment { start, size: length, stream, page, handles: BTreeMap::new() });
        self.blocks
            .insert(start, new_block(length, stream, pool, registration, true, State::Unmapped));
        Some(start)
    }

    /// Maps the first `size` bytes of an unmapped piece, rounded up to whole pages; the result is free and merged.
    fn map_block(&mut self, at: u64, size: u64) -> Option<u64> {
        let registration = self.block(at).segment;
        let Segment { start, page, .. } = self.segments[&registration];
        let (begin, end) = ((at - start) / page, (at + size - start).div_ceil(page));
        let mut handles = Vec::new();
        for _ in begin..end {
            match self.device.create(page) {
                Some(handle) => handles.push(handle),
                None => {
                    for handle in handles {
                        self.device.release(handle);
                    }
                    return None;
                }
            }
        }
        for (number, handle) in (begin..end).zip(&handles) {
            self.device.map(start + number * page, page, *handle);
        }
        let mapped = (end - begin) * page;
        self.device.set_access(at, mapped);
        self.segments
            .get_mut(&registration)
            .expect("the range")
            .handles
            .extend((begin..end).zip(handles));

        if mapped < self.block(at).size {
            self.cut(at, mapped);
        }
        self.block_mut(at).state = State::Free;
        let (_, at) = self.merge(at, self.previous(at));
        let (_, at) = self.merge(at, self.next(at));
        self.put_in_pool(at);
        self.reserved += mapped;
        self.stats.reserved_bytes.increase(self.block(at).pool.small, mapped);
        self.stats.num_device_alloc += 1;
        Some(at)
    }

    /// Rule 22: unmaps the whole pages inside a free block; a range with nothing left is freed.
    pub(super) fn unmap_block(&mut self, at: u64) {
        let block = self.block(at).clone();
        let Segment { start, page, stream, .. } = self.segments[&block.segment];
        let (begin, end) = ((at - start).div_ceil(page), (at + block.size - start) / page);
        if begin >= end {
            return;
        }
        self.device.wait_stream(stream);
        for number in begin..end {
            self.device.unmap(start + number * page, page);
            let segment = self.segments.get_mut(&block.segment).expect("the range");
            let handle = segment.handles.remove(&number).expect("a mapped page");
            self.device.release(handle);
        }
        let unmapped = (end - begin) * page;
        let mut at = at;
        let before = start + begin * page - at;
        if before > 0 {
            let kept = at;
            at = self.cut(at, before);
            self.put_in_pool(kept);
        }
        if unmapped < self.block(at).size {
            let after = self.cut(at, unmapped);
            self.put_in_pool(after);
        }
        self.block_mut(at).state = State::Unmapped;
        let (_, at) = self.merge(at, self.previous(at));
        let (_, at) = self.merge(at, self.next(at));
        self.reserved -= unmapped;
        self.stats.reserved_bytes.decrease(block.pool.small, unmapped);
        self.count_segment_gone(block.pool);
        self.stats.num_device_free += 1;
        if !self.is_split(at) {
            self.device.address_free(start);
            self.blocks.remove(&at);
            self.segments.remove(&block.segment);
        }
    }
}
