//! How long streams stood still for copies, by events of their own: one before the waits, one after them.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `wait_ns` | a stream's time between the two events | CUDA runtime API, `cudaEventElapsedTime` |
//! | `late` | a prefetch is a hit if the stream did not stand still for it, else it is late | - |
//! | `unread` | to ask must not make the host wait: waits that are not over when the counters are asked for are in none of them, and `waits_unread` says how many there are; after a last synchronisation there is none | - |

use std::collections::VecDeque;

use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::lines::Lines;

/// Pairs that may be open before their ends are asked after.
const OPEN_MANY: usize = 16;

/// Waits between two events.
#[derive(Clone, Copy, Debug)]
struct Pair {
    before: EventId,
    after: EventId,
    /// Buffers whose prefetch was waited for; 0: the waits were for buffers that nobody had foreseen.
    prefetched: u64,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    open: VecDeque<Pair>,
    /// A request on this stream is under way; the event is recorded before the first buffer leaves for it.
    request: Option<(StreamId, Option<EventId>)>,
    /// ns that streams stood still.
    pub(super) wait_ns: u64,
    /// Of it, for prefetches.
    pub(super) late_ns: u64,
    pub(super) hits: u64,
    pub(super) late: u64,
}

impl Stopwatch {
    /// A request on a stream begins.
    pub(super) fn request_begins(&mut self, stream: StreamId) {
        self.request = Some((stream, None));
    }

    /// A buffer is about to leave: for a request, if one is under way.
    pub(super) fn leaves(
        &mut self,
        driver: &mut dyn Driver,
        lines: &mut Lines,
    ) -> Result<(), DriverError> {
        if let Some((stream, before @ None)) = &mut self.request {
            *before = Some(Self::start(driver, lines, *stream)?);
        }
        Ok(())
    }

    /// The request ends.
    pub(super) fn request_ends(
        &mut self,
        driver: &mut dyn Driver,
        lines: &mut Lines,
    ) -> Result<(), DriverError> {
        match self.request.take() {
            Some((stream, Some(before))) => self.stop(driver, lines, stream, before, 0),
            _ => Ok(()),
        }
    }

    /// Before waits on a stream.
    pub(super) fn start(
        driver: &mut dyn Driver,
        lines: &mut Lines,
        stream: StreamId,
    ) -> Result<EventId, DriverError> {
        let event = lines.event(driver)?;
        driver.event_record(event, stream)?;
        Ok(event)
    }

    /// After them.
    pub(super) fn stop(
        &mut self,
        driver: &mut dyn Driver,
        lines: &mut Lines,
        stream: StreamId,
        before: EventId,
        prefetched: u64,
    ) -> Result<(), DriverError> {
        let after = Self::start(driver, lines, stream)?;
        self.open.push_back(Pair { before, after, prefetched });
        if self.open.len() > OPEN_MANY { self.read(driver, lines) } else { Ok(()) }
    }

    /// Waits that were not over when they were last asked after.
    pub(super) fn unread(&self) -> u64 {
        self.open.len() as u64
    }

    /// Reads what is complete, from the oldest on.
    pub(super) fn read(
        &mut self,
        driver: &mut dyn Driver,
        lines: &mut Lines,
    ) -> Result<(), DriverError> {
        while let Some(Pair { before, after, prefetched }) = self.open.front().copied() {
            if !driver.event_query(after)? {
                return Ok(());
            }
            let ns = driver.event_elapsed(before, after)?;
            self.open.pop_front();
            lines.spare([before, after]);
            self.wait_ns += ns;
            if prefetched > 0 {
                self.late_ns += ns;
                *(if ns > 0 { &mut self.late } else { &mut self.hits }) += prefetched;
            }
        }
        Ok(())
    }
}
