//! Freed blocks that wait: for streams that were recorded, or for work that this run cannot see.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `own_stream` | recording a block's own stream does nothing | 1700-1710 |
//! | `at_free` | an event on each recorded stream is recorded when the block is freed | 1504-1516, 3512-3532 |
//! | `noticed` | complete events are noticed at the next request, per stream in order, or waited for in a full release | 3502-3525, 3572-3610 |
//! | `unseen` | ours: a free whose completion this run cannot see waits until it is told, or until a full release | |

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{AllocError, Block};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::stitched::State;
use super::{GmLake, Owner};

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Other streams of blocks in use, ascending. Looked up, never walked.
    recorded: FxHashMap<Owner, Vec<StreamId>>,
    queues: BTreeMap<StreamId, VecDeque<(EventId, Owner)>>,
    /// Outstanding events by block. Looked up, never walked.
    outstanding: FxHashMap<Owner, usize>,
    unseen: BTreeMap<Block, Owner>,
    /// Events that can be recorded again.
    pub(super) idle: Vec<EventId>,
}

impl Waiting {
    /// The streams recorded for a block, which are forgotten.
    #[inline]
    pub(super) fn take_recorded(&mut self, owner: Owner) -> Vec<StreamId> {
        if self.recorded.is_empty() {
            return Vec::new();
        }
        self.recorded.remove(&owner).unwrap_or_default()
    }

    /// Rule `own_stream` is the caller's.
    pub(super) fn record(&mut self, owner: Owner, stream: StreamId) {
        let streams = self.recorded.entry(owner).or_default();
        if let Err(at) = streams.binary_search(&stream) {
            streams.insert(at, stream);
        }
    }

    /// Is there anything to look at before a search?
    #[inline]
    pub(super) fn has_events(&self) -> bool {
        !self.queues.is_empty()
    }

    /// An event, recorded on a stream.
    pub(super) fn event(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<EventId, DriverError> {
        let event = match self.idle.pop() {
            Some(event) => event,
            None => driver.event_create()?,
        };
        driver.event_record(event, stream)?;
        Ok(event)
    }

    /// Rule `at_free`.
    pub(super) fn wait_for(
        &mut self,
        driver: &mut dyn Driver,
        owner: Owner,
        streams: &[StreamId],
    ) -> Result<(), DriverError> {
        for stream in streams {
            let event = self.event(driver, *stream)?;
            self.queues.entry(*stream).or_default().push_back((event, owner));
        }
        self.outstanding.insert(owner, streams.len());
        Ok(())
    }

    pub(super) fn wait_unseen(&mut self, block: Block, owner: Owner) {
        self.unseen.insert(block, owner);
    }

    /// The unseen work of a block ended; `None` if it came back before.
    pub(super) fn completed(&mut self, block: Block) -> Option<Owner> {
        self.unseen.remove(&block)
    }
}

impl GmLake {
    /// A freed block waits.
    pub(super) fn mark_waiting(&mut self, owner: Owner) {
        match owner {
            Owner::Primitive(slot) => self.marks[slot as usize].waiting = true,
            Owner::Stitched(id) => {
                let block = self.table.get_mut(id);
                block.state = State::Waiting;
                block.parts.iter().for_each(|slot| self.marks[*slot as usize].waiting = true);
            }
        }
    }

    /// Takes back what became free (rule `noticed`).
    #[cold]
    pub(super) fn process_events(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let streams: Vec<StreamId> = self.waiting.queues.keys().copied().collect();
        for stream in streams {
            while let Some((event, owner)) = self.front(stream) {
                if !driver.event_query(event)? {
                    break;
                }
                self.event_done(stream, event, owner);
            }
        }
        Ok(())
    }

    /// Waits for everything outstanding, and takes it back.
    pub(super) fn wait_for_events(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        while let Some((stream, _)) = self.waiting.queues.first_key_value() {
            let stream = *stream;
            while let Some((event, owner)) = self.front(stream) {
                driver.event_synchronize(event)?;
                self.event_done(stream, event, owner);
            }
        }
        for owner in std::mem::take(&mut self.waiting.unseen).into_values() {
            self.arrive(owner);
        }
        Ok(())
    }

    fn front(&self, stream: StreamId) -> Option<(EventId, Owner)> {
        self.waiting.queues.get(&stream)?.front().copied()
    }

    /// The first event of a stream's queue is complete.
    fn event_done(&mut self, stream: StreamId, event: EventId, owner: Owner) {
        let waiting = &mut self.waiting;
        waiting.idle.push(event);
        if let Some(queue) = waiting.queues.get_mut(&stream) {
            queue.pop_front();
            if queue.is_empty() {
                waiting.queues.remove(&stream);
            }
        }
        if let Some(left) = waiting.outstanding.get_mut(&owner) {
            *left -= 1;
            if *left == 0 {
                waiting.outstanding.remove(&owner);
                self.arrive(owner);
            }
        }
    }

    /// A block that is freed waits for nothing any more.
    pub(super) fn arrive(&mut self, owner: Owner) {
        match owner {
            Owner::Primitive(slot) => self.give(slot),
            Owner::Stitched(id) => self.give_stitched(id),
        }
    }
}
