//! `serving.elastic_pages`: vLLM's tables over blocks on pages of 2 MiB that are taken from the device and given back (kvcached's `ElasticBlockPool`). Built from
//! the source of ovg-project/kvcached, commit e8e64063; not checked against the real one yet.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `compound` | addresses for all pages are reserved at the start; a page is `page_size_mb` in each layer's K and V, one piece of memory; where none is mapped, one page of zeros is | `csrc/allocator.cpp`, `csrc/ftensor.cpp` (contiguous layout) |
//! | `block_fits` | a block must fit into a page; blocks that would lie on two are not used | `kvcached/kv_cache_manager.py`; `csrc/page_allocator.cpp`, `get_block_range` |
//! | `capacity` | as many blocks as `gpu_memory_utilization` × the device's bytes hold, whoever holds them now; or `num_blocks`, at most what the device could hold | `integration/vllm/patches.py`, `_get_virtual_kv_capacity_bytes` |
//! | `available` | free blocks of used pages, and blocks of the pages that could be had: of the range, and of what the device has free above 1 − `gpu_utilization` | `kv_cache_manager.py`, `available_size`; `page_allocator.cpp`, `get_avail_physical_pages` |
//! | `best_page` | blocks come from the page with the fewest free ones that still hold the whole request, else from the one with most; a new page only when none has free ones | `kv_cache_manager.py`, `_pick_avail_page` |
//! | `kept` | a page whose last block is freed stays mapped while fewer than `max_reserved_pages` do; others go back | `page_allocator.cpp`, `free_pages` |
//! | `ahead` | with fewer than `min_reserved_pages` mapped ahead, and after a page was mapped, pages are mapped up to that number | `page_allocator.cpp`, `prealloc_worker` |
//! | `null_block` | block 0 is never handed out, so its page stays | `kv_cache_manager.py`, `_reserve_null_block` |
//! | `retained` | blocks of sequences that ended stay with their content, least recently freed first, up to `max_cached_tokens` (below 0: all; 0: none); blocks without content are freed at once | `patches.py`, `free_blocks`, `_get_max_cached_blocks` |
//! | `shortage` | where blocks are missing, retained ones go by age alone; they are gone also where a page then cannot be had after all, since `available` counts blocks that would lie on two pages | `patches.py`, `get_new_blocks` |
//! | `page_aware` | above the limit, retained blocks go that empty whole pages, cheapest page first, then by age | `patches.py`, `_page_aligned_victims` |
//! | `reset` | retained blocks are freed, and all content is forgotten, whoever is live | `patches.py`, `reset_prefix_cache` |
//! | `trim` | pages mapped without blocks go back | `page_allocator.cpp`, `trim` |
//!
//! Finding, sharing and copying blocks are vLLM's, as in `serving.paged`. The real one maps ahead on a thread of its own: here those calls take the host's time. Left
//! out: several engines on one device, resizing while running, the layout with a mapping for each layer.

mod blocks;
mod pages;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use vramlab_sim::allocator::{AllocError, OutOfMemory};
use vramlab_sim::driver::DriverError;
use vramlab_sim::kv::KvError;

use self::blocks::Blocks;
use self::pages::{Limits, Pages};
use self::pool::ElasticPool;
use super::index::Index;
use super::manager::{Manager, Rules};
use super::options::{ARENA, LAYERS, TOKEN, TokenBytes, UTILIZATION, count, positive, share};
use crate::options::{OptionDoc, OptionError, Options};
use crate::registry::{MadeCache, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::cache(
    "serving.elastic_pages",
    new,
    Status::Rules("kvcached e8e64063"),
    OPTIONS,
    "blocks on pages of 2 MiB that go back to the device when they are empty",
);

const MIB: u64 = 1 << 20;

const BLOCK: OptionDoc = OptionDoc { name: "block_size", default: "16", help: "tokens of a block" };
const BUFFERS: OptionDoc = OptionDoc {
    name: "num_kv_buffers",
    default: "2",
    help: "2: K and V of each layer; 1: both together (MLA)",
};
const BLOCKS: OptionDoc = OptionDoc {
    name: "num_blocks",
    default: "as many as gpu_memory_utilization allows",
    help: "blocks that have addresses",
};
const CACHING: OptionDoc = OptionDoc {
    name: "enable_prefix_caching",
    default: "true",
    help: "find the blocks of earlier sequences by their content: true or false",
};
const PAGE: OptionDoc = OptionDoc {
    name: "page_size_mb",
    default: "2",
    help: "MiB of a page in each layer's K and V: a multiple of 2",
};
const DEVICE: OptionDoc = OptionDoc {
    name: "gpu_utilization",
    default: "0.95",
    help: "share of the device's memory that pages may use",
};
const PREALLOC: OptionDoc = OptionDoc {
    name: "page_prealloc_enabled",
    default: "true",
    help: "map pages ahead: true or false",
};
const MIN: OptionDoc =
    OptionDoc { name: "min_reserved_pages", default: "5", help: "pages to have mapped ahead" };
const MAX: OptionDoc = OptionDoc {
    name: "max_reserved_pages",
    default: "10",
    help: "most pages without blocks that stay mapped",
};
const CACHED: OptionDoc = OptionDoc {
    name: "max_cached_tokens",
    default: "16000",
    help: "most tokens of sequences that ended; -1: no limit, 0: none",
};
const AWARE: OptionDoc = OptionDoc {
    name: "page_aware",
    default: "true",
    help: "above max_cached_tokens, free whole pages first (true), or go by age alone as before kvcached's #359 (false)",
};
const OPTIONS: &[OptionDoc] = &[
    BLOCK,
    LAYERS,
    BUFFERS,
    BLOCKS,
    UTILIZATION,
    DEVICE,
    CACHING,
    CACHED,
    AWARE,
    PAGE,
    PREALLOC,
    MIN,
    MAX,
    TOKEN,
    ARENA,
];

fn new(options: &Options) -> MadeCache {
    options.check(STRATEGY.name, OPTIONS)?;
    let block_size = count(options, &BLOCK, 16)?;
    let caching = options.switch(&CACHING)?;
    let page = count(options, &PAGE, 2)?;
    if page % 2 > 0 || page > 1 << 20 {
        return Err(OptionError(format!("option page_size_mb={page}: expected a multiple of 2")));
    }
    let limits = Limits {
        prealloc: options.switch(&PREALLOC)?,
        min: options.parse(MIN.name, "a whole number", 5)?,
        max: options.parse(MAX.name, "a whole number", 10)?,
        utilization: share(options, &DEVICE)?,
    };
    let cached: i64 = options.parse(CACHED.name, "a whole number", 16_000)?;
    let pool = ElasticPool {
        wanted: positive(options, BLOCKS.name)?,
        utilization: share(options, &UTILIZATION)?,
        layers: positive(options, LAYERS.name)?,
        buffers: count(options, &BUFFERS, 2)?,
        page: page * MIB,
        aware: options.switch(&AWARE)?,
        most_cached: most_cached(cached, block_size),
        block_bytes: 0,
        blocks: Blocks::new(Pages::new(limits)),
        holders: Vec::new(),
        stamps: Vec::new(),
        index: Index::default(),
        retained: BTreeMap::new(),
        clock: 0,
        evicted: 0,
    };
    let rules = Rules { block_size, caching, watermark: 0.0, max_model_len: None };
    Ok(Box::new(Manager::new(pool, rules, TokenBytes::parse(options)?)))
}

/// Blocks that may be retained; `None`: all. At least one, where any tokens may.
fn most_cached(tokens: i64, block_size: u64) -> Option<u64> {
    let tokens = u64::try_from(tokens).ok()?;
    Some(if tokens == 0 { 0 } else { (tokens / block_size).max(1) })
}

/// Out of memory of the driver as an answer; `held` are the bytes that the cache has of it.
fn out_of_memory(error: DriverError, held: u64) -> KvError {
    match error {
        DriverError::OutOfMemory { asked, free } => AllocError::from(OutOfMemory {
            asked,
            device_free: free,
            reserved: held,
            active: held,
            largest_free: 0,
            limit: None,
        })
        .into(),
        error => error.into(),
    }
}
