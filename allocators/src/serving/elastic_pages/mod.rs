//! `serving.elastic_pages`: vLLM's tables over blocks on pages of 2 MiB that are taken from the device and given back (kvcached's `ElasticBlockPool`). Built from
//! the source of ovg-project/kvcached, commit e8e64063; not checked against the real one yet.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `compound` | addresses for all pages are reserved at the start; a page is `page_size_mb` in each layer's K and V, one piece of memory; where none is mapped, one page of zeros is | `csrc/allocator.cpp`, `csrc/ftensor.cpp` (contiguous layout) |
//! | `block_fits` | a block must fit into a page; blocks that would lie on two are not used | `kvcached/kv_cache_manager.py`; `csrc/page_allocator.cpp`, `get_block_range` |
//! | `capacity` | as many blocks as `gpu_memory_utilization` × the device's bytes hold, whoever holds them now; or `num_blocks` | `integration/vllm/patches.py`, `_get_virtual_kv_capacity_bytes` |
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
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use vramlab_sim::allocator::{AllocError, Notice, OutOfMemory, Reply};
use vramlab_sim::driver::{Address, DriverError, DriverExt};
use vramlab_sim::kv::{Below, KvError, KvFull};

use self::blocks::Blocks;
use self::pages::{Limits, Pages};
use super::index::Index;
use super::manager::{Manager, Rules};
use super::options::{ARENA, TOKEN, TokenBytes, UTILIZATION, count, flag, positive, share};
use super::pool::{Pool, PoolUsage, Run};
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
const LAYERS: OptionDoc =
    OptionDoc { name: "num_layers", default: "32", help: "layers of the model" };
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
    let caching = flag(options, &CACHING)?;
    let page = count(options, &PAGE, 2)?;
    if page % 2 > 0 || page > 1 << 20 {
        return Err(OptionError(format!("option page_size_mb={page}: expected a multiple of 2")));
    }
    let limits = Limits {
        prealloc: flag(options, &PREALLOC)?,
        min: options.parse(MIN.name, "a whole number", 5)?,
        max: options.parse(MAX.name, "a whole number", 10)?,
        utilization: share(options, &DEVICE)?,
    };
    let cached: i64 = options.parse(CACHED.name, "a whole number", 16_000)?;
    let pool = ElasticPool {
        wanted: positive(options, BLOCKS.name)?,
        utilization: share(options, &UTILIZATION)?,
        rows: count(options, &LAYERS, 32)?.saturating_mul(count(options, &BUFFERS, 2)?),
        page: page * MIB,
        aware: flag(options, &AWARE)?,
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

/// The blocks.
#[derive(Debug)]
struct ElasticPool {
    wanted: Option<u64>,
    utilization: f64,
    /// K and V of each layer.
    rows: u64,
    /// Bytes of a page in one of them.
    page: u64,
    aware: bool,
    most_cached: Option<u64>,
    block_bytes: u64,
    blocks: Blocks,
    /// Of each block.
    holders: Vec<u32>,
    /// When each block was retained last.
    stamps: Vec<u64>,
    index: Index,
    /// Blocks that nobody has but that can be found, by when they were retained.
    retained: BTreeMap<u64, u32>,
    clock: u64,
    evicted: u64,
}

impl ElasticPool {
    /// Free blocks and retained ones, as of the last look at the device.
    fn available(&self) -> u64 {
        self.blocks.available() + self.retained.len() as u64
    }

    /// Frees retained blocks, by age or page by page first.
    fn evict(&mut self, below: &mut Below<'_>, count: u64, aware: bool) -> Result<(), KvError> {
        let count = count.min(self.retained.len() as u64) as usize;
        let mut victims = if aware { self.page_victims(count) } else { Vec::new() };
        let chosen: std::collections::BTreeSet<u32> = victims.iter().copied().collect();
        victims.extend(self.retained.values().filter(|block| !chosen.contains(block)));
        victims.truncate(count);
        for block in &victims {
            self.retained.remove(&self.stamps[*block as usize]);
            self.index.forget(*block);
        }
        self.evicted += victims.len() as u64;
        self.blocks.give(below.driver, &victims)
    }

    /// Retained blocks that together empty pages, at most `count` (rule `page_aware`).
    fn page_victims(&self, count: usize) -> Vec<u32> {
        let mut by_page: BTreeMap<u32, (Vec<u32>, u64)> = BTreeMap::new();
        for (stamp, block) in &self.retained {
            let (blocks, newest) = by_page.entry(self.blocks.page_of(*block)).or_default();
            blocks.push(*block);
            *newest = *stamp;
        }
        let empties = |(page, (blocks, _)): &(u32, (Vec<u32>, u64))| {
            blocks.len() as u64 >= self.blocks.occupancy(*page)
        };
        let mut pages: Vec<_> = by_page.into_iter().filter(empties).map(|(_, page)| page).collect();
        pages.sort_by_key(|(blocks, newest)| (blocks.len(), *newest));
        let mut victims = Vec::new();
        for (blocks, _) in pages {
            if victims.len() + blocks.len() > count {
                break;
            }
            victims.extend(blocks);
        }
        victims
    }

    /// Takes a block out of the retained ones, if it is there, for one more holder.
    fn share(&mut self, block: u32) {
        if self.holders[block as usize] == 0 {
            self.retained.remove(&self.stamps[block as usize]);
        }
        self.holders[block as usize] += 1;
    }

    /// As if `share` had not been: the block is as old as it was.
    fn unshare(&mut self, block: u32) {
        self.holders[block as usize] -= 1;
        if self.holders[block as usize] == 0 {
            self.retained.insert(self.stamps[block as usize], block);
        }
    }

    /// Blocks, with retained ones freed where some are missing (rule `shortage`).
    fn obtain(
        &mut self,
        below: &mut Below<'_>,
        count: u64,
        into: &mut Vec<u32>,
    ) -> Result<bool, KvError> {
        for _ in 0..2 {
            self.blocks.pages.look(below.driver)?;
            let missing = count.saturating_sub(self.blocks.available());
            if missing > 0 && !self.retained.is_empty() {
                self.evict(below, missing, false)?;
            }
            if self.blocks.take(below.driver, count, into)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Pool for ElasticPool {
    fn start(&mut self, below: &mut Below<'_>, block_bytes: u64) -> Result<(), KvError> {
        let block = block_bytes / self.rows;
        if block == 0 || !block_bytes.is_multiple_of(self.rows) || block > self.page {
            let why = format!(
                "a block takes {block_bytes} bytes in {} rows of keys or values; expected a multiple of that number, and at most {} bytes in each (options token_bytes, num_layers, page_size_mb)",
                self.rows, self.page
            );
            return Err(AllocError::BadSetting(why.into()).into());
        }
        let blocks = match self.wanted {
            Some(blocks) => blocks,
            None => {
                let (_, total) = below.driver.mem_info()?;
                (total as f64 * self.utilization).ceil() as u64 / block_bytes
            }
        };
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let pages = (u64::from(blocks) * block / self.page) as u32;
        self.blocks.pages.start(below.driver, pages, self.page.saturating_mul(self.rows))?;
        self.blocks.start(self.page, block);
        self.block_bytes = block_bytes;
        self.holders = vec![0; blocks as usize];
        self.stamps = vec![0; blocks as usize];
        self.index = Index::new(blocks);
        if !self.blocks.take(below.driver, 1, &mut Vec::new())? {
            self.blocks.pages.stop(below.driver)?;
            return Err(KvError::Full(KvFull { needed: 1, ..KvFull::default() }));
        }
        self.holders[0] = 1;
        self.blocks.pages.prealloc(below.driver)
    }

    fn blocks(&self) -> u32 {
        self.holders.len() as u32
    }

    fn free(&mut self, below: &mut Below<'_>) -> Result<u64, KvError> {
        self.blocks.pages.look(below.driver)?;
        Ok(self.available())
    }

    fn find(&self, hash: u64) -> Option<u32> {
        self.index.find(hash)
    }

    fn holders(&self, block: u32) -> u32 {
        self.holders[block as usize]
    }

    fn take(
        &mut self,
        below: &mut Below<'_>,
        found: &[u32],
        count: u64,
        into: &mut Vec<u32>,
    ) -> Result<(), KvError> {
        let before = into.len();
        found.iter().for_each(|block| self.share(*block));
        if !self.obtain(below, count, into)? {
            found.iter().for_each(|block| self.unshare(*block));
            let full = KvFull { needed: count, free: self.available(), ..KvFull::default() };
            return Err(KvError::Full(full));
        }
        into[before..].iter().for_each(|block| self.holders[*block as usize] = 1);
        self.blocks.pages.prealloc(below.driver)
    }

    fn register(&mut self, block: u32, hash: u64) {
        self.index.register(block, hash);
    }

    fn release(&mut self, below: &mut Below<'_>, blocks: &[u32]) -> Result<(), KvError> {
        let mut plain = Vec::new();
        for block in blocks {
            let at = *block as usize;
            self.holders[at] -= 1;
            if self.holders[at] > 0 {
                continue;
            }
            if self.index.is_registered(*block) {
                self.clock += 1;
                self.stamps[at] = self.clock;
                self.retained.insert(self.clock, *block);
            } else {
                plain.push(*block);
            }
        }
        self.blocks.give(below.driver, &plain)?;
        let excess =
            self.most_cached.map_or(0, |most| (self.retained.len() as u64).saturating_sub(most));
        if excess > 0 {
            self.evict(below, excess, self.aware)?;
        }
        Ok(())
    }

    fn address(&self, block: u32) -> Address {
        self.blocks.pages.address(0) + u64::from(block) * self.block_bytes
    }

    fn runs(&self) -> Vec<Run> {
        let pages = &self.blocks.pages;
        let mapped = (0..pages.count() as u32).filter(|page| pages.is_mapped(*page));
        mapped
            .map(|page| {
                let range = self.blocks.range(page);
                Run {
                    address: pages.address(page),
                    size: pages.size(),
                    first: range.start,
                    first_address: self.address(range.start),
                    count: range.len() as u32,
                }
            })
            .collect()
    }

    fn usage(&self) -> PoolUsage {
        PoolUsage {
            free: self.available(),
            cached: self.retained.len() as u64,
            arena: 0,
            own: self.blocks.pages.bytes(),
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("cached_contents", self.index.len()),
            ("evicted_blocks", self.evicted),
            ("pages_in_use", self.blocks.pages.in_use()),
        ]
    }

    fn notice(&mut self, below: &mut Below<'_>, notice: &Notice<'_>) -> Result<Reply, KvError> {
        match notice {
            Notice::Set { key: "reset_prefix_cache", .. } => {
                let all: Vec<u32> = std::mem::take(&mut self.retained).into_values().collect();
                self.index.clear();
                self.blocks.give(below.driver, &all)?;
            }
            Notice::EmptyCache | Notice::Trim { .. } => self.blocks.pages.trim(below.driver)?,
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }
}
