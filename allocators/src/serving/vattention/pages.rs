//! Physical pages, and the ranges of addresses that they are mapped into.
//!
//! ```text
//! K of layer 0   │ request 0: ■■■□□□□□ │ request 1: ■□□□□□□□ │ …      ■ page mapped, □ addresses only
//! V of layer 0   │            ■■■□□□□□ │            ■□□□□□□□ │ …
//! K of layer 1   │            ■■■□□□□□ │            ■□□□□□□□ │ …      a block is one page in each row
//! ```

use vramlab_sim::allocator::{AllocError, OutOfMemory};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt, Handle};
use vramlab_sim::kv::KvError;

/// Sizes, fixed by the model and the page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Geometry {
    /// Bytes of a page.
    pub(super) page: u64,
    /// Ranges: one for K and one for V, in each layer or of all layers together.
    pub(super) ranges: u64,
    /// Bytes of a token in one range.
    pub(super) token: u64,
    /// Tokens of a block.
    pub(super) tokens: u64,
    /// Blocks that a request may have.
    pub(super) most: u64,
    /// Requests that have addresses.
    pub(super) requests: u64,
}

impl Geometry {
    /// Bytes of addresses of a request in each range; the greatest number where they pass 2^64.
    const fn request(&self) -> u64 {
        self.most.saturating_mul(self.page)
    }

    /// Bytes of a block.
    pub(super) const fn block(&self) -> u64 {
        self.page * self.ranges
    }

    /// Blocks for so many tokens: by whole tokens of a page, but never more than the addresses have room for, since tokens lie side by side there.
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        if self.tokens == 0 { 0 } else { tokens.div_ceil(self.tokens).min(self.most) }
    }
}

/// The driver has no such range of addresses.
fn too_far(asked: u64) -> KvError {
    let why = "the addresses of max_batch_size sequences of max_context_length tokens pass the address space";
    AllocError::InvalidSize { asked, why }.into()
}

/// The pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) geometry: Geometry,
    /// Beginnings of the ranges: K and V of the first layer, of the second, …
    ranges: Vec<Address>,
    /// Pages that are mapped nowhere; the last one is next.
    pool: Vec<Handle>,
    /// Of each request, the pages that it has, block by block, in the order of the ranges.
    mapped: Vec<Vec<Handle>>,
    /// All pages.
    pages: u64,
}

impl Pages {
    /// Reserves the addresses and creates `pages` pages; or nothing happens.
    pub(super) fn start(
        &mut self,
        driver: &mut dyn Driver,
        geometry: Geometry,
        pages: u64,
    ) -> Result<(), KvError> {
        let mut made = Self { geometry, pages, ..Self::default() };
        made.mapped.resize_with(geometry.requests as usize, Vec::new);
        match made.obtain(driver) {
            Ok(()) => {
                *self = made;
                Ok(())
            }
            Err(error) => {
                for handle in made.pool.drain(..) {
                    driver.release(handle)?;
                }
                for range in made.ranges.drain(..) {
                    driver.unreserve(range)?;
                }
                Err(error)
            }
        }
    }

    fn obtain(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        let Geometry { page, ranges, requests, .. } = self.geometry;
        let size = self.geometry.request().saturating_mul(requests);
        for _ in 0..ranges {
            match driver.reserve(size) {
                Ok(range) => self.ranges.push(range),
                Err(DriverError::InvalidValue { .. }) => return Err(too_far(size)),
                Err(error) => return Err(error.into()),
            }
        }
        for made in 0..self.pages {
            match driver.create(page) {
                Ok(handle) => self.pool.push(handle),
                Err(DriverError::OutOfMemory { asked, free }) => {
                    let reserved = made * page;
                    return Err(KvError::Below(AllocError::from(OutOfMemory {
                        asked,
                        device_free: free,
                        reserved,
                        active: 0,
                        largest_free: page,
                        limit: None,
                    })));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Blocks that the pages in no request make.
    pub(super) fn free(&self) -> u64 {
        self.pool.len() as u64 / self.geometry.ranges.max(1)
    }

    /// Blocks of a request.
    pub(super) fn mapped(&self, request: usize) -> u64 {
        self.mapped[request].len() as u64 / self.geometry.ranges
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.pages * self.geometry.page
    }

    /// Where a request's first token is.
    pub(super) fn address(&self, request: usize) -> Address {
        self.ranges.first().map_or(0, |range| range + request as u64 * self.geometry.request())
    }

    /// Maps the next block at a request's end; there must be pages.
    pub(super) fn map(&mut self, driver: &mut dyn Driver, request: usize) -> Result<(), KvError> {
        let (page, offset) = (self.geometry.page, self.offset(request, self.mapped(request)));
        for pair in self.ranges.chunks(2) {
            for range in pair {
                let Some(handle) = self.pool.last().copied() else { return Ok(()) };
                driver.map(range + offset, handle)?;
                self.pool.pop();
                self.mapped[request].push(handle);
            }
            for range in pair {
                driver.set_access(range + offset, page)?;
            }
        }
        Ok(())
    }

    /// Takes a request's last block back.
    pub(super) fn unmap(&mut self, driver: &mut dyn Driver, request: usize) -> Result<(), KvError> {
        let Some(last) = self.mapped(request).checked_sub(1) else { return Ok(()) };
        let (page, offset) = (self.geometry.page, self.offset(request, last));
        for range in &self.ranges {
            driver.unmap(range + offset, page)?;
        }
        let first = (last * self.geometry.ranges) as usize;
        self.pool.extend(self.mapped[request].drain(first..));
        Ok(())
    }

    const fn offset(&self, request: usize, block: u64) -> u64 {
        request as u64 * self.geometry.request() + block * self.geometry.page
    }
}
