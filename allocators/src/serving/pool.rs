//! What a pool of blocks of one size does for the manager of sequences.

use vramlab_sim::allocator::{AllocError, Notice, Reply};
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
    /// Gets ready for blocks of this size, before the first sequence, which may say how many layers the model has.
    fn start(
        &mut self,
        below: &mut Below<'_>,
        block_bytes: u64,
        layers: Option<u64>,
    ) -> Result<(), KvError>;

    /// Blocks, with those that are never handed out; their numbers are below this.
    fn blocks(&self) -> u32;

    /// Blocks that can be taken now.
    fn free(&mut self, below: &mut Below<'_>) -> Result<u64, KvError>;

    /// A block with the content of this number.
    fn find(&self, hash: u64) -> Option<u32>;

    /// Is this the block that is found by the content of this number?
    fn finds(&self, block: u32, hash: u64) -> bool;

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

/// Most blocks of a cache. Its tables, which are there from the first sequence on, take up to 36 bytes for each.
pub(super) const MOST_BLOCKS: u64 = 1 << 25;

/// So many blocks, if they are not more than `most`; `options` decide how many they are.
///
/// # Errors
/// A bad setting, if they are more.
pub(super) fn blocks(wanted: u64, most: u64, options: &str) -> Result<u32, KvError> {
    let most = most.min(MOST_BLOCKS);
    let blocks = u32::try_from(wanted).ok().filter(|blocks| u64::from(*blocks) <= most);
    blocks.ok_or_else(|| {
        let why =
            format!("a cache of {wanted} blocks; expected at most {most} (options {options})");
        AllocError::BadSetting(why.into()).into()
    })
}

/// Bytes that a cache may take: this share of the device, less what is taken of it already.
pub(super) fn share_of_device(below: &mut Below<'_>, share: f64) -> Result<u64, KvError> {
    let (free, total) = below.driver.mem_info()?;
    Ok(((total as f64 * share) as u64).saturating_sub(total - free))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::testing::Bench;
    use vramlab_sim::kv::NewSequence;

    #[test]
    fn a_cache_of_too_many_blocks_is_a_bad_setting_and_takes_nothing() {
        for (spec, option) in [
            ("serving.paged:num_gpu_blocks_override=18446744073709551615", "num_gpu"),
            (
                "serving.paged:num_gpu_blocks_override=4294967295,block_size=1,token_bytes=1",
                "num_gpu",
            ),
            ("serving.paged:block_size=1,token_bytes=1", "block_size"),
            ("serving.radix:max_total_tokens=18446744073709551615,token_bytes=1", "max_"),
            ("serving.radix:token_bytes=16", "token_bytes"),
            ("serving.elastic_pages:num_blocks=18446744073709551615", "num_blocks"),
            ("serving.elastic_pages:num_blocks=100000000", "num_blocks"),
            ("serving.elastic_pages:num_blocks=4097", "num_blocks"),
            ("serving.elastic_pages:num_layers=1,block_size=1,token_bytes=16", "block_size"),
        ] {
            let mut bench = Bench::new(spec, 8 << 30);
            let refused = bench.ask(&NewSequence { tokens: 1, ..NewSequence::default() });
            let Err(KvError::Below(AllocError::BadSetting(why))) = refused else {
                panic!("{spec}: {refused:?}")
            };
            assert!(why.contains("expected at most") && why.contains(option), "{spec}: {why}");
            assert_eq!(bench.machine_reserved(), 0, "{spec}");
        }
    }

    #[test]
    fn elastic_blocks_may_be_as_many_as_the_device_could_hold() {
        // 8 GiB of blocks of 16 tokens of 128 KiB
        let mut bench = Bench::new("serving.elastic_pages:num_blocks=4096", 8 << 30);
        bench.begin(1, 1);
    }
}
