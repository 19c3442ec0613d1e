//! Copies between the tiers, each ordered after what it depends on by events.
//!
//! ```text
//!             ┌─ OUT: after the last uses, and after it came ─┐        ┌─ FILE: after OUT ─┐
//!   device ───┘                                               └▶ host ─┘                   └▶ file
//!      ▲                                                        │ ▲                           │
//!      └─ IN: after the memory is free in its home stream's ────┘ └─ FILE: after the host ────┘
//!         order, which is after OUT, and after FILE                  memory is free
//! ```

use vramlab_sim::allocator::AllocError;
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::machine::Direction;

use super::buffers::{State, Stored};
use super::host::HostBlock;
use super::lines::{FILE, IN, OUT};
use super::order::class;
use super::settings::Persistent;
use super::strategy::Tiered;

impl Tiered {
    /// Copies a buffer from device to host memory, compressed if it is `leaving` and that is on; false if the host has no room.
    pub(super) fn copy_out(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        leaving: bool,
    ) -> Result<bool, AllocError> {
        let size = self.buffers.get(slot).size;
        let compress = self.settings.compress.filter(|_| leaving);
        let bytes = compress.map_or(size, |compress| compress.bytes(size));
        let Some(at) = self.host_room(driver, bytes, OUT)? else { return Ok(false) };
        let stored = Stored { at, bytes, packed: compress.is_some() };
        if let Err(error) = self.queue_out(driver, slot, stored) {
            self.host.give(at, std::iter::empty());
            return Err(error);
        }
        let buffer = self.buffers.get_mut(slot);
        buffer.host = Some(stored);
        buffer.newest.host = true;
        self.counters.bytes_to_host += bytes;
        self.moving = true;
        self.rank_host(slot);
        if self.settings.persistent == Persistent::WriteThrough {
            self.persist(driver, slot)?;
        }
        Ok(true)
    }

    fn queue_out(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        to: Stored<HostBlock>,
    ) -> Result<(), AllocError> {
        let buffer = self.buffers.get_mut(slot);
        let Some(from) = buffer.device else { return Ok(()) };
        if buffer.uses.is_empty() {
            // filled by work that named no buffers, on the stream of its request if anywhere
            self.lines.follow_now(driver, OUT, buffer.home.0)?;
        }
        for (line, count) in &buffer.uses {
            self.lines.follow(driver, OUT, *line, *count)?;
        }
        self.lines.follow(driver, OUT, IN, buffer.copies[IN])?;
        let stream = self.lines.stream(driver, OUT)?;
        if let Some(compress) = self.settings.compress.filter(|_| to.packed) {
            driver.launch_kernel(stream, compress.ns(buffer.size))?;
        }
        driver.copy(from.address, to.at.address, to.bytes, Direction::DeviceToHost, stream)?;
        buffer.copies[OUT] = self.lines.mark(driver, OUT)?;
        Ok(())
    }

    /// Copies a buffer from host memory to its place on the device. The host copy stays, for as long as there is room for it.
    pub(super) fn copy_in(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), AllocError> {
        let buffer = self.buffers.get_mut(slot);
        let (Some(to), Some(from)) = (buffer.device, buffer.host) else { return Ok(()) };
        // which waited for OUT when the buffer left
        self.lines.follow_now(driver, IN, buffer.home.0)?;
        buffer.newborn = false;
        self.lines.follow(driver, IN, FILE, buffer.copies[FILE])?;
        let stream = self.lines.stream(driver, IN)?;
        driver.copy(from.at.address, to.address, from.bytes, Direction::HostToDevice, stream)?;
        if let Some(compress) = self.settings.compress.filter(|_| from.packed) {
            driver.launch_kernel(stream, compress.ns(buffer.size))?;
        }
        buffer.copies[IN] = self.lines.mark(driver, IN)?;
        buffer.newest.device = true;
        self.counters.bytes_to_device += from.bytes;
        self.moving = true;
        self.rank_host(slot);
        Ok(())
    }

    /// Writes a buffer's host copy to the file.
    pub(super) fn persist(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), AllocError> {
        let buffer = self.buffers.get_mut(slot);
        let Some(from) = buffer.host else { return Ok(()) };
        if let Some(old) = buffer.file.filter(|old| old.at.size < from.bytes) {
            self.file.give(old.at);
            buffer.file = None;
        }
        let at = buffer.file.map_or_else(|| self.file.take(from.bytes), |old| old.at);
        buffer.file = Some(Stored { at, bytes: from.bytes, packed: from.packed });
        if buffer.copies[OUT] == 0 {
            // filled where it was born, by work that named no buffers
            self.lines.follow_now(driver, FILE, buffer.home.0)?;
            buffer.newborn = false;
        }
        self.lines.follow(driver, FILE, OUT, buffer.copies[OUT])?;
        let stream = self.lines.stream(driver, FILE)?;
        driver.file_write(from.at.address, at.offset, from.bytes, stream)?;
        buffer.copies[FILE] = self.lines.mark(driver, FILE)?;
        buffer.newest.file = true;
        self.counters.bytes_to_file += from.bytes;
        self.moving = true;
        Ok(())
    }

    /// Reads a buffer from the file into host memory; false if the host has no room.
    pub(super) fn stage(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<bool, AllocError> {
        let Some(from) = self.buffers.get(slot).file else { return Ok(true) };
        let Some(at) = self.host_room(driver, from.bytes, FILE)? else { return Ok(false) };
        let stream = self.lines.stream(driver, FILE)?;
        if let Err(error) = driver.file_read(from.at.offset, at.address, from.bytes, stream) {
            self.host.give(at, std::iter::empty());
            return Err(error.into());
        }
        let buffer = self.buffers.get_mut(slot);
        buffer.host = Some(Stored { at, bytes: from.bytes, packed: from.packed });
        buffer.newest.host = true;
        buffer.copies[FILE] = self.lines.mark(driver, FILE)?;
        self.counters.bytes_from_file += from.bytes;
        self.moving = true;
        self.rank_host(slot);
        Ok(true)
    }

    /// Before a newborn buffer's host memory goes: who gets it next comes after what its home stream may have done with it.
    pub(super) fn mark_birth(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
    ) -> Result<(), AllocError> {
        let buffer = self.buffers.get_mut(slot);
        if buffer.newborn {
            let home = buffer.home.0;
            buffer.birth = Some((home, self.lines.mark(driver, home)?));
        }
        Ok(())
    }

    /// A buffer's host copy is not needed any more.
    pub(super) fn drop_host(&mut self, slot: u32) {
        self.host_order.remove(slot);
        let buffer = self.buffers.get_mut(slot);
        buffer.newest.host = false;
        if let Some(stored) = buffer.host.take() {
            self.host.give(stored.at, buffer.host_users());
            (buffer.newborn, buffer.birth) = (false, None);
        }
    }

    /// The buffer's place among those that may leave the device. Never one that stays, or is not there.
    pub(super) fn rank(&mut self, slot: u32) {
        let buffer = self.buffers.get(slot);
        if buffer.device.is_none() || buffer.fixed || buffer.state != State::Live {
            self.order.remove(slot);
        } else {
            let recent = self.foresight.recent_first();
            let by_last = if recent { u64::MAX - buffer.last_use } else { buffer.last_use };
            let key = match self.foresight.next_use(slot) {
                _ if buffer.size < self.settings.min_bytes => (class::SMALL, by_last),
                Some(next) => (class::FORESEEN, u64::MAX - next),
                None => (class::UNFORESEEN, by_last),
            };
            self.order.put(slot, key);
        }
        self.rank_host(slot);
    }

    /// The buffer's place among those with a copy in host memory: those whose copy is spare come first.
    pub(super) fn rank_host(&mut self, slot: u32) {
        let buffer = self.buffers.get(slot);
        if buffer.host.is_none() {
            self.host_order.remove(slot);
        } else {
            let only_here = buffer.device.is_none();
            self.host_order.put(slot, (u8::from(only_here), buffer.last_use));
        }
    }
}
