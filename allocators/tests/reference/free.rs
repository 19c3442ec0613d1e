//! Free, merge, uses on other streams and their events (rules 15–17, 29).

use super::{Reference, State};
use std::collections::BTreeSet;

impl Reference {
    pub(super) fn release_buffer(&mut self, at: u64) {
        let capturing = self.events_blocked();
        let block = self.block_mut(at);
        let (size, small, waits) = (block.size, block.pool.small, !block.uses.is_empty());
        block.state = State::Pending;
        self.stats.allocation.decrease(small, 1);
        self.stats.allocated_bytes.decrease(small, size);
        if size >= self.settings.max_split_size {
            self.stats.oversize_allocations.decrease(1);
        }
        if !waits {
            self.put_back(at);
        } else if capturing {
            self.deferred.push(at);
        } else {
            self.record_events(at);
        }
    }

    pub(super) fn record_stream(&mut self, at: u64, stream: u64) {
        let capturing = self.events_blocked();
        let block = self.block_mut(at);
        if block.stream == stream {
            return;
        }
        block.uses.insert(stream);
        if capturing {
            block.uses_in_capture.insert(stream);
        }
    }

    /// One event on each stream that used the block; it waits for all of them.
    fn record_events(&mut self, at: u64) {
        let block = self.block_mut(at);
        block.uses_in_capture.clear();
        let uses = std::mem::take(&mut block.uses);
        block.events_open = uses.len();
        for stream in uses {
            let event = self.device.record_event(stream);
            self.events.entry(stream).or_default().push_back((event, at));
        }
    }

    /// Blocks freed during a capture: uses recorded during it are forgotten, the others get their events now.
    fn record_deferred_events(&mut self) {
        for at in std::mem::take(&mut self.deferred) {
            let block = self.block_mut(at);
            let forgotten: BTreeSet<u64> = std::mem::take(&mut block.uses_in_capture);
            block.uses.retain(|stream| !forgotten.contains(stream));
            self.record_events(at);
            if self.block(at).events_open == 0 {
                self.put_back(at);
            }
        }
    }

    /// Looks at the outstanding events, stream by stream, each in order of recording up to the first that is not complete.
    pub(super) fn process_events(&mut self) {
        self.record_deferred_events();
        for stream in self.events.keys().copied().collect::<Vec<_>>() {
            while let Some((event, at)) = self.events[&stream].front().copied() {
                if !self.device.is_complete(event) {
                    break;
                }
                self.events.get_mut(&stream).expect("just looked at").pop_front();
                self.event_done(at);
            }
        }
        self.events.retain(|_, queue| !queue.is_empty());
    }

    /// Waits for every outstanding event.
    pub(super) fn wait_for_events(&mut self) {
        self.stats.num_sync_all_streams += 1;
        self.record_deferred_events();
        for (event, at) in std::mem::take(&mut self.events).into_values().flatten() {
            self.device.wait_event(event);
            self.event_done(at);
        }
    }

    fn event_done(&mut self, at: u64) {
        let block = self.block_mut(at);
        block.events_open -= 1;
        if block.events_open == 0 {
            self.put_back(at);
        }
    }

    /// Merges `from` into its neighbour `into` if both are at rest and both mapped or both not. Returns the size merged (0: not)
    /// and where the merged block begins.
    pub(super) fn merge(&mut self, into: u64, from: Option<u64>) -> (u64, u64) {
        let Some(from) = from else { return (0, into) };
        let mapped = self.block(into).state != State::Unmapped;
        let mergeable = if mapped { State::Free } else { State::Unmapped };
        if self.block(from).state != mergeable {
            return (0, into);
        }
        let gone = self.blocks.remove(&from).expect("a neighbour");
        let mut block = self.blocks.remove(&into).expect("the block");
        block.size += gone.size;
        self.blocks.insert(into.min(from), block);
        (gone.size, into.min(from))
    }

    /// A block that nothing waits for any more goes back to its pool, merged with the previous, then the next one.
    fn put_back(&mut self, at: u64) {
        let block = self.block(at);
        let (size, requested, small, expandable) =
            (block.size, block.requested, block.pool.small, block.expandable);
        let (mut blocks, mut bytes) = (0i64, 0i64);
        let (merged, at) = self.merge(at, self.previous(at));
        blocks -= i64::from(merged > 0);
        bytes -= merged.cast_signed();
        let (merged, at) = self.merge(at, self.next(at));
        blocks -= i64::from(merged > 0);
        bytes -= merged.cast_signed();
        self.put_in_pool(at);
        if self.is_split(at) {
            blocks += 1;
            bytes += self.block(at).size.cast_signed();
        }
        if !expandable {
            // Only the net change is counted, so that the sums of increases and decreases stay small.
            for (counter, net) in [
                (&mut self.stats.inactive_split, blocks),
                (&mut self.stats.inactive_split_bytes, bytes),
            ] {
                if net > 0 {
                    counter.increase(small, net.unsigned_abs());
                } else {
                    counter.decrease(small, net.unsigned_abs());
                }
            }
        }
        self.stats.active.decrease(small, 1);
        self.stats.active_bytes.decrease(small, size);
        self.stats.requested_bytes.decrease(small, requested);
    }
}
