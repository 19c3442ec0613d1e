//! `serving.radix`: a tree of prefixes, whose leaves go when room is needed (SGLang's RadixAttention). Not checked against the real one yet.
//!
//! | rule | what it says | source (`python/sglang/srt/`) |
//! |---|---|---|
//! | `pages` | slots are given by pages of `page_size` tokens (1); page 0 takes what padding writes | `mem_cache/allocator.py`, `TokenToKVPoolAllocator`, `PagedTokenToKVPoolAllocator` |
//! | `free_order` | pages are taken from the front; with pages of one token, freed ones go to the end, with larger ones to the front, sorted | `mem_cache/allocator.py`, `free` |
//! | `match` | found is the longest beginning in the tree, whole pages, at most all tokens but one; a node is split where it ends | `mem_cache/radix_cache.py`, `match_prefix`; `managers/schedule_batch.py`, `_compute_max_prefix_len` |
//! | `lock` | what a live sequence found or put into the tree is locked up to the root | `radix_cache.py`, `inc_lock_ref` |
//! | `after_prefill` | prompt tokens go into the tree once they were computed: before the sequence's next op, or at a mark; so two sequences of one step do not share | `radix_cache.py`, `cache_unfinished_req` |
//! | `at_the_end` | generated tokens go into the tree when the sequence ends; tokens of a page that is not full are freed | `radix_cache.py`, `cache_finished_req` |
//! | `no_duplicates` | pages whose content came into the tree meanwhile are freed; the sequence goes on with the tree's | `radix_cache.py`, `cache_unfinished_req` |
//! | `evict` | where room is missing, leaves go whole, least recently used first, and then what became a leaf | `radix_cache.py`, `evict` |
//! | `shortfall` | so many tokens as are missing; with larger pages, a page more is counted than is asked for | `mem_cache/common.py`, `evict_from_tree_cache`; `mem_cache/allocation.py`, `alloc_paged_token_slots_extend` |
//! | `flush` | the tree is emptied on request, but only when no sequence is live; all pages are free in their first order | `managers/scheduler.py`, `flush_cache` |
//! | `pool_size` | tokens that fit into `mem_fraction_static` × the device's bytes, less what is taken of it; or `max_total_tokens`; whole pages | `model_executor/model_runner.py`, `init_memory_pool` |
//! | `fork` | the parent's tokens go into the tree, the child finds them there; a page that is not full is copied | as its parallel sampling shares a prompt; the real one has no forks |
//!
//! Read at commit 006b0e3d (`radix_cache.py`) and, for `shortfall`, 0057abea. Left out: priorities and other eviction policies, host memory below the tree, what the
//! scheduler's own look-ups touch. A refused sequence leaves the order of use as it was.

mod cache;
mod sequence;
mod slots;
#[cfg(test)]
mod tests;
mod tree;

use vramlab_sim::allocator::{AllocError, Placement};
use vramlab_sim::driver::Address;
use vramlab_sim::kv::{Below, KvError};

use self::sequence::Held;
use self::slots::Slots;
use self::tree::Tree;
use super::options::{ARENA, TOKEN, TokenBytes, count, positive, share};
use super::pool::{self, share_of_device};
use super::sequences::Sequences;
use crate::options::{OptionDoc, OptionError, Options};
use crate::registry::{MadeCache, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::cache(
    "serving.radix",
    new,
    Status::Rules("SGLang 006b0e3d"),
    OPTIONS,
    "RadixAttention: a tree of prefixes whose unused leaves go",
);

const PAGE: OptionDoc = OptionDoc { name: "page_size", default: "1", help: "tokens of a page" };
const TOTAL: OptionDoc =
    OptionDoc { name: "max_total_tokens", default: "as many as fit", help: "tokens of the pool" };
const FRACTION: OptionDoc = OptionDoc {
    name: "mem_fraction_static",
    default: "0.88",
    help: "share of the device that may be taken, with what others hold of it; decides the size of the pool where that is not given",
};
const LENGTH: OptionDoc = OptionDoc {
    name: "context_length",
    default: "none",
    help: "most tokens of a sequence; longer ones are refused",
};
const OPTIONS: &[OptionDoc] = &[PAGE, TOTAL, FRACTION, LENGTH, TOKEN, ARENA];

fn new(options: &Options) -> MadeCache {
    Ok(Box::new(Radix::from_options(options)?))
}

/// The memory of the pages.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    address: Address,
    size: u64,
    page_bytes: u64,
}

#[derive(Debug)]
struct Radix {
    page: u64,
    total: Option<u64>,
    fraction: f64,
    length: Option<u64>,
    bytes: TokenBytes,
    pool: Pool,
    slots: Slots,
    tree: Tree,
    live: Sequences<Held>,
    /// Sequences so far.
    serials: u64,
    tokens: u64,
    /// Pages of sequences outside of the tree, and the tokens in them.
    private: u64,
    private_tokens: u64,
    evicted: u64,
    duplicates: u64,
    copied: u64,
    /// Pages on their way to the free ones.
    freed: Vec<u32>,
}

impl Radix {
    fn from_options(options: &Options) -> Result<Self, OptionError> {
        options.check(STRATEGY.name, OPTIONS)?;
        Ok(Self {
            page: count(options, &PAGE, 1)?,
            total: positive(options, TOTAL.name)?,
            fraction: share(options, &FRACTION)?,
            length: positive(options, LENGTH.name)?,
            bytes: TokenBytes::parse(options)?,
            pool: Pool::default(),
            slots: Slots::default(),
            tree: Tree::new(),
            live: Sequences::default(),
            serials: 0,
            tokens: 0,
            private: 0,
            private_tokens: 0,
            evicted: 0,
            duplicates: 0,
            copied: 0,
            freed: Vec::new(),
        })
    }

    /// Gets the pool, before the first sequence (rule `pool_size`).
    fn start(&mut self, below: &mut Below<'_>, said: Option<u64>) -> Result<(), KvError> {
        let Some(bytes) = self.bytes.undecided(said) else { return Ok(()) };
        let page_bytes = bytes.saturating_mul(self.page);
        let pages = match self.total {
            Some(tokens) => tokens / self.page,
            None => share_of_device(below, self.fraction)? / page_bytes,
        };
        let pages =
            pool::blocks(pages, pool::MOST_BLOCKS, "max_total_tokens, page_size, token_bytes")?;
        let Some(size) = page_bytes.checked_mul(u64::from(pages) + 1) else {
            let why = "the pool's pages together pass 2^64 bytes";
            return Err(AllocError::InvalidSize { asked: u64::MAX, why }.into());
        };
        let Placement { address, size, .. } = below.alloc(size)?;
        self.pool = Pool { address, size, page_bytes };
        self.slots = Slots::new(pages, self.page);
        self.bytes.decide(bytes);
        Ok(())
    }
}
