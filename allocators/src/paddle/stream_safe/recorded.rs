//! Uses of blocks by streams that do not own them: an event for each block and stream.

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::Block;
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

#[derive(Clone, Copy, Debug)]
struct Mark {
    stream: StreamId,
    /// None: recorded while a graph was captured, when no event may be.
    event: Option<EventId>,
}

/// By block. Looked up, never walked.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    marks: FxHashMap<Block, Vec<Mark>>,
    capturing: bool,
}

impl Recorded {
    /// A capture begins or ends.
    pub(super) fn set_capturing(&mut self, on: bool) {
        self.capturing = on;
    }

    /// The block is used by what is queued on the stream until now.
    pub(super) fn record(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let marks = self.marks.entry(block).or_default();
        let at = marks.iter().position(|mark| mark.stream == stream).unwrap_or_else(|| {
            marks.push(Mark { stream, event: None });
            marks.len() - 1
        });
        if self.capturing { Ok(()) } else { mark_now(driver, &mut marks[at]) }
    }

    /// Are all uses of the block complete? Then nothing is known of it any more.
    #[inline]
    pub(super) fn are_complete(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
    ) -> Result<bool, DriverError> {
        if self.marks.is_empty() { Ok(true) } else { self.look(driver, block) }
    }

    fn look(&mut self, driver: &mut dyn Driver, block: Block) -> Result<bool, DriverError> {
        let Some(marks) = self.marks.get_mut(&block) else { return Ok(true) };
        if self.capturing {
            return Ok(false);
        }
        for mark in marks.iter_mut().filter(|mark| mark.event.is_none()) {
            mark_now(driver, mark)?;
        }
        while let Some(Mark { event: Some(event), .. }) = marks.first().copied() {
            if !driver.event_query(event)? {
                return Ok(false);
            }
            driver.event_destroy(event)?;
            marks.remove(0);
        }
        self.marks.remove(&block);
        Ok(true)
    }
}

/// Moves the mark's event to the present end of its stream.
fn mark_now(driver: &mut dyn Driver, mark: &mut Mark) -> Result<(), DriverError> {
    let event = match mark.event {
        Some(event) => event,
        None => driver.event_create()?,
    };
    mark.event = Some(event);
    driver.event_record(event, mark.stream)
}
