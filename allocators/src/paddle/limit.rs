//! `gpu_memory_limit_mb`: a driver that has no more than the limit.
//!
//! | rule | what it says |
//! |---|---|
//! | `limit` | a `cudaMalloc` that would bring the sum of asked sizes above the limit is out of memory, though the device has it; 0 is no limit |
//! | `limit_info` | the free and total bytes that the allocator hears of are those within the limit, where that is less |
//!
//! Source: `paddle/fluid/platform/device/gpu/gpu_info.cc` (PaddlePaddle 15888d1). The physical allocations of the virtual-memory allocator are
//! not held to it there, so it is no option of that strategy.

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::{Address, Answer, Call, Driver, DriverError, Families};
use vramlab_sim::units::StreamId;

/// A strategy whose driver is limited.
pub(super) struct WithLimit {
    inner: Box<dyn Allocator>,
    account: Account,
}

/// Puts the limit around a strategy; none if it is 0.
pub(super) fn limited(inner: Box<dyn Allocator>, limit: u64) -> Box<dyn Allocator> {
    if limit == 0 {
        return inner;
    }
    let account = Account { limit, held: 0, sizes: FxHashMap::default(), refused: false };
    Box::new(WithLimit { inner, account })
}

struct Account {
    /// Bytes.
    limit: u64,
    held: u64,
    /// Looked up, never walked.
    sizes: FxHashMap<Address, u64>,
    /// The last `cudaMalloc` was refused by the limit.
    refused: bool,
}

struct Limited<'a> {
    driver: &'a mut dyn Driver,
    account: &'a mut Account,
}

impl Driver for Limited<'_> {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let left = self.account.limit - self.account.held;
        if let Call::Malloc { size } = call {
            self.account.refused = size > left;
            if size > left {
                return Err(DriverError::OutOfMemory { asked: size, free: left });
            }
        }
        let answer = self.driver.call(call)?;
        Ok(match (call, answer) {
            (Call::Malloc { size }, Answer::Address(address)) => {
                self.account.held += size;
                self.account.sizes.insert(address, size);
                answer
            }
            (Call::Free { address }, _) => {
                self.account.held -= self.account.sizes.remove(&address).unwrap_or(0);
                answer
            }
            (Call::MemInfo, Answer::Info { free, total }) => {
                Answer::Info { free: free.min(left), total: total.min(self.account.limit) }
            }
            _ => answer,
        })
    }

    fn families(&self) -> Families {
        self.driver.families()
    }
}

impl Allocator for WithLimit {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.account.refused = false;
        let answer = self.inner.alloc(&mut self.account.around(driver), request);
        match answer {
            Err(AllocError::OutOfMemory(mut numbers)) if self.account.refused => {
                numbers.limit = Some(self.account.limit);
                Err(AllocError::OutOfMemory(numbers))
            }
            answer => answer,
        }
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.inner.free(&mut self.account.around(driver), block, stream)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.inner.notice(&mut self.account.around(driver), notice)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.inner.before_work(&mut self.account.around(driver), stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.inner.after_work(&mut self.account.around(driver), stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}

impl Account {
    fn around<'a>(&'a mut self, driver: &'a mut dyn Driver) -> Limited<'a> {
        Limited { driver, account: self }
    }
}
