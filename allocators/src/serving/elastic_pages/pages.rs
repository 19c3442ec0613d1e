//! Pages of device memory, mapped when blocks need them and given back when none does.

use std::collections::VecDeque;

use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt, Handle};
use vramlab_sim::kv::KvError;

/// What the options say of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Pages are mapped ahead.
    pub(super) prealloc: bool,
    /// Mapped pages without blocks: fewer than this, and pages are mapped ahead; more than that, and they go back.
    pub(super) min: u64,
    pub(super) max: u64,
    /// Share of the device that may be used.
    pub(super) utilization: f64,
}

/// The pages of a range of addresses. Where no page is mapped, one page of zeros is.
#[derive(Debug)]
pub(super) struct Pages {
    limits: Limits,
    base: Address,
    /// Bytes of a page.
    size: u64,
    /// Of each page, if it is mapped.
    handles: Vec<Option<Handle>>,
    zeros: Option<Handle>,
    /// Pages that are not mapped; the first is next.
    unmapped: VecDeque<u32>,
    /// Mapped pages without blocks; the first is next.
    reserved: VecDeque<u32>,
    mapped: u64,
    /// Pages that the device had room for.
    room: u64,
    /// Time to map pages ahead.
    wanted: bool,
}

impl Pages {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            base: 0,
            size: 0,
            handles: Vec::new(),
            zeros: None,
            unmapped: VecDeque::new(),
            reserved: VecDeque::new(),
            mapped: 0,
            room: 0,
            wanted: false,
        }
    }

    /// Addresses for `count` pages of `size` bytes, with the page of zeros in all of them; or nothing happens.
    pub(super) fn start(
        &mut self,
        driver: &mut dyn Driver,
        count: u32,
        size: u64,
    ) -> Result<(), KvError> {
        let limits = self.limits;
        *self = Self { size, ..Self::new(limits) };
        if count > 0 {
            let zeros = driver.create(size).map_err(|e| self.refused(e))?;
            let base = match driver.reserve(size.saturating_mul(u64::from(count))) {
                Ok(base) => base,
                Err(error) => {
                    driver.release(zeros)?;
                    return Err(error.into());
                }
            };
            (self.base, self.zeros) = (base, Some(zeros));
        }
        self.handles = vec![None; count as usize];
        for page in 0..count {
            if let Err(error) = self.start_page(driver, page) {
                self.stop(driver)?;
                return Err(error);
            }
        }
        self.wanted = limits.prealloc;
        self.look(driver)
    }

    fn start_page(&mut self, driver: &mut dyn Driver, page: u32) -> Result<(), KvError> {
        let Some(zeros) = self.zeros else { return Ok(()) };
        driver.map(self.address(page), zeros)?;
        self.unmapped.push_back(page);
        driver.set_access(self.address(page), self.size)?;
        Ok(())
    }

    /// Gives everything back; no page may be mapped.
    pub(super) fn stop(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        while let Some(page) = self.unmapped.pop_front() {
            driver.unmap(self.address(page), self.size)?;
        }
        if let Some(zeros) = self.zeros.take() {
            driver.unreserve(self.base)?;
            driver.release(zeros)?;
        }
        *self = Self::new(self.limits);
        Ok(())
    }

    /// Out of memory as an answer, with its numbers.
    fn refused(&self, error: DriverError) -> KvError {
        super::out_of_memory(error, self.bytes())
    }

    pub(super) fn address(&self, page: u32) -> Address {
        self.base + u64::from(page) * self.size
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn count(&self) -> u64 {
        self.handles.len() as u64
    }

    /// Is there memory behind the page?
    pub(super) fn is_mapped(&self, page: u32) -> bool {
        self.handles[page as usize].is_some()
    }

    /// Bytes from the driver, with the page of zeros.
    pub(super) fn bytes(&self) -> u64 {
        (self.mapped + u64::from(self.zeros.is_some())) * self.size
    }

    /// Mapped pages with blocks.
    pub(super) fn in_use(&self) -> u64 {
        self.mapped - self.reserved.len() as u64
    }

    /// Pages that blocks could get now, as of the last look at the device (rule `available`).
    pub(super) fn available(&self) -> u64 {
        let without_blocks = self.count() - self.in_use();
        without_blocks.min(self.room + self.reserved.len() as u64)
    }

    /// Asks the device for its room.
    pub(super) fn look(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        let (free, total) = driver.mem_info()?;
        let headroom = (total as f64 * (1.0 - self.limits.utilization)) as u64;
        self.room = free.saturating_sub(headroom) / self.size.max(1);
        Ok(())
    }

    /// A page for blocks; `None` if there is none.
    pub(super) fn take(&mut self, driver: &mut dyn Driver) -> Result<Option<u32>, KvError> {
        if let Some(page) = self.reserved.pop_front() {
            let least = self.limits.min.min(self.count());
            self.wanted |= self.limits.prealloc && (self.reserved.len() as u64) < least;
            return Ok(Some(page));
        }
        let Some(page) = self.unmapped.pop_front() else { return Ok(None) };
        if !self.map(driver, page)? {
            self.unmapped.push_front(page);
            return Ok(None);
        }
        self.wanted |= self.limits.prealloc;
        Ok(Some(page))
    }

    /// Pages without blocks: some are kept, the others go back to the device (rule `kept`).
    pub(super) fn give(&mut self, driver: &mut dyn Driver, pages: &[u32]) -> Result<(), KvError> {
        let most = self.limits.max.min(self.count());
        let room = most.saturating_sub(self.reserved.len() as u64) as usize;
        let (keep, back) = pages.split_at(room.min(pages.len()));
        self.reserved.extend(keep);
        back.iter().try_for_each(|page| self.unmap(driver, *page))
    }

    /// Gives back what is mapped without blocks.
    pub(super) fn trim(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        while let Some(page) = self.reserved.pop_front() {
            self.unmap(driver, page)?;
        }
        Ok(())
    }

    /// Maps pages ahead, if it is time (rule `ahead`).
    pub(super) fn prealloc(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        if !std::mem::take(&mut self.wanted) {
            return Ok(());
        }
        self.look(driver)?;
        let least = self.limits.min.min(self.count());
        let missing = least.saturating_sub(self.reserved.len() as u64);
        for _ in 0..missing.min(self.room) {
            let Some(page) = self.unmapped.pop_front() else { break };
            if !self.map(driver, page)? {
                self.unmapped.push_front(page);
                break;
            }
            self.reserved.push_back(page);
        }
        Ok(())
    }

    /// Memory behind a page; `false` if the device has none.
    fn map(&mut self, driver: &mut dyn Driver, page: u32) -> Result<bool, KvError> {
        let handle = match driver.create(self.size) {
            Ok(handle) => handle,
            Err(DriverError::OutOfMemory { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.handles[page as usize] = Some(handle);
        (self.mapped, self.room) = (self.mapped + 1, self.room.saturating_sub(1));
        driver.unmap(self.address(page), self.size)?;
        self.map_at(driver, page, Some(handle))?;
        Ok(true)
    }

    /// The page of zeros again, and the memory to the device.
    fn unmap(&mut self, driver: &mut dyn Driver, page: u32) -> Result<(), KvError> {
        driver.unmap(self.address(page), self.size)?;
        self.map_at(driver, page, self.zeros)?;
        if let Some(handle) = self.handles[page as usize].take() {
            driver.release(handle)?;
            (self.mapped, self.room) = (self.mapped - 1, self.room + 1);
        }
        self.unmapped.push_back(page);
        Ok(())
    }

    fn map_at(
        &self,
        driver: &mut dyn Driver,
        page: u32,
        handle: Option<Handle>,
    ) -> Result<(), KvError> {
        if let Some(handle) = handle {
            driver.map(self.address(page), handle)?;
            driver.set_access(self.address(page), self.size)?;
        }
        Ok(())
    }
}
