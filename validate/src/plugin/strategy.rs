//! The library behind the seam of strategies.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Answer, Call, Driver};
use vramlab_sim::unaware_of_work;
use vramlab_sim::units::StreamId;

use super::library::Library;
use crate::machine::Handles;

/// A live allocation.
struct Live {
    address: u64,
    size: u64,
    stream: usize,
}

/// The library. What it holds it does not tell: that stands in the driver's books.
pub(super) struct Foreign {
    library: Library,
    handles: Handles,
    live: BTreeMap<Block, Live>,
    next: u64,
    allocated: u64,
}

impl Foreign {
    pub(super) fn new(library: Library, handles: Handles) -> Self {
        Self { library, handles, live: BTreeMap::new(), next: 0, allocated: 0 }
    }

    /// CUDA's handle of a stream, which is made at its first use.
    fn handle(&self, driver: &mut dyn Driver, stream: StreamId) -> Result<usize, AllocError> {
        let known = |handles: &Handles| {
            handles.lock().unwrap_or_else(PoisonError::into_inner).get(&stream).copied()
        };
        if let Some(handle) = known(&self.handles) {
            return Ok(handle);
        }
        // who asks for its state makes it
        driver.call(Call::CaptureStatus { stream })?;
        Ok(known(&self.handles).unwrap_or(0))
    }
}

impl Allocator for Foreign {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let Request { size, stream, .. } = *request;
        let stream = self.handle(driver, stream)?;
        let address = self.library.alloc(size, stream);
        if address == 0 && size > 0 {
            let (free, total) = match driver.call(Call::MemInfo)? {
                Answer::Info { free, total } => (free, total),
                _ => (0, 0),
            };
            // what the library holds of the device, and the context
            let reserved = total.saturating_sub(free);
            return Err(OutOfMemory {
                asked: size,
                device_free: free,
                reserved,
                active: self.allocated,
                largest_free: 0,
                limit: None,
            }
            .into());
        }
        let block = Block(self.next);
        self.next += 1;
        self.allocated += size;
        self.live.insert(block, Live { address, size, stream });
        Ok(Placement { block, address, size })
    }

    fn free(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        _: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let Live { address, size, stream } =
            self.live.remove(&block).ok_or(AllocError::UnknownBlock(block))?;
        self.allocated -= size;
        // as PyTorch does, nothing is told of a null pointer
        if address != 0 {
            self.library.free(address, size, stream);
        }
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        let known = match notice {
            Notice::RecordStream { block, stream } => {
                let stream = self.handle(driver, stream)?;
                let live = self.live.get(&block).ok_or(AllocError::UnknownBlock(block))?;
                self.library.record_stream(live.address, stream)
            }
            Notice::EmptyCache => self.library.empty_cache(),
            _ => false,
        };
        Ok(if known { Reply::Done } else { Reply::Unsupported })
    }

    unaware_of_work!();

    fn usage(&self) -> Usage {
        let allocated = self.allocated;
        Usage { allocated, active: allocated, reserved: allocated }
    }
}
