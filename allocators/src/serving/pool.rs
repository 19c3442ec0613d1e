//! What a pool of blocks of one size does for the manager of sequences.

use vramlab_sim::allocator::{Notice, Reply};
use vramlab_sim::driver::{Address, DriverExt};
use vramlab_sim::kv::{Below, KvError};

/// What a pool counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolUsage {
    /// Blocks that could be handed out.
    pub(super) free: u64,
    /// Of these, registered ones.
    pub(super) cached: u64,
    /// Bytes from the allocator below.
    pub(super) arena: u64,
    /// Bytes from the driver.
    pub(super) own: u64,
}

/// A run of device memory that a pool holds.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub(super) address: Address,
    pub(super) size: u64,
    /// Number of the first block that begins in it.
    pub(super) first: u32,
    /// Where that begins.
    pub(super) first_address: Address,
    /// How many.
    pub(super) count: u32,
}

/// Blocks of one size; each has a count of holders, and may be found by its content.
pub trait Pool: Send {
    /// Gets ready for blocks of this size, before the first sequence.
    fn start(&mut self, below: &mut Below<'_>, block_bytes: u64) -> Result<(), KvError>;

    /// Blocks, with those that are never handed out; their numbers are below this.
    fn blocks(&self) -> u32;

    /// Blocks that can be taken now.
    fn free(&mut self, below: &mut Below<'_>) -> Result<u64, KvError>;

    /// A block with the content of this number.
    fn find(&self, hash: u64) -> Option<u32>;

    /// How many sequences have the block.
    fn holders(&self, block: u32) -> u32;

    /// One more has each of the blocks `found`, and has `count` new ones, which are appended to `into`; or nothing happens.
    fn take(
        &mut self,
        below: &mut Below<'_>,
        found: &[u32],
        count: u64,
        into: &mut Vec<u32>,
    ) -> Result<(), KvError>;

    /// The block, which is not registered, is full of the content of this number.
    fn register(&mut self, block: u32, hash: u64);

    /// A sequence gives blocks back, in this order.
    fn release(&mut self, below: &mut Below<'_>, blocks: &[u32]) -> Result<(), KvError>;

    fn address(&self, block: u32) -> Address;

    /// The memory that it holds, in address order.
    fn runs(&self) -> Vec<Run>;

    fn usage(&self) -> PoolUsage;

    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// A notice that is the pool's affair.
    fn notice(&mut self, below: &mut Below<'_>, notice: &Notice<'_>) -> Result<Reply, KvError>;
}

/// Bytes that a cache may take: this share of the device, less what is taken of it already.
pub(super) fn share_of_device(below: &mut Below<'_>, share: f64) -> Result<u64, KvError> {
    let (free, total) = below.driver.mem_info()?;
    Ok(((total as f64 * share) as u64).saturating_sub(total - free))
}
