//! What stands in front of a memory resource that knows streams but nothing of recorded ones: tokens, null placements, and what its user has to do.
//!
//! | rule | what it says |
//! |---|---|
//! | `null` | a request for 0 bytes gets a null placement |
//! | `made_late` | what a resource asks of the device when it is made, it asks at the first request; if it cannot be made, each request says so and tries again |
//! | `free_stream` | a free without a stream is one on the stream of the request, as when a buffer object is dropped |
//! | `user_joins` | such a resource has no `record_stream`: before the free its user makes the stream on which the memory is used next wait for every other stream that used the buffer. So a recorded stream costs an event and a stream wait at the free |
//! | `user_holds` | nor has it a deferred free: its user frees the buffer once the work is over. So the notice is not supported, and whoever gave it waits |

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, LayoutSegment, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::nulls::Nulls;

/// A memory resource.
pub(crate) trait Resource: Send {
    /// Does what its constructor does with the device. When it fails, nothing is held.
    ///
    /// # Errors
    /// Out of memory, an argument that does not fit this device, or a driver error.
    fn construct(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError>;

    /// A block of `size` bytes (1 or more) for `stream`.
    ///
    /// # Errors
    /// As [`Allocator::alloc`].
    fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError>;

    /// Slot and stream of a live block.
    fn find(&self, block: Block) -> Option<(u32, StreamId)>;

    /// A block comes back, in the order of `stream`.
    ///
    /// # Errors
    /// A driver error.
    fn deallocate(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<(), DriverError>;

    /// The stream on which a block that is freed on `freed_on` may be used again with no further order.
    fn reused_on(&self, freed_on: StreamId, _allocated_on: StreamId) -> StreamId {
        freed_on
    }

    /// A notice that [`Front`] does not answer itself.
    ///
    /// # Errors
    /// As [`Allocator::notice`].
    fn other(
        &mut self,
        _driver: &mut dyn Driver,
        _notice: Notice<'_>,
    ) -> Result<Reply, AllocError> {
        Ok(Reply::Unsupported)
    }

    /// Its counters, by their names in the real system where it has them.
    fn counters(&mut self) -> Vec<(&'static str, u64)>;

    /// What is where.
    fn walk(&self) -> Vec<LayoutSegment>;

    /// Bytes in use and held.
    fn usage(&self) -> Usage;
}

/// A strategy of a resource.
#[derive(Debug, Default)]
pub(crate) struct Front<R> {
    resource: R,
    made: bool,
    nulls: Nulls,
    /// Recorded streams of live blocks, by slot; looked up, never walked.
    recorded: FxHashMap<u32, Vec<StreamId>>,
    /// For joins; none as long as no stream was recorded.
    event: Option<EventId>,
}

impl<R: Resource> Front<R> {
    pub(crate) fn new(resource: R) -> Self {
        Self {
            resource,
            made: false,
            nulls: Nulls::default(),
            recorded: FxHashMap::default(),
            event: None,
        }
    }

    /// Makes the resource now, and not at the first request.
    ///
    /// # Errors
    /// As [`Resource::construct`].
    #[cold]
    pub(crate) fn make(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        self.resource.construct(driver)?;
        self.made = true;
        Ok(())
    }

    #[inline]
    fn live(&self, block: Block) -> Result<(u32, StreamId), AllocError> {
        self.resource.find(block).ok_or(AllocError::UnknownBlock(block))
    }

    fn record(&mut self, block: Block, stream: StreamId) -> Result<(), AllocError> {
        if self.nulls.is_live(block) {
            return Ok(());
        }
        let (slot, _) = self.live(block)?;
        self.note(slot, stream);
        Ok(())
    }

    fn note(&mut self, slot: u32, stream: StreamId) {
        let streams = self.recorded.entry(slot).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Makes `to` wait for the recorded streams of a block (rule `user_joins`).
    #[cold]
    fn join(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        to: StreamId,
    ) -> Result<(), DriverError> {
        let Some(streams) = self.recorded.get(&slot) else { return Ok(()) };
        for stream in streams.iter().filter(|stream| **stream != to) {
            let event = match self.event {
                Some(event) => event,
                None => driver.event_create()?,
            };
            self.event = Some(event);
            driver.event_record(event, *stream)?;
            driver.wait_event(to, event)?;
        }
        self.recorded.remove(&slot);
        Ok(())
    }
}

impl<R: Resource> Allocator for Front<R> {
    #[inline]
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if !self.made {
            self.make(driver)?;
        }
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        self.resource.allocate(driver, request.size, request.stream)
    }

    #[inline]
    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if self.nulls.take(block) {
            return Ok(());
        }
        let (slot, allocated_on) = self.live(block)?;
        let stream = stream.unwrap_or(allocated_on);
        let to = self.resource.reused_on(stream, allocated_on);
        if to != stream {
            self.note(slot, stream);
        }
        if !self.recorded.is_empty() {
            self.join(driver, slot, to)?;
        }
        Ok(self.resource.deallocate(driver, slot, stream)?)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, stream } => self.record(block, stream)?,
            Notice::Mark { .. } => {}
            Notice::Counters => return Ok(Reply::Counters(self.resource.counters())),
            Notice::Walk => return Ok(Reply::Layout(Layout { segments: self.resource.walk() })),
            notice => return self.resource.other(driver, notice),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.resource.usage()
    }
}
