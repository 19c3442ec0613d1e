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
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::Caching;
use super::pieces::State;

/// A set of streams: a bit for each of the first 64, a list for others, so that the usual few need no memory of their own.
#[derive(Clone, Debug, Default)]
struct Streams {
    bits: u64,
    /// Ascending.
    others: Vec<StreamId>,
}

impl Streams {
    fn insert(&mut self, stream: StreamId) {
        if stream.0 < u64::BITS {
            self.bits |= 1 << stream.0;
        } else if let Err(at) = self.others.binary_search(&stream) {
            self.others.insert(at, stream);
        }
    }

    fn remove_all(&mut self, gone: &Self) {
        self.bits &= !gone.bits;
        self.others.retain(|stream| gone.others.binary_search(stream).is_err());
    }

    fn clear(&mut self) {
        self.bits = 0;
        self.others.clear();
    }

    /// Takes the lowest out.
    fn pop(&mut self) -> Option<StreamId> {
        if self.bits == 0 {
            return (!self.others.is_empty()).then(|| self.others.remove(0));
        }
        let stream = StreamId(self.bits.trailing_zeros());
        self.bits &= self.bits - 1;
        Some(stream)
    }
}

/// Streams that a block in use was recorded on, besides its own.
#[derive(Clone, Debug, Default)]
struct Recorded {
    streams: Streams,
    /// Those of them that were recorded during a capture.
    captured: Streams,
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

    fn leave(&mut self, entry: u32) {
        let recorded = &mut self.recorded[entry as usize];
        recorded.streams.clear();
        recorded.captured.clear();
        self.recorded_vacant.push(entry);
    }
}

#[cold]
fn no_flag(other: &Answer) -> AllocError {
    let what = format!("answered {other:?}, expected a flag").into();
    DriverError::Failed { call: "cudaEventQuery", what }.into()
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
        entry.streams.insert(stream);
        if capturing {
            entry.captured.insert(stream);
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
            self.record_events(driver, piece)?;
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

    /// Records an event on each stream of a piece, which waits for them from now on.
    fn record_events(&mut self, driver: &mut dyn Driver, piece: u32) -> Result<(), AllocError> {
        let entry = self.pieces.get(piece).extra();
        let mut count = 0;
        while let Some(stream) = self.events.recorded[entry as usize].streams.pop() {
            let event = match self.events.idle.pop() {
                Some(event) => event,
                None => driver.event_create()?,
            };
            driver.event_record(event, stream)?;
            let queue = if self.is_legacy() { StreamId(0) } else { stream };
            self.events.queue(queue).push_back((event, piece));
            count += 1;
        }
        self.events.leave(entry);
        self.events.outstanding += count as usize;
        if count == 0 {
            self.arrive(piece);
        } else {
            let piece = self.pieces.get_mut(piece);
            piece.set_state(State::Waiting);
            piece.set_extra(count);
        }
        Ok(())
    }

    /// Records the events of pieces that were freed during a capture (rule `capture`).
    fn record_deferred(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        for piece in std::mem::take(&mut self.events.deferred) {
            let recorded = &mut self.events.recorded[self.pieces.get(piece).extra() as usize];
            recorded.streams.remove_all(&recorded.captured);
            self.record_events(driver, piece)?;
        }
        Ok(())
    }

    /// Takes back what became free, if no capture is under way (rule `noticed`).
    pub(super) fn process_events(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if self.is_capturing() {
            return Ok(());
        }
        if !self.events.deferred.is_empty() {
            self.record_deferred(driver)?;
        }
        for at in 0..self.events.queues.len() {
            while let Some(&(event, piece)) = self.events.queues[at].waiting.front() {
                match driver.call(Call::EventQuery { event })? {
                    Answer::Flag(true) => {}
                    Answer::Flag(false) => break,
                    other => return Err(no_flag(&other)),
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
