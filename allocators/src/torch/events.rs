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

use vramlab_sim::allocator::AllocError;
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::Caching;
use super::pieces::{State, WALL};
use super::recorded::Recorded;

/// Events of one stream and the pieces that wait for them, oldest first.
#[derive(Clone, Debug)]
struct Queue {
    stream: StreamId,
    /// Those before `first` are gone.
    waiting: Vec<(EventId, u32)>,
    first: usize,
}

impl Queue {
    /// Gone ones that may lie in front, at least, before the others move up.
    const GONE_MIN: usize = 256;

    fn front(&self) -> Option<(EventId, u32)> {
        self.waiting.get(self.first).copied()
    }

    fn pop(&mut self) {
        self.first += 1;
        if self.first == self.waiting.len() {
            self.waiting.clear();
            self.first = 0;
        } else if self.first >= Self::GONE_MIN && self.first * 2 >= self.waiting.len() {
            self.waiting.drain(..self.first);
            self.first = 0;
        }
    }
}

/// All that waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// By stream; the legacy version has one.
    queues: Vec<Queue>,
    outstanding: usize,
    idle: Vec<EventId>,
    recorded: Recorded,
    /// Freed during a capture, in order.
    deferred: Vec<u32>,
    /// Freed with unseen completion, in order; each piece knows its place. The wall: told since.
    unseen: Vec<u32>,
    /// How many of those are walls.
    told: usize,
}

impl Events {
    /// Is there anything to look at before the next search?
    pub(super) fn is_busy(&self) -> bool {
        self.outstanding > 0 || !self.deferred.is_empty()
    }

    fn queue(&mut self, stream: StreamId) -> &mut Vec<(EventId, u32)> {
        let found = self.queues.iter().position(|queue| queue.stream >= stream);
        let at = found.unwrap_or(self.queues.len());
        if self.queues.get(at).is_none_or(|queue| queue.stream != stream) {
            self.queues.insert(at, Queue { stream, waiting: Vec::new(), first: 0 });
        }
        &mut self.queues[at].waiting
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
        let capturing = self.is_capturing();
        let piece = self.pieces.get_mut(piece);
        let mark = if piece.is(State::Used) { 0 } else { piece.extra() };
        piece.set_state(State::Shared);
        piece.set_extra(self.events.recorded.add(mark, stream, capturing));
    }

    /// A piece that other streams used is freed.
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
        let at = self.pieces.get_mut(piece);
        if at.is(State::Shared) {
            self.events.recorded.drop(at.extra());
        }
        at.set_state(State::Unseen);
        at.set_extra(self.events.unseen.len() as u32);
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
                self.events.unseen[self.pieces.get(piece).extra() as usize] = WALL;
                self.events.told += 1;
                if self.events.told * 2 > self.events.unseen.len() {
                    self.forget_told();
                }
                self.arrive(piece);
            }
            // It came back before, when everything was waited for.
            State::Ghost => self.pieces.vacate(piece),
            _ => {}
        }
    }

    /// The pieces whose completion is still to come move up.
    fn forget_told(&mut self) {
        self.events.told = 0;
        self.events.unseen.retain(|piece| *piece != WALL);
        for (at, piece) in self.events.unseen.iter().enumerate() {
            self.pieces.get_mut(*piece).set_extra(at as u32);
        }
    }

    /// Records an event on each stream of a piece, which waits for them from now on.
    fn record_events(&mut self, driver: &mut dyn Driver, piece: u32) -> Result<(), AllocError> {
        let mut mark = self.pieces.get(piece).extra();
        let mut count = 0;
        while let Some(stream) = self.events.recorded.pop(&mut mark) {
            let event = match self.events.idle.pop() {
                Some(event) => event,
                None => driver.event_create()?,
            };
            driver.event_record(event, stream)?;
            let queue = if self.is_legacy() { StreamId(0) } else { stream };
            self.events.queue(queue).push((event, piece));
            count += 1;
        }
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
            let at = self.pieces.get_mut(piece);
            at.set_extra(self.events.recorded.forget_captured(at.extra()));
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
            while let Some((event, piece)) = self.events.queues[at].front() {
                match driver.call(Call::EventQuery { event }) {
                    Ok(Answer::Flag(true)) => {}
                    Ok(Answer::Flag(false)) => break,
                    Ok(other) => return Err(no_flag(&other)),
                    Err(error) => return Err(error.into()),
                }
                self.events.queues[at].pop();
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
            while let Some((event, piece)) = self.events.queues[at].front() {
                driver.event_synchronize(event)?;
                self.events.queues[at].pop();
                self.event_done(event, piece);
            }
        }
        let unseen = std::mem::take(&mut self.events.unseen);
        self.events.told = 0;
        for piece in unseen.into_iter().filter(|piece| *piece != WALL) {
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
