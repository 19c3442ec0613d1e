//! The blocks: who has them, what is retained, what goes.

use std::collections::{BTreeMap, BTreeSet};

use vramlab_sim::allocator::{AllocError, Notice, Reply};
use vramlab_sim::driver::{Address, DriverExt};
use vramlab_sim::kv::{Below, KvError, KvFull};

use super::blocks::Blocks;
use crate::serving::index::Index;
use crate::serving::options;
use crate::serving::pool::{self, Pool, PoolUsage, Run};

/// The blocks.
#[derive(Debug)]
pub(super) struct ElasticPool {
    pub(super) wanted: Option<u64>,
    pub(super) utilization: f64,
    /// Layers, as the option says.
    pub(super) layers: Option<u64>,
    /// Rows of a layer: K and V, or both together.
    pub(super) buffers: u64,
    /// Bytes of a page in one of them.
    pub(super) page: u64,
    pub(super) aware: bool,
    pub(super) most_cached: Option<u64>,
    pub(super) block_bytes: u64,
    pub(super) blocks: Blocks,
    /// Of each block.
    pub(super) holders: Vec<u32>,
    /// When each block was retained last.
    pub(super) stamps: Vec<u64>,
    pub(super) index: Index,
    /// Blocks that nobody has but that can be found, by when they were retained.
    pub(super) retained: BTreeMap<u64, u32>,
    pub(super) clock: u64,
    pub(super) evicted: u64,
}

impl ElasticPool {
    /// Free blocks and retained ones, as of the last look at the device.
    fn available(&self) -> u64 {
        self.blocks.available() + self.retained.len() as u64
    }

    /// Frees retained blocks, by age or page by page first.
    pub(super) fn evict(
        &mut self,
        below: &mut Below<'_>,
        count: u64,
        aware: bool,
    ) -> Result<(), KvError> {
        let count = count.min(self.retained.len() as u64) as usize;
        let mut victims = if aware { self.page_victims(count) } else { Vec::new() };
        let chosen: BTreeSet<u32> = victims.iter().copied().collect();
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
    fn start(
        &mut self,
        below: &mut Below<'_>,
        block_bytes: u64,
        layers: Option<u64>,
    ) -> Result<(), KvError> {
        let rows = options::layers(self.layers, layers)?.saturating_mul(self.buffers);
        let block = block_bytes / rows;
        if block == 0 || !block_bytes.is_multiple_of(rows) || block > self.page {
            let why = format!(
                "a block takes {block_bytes} bytes in {rows} rows of keys or values; expected a multiple of that number, and at most {} bytes in each (options token_bytes, num_layers, page_size_mb)",
                self.page
            );
            return Err(AllocError::BadSetting(why.into()).into());
        }
        let (_, total) = below.driver.mem_info()?;
        let share = || (total as f64 * self.utilization).ceil() as u64 / block_bytes;
        let wanted = self.wanted.unwrap_or_else(share);
        let blocks =
            pool::blocks(wanted, total / block_bytes, "num_blocks, block_size, token_bytes")?;
        let pages = (u64::from(blocks) * block / self.page) as u32;
        self.blocks.pages.start(below.driver, pages, self.page.saturating_mul(rows))?;
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

    fn finds(&self, block: u32, hash: u64) -> bool {
        self.index.finds(block, hash)
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
