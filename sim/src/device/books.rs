//! Who holds how many bytes of one device.

use crate::driver::DriverError;
use crate::machine::Held;

/// Capacity and what is taken of it. Bytes.
#[derive(Clone, Debug)]
pub(super) struct Books {
    capacity: u64,
    host_capacity: u64,
    /// Someone else's.
    other: u64,
    held: Held,
}

impl Books {
    /// A device of `capacity` bytes, of which the context takes `context`, beside a host of `host_capacity` bytes.
    pub(super) fn new(capacity: u64, context: u64, host_capacity: u64) -> Self {
        let held = Held { device_used: context, peak_device_used: context, ..Held::default() };
        Self { capacity, host_capacity, other: 0, held }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// Bytes that nobody holds.
    pub(super) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.held.device_used).saturating_sub(self.other)
    }

    pub(super) fn set_other(&mut self, bytes: u64) {
        self.other = bytes;
    }

    /// Takes `physical` bytes of the device; `None` is more than 2^64.
    pub(super) fn take_physical(
        &mut self,
        asked: u64,
        physical: Option<u64>,
    ) -> Result<(), DriverError> {
        let free = self.free();
        let Some(physical) = physical.filter(|bytes| *bytes <= free) else {
            return Err(DriverError::OutOfMemory { asked, free });
        };
        let held = &mut self.held;
        held.device_used += physical;
        held.peak_device_used = held.peak_device_used.max(held.device_used);
        Ok(())
    }

    pub(super) fn give_physical(&mut self, physical: u64) {
        self.held.device_used -= physical;
    }

    /// Counts `bytes` as reserved by the run.
    pub(super) fn reserve(&mut self, bytes: u64) {
        let held = &mut self.held;
        held.reserved += bytes;
        held.peak_reserved = held.peak_reserved.max(held.reserved);
    }

    /// Bytes of host memory that are left, for host memory and managed ranges.
    pub(super) fn host_free(&self) -> u64 {
        self.host_capacity.saturating_sub(self.held.host).saturating_sub(self.held.managed)
    }

    /// Is there so much host memory?
    pub(super) fn check_host(&self, asked: u64) -> Result<(), DriverError> {
        let free = self.host_free();
        if asked > free { Err(DriverError::OutOfMemory { asked, free }) } else { Ok(()) }
    }

    /// Counts `bytes` of host memory as held by the run.
    pub(super) fn take_host(&mut self, bytes: u64) {
        let held = &mut self.held;
        held.host += bytes;
        held.peak_host = held.peak_host.max(held.host);
    }

    pub(super) fn give_host(&mut self, bytes: u64) {
        self.held.host -= bytes;
    }

    /// Counts `bytes` of a managed range as held by the run, wherever its pages are.
    pub(super) fn take_managed(&mut self, bytes: u64) {
        let held = &mut self.held;
        held.managed += bytes;
        held.peak_managed = held.peak_managed.max(held.managed);
    }

    pub(super) fn give_managed(&mut self, bytes: u64) {
        self.held.managed -= bytes;
    }

    pub(super) fn unreserve(&mut self, bytes: u64) {
        self.held.reserved -= bytes;
    }
}
