//! A strategy in one file, run under audit: the worked example of CONTRIBUTING.md, which a test holds equal to this file.
//!
//! `cargo run -p vramlab-allocators --example add_a_strategy`

use vramlab_sim::audit::Audit;
use vramlab_sim::testing::ScriptedMachine;

// ANCHOR: strategy
use vramlab_allocators::options::Options;
use vramlab_allocators::registry::{Made, Status, Strategy}; // inside the crate: crate::registry
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::StreamId;

/// Blocks are multiples of this (rule `bump`).
const BLOCK_STEP: u64 = 512;

type Answer<T> = Result<T, AllocError>;

/// The registry's line.
pub(crate) const STRATEGY: Strategy = Strategy::plain(
    "example.region",
    new,
    Status::Model,
    &[],
    "one region that starts over when nothing is live",
);

fn new(options: &Options) -> Made {
    options.check(STRATEGY.name, &[])?;
    Ok(Box::new(Region::default()))
}

/// `example.region`: memory that is used from its beginning to its end, and then from its beginning again.
///
/// | rule | what it says |
/// |---|---|
/// | `half` | at the first request one region takes half of the memory that the device has free |
/// | `bump` | a block takes the next multiples of 512 B of it |
/// | `start_over` | when nothing is live any more, the device is waited for, and the region is empty again |
#[derive(Default)]
struct Region {
    /// Where it begins, once it is there.
    begin: Option<u64>,
    size: u64,
    used: u64,
    /// Size of each block since it was empty; 0 once it is freed.
    blocks: Vec<u64>,
    active: u64,
}

impl Allocator for Region {
    fn alloc(&mut self, driver: &mut dyn Driver, request: &Request) -> Answer<Placement> {
        if self.begin.is_none() {
            let half = driver.mem_info()?.0 / 2 / BLOCK_STEP * BLOCK_STEP;
            match driver.malloc(half) {
                Err(DriverError::OutOfMemory { .. }) => {} // an answer; any other error ends the run
                address => (self.begin, self.size) = (Some(address?), half),
            }
        }
        let Usage { active, reserved, .. } = self.usage();
        let (asked, largest_free) = (request.size, reserved.saturating_sub(self.used));
        let size = asked.max(1).checked_next_multiple_of(BLOCK_STEP); // none near 2^64
        let (Some(begin), Some(size)) = (self.begin, size.filter(|s| *s <= largest_free)) else {
            let (device_free, limit) = (driver.mem_info()?.0, Some(self.size));
            let oom = OutOfMemory { asked, device_free, reserved, active, largest_free, limit };
            return Err(oom.into());
        };
        let (block, address) = (Block(self.blocks.len() as u64), begin + self.used);
        self.blocks.push(size);
        self.used += size;
        self.active += size;
        Ok(Placement { block, address, size })
    }

    fn free(&mut self, driver: &mut dyn Driver, block: Block, _: Option<StreamId>) -> Answer<()> {
        let live = self.blocks.get_mut(block.0 as usize).filter(|size| **size > 0);
        self.active -= std::mem::take(live.ok_or(AllocError::UnknownBlock(block))?);
        if self.active == 0 {
            driver.device_synchronize()?;
            (self.used, self.blocks) = (0, Vec::new());
        }
        Ok(())
    }

    fn notice(&mut self, _: &mut dyn Driver, notice: Notice<'_>) -> Answer<Reply> {
        let waits_anyway = matches!(notice, Notice::RecordStream { .. }); // by rule `start_over`
        Ok(if waits_anyway { Reply::Done } else { Reply::Unsupported })
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        Usage { allocated: self.active, active: self.active, reserved: self.size }
    }
}
// ANCHOR_END: strategy

// ANCHOR: check
/// Two blocks side by side, one too many, and a region that is empty again; the audit watches each step.
pub(crate) fn main() -> Answer<()> {
    let mut machine = ScriptedMachine::of_capacity(128 << 20);
    let region = new(&Options::default()).expect("it has no options to be wrong");
    let mut region = Audit::new(region, BLOCK_STEP);
    let request = |size| Request { size, stream: StreamId(0), ordinal: 0 };
    let a = region.alloc(&mut machine, &request(1000))?;
    let b = region.alloc(&mut machine, &request(60 << 20))?;
    assert_eq!((a.size, b.address - a.address), (1024, 1024));
    let refused = region.alloc(&mut machine, &request(4 << 20));
    assert!(matches!(refused, Err(AllocError::OutOfMemory(_))));
    region.free(&mut machine, a.block, None)?;
    assert_eq!(region.free(&mut machine, a.block, None), Err(AllocError::UnknownBlock(a.block)));
    region.free(&mut machine, b.block, None)?;
    assert_eq!(region.alloc(&mut machine, &request(64 << 20))?.address, a.address);
    Ok(())
}
// ANCHOR_END: check
