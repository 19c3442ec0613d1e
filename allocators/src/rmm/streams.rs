//! The order of streams in RMM's pool and fixed-size resources: a free list for each stream, and which of them serves a request.
//!
//! | rule | what it says | source, case |
//! |---|---|---|
//! | `event` | a stream gets an event at its first call (allocate or free); each free records it | `get_event`, `deallocate`; `rp*` summaries |
//! | `own_list` | the own list is searched first, with no wait; the search makes it if there is none | `get_block`; rp08, rp12 |
//! | `steal` | else each other list as it is, the first with a fitting block: a wait for its stream's event, and the rest stays in that list | `get_block_from_other_stream`; rp08, rp09, rp15 |
//! | `merge` | else the other lists are moved one by one into the own list, a wait each, with a search after each; they vanish, and empty ones cost a wait too | `merge_lists`; rp10, rp11 |
//! | `order` | other lists are visited in the order in which their streams' events were made. In the wild the order is that of the event handles | `stream_event_pair`; rp15 |
//! | `record_merged` | from 26.08 on the own event is recorded again after each merge, so that who takes a merged block later waits for its last use too; until 26.06 it was not, and such a block could be used too early | rapidsai/rmm#2489, rapidsai/rmm#2490 |
//! | `free_stream` | a free puts the block into the list of the stream that it names | `deallocate`; rp13 |
//!
//! Source: `cpp/include/rmm/mr/detail/stream_ordered_memory_resource.hpp`, rapidsai/rmm 5d50a37b, the same as in 26.06.

use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use crate::parts::stream_numbers::StreamNumbers;

/// No list.
const NONE: u32 = u32::MAX;

/// The free lists of a resource, by number.
pub(super) trait Lists {
    /// A new empty list.
    fn open(&mut self) -> u32;
    /// The free block of a list that serves `size` bytes. It stays where it is.
    fn find(&mut self, list: u32, size: u64) -> Option<u32>;
    /// Moves what is in `from` into `into`; the number of the one list that is left.
    fn merge(&mut self, into: u32, from: u32) -> u32;
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: StreamId,
    event: EventId,
    list: u32,
}

/// Streams, their events and their lists.
#[derive(Debug)]
pub(super) struct Streams {
    numbers: StreamNumbers,
    /// By number, hence in the order of their events.
    streams: Vec<Stream>,
    /// Numbers of those that have a list, rising.
    listed: Vec<u32>,
    /// Rule `record_merged`.
    record_merged: bool,
    waits: u64,
}

impl Streams {
    pub(super) fn new(record_merged: bool) -> Self {
        Self {
            numbers: StreamNumbers::default(),
            streams: Vec::new(),
            listed: Vec::new(),
            record_merged,
            waits: 0,
        }
    }

    /// The lists, in the order in which they are visited.
    pub(super) fn lists(&self) -> impl Iterator<Item = u32> + '_ {
        self.listed.iter().map(|number| self.stream(*number).list)
    }

    /// Stream waits so far.
    pub(super) fn waits(&self) -> u64 {
        self.waits
    }

    fn stream(&self, number: u32) -> &Stream {
        &self.streams[number as usize]
    }

    /// The number of a stream (rule `event`).
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(super) fn number(
        &mut self,
        driver: &mut dyn Driver,
        id: StreamId,
    ) -> Result<u32, DriverError> {
        if let Some(number) = self.numbers.get(id) {
            return Ok(number);
        }
        let event = driver.event_create()?;
        self.streams.push(Stream { id, event, list: NONE });
        Ok(self.numbers.add(id))
    }

    /// The list of a stream, made if there is none.
    #[inline]
    pub(super) fn list(&mut self, lists: &mut impl Lists, number: u32) -> u32 {
        let stream = &mut self.streams[number as usize];
        if stream.list == NONE {
            stream.list = lists.open();
            let at = self.listed.partition_point(|listed| *listed < number);
            self.listed.insert(at, number);
        }
        self.streams[number as usize].list
    }

    /// Marks the place of a free in its stream.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(super) fn record(
        &mut self,
        driver: &mut dyn Driver,
        number: u32,
    ) -> Result<(), DriverError> {
        let Stream { id, event, .. } = *self.stream(number);
        driver.event_record(event, id)
    }

    fn wait(
        &mut self,
        driver: &mut dyn Driver,
        number: u32,
        other: u32,
    ) -> Result<(), DriverError> {
        driver.wait_event(self.stream(number).id, self.stream(other).event)?;
        self.waits += 1;
        Ok(())
    }

    /// The free block that serves a request, which is now safe to use on the stream; none if the resource has to grow. It is still in its list.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(super) fn search(
        &mut self,
        lists: &mut impl Lists,
        driver: &mut dyn Driver,
        number: u32,
        size: u64,
    ) -> Result<Option<u32>, DriverError> {
        let own = self.list(lists, number);
        if let Some(block) = lists.find(own, size) {
            return Ok(Some(block));
        }
        self.search_others(lists, driver, number, size)
    }

    #[cold]
    fn search_others(
        &mut self,
        lists: &mut impl Lists,
        driver: &mut dyn Driver,
        number: u32,
        size: u64,
    ) -> Result<Option<u32>, DriverError> {
        for at in 0..self.listed.len() {
            let other = self.listed[at];
            if other != number
                && let Some(block) = lists.find(self.stream(other).list, size)
            {
                self.wait(driver, number, other)?;
                return Ok(Some(block));
            }
        }
        while let Some(at) = self.listed.iter().position(|other| *other != number) {
            let other = self.listed[at];
            self.wait(driver, number, other)?;
            if self.record_merged {
                self.record(driver, number)?;
            }
            self.listed.remove(at);
            let from = std::mem::replace(&mut self.streams[other as usize].list, NONE);
            let own = lists.merge(self.stream(number).list, from);
            self.streams[number as usize].list = own;
            if let Some(block) = lists.find(own, size) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }
}
