//! Every request is a range of the driver's own, given back as soon as it is freed.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, LayoutBlock, LayoutSegment, Notice,
    OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

use super::nulls::Nulls;

#[derive(Clone, Copy, Debug)]
struct Range {
    /// 0 while the slot is vacant.
    address: Address,
    size: u64,
    generation: u32,
}

/// How a range is made.
type Malloc = fn(&mut dyn Driver, u64) -> Result<Address, DriverError>;

/// The live ranges.
#[derive(Debug)]
pub(crate) struct Direct {
    /// Name in layouts.
    pool: &'static str,
    malloc: Malloc,
    ranges: Vec<Range>,
    vacant: Vec<u32>,
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
        Self {
            pool,
            malloc,
            ranges: Vec::new(),
            vacant: Vec::new(),
            nulls: Nulls::default(),
            bytes: 0,
        }
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
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.ranges.push(Range { address: 0, size: 0, generation: 0 });
            (self.ranges.len() - 1) as u32
        });
        let range = &mut self.ranges[slot as usize];
        *range = Range { address, size, generation: range.generation.wrapping_add(1) };
        self.bytes += size;
        let block = Block(u64::from(range.generation) << 32 | u64::from(slot));
        Ok(Placement { block, address, size })
    }

    /// Is the token live?
    fn check(&self, block: Block) -> Result<(), AllocError> {
        let range = self.ranges.get(block.0 as u32 as usize);
        let live = range.is_some_and(|range| {
            range.address != 0 && u64::from(range.generation) == block.0 >> 32
        });
        if live || self.nulls.is_live(block) {
            Ok(())
        } else {
            Err(AllocError::UnknownBlock(block))
        }
    }

    fn give(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        self.check(block)?;
        if self.nulls.take(block) {
            return Ok(());
        }
        let slot = block.0 as u32;
        let range = self.ranges[slot as usize];
        driver.free(range.address)?;
        self.ranges[slot as usize].address = 0;
        self.vacant.push(slot);
        self.bytes -= range.size;
        Ok(())
    }

    /// A segment of one block for each range.
    fn layout(&self) -> Layout {
        let segment = |range: &Range| {
            let Range { address, size, .. } = *range;
            let state = BlockState::Allocated;
            let blocks = vec![LayoutBlock { address, size, requested: size, state, age: 0 }];
            LayoutSegment { address, size, pool: self.pool, blocks, ..LayoutSegment::default() }
        };
        let live = self.ranges.iter().filter(|range| range.address != 0);
        let mut segments: Vec<LayoutSegment> = live.map(segment).collect();
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
