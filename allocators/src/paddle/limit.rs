//! `gpu_memory_limit_mb`: a driver that has no more than the limit.
//!
//! | rule | what it says |
//! |---|---|
//! | `limit` | a `cudaMalloc` that would bring the sum of asked sizes above the limit is out of memory, though the device has it; 0 is no limit |
//! | `limit_info` | the free and total bytes that the allocator hears of are those within the limit, where that is less |
//!
//! Source: `paddle/fluid/platform/device/gpu/gpu_info.cc` (PaddlePaddle 15888d1). The physical allocations of the virtual-memory allocator are
//! not held to it there, so it is no option of that strategy.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use crate::parts::limit::Limit;

/// A strategy whose driver is limited.
struct WithLimit {
    inner: Box<dyn Allocator>,
    limit: Limit,
}

/// Puts the limit around a strategy; none if it is 0.
pub(super) fn limited(inner: Box<dyn Allocator>, limit: u64) -> Box<dyn Allocator> {
    if limit == 0 {
        return inner;
    }
    Box::new(WithLimit { inner, limit: Limit::of_mallocs(limit) })
}

impl Allocator for WithLimit {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.limit.alloc(&mut *self.inner, driver, request)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.inner.free(&mut self.limit.around(driver), block, stream)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.inner.notice(&mut self.limit.around(driver), notice)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.inner.before_work(&mut self.limit.around(driver), stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.inner.after_work(&mut self.limit.around(driver), stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
