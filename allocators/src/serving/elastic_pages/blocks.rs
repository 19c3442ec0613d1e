//! Which blocks of which pages are handed out: a page goes back only when it has none.

use std::collections::{BTreeSet, VecDeque};

use vramlab_sim::driver::Driver;
use vramlab_sim::kv::KvError;

use super::pages::Pages;

/// The blocks of a page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// It has memory for blocks.
    used: bool,
    /// Blocks that are not handed out; the first is next.
    free: VecDeque<u32>,
    /// When it came among those with free blocks.
    since: u64,
}

/// Blocks on pages. A block that would lie on two pages is not used.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) pages: Pages,
    /// Bytes of a page, and of a block, in one layer's K or V.
    page: u64,
    block: u64,
    on: Vec<Page>,
    /// Pages with free blocks: how many, since when, which.
    partly: BTreeSet<(u64, u64, u32)>,
    /// Free blocks of these.
    free: u64,
    clock: u64,
    emptied: Vec<u32>,
}

impl Blocks {
    pub(super) fn new(pages: Pages) -> Self {
        Self {
            pages,
            page: 1,
            block: 1,
            on: Vec::new(),
            partly: BTreeSet::new(),
            free: 0,
            clock: 0,
            emptied: Vec::new(),
        }
    }

    /// The pages are there; their blocks are of `block` bytes of the `page` bytes.
    pub(super) fn start(&mut self, page: u64, block: u64) {
        (self.page, self.block) = (page, block);
        self.on = vec![Page::default(); self.pages.count() as usize];
    }

    /// The blocks that lie on a page.
    pub(super) fn range(&self, page: u32) -> std::ops::Range<u32> {
        let (start, end) = (u64::from(page) * self.page, (u64::from(page) + 1) * self.page);
        start.div_ceil(self.block) as u32..(end / self.block) as u32
    }

    pub(super) fn page_of(&self, block: u32) -> u32 {
        (u64::from(block) * self.block / self.page) as u32
    }

    /// Blocks that could be handed out, as of the last look at the device.
    pub(super) fn available(&self) -> u64 {
        self.free + self.pages.available() * (self.page / self.block)
    }

    /// Blocks of a page that are handed out.
    pub(super) fn occupancy(&self, page: u32) -> u64 {
        let on = &self.on[page as usize];
        if on.used { self.range(page).len() as u64 - on.free.len() as u64 } else { 0 }
    }

    /// Hands out `count` blocks; `false`, and nothing, if a page could not be had.
    pub(super) fn take(
        &mut self,
        driver: &mut dyn Driver,
        count: u64,
        into: &mut Vec<u32>,
    ) -> Result<bool, KvError> {
        let before = into.len();
        let mut need = count;
        while need > 0 {
            if self.partly.is_empty() && !self.open(driver)? {
                let taken: Vec<u32> = into.drain(before..).collect();
                self.give(driver, &taken)?;
                return Ok(false);
            }
            let Some(page) = self.pick(need) else { continue };
            let on = &mut self.on[page as usize];
            let now = need.min(on.free.len() as u64);
            into.extend(on.free.drain(..now as usize));
            self.free -= now;
            need -= now;
            self.put(page);
        }
        Ok(true)
    }

    /// A new page among those with free blocks, if it has any; `false` if there is none.
    fn open(&mut self, driver: &mut dyn Driver) -> Result<bool, KvError> {
        let Some(page) = self.pages.take(driver)? else { return Ok(false) };
        let free: VecDeque<u32> = self.range(page).collect();
        self.free += free.len() as u64;
        self.on[page as usize] = Page { used: true, free, since: 0 };
        self.put(page);
        Ok(true)
    }

    /// Takes the page out that fits best (rule `best_page`).
    fn pick(&mut self, need: u64) -> Option<u32> {
        let most = self.partly.last().map(|(free, ..)| *free)?;
        let least = need.min(most);
        let best = *self.partly.range((least, 0, 0)..).next()?;
        self.partly.remove(&best);
        Some(best.2)
    }

    /// Puts a page among those with free blocks, as the last one, if it has any.
    fn put(&mut self, page: u32) {
        self.clock += 1;
        let on = &mut self.on[page as usize];
        on.since = self.clock;
        if !on.free.is_empty() {
            self.partly.insert((on.free.len() as u64, on.since, page));
        }
    }

    /// Takes blocks back; pages without any are given back.
    pub(super) fn give(&mut self, driver: &mut dyn Driver, blocks: &[u32]) -> Result<(), KvError> {
        for block in blocks {
            let page = self.page_of(*block);
            let on = &mut self.on[page as usize];
            self.partly.remove(&(on.free.len() as u64, on.since, page));
            on.free.push_back(*block);
            self.free += 1;
            if on.free.len() < self.range(page).len() {
                self.put(page);
                continue;
            }
            let gone = std::mem::take(&mut self.on[page as usize]);
            self.free -= gone.free.len() as u64;
            self.emptied.push(page);
        }
        let emptied = std::mem::take(&mut self.emptied);
        self.pages.give(driver, &emptied)?;
        self.emptied = emptied;
        self.emptied.clear();
        Ok(())
    }
}
