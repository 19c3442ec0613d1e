//! `serving.paged`: the block pool of vLLM 0.33.0 (PagedAttention), one group of full attention, no speculation, no connector.
//!
//! | rule | what it says | shown by |
//! |---|---|---|
//! | `null_block` | block 0 is never handed out; the free queue begins with 1, 2, 3, …; new blocks come from its front | `vb01` |
//! | `free_order` | of a sequence that ends, walked from tail to head, blocks that nobody has any more go to the end of the queue if they are registered, to the front if not, each group in the order of the walk; without prefix caching all go to the front | `vb02`, `vb07` |
//! | `whole_blocks` | found are whole blocks, at most all tokens but one | `vb03` |
//! | `taken_out` | a found block is taken out of the middle of the queue | `vb04` |
//! | `lost_when_taken` | a block loses its content when it is handed out again, not when it is freed: least recently freed first | `vb05` |
//! | `no_merging` | blocks of the same content stay apart; the one registered first is found | `vb06` |
//! | `known_when_placed` | full blocks are registered when their slots are given; blocks of generated tokens too | `vb08`, `vb11`, `vb12` |
//! | `need` | new blocks, found ones that lie in the queue, and the watermark must be free; a refusal changes nothing | `vb09` |
//! | `watermark` | trunc(share × blocks) for new sequences while others run | `vb10` |
//! | `reset` | content is forgotten on request, but only when no block is in use | `vb12` |
//! | `copy_on_write` | a fork shares all blocks; who writes to a shared last block takes a copy first | the paper's section 4.4: 0.33.0 has no forks; a test here |
//! | `pool_size` | blocks that fit into `gpu_memory_utilization` × the device's bytes, less what is taken of it; or `num_gpu_blocks_override` | `vllm/v1/worker/gpu_worker.py`; a test here |
//!
//! Cases: the golden set `vllm`, recorded from `vllm/v1/core/block_pool.py` and `kv_cache_manager.py` of the version named. Left out: the time of copies, a block's
//! layers (a block is one piece of memory), `max_model_len` as a cap (a longer sequence is refused, as the server's front does).

use vramlab_sim::allocator::{AllocError, Notice, Placement, Reply};
use vramlab_sim::driver::Address;
use vramlab_sim::kv::{Below, KvError};

use super::index::Index;
use super::manager::{Manager, Rules};
use super::options::{ARENA, TOKEN, TokenBytes, UTILIZATION, count, positive, share};
use super::pool::{self, Pool, PoolUsage, Run, share_of_device};
use super::queue::Queue;
use crate::options::{OptionDoc, OptionError, Options};
use crate::registry::{MadeCache, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::cache(
    "serving.paged",
    new,
    Status::Exact("vLLM 0.33.0"),
    OPTIONS,
    "PagedAttention's block pool, with the prefix cache",
);

const BLOCK: OptionDoc = OptionDoc { name: "block_size", default: "16", help: "tokens of a block" };
const BLOCKS: OptionDoc = OptionDoc {
    name: "num_gpu_blocks_override",
    default: "as many as fit",
    help: "blocks of the pool, with the null block",
};
const CACHING: OptionDoc = OptionDoc {
    name: "enable_prefix_caching",
    default: "true",
    help: "find the blocks of earlier sequences by their content: true or false",
};
const WATERMARK: OptionDoc = OptionDoc {
    name: "watermark",
    default: "0",
    help: "share of the blocks that must stay free when a sequence comes in while others run",
};
const LENGTH: OptionDoc = OptionDoc {
    name: "max_model_len",
    default: "none",
    help: "most tokens of a sequence; longer ones are refused",
};
const OPTIONS: &[OptionDoc] =
    &[BLOCK, BLOCKS, UTILIZATION, CACHING, WATERMARK, LENGTH, TOKEN, ARENA];

fn new(options: &Options) -> MadeCache {
    Ok(Box::new(Paged::from_options(options)?))
}

/// The cache.
pub type Paged = Manager<BlockPool>;

impl Paged {
    /// From its options.
    ///
    /// # Errors
    /// An unknown option, or a bad value.
    pub fn from_options(options: &Options) -> Result<Self, OptionError> {
        options.check(STRATEGY.name, OPTIONS)?;
        let pool = BlockPool {
            wanted: positive(options, BLOCKS.name)?,
            utilization: share(options, &UTILIZATION)?,
            ..BlockPool::default()
        };
        let rules = Rules {
            block_size: count(options, &BLOCK, 16)?,
            caching: options.switch(&CACHING)?,
            watermark: share(options, &WATERMARK)?,
            max_model_len: positive(options, LENGTH.name)?,
        };
        Ok(Self::new(pool, rules, TokenBytes::parse(options)?))
    }

    /// The free blocks, the next one first.
    pub fn free_queue(&self) -> impl Iterator<Item = u32> + '_ {
        self.pool.queue.iter()
    }

    /// How many different contents can be found.
    pub fn cached_contents(&self) -> u64 {
        self.pool.index.len()
    }

    /// Forgets all content, if no block is in use; says whether it did (rule `reset`).
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.pool.reset()
    }
}

/// The blocks.
#[derive(Debug, Default)]
pub struct BlockPool {
    wanted: Option<u64>,
    utilization: f64,
    block_bytes: u64,
    memory: Placed,
    /// Of each block.
    holders: Vec<u32>,
    queue: Queue,
    index: Index,
    /// Registered blocks in the queue.
    cached: u64,
    /// Blocks that lost their content.
    evicted: u64,
    /// Of a sequence that ends, blocks that are not registered.
    plain: Vec<u32>,
}

/// The pool's piece of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Placed {
    address: Address,
    size: u64,
}

impl BlockPool {
    /// Blocks that fit (rule `pool_size`).
    fn count(&self, below: &mut Below<'_>, block_bytes: u64) -> Result<u32, KvError> {
        let blocks = match self.wanted {
            Some(blocks) => blocks,
            None => share_of_device(below, self.utilization)? / block_bytes.max(1),
        };
        pool::blocks(blocks, pool::MOST_BLOCKS, "num_gpu_blocks_override, block_size, token_bytes")
    }

    fn reset(&mut self) -> bool {
        let unused = self.queue.len() + 1 == self.holders.len() as u64;
        if unused {
            self.index.clear();
            self.cached = 0;
        }
        unused
    }
}

impl Pool for BlockPool {
    fn start(
        &mut self,
        below: &mut Below<'_>,
        block_bytes: u64,
        _layers: Option<u64>,
    ) -> Result<(), KvError> {
        let blocks = self.count(below, block_bytes)?;
        let Some(bytes) = block_bytes.checked_mul(u64::from(blocks)) else {
            let why = "the cache's blocks together pass 2^64 bytes";
            return Err(AllocError::InvalidSize { asked: u64::MAX, why }.into());
        };
        let Placement { address, size, .. } = below.alloc(bytes)?;
        self.memory = Placed { address, size };
        self.block_bytes = block_bytes;
        self.holders = vec![0; blocks as usize];
        if let Some(null) = self.holders.first_mut() {
            *null = 1;
        }
        self.queue = Queue::new(blocks);
        self.index = Index::new(blocks);
        Ok(())
    }

    fn blocks(&self) -> u32 {
        self.holders.len() as u32
    }

    fn free(&mut self, _below: &mut Below<'_>) -> Result<u64, KvError> {
        Ok(self.queue.len())
    }

    fn find(&self, hash: u64) -> Option<u32> {
        self.index.find(hash)
    }

    fn finds(&self, block: u32, hash: u64) -> bool {
        self.index.finds(block, hash)
    }

    fn holders(&self, block: u32) -> u32 {
        self.holders[block as usize]
    }

    fn take(
        &mut self,
        _below: &mut Below<'_>,
        found: &[u32],
        count: u64,
        into: &mut Vec<u32>,
    ) -> Result<(), KvError> {
        for block in found {
            if self.holders[*block as usize] == 0 {
                self.queue.remove(*block);
                self.cached -= 1;
            }
            self.holders[*block as usize] += 1;
        }
        for _ in 0..count {
            let Some(block) = self.queue.pop_front() else { break };
            if self.index.forget(block) {
                self.cached -= 1;
                self.evicted += 1;
            }
            self.holders[block as usize] = 1;
            into.push(block);
        }
        Ok(())
    }

    fn register(&mut self, block: u32, hash: u64) {
        self.index.register(block, hash);
    }

    fn release(&mut self, _below: &mut Below<'_>, blocks: &[u32]) -> Result<(), KvError> {
        for block in blocks {
            let holders = &mut self.holders[*block as usize];
            *holders -= 1;
            if *holders > 0 {
                continue;
            }
            if self.index.is_registered(*block) {
                self.queue.push_back(*block);
                self.cached += 1;
            } else {
                self.plain.push(*block);
            }
        }
        while let Some(block) = self.plain.pop() {
            self.queue.push_front(block);
        }
        Ok(())
    }

    fn address(&self, block: u32) -> Address {
        self.memory.address + u64::from(block) * self.block_bytes
    }

    fn runs(&self) -> Vec<Run> {
        let Placed { address, size } = self.memory;
        let whole = Run { address, size, first: 0, first_address: address, count: self.blocks() };
        if size > 0 { vec![whole] } else { Vec::new() }
    }

    fn usage(&self) -> PoolUsage {
        PoolUsage { free: self.queue.len(), cached: self.cached, arena: self.memory.size, own: 0 }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("cached_contents", self.index.len()), ("evicted_blocks", self.evicted)]
    }

    fn notice(&mut self, _below: &mut Below<'_>, notice: &Notice<'_>) -> Result<Reply, KvError> {
        let Notice::Set { key: "reset_prefix_cache", .. } = notice else {
            return Ok(Reply::Unsupported);
        };
        self.reset();
        Ok(Reply::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::testing::Bench;
    use vramlab_sim::kv::{KeyRun, KvFull, NewSequence};

    /// 8 blocks of 4 tokens that can be used.
    const SMALL: &str = "serving.paged:block_size=4,num_gpu_blocks_override=9";

    #[test]
    fn copy_on_write_who_writes_to_a_shared_last_block_takes_a_copy() -> Result<(), KvError> {
        let mut bench = Bench::new(SMALL, 1 << 30);
        let a = bench.begin(1, 6).sequence;
        let b = bench.fork(a)?.sequence;
        assert_eq!((bench.table(a), bench.usage().used), (bench.table(b), 2));
        assert_eq!(bench.more(b, 2, 0, 1)?, 1, "the copy");
        let (mine, yours) = (bench.table(a), bench.table(b));
        assert_eq!((mine[0], mine[1].1, yours[1].1), (yours[0], 2, 3));
        assert_ne!(mine[1].0, yours[1].0);
        assert_eq!(bench.more(a, 3, 0, 1)?, 0, "nobody else has that block any more");
        assert_eq!(bench.counter("copied_tokens"), 2);
        assert_eq!((bench.usage().filled, bench.usage().tokens), (4 + 3 + 3, 14));
        Ok(())
    }

    #[test]
    fn copy_on_write_does_not_copy_a_block_that_is_full() -> Result<(), KvError> {
        let mut bench = Bench::new(SMALL, 1 << 30);
        let a = bench.begin(1, 8).sequence;
        let b = bench.fork(a)?.sequence;
        assert_eq!((bench.more(b, 2, 0, 1)?, bench.counter("copied_tokens")), (1, 0));
        assert_eq!(bench.usage().used, 3);
        Ok(())
    }

    #[test]
    fn pool_size_is_the_share_of_the_device_less_what_is_taken() {
        let spec = "serving.paged:gpu_memory_utilization=0.5,block_size=16";
        let mut bench = Bench::new(spec, 1 << 30);
        bench.begin(1, 1);
        // 512 MiB in blocks of 2 MiB, one of them the null block
        assert_eq!((bench.usage().free, bench.usage().arena), (254, 512 << 20));
        let mut bench = Bench::new(spec, 1 << 30);
        vramlab_sim::Machine::other_process(&mut bench.machine, 100 << 20);
        bench.begin(1, 1);
        assert_eq!(bench.usage().arena, 412 << 20);
    }

    #[test]
    fn reset_forgets_only_when_no_block_is_in_use() {
        let mut bench = Bench::new(SMALL, 1 << 30);
        let reset = Notice::Set { key: "reset_prefix_cache", value: "true" };
        let a = bench.begin(1, 9).sequence;
        bench.notice(reset.clone());
        let b = bench.begin(1, 9);
        assert_eq!(b.hit, 8);
        [a, b.sequence].into_iter().for_each(|sequence| bench.end(sequence));
        bench.notice(reset);
        assert_eq!((bench.begin(1, 9).hit, bench.counter("evicted_blocks")), (0, 0));
    }

    #[test]
    fn need_counts_the_whole_sequence_where_headroom_is_asked_for() {
        let mut bench = Bench::new(SMALL, 1 << 30);
        let keys = [KeyRun { stream: 1, first: 0, count: 30 }];
        let chunk = NewSequence { tokens: 30, keys: &keys, chunk: Some(4), ..Default::default() };
        let whole = |more| NewSequence { headroom: Some(more), ..chunk };
        let full = KvFull { hit: 0, needed: 9, free: 8, watermark: 0 };
        assert_eq!(bench.ask(&whole(3)), Err(KvError::Full(full)));
        let first = bench.ask(&whole(2)).expect("8 blocks are free");
        assert_eq!((first.blocks, bench.usage().used), (1, 1));
        assert_eq!(bench.ask(&chunk).map(|second| second.hit), Ok(4));
    }

    #[test]
    fn a_sequence_longer_than_the_model_takes_is_refused() {
        let mut bench = Bench::new(&format!("{SMALL},max_model_len=10"), 1 << 30);
        let a = bench.begin(1, 9).sequence;
        assert_eq!(bench.more(a, 1, 9, 2), Err(KvError::TooLong { tokens: 11, limit: 10 }));
        assert_eq!(bench.more(a, 1, 9, 1), Ok(0));
    }

    #[test]
    fn a_pool_that_the_arena_refuses_is_tried_again() {
        let mut bench = Bench::new("serving.paged:num_gpu_blocks_override=1000", 1 << 30);
        let new = NewSequence { tokens: 1, ..NewSequence::default() };
        let refused = bench.ask(&new);
        assert!(refused.as_ref().is_err_and(KvError::is_refusal), "{refused:?}");
        assert_eq!(bench.usage(), vramlab_sim::kv::KvUsage::default());
        let small = NewSequence { token_bytes: Some(64), ..new };
        assert!(bench.ask(&small).is_ok());
    }
}
