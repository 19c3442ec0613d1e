//! Every request is a range of the driver's own, given back as soon as it is freed.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, LayoutBlock, LayoutSegment, Notice,
    OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::nulls::Nulls;
use super::pieces::Segment;
use super::tokens::Tokens;

/// How a range is made.
type Malloc = fn(&mut dyn Driver, u64) -> Result<Address, DriverError>;

/// The live ranges.
#[derive(Debug)]
pub(crate) struct Direct {
    /// Name in layouts.
    pool: &'static str,
    malloc: Malloc,
    ranges: Tokens<Segment>,
    nulls: Nulls,
    bytes: u64,
}

impl Direct {
    /// Ranges of `cudaMalloc`.
    pub(crate) fn new(pool: &'static str) -> Self {
        Self::of(pool, |driver, size| driver.malloc(size))
    }

    /// Ranges of another call, which `cudaFree` gives back.
    pub(crate) fn of(pool: &'static str, malloc: Malloc) -> Self {
        Self { pool, malloc, ranges: Tokens::default(), nulls: Nulls::default(), bytes: 0 }
    }

    fn malloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let size = request.size;
        if size == 0 {
            return Ok(self.nulls.place());
        }
        let address = match (self.malloc)(driver, size) {
            Ok(address) => address,
            Err(DriverError::OutOfMemory { asked, free }) => {
                return Err(AllocError::from(OutOfMemory {
                    asked,
                    device_free: free,
                    reserved: self.bytes,
                    active: self.bytes,
                    largest_free: 0,
                    limit: None,
                }));
            }
            Err(error) => return Err(error.into()),
        };
        self.bytes += size;
        Ok(Placement { block: self.ranges.insert(Segment { address, size }), address, size })
    }

    /// Is the token live?
    fn check(&self, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) { self.nulls.check(block) } else { self.ranges.get(block).map(drop) }
    }

    fn give(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let Segment { address, size } = *self.ranges.get(block)?;
        driver.free(address)?;
        self.ranges.remove(block);
        self.bytes -= size;
        Ok(())
    }

    /// A segment of one block for each range.
    fn layout(&self) -> Layout {
        let segment = |range: &Segment| {
            let Segment { address, size } = *range;
            let state = BlockState::Allocated;
            let blocks = vec![LayoutBlock { address, size, requested: size, state, age: 0 }];
            LayoutSegment { address, size, pool: self.pool, blocks, ..LayoutSegment::default() }
        };
        let mut segments: Vec<LayoutSegment> = self.ranges.iter().map(segment).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        Layout { segments }
    }
}

impl Allocator for Direct {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.malloc(driver, request)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.give(driver, block)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, .. } => self.check(block)?,
            Notice::FreeDeferred { block } => self.give(driver, block)?,
            // nothing is ever waiting or cached
            Notice::Completed { .. } | Notice::EmptyCache | Notice::Trim { .. } => {}
            Notice::Mark { .. } => {}
            Notice::Counters => return Ok(Reply::Counters(Vec::new())),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        Usage { allocated: self.bytes, active: self.bytes, reserved: self.bytes }
    }
}
