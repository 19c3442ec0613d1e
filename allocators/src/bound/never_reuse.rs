//! `bound.never_reuse`: every request gets memory that was never used before. What reuse is worth.
//!
//! | rule | what it says |
//! |---|---|
//! | `bump` | a block takes a multiple of 512 B from the unused end of a segment |
//! | `segment` | a request that does not fit there gets a new segment of max(request, `segment`) in whole granules of 2 MiB, or of its own size if the device has no more; of the two unused ends the larger is kept |
//! | `never` | nothing is used twice and nothing goes back to the driver: `empty_cache` and `trim` are not known |
//!
//! A yardstick, not a ceiling: strategies that reserve ahead go past it. Reuse on another stream is no matter here, so streams are not looked at.

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, LayoutBlock, LayoutSegment, Notice,
    Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Address, Driver};
use vramlab_sim::units::{Bytes, StreamId};

use crate::classic::options::{SEGMENT, segment};
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::nulls::Nulls;
use crate::parts::room::{malloc, out_of_memory};
use crate::parts::tokens::Tokens;
use crate::registry::{Status, Strategy};

/// Blocks are multiples of this (rule `bump`).
const BLOCK_STEP: u64 = 512;
/// Segments are multiples of this (rule `segment`).
const GRANULE: u64 = Bytes::mib(2).0;

pub(crate) const OPTIONS: &[OptionDoc] = &[SEGMENT];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "bound.never_reuse",
    new,
    Status::Model,
    OPTIONS,
    "no memory is used twice: what reuse is worth",
);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("bound.never_reuse", OPTIONS)?;
    Ok(Box::new(NeverReuse { segment: segment(options)?, ..NeverReuse::default() }))
}

#[derive(Clone, Copy, Debug)]
struct Live {
    address: Address,
    size: u64,
    requested: u64,
}

#[derive(Debug, Default)]
struct NeverReuse {
    segment: u64,
    /// The unused end of a segment.
    unused: (Address, u64),
    segments: BTreeMap<Address, u64>,
    live: Tokens<Live>,
    nulls: Nulls,
    usage: Usage,
}

impl NeverReuse {
    /// Rule `segment`.
    fn grow(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Address, AllocError> {
        let least = size.checked_next_multiple_of(GRANULE);
        let full = least.map(|least| least.max(self.segment));
        for bytes in [full, least.filter(|_| least < full)].into_iter().flatten() {
            if let Some(address) = malloc(driver, bytes)? {
                self.usage.reserved += bytes;
                self.segments.insert(address, bytes);
                if bytes - size > self.unused.1 {
                    self.unused = (address + size, bytes - size);
                }
                return Ok(address);
            }
        }
        Err(out_of_memory(driver, least.unwrap_or(size), self.usage, self.unused.1, None))
    }

    fn give(&mut self, block: Block) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        let Live { size, .. } = *self.live.get(block)?;
        self.live.remove(block);
        self.usage.allocated -= size;
        self.usage.active -= size;
        Ok(())
    }

    fn layout(&self) -> Layout {
        let live: BTreeMap<Address, &Live> =
            self.live.iter().map(|live| (live.address, live)).collect();
        let segment = |(&address, &size): (&Address, &u64)| {
            let (mut blocks, mut at) = (Vec::new(), address);
            let gap = |blocks: &mut Vec<LayoutBlock>, at: Address, end: Address| {
                if at < end {
                    let (size, state) = (end - at, BlockState::Free);
                    blocks.push(LayoutBlock { address: at, size, requested: 0, state, age: 0 });
                }
            };
            for (&address, live) in live.range(address..address + size) {
                gap(&mut blocks, at, address);
                let (size, requested, state) = (live.size, live.requested, BlockState::Allocated);
                blocks.push(LayoutBlock { address, size, requested, state, age: 0 });
                at = address + size;
            }
            gap(&mut blocks, at, address + size);
            LayoutSegment { address, size, pool: "bump", blocks, ..LayoutSegment::default() }
        };
        Layout { segments: self.segments.iter().map(segment).collect() }
    }
}

impl Allocator for NeverReuse {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let requested = request.size;
        if requested == 0 {
            return Ok(self.nulls.place());
        }
        let address = match requested.checked_next_multiple_of(BLOCK_STEP) {
            Some(size) if size <= self.unused.1 => {
                let (address, left) = self.unused;
                self.unused = (address + size, left - size);
                address
            }
            size => self.grow(driver, size.unwrap_or(requested))?,
        };
        let size = requested.next_multiple_of(BLOCK_STEP);
        self.usage.allocated += size;
        self.usage.active += size;
        let block = self.live.insert(Live { address, size, requested });
        Ok(Placement { block, address, size })
    }

    fn free(
        &mut self,
        _driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.give(block)
    }

    fn notice(
        &mut self,
        _driver: &mut dyn Driver,
        notice: Notice<'_>,
    ) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, .. } if Nulls::owns(block) => self.nulls.check(block)?,
            Notice::RecordStream { block, .. } => self.live.get(block).map(drop)?,
            Notice::FreeDeferred { block } => self.give(block)?,
            Notice::Completed { .. } | Notice::Mark { .. } => {}
            Notice::Counters => return Ok(Reply::Counters(Vec::new())),
            Notice::Walk => return Ok(Reply::Layout(self.layout())),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    /// 20 blocks of 10 MiB, one at a time: three fit a segment of 32 MiB.
    #[test]
    fn freed_memory_is_not_used_again() -> Result<(), AllocError> {
        let mut machine = ScriptedMachine::of_capacity(1 << 30);
        let mut strategy = new(&Options::default()).expect("no options");
        for ordinal in 0..20 {
            let request = Request { size: 10 << 20, stream: StreamId(0), ordinal };
            let block = strategy.alloc(&mut machine, &request)?.block;
            strategy.free(&mut machine, block, None)?;
        }
        let want = Usage { allocated: 0, active: 0, reserved: 7 * (32 << 20) };
        assert_eq!(strategy.usage(), want);
        let reply = strategy.notice(&mut machine, Notice::EmptyCache)?;
        assert_eq!(reply, Reply::Unsupported);
        Ok(())
    }
}
