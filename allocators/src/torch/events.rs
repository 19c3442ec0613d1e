//! Blocks used on several streams: events, and what waits for them.
//!
//! | rule | what it says |
//! |---|---|
//! | `own-stream` | recording a block's own stream does nothing, twice the same stream counts once (RULES 16) |
//! | `at-free` | events are recorded when the block is freed, per stream in ascending order (RULES 16, `record_stream_delay`) |
//! | `noticed` | completed events are noticed at the next request, before its search, or in a full release; not by free or statistics (RULES 16) |
//! | `per-stream` | a stream's events are looked at in order of recording, up to the first that is not complete (`record_stream_order`) |
//! | `capture` | during a capture events are neither recorded nor looked at; streams recorded during it are dropped for blocks freed during it (RULES 29, `capture_events`) |
//! | `legacy-queue` | before 2019 one queue held the events of all streams, and nothing ever waited for one |
//! | `unseen` | ours: a free whose completion this run cannot see waits like one with an event, until it is told or until everything is waited for |

use std::collections::VecDeque;

use vramlab_sim::allocator::AllocError;
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::Caching;
use super::pieces::State;
use super::settings::Version;

/// Streams that a block in use was recorded on, besides its own.
#[derive(Clone, Debug, Default)]
struct Recorded {
    /// Ascending.
    streams: Vec<StreamId>,
    /// Those of them that were recorded during a capture.
    captured: Vec<StreamId>,
}

/// Events of one stream and the pieces that wait for them, oldest first.
#[derive(Clone, Debug)]
struct Queue {
    stream: StreamId,
    waiting: VecDeque<(EventId, u32)>,
}

/// All that waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// By stream; the legacy version has one.
    queues: Vec<Queue>,
    outstanding: usize,
    idle: Vec<EventId>,
    recorded: Vec<Recorded>,
    recorded_vacant: Vec<u32>,
    /// Freed during a capture, in order.
    deferred: Vec<u32>,
    /// Freed with unseen completion, in order.
    unseen: Vec<u32>,
}

impl Events {
    /// Is there anything to look at before the next search?
    pub(super) fn is_busy(&self) -> bool {
        self.outstanding > 0 || !self.deferred.is_empty()
    }

    fn queue(&mut self, stream: StreamId) -> &mut VecDeque<(EventId, u32)> {
        let at = self.queues.partition_point(|queue| queue.stream < stream);
        if self.queues.get(at).is_none_or(|queue| queue.stream != stream) {
            self.queues.insert(at, Queue { stream, waiting: VecDeque::new() });
        }
        &mut self.queues[at].waiting
    }

    /// A new entry for a block's streams.
    fn enter(&mut self) -> u32 {
        self.recorded_vacant.pop().unwrap_or_else(|| {
            self.recorded.push(Recorded::default());
            self.recorded.len() as u32 - 1
        })
    }

    fn leave(&mut self, entry: u32) -> Recorded {
        self.recorded_vacant.push(entry);
        std::mem::take(&mut self.recorded[entry as usize])
    }
}

fn insert(list: &mut Vec<StreamId>, stream: StreamId) {
    if let Err(at) = list.binary_search(&stream) {
        list.insert(at, stream);
    }
}

impl Caching {
    /// The piece in use is also used on `stream` (rule `own-stream`).
    pub(super) fn record_stream(&mut self, piece: u32, stream: StreamId) {
        let set = self.pieces.segment_of(piece).set;
        if self.pools.set(set).stream == stream {
            return;
        }
        if self.pieces.state(piece) == State::Used {
            let entry = self.events.enter();
            let piece = self.pieces.get_mut(piece);
            piece.set_state(State::Shared);
            piece.set_extra(entry);
        }
        let capturing = self.is_capturing();
        let entry = &mut self.events.recorded[self.pieces.get(piece).extra() as usize];
        insert(&mut entry.streams, stream);
        if capturing {
            insert(&mut entry.captured, stream);
        }
    }

    /// A piece that other streams used is freed.
    #[cold]
    pub(super) fn free_shared(
        &mut self,
        driver: &mut dyn Driver,
        piece: u32,
    ) -> Result<(), AllocError> {
        self.book_waiting(piece);
        if self.is_capturing() {
            self.pieces.get_mut(piece).set_state(State::Deferred);
            self.events.deferred.push(piece);
        } else {
            let recorded = self.events.leave(self.pieces.get(piece).extra());
            self.record_events(driver, piece, &recorded.streams)?;
        }
        self.update_chores();
        Ok(())
    }

    /// A piece in use is freed, and unseen work still uses it (rule `unseen`).
    pub(super) fn free_unseen(&mut self, piece: u32) {
        self.book_waiting(piece);
        if self.pieces.state(piece) == State::Shared {
            self.events.leave(self.pieces.get(piece).extra());
        }
        self.pieces.get_mut(piece).set_state(State::Unseen);
        self.events.unseen.push(piece);
    }

    fn book_waiting(&mut self, piece: u32) {
        let (kind, at) = (self.kind_of(piece), self.pieces.get(piece));
        let (units, bytes) = (at.size, at.bytes());
        self.tally.wait(kind, bytes);
        self.book_oversize_free(units);
    }

    /// The unseen work of a piece ended.
    pub(super) fn complete_unseen(&mut self, piece: u32) {
        match self.pieces.state(piece) {
            State::Unseen => {
                self.events.unseen.retain(|&unseen| unseen != piece);
                self.arrive(piece);
            }
            // It came back before, when everything was waited for.
            State::Ghost => self.pieces.vacate(piece),
            _ => {}
        }
    }

    fn record_events(
        &mut self,
        driver: &mut dyn Driver,
        piece: u32,
        streams: &[StreamId],
    ) -> Result<(), AllocError> {
        for &stream in streams {
            let event = match self.events.idle.pop() {
                Some(event) => event,
                None => driver.event_create()?,
            };
            driver.event_record(event, stream)?;
            let legacy = self.settings.version == Version::Legacy;
            let queue = if legacy { StreamId(0) } else { stream };
            self.events.queue(queue).push_back((event, piece));
        }
        self.events.outstanding += streams.len();
        if streams.is_empty() {
            self.arrive(piece);
        } else {
            let piece = self.pieces.get_mut(piece);
            piece.set_state(State::Waiting);
            piece.set_extra(streams.len() as u32);
        }
        Ok(())
    }

    /// Records the events of pieces that were freed during a capture (rule `capture`).
    fn record_deferred(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        for piece in std::mem::take(&mut self.events.deferred) {
            let Recorded { mut streams, captured } =
                self.events.leave(self.pieces.get(piece).extra());
            streams.retain(|stream| captured.binary_search(stream).is_err());
            self.record_events(driver, piece, &streams)?;
        }
        Ok(())
    }

    /// Takes back what became free, if no capture is under way (rule `noticed`).
    pub(super) fn process_events(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if self.is_capturing() {
            return Ok(());
        }
        self.record_deferred(driver)?;
        for at in 0..self.events.queues.len() {
            while let Some(&(event, piece)) = self.events.queues[at].waiting.front() {
                if !driver.event_query(event)? {
                    break;
                }
                self.events.queues[at].waiting.pop_front();
                self.event_done(event, piece);
            }
        }
        self.update_chores();
        Ok(())
    }

    fn event_done(&mut self, event: EventId, piece: u32) {
        self.events.idle.push(event);
        self.events.outstanding -= 1;
        let at = self.pieces.get_mut(piece);
        let left = at.extra() - 1;
        at.set_extra(left);
        if left == 0 {
            self.arrive(piece);
        }
    }

    /// Waits for everything outstanding, and takes it back.
    pub(super) fn wait_for_events(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        self.tally.counts.syncs += 1;
        self.record_deferred(driver)?;
        for at in 0..self.events.queues.len() {
            while let Some((event, piece)) = self.events.queues[at].waiting.pop_front() {
                driver.event_synchronize(event)?;
                self.event_done(event, piece);
            }
        }
        for piece in std::mem::take(&mut self.events.unseen) {
            let moved = self.pieces.haunt(piece);
            self.arrive(moved);
        }
        self.update_chores();
        Ok(())
    }

    /// A piece that waited is free.
    fn arrive(&mut self, piece: u32) {
        let at = self.pieces.get(piece);
        let (bytes, requested) = (at.bytes(), at.requested());
        self.tally.arrive(self.kind_of(piece), bytes, requested);
        self.give_back(piece);
    }
}
