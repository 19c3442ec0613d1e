//! The strategy itself: requests, frees, notices. Moving buffers is in `moves` and `room`, uses are in `uses`.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::{Address, Driver, DriverExt};
use vramlab_sim::units::StreamId;

use super::buffers::{Buffer, Buffers, Newest, State, Stored};
use super::counters::Counters;
use super::file::File;
use super::foresight::Foresight;
use super::host::Host;
use super::lines::{LineId, Lines};
use super::order::Order;
use super::settings::{RestartAt, Settings};
use super::stopwatch::Stopwatch;
use crate::parts::limit::Limit;
use crate::parts::nulls::Nulls;

/// Device, host and file, and a policy.
pub(super) struct Tiered {
    pub(super) inner: Box<dyn Allocator>,
    /// What the device tier may have of the device.
    pub(super) limit: Limit,
    pub(super) host: Host,
    pub(super) file: File,
    pub(super) foresight: Box<dyn Foresight>,
    pub(super) settings: Settings,
    pub(super) buffers: Buffers,
    /// Buffers on the device that may leave it.
    pub(super) order: Order,
    /// Buffers with a copy in host memory: first those that are on the device too.
    pub(super) host_order: Order,
    pub(super) lines: Lines,
    pub(super) watch: Stopwatch,
    pub(super) counters: Counters,
    nulls: Nulls,
    /// Announced works.
    pub(super) work: u64,
    /// Something has been copied: from here on works are marked.
    pub(super) moving: bool,
    /// Bytes that could be in use when the device last refused; more is not asked for.
    pub(super) capacity: Option<u64>,
    /// Bytes of the device.
    total: Option<u64>,
    /// A restart is due with the next announcement.
    pub(super) restart_due: bool,
    /// Captures and private pools under way.
    capturing: u32,
}

impl Tiered {
    pub(super) fn new(
        inner: Box<dyn Allocator>,
        settings: Settings,
        foresight: Box<dyn Foresight>,
    ) -> Self {
        Self {
            inner,
            limit: Limit::new(settings.device_bytes),
            host: Host::new(settings.host_bytes, settings.host_chunk),
            file: File::default(),
            foresight,
            settings,
            buffers: Buffers::default(),
            order: Order::default(),
            host_order: Order::default(),
            lines: Lines::new(),
            watch: Stopwatch::default(),
            counters: Counters::default(),
            nulls: Nulls::default(),
            work: 0,
            moving: false,
            capacity: None,
            total: None,
            restart_due: false,
            capturing: 0,
        }
    }

    /// Does the buffer stay where it is? A placement holds until the next announcement, and again if that names it.
    pub(super) fn stays(&self, slot: u32) -> bool {
        let Buffer { born, pinned, fixed, .. } = *self.buffers.get(slot);
        fixed || born == self.work || pinned == self.work
    }

    /// Could the device have room for `size` bytes, as far as is known?
    pub(super) fn may_fit(&self, size: u64) -> bool {
        let after = self.inner.usage().active.checked_add(size);
        self.capacity.is_none_or(|capacity| after.is_some_and(|after| after <= capacity))
    }

    /// Bytes of the device, within the limit; the driver is asked once.
    fn total(&mut self, driver: &mut dyn Driver) -> Result<u64, AllocError> {
        match self.total {
            Some(total) => Ok(total),
            None => {
                let total = self.limit.around(driver).mem_info()?.1;
                self.total = Some(total);
                Ok(total)
            }
        }
    }

    /// Asks the inner strategy, within the limit.
    pub(super) fn ask(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let answer = self.limit.alloc(&mut *self.inner, driver, request);
        if let Err(AllocError::OutOfMemory(numbers)) = &answer {
            self.capacity = Some(numbers.reserved.saturating_add(numbers.device_free));
        }
        answer
    }

    /// Rule `born`: on the device, else in host memory until it is used.
    fn place(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
        home: LineId,
    ) -> Result<(Buffer, Address, u64), AllocError> {
        let mut buffer = Buffer {
            state: State::Live,
            size: request.size,
            ordinal: request.ordinal,
            home: (home, request.stream),
            born: self.work,
            last_use: self.work,
            fixed: self.capturing > 0,
            ..Buffer::default()
        };
        self.watch.request_begins(request.stream);
        let found = self.find_place(driver, request);
        self.watch.request_ends(driver, &mut self.lines)?;
        let refusal = match found {
            Err(refusal @ AllocError::OutOfMemory(_)) => refusal,
            placement => return Ok(buffer.born_on_device(placement?)),
        };
        // what the empty device could not hold is refused
        if !buffer.fixed
            && request.size <= self.total(driver)?
            && let Some(block) = self.host_room(driver, request.size, home)?
        {
            buffer.host = Some(Stored { at: block, bytes: request.size, packed: false });
            buffer.newest = Newest { host: true, ..Newest::default() };
            buffer.newborn = true;
            return Ok((buffer, block.address, block.size));
        }
        Err(refusal)
    }

    /// Before a block goes back: what is queued next on these streams comes after the copies of it.
    fn order_copies(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let buffer = self.buffers.get(slot);
        let (home, copies) = (buffer.home.0, buffer.copies);
        let other = stream.map(|stream| self.lines.of(stream));
        for later in [Some(home), other].into_iter().flatten() {
            for (line, count) in copies.iter().enumerate() {
                self.lines.follow(driver, later, line, *count)?;
            }
        }
        Ok(())
    }

    /// A buffer's copies off the device go, and its slot; not what the inner strategy holds.
    fn forget(&mut self, slot: u32) {
        self.foresight.gone(slot);
        self.order.remove(slot);
        self.host_order.remove(slot);
        let buffer = self.buffers.get_mut(slot);
        if let Some(stored) = buffer.host.take() {
            self.host.give(stored.at, buffer.host_users());
        }
        if let Some(stored) = buffer.file.take() {
            self.file.give(stored.at);
        }
        if buffer.device.is_some() {
            self.counters.not_resident(buffer.size, buffer.prefetched);
        }
    }

    fn defer(&mut self, driver: &mut dyn Driver, block: Block) -> Result<Reply, AllocError> {
        let slot = self.buffers.find(block)?;
        let Some(placement) = self.buffers.get(slot).device else {
            // off the device, nothing unseen can be using it
            self.mark_birth(driver, slot)?;
            self.forget(slot);
            self.buffers.vacate(slot);
            return Ok(Reply::Done);
        };
        self.order_copies(driver, slot, None)?;
        let deferred = Notice::FreeDeferred { block: placement.block };
        let reply = self.inner.notice(&mut self.limit.around(driver), deferred)?;
        if reply != Reply::Unsupported {
            self.forget(slot);
            self.buffers.get_mut(slot).state = State::Deferred;
        }
        Ok(reply)
    }

    fn complete(&mut self, driver: &mut dyn Driver, block: Block) -> Result<Reply, AllocError> {
        let Some(slot) = self.buffers.find_in(block, State::Deferred) else {
            return Ok(Reply::Done);
        };
        if let Some(placement) = self.buffers.get_mut(slot).device.take() {
            let completed = Notice::Completed { block: placement.block };
            self.inner.notice(&mut self.limit.around(driver), completed)?;
        }
        self.buffers.vacate(slot);
        Ok(Reply::Done)
    }

    fn record(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<Reply, AllocError> {
        if self.nulls.is_live(block) {
            return Ok(Reply::Done);
        }
        let slot = self.buffers.find(block)?;
        let buffer = self.buffers.get_mut(slot);
        if !buffer.recorded.contains(&stream) {
            buffer.recorded.push(stream);
        }
        match buffer.device {
            None => Ok(Reply::Done),
            Some(Placement { block, .. }) => {
                let recorded = Notice::RecordStream { block, stream };
                self.inner.notice(&mut self.limit.around(driver), recorded)
            }
        }
    }
}

impl Allocator for Tiered {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        let home = self.lines.of(request.stream);
        let (buffer, address, size) = self.place(driver, request, home)?;
        let (slot, block) = self.buffers.add(buffer);
        self.foresight.born(slot, request.ordinal, request.size);
        if self.buffers.get(slot).device.is_some() {
            self.counters.resident(request.size);
        }
        self.rank(slot);
        Ok(Placement { block, address, size })
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if self.nulls.take(block) {
            return Ok(());
        }
        let slot = self.buffers.find(block)?;
        if let Some(placement) = self.buffers.get(slot).device {
            self.order_copies(driver, slot, stream)?;
            self.inner.free(&mut self.limit.around(driver), placement.block, stream)?;
        }
        self.mark_birth(driver, slot)?;
        self.forget(slot);
        self.buffers.vacate(slot);
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, stream } => return self.record(driver, block, stream),
            Notice::FreeDeferred { block } => {
                if self.nulls.take(block) {
                    return Ok(Reply::Done);
                }
                return self.defer(driver, block);
            }
            Notice::Completed { block } => return self.complete(driver, block),
            // where an inner block lies is this strategy's affair
            Notice::Resize { .. } | Notice::Adopt(_) => return Ok(Reply::Unsupported),
            Notice::Mark { name } if matches!(&self.settings.restart_at, Some(RestartAt::Mark(at)) if at == name) =>
            {
                self.restart_due = true;
                self.settings.restart_at = None;
            }
            Notice::EmptyCache => self.host.empty(driver, &mut self.lines)?,
            Notice::PoolBegin { .. } | Notice::CaptureBegin { .. } => self.capturing += 1,
            Notice::PoolEnd { .. } | Notice::CaptureEnd { .. } => {
                self.capturing = self.capturing.saturating_sub(1);
            }
            Notice::ResetPeak => self.counters.reset_peak(),
            Notice::Counters => self.watch.read(driver, &mut self.lines)?,
            _ => {}
        }
        let counted = notice == Notice::Counters;
        let reply = self.inner.notice(&mut self.limit.around(driver), notice)?;
        if !counted {
            return Ok(reply);
        }
        let mut counters =
            if let Reply::Counters(counters) = reply { counters } else { Vec::new() };
        self.counters.list(&self.watch, &mut counters);
        self.foresight.counters(&mut counters);
        Ok(Reply::Counters(counters))
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.announce(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.used(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
