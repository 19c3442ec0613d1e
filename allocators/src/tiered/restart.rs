//! A restart: the process ends and begins again, the workload goes on.
//!
//! | rule | what it says |
//! |---|---|
//! | `restart` | before the work that comes next: the host waits for the device, then all that device and host hold is lost |
//! | `survives` | a buffer whose newest contents are in the file is read from there when it is used next |
//! | `lost` | of any other, what was written last is lost, and counted; if the file has an older state, it is that again |
//!
//! How long a process takes to begin is not modelled.

use vramlab_sim::allocator::{AllocError, Notice};
use vramlab_sim::driver::{Driver, DriverExt};

use super::buffers::Newest;
use super::lines::COPIES;
use super::strategy::Tiered;

impl Tiered {
    pub(super) fn restart(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        driver.device_synchronize()?;
        for slot in self.buffers.live() {
            let buffer = self.buffers.get_mut(slot);
            buffer.copies = [0; COPIES];
            buffer.uses.clear();
            let held = buffer.announced && (buffer.newest.device || buffer.newest.host);
            if held && !buffer.newest.file {
                self.counters.restart_lost_bytes += buffer.size;
                self.counters.restart_lost_buffers += 1;
            }
            if let Some(placement) = buffer.device.take() {
                self.counters.not_resident(buffer.size, std::mem::take(&mut buffer.prefetched));
                self.inner.free(&mut self.limit.around(driver), placement.block, None)?;
            }
            self.drop_host(slot);
            let buffer = self.buffers.get_mut(slot);
            buffer.newest = Newest { file: buffer.file.is_some(), ..Newest::default() };
            self.rank(slot);
        }
        self.inner.notice(&mut self.limit.around(driver), Notice::EmptyCache)?;
        self.host.empty(driver, &mut self.lines)?;
        self.counters.restarts += 1;
        Ok(())
    }
}
