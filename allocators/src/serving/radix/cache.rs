//! What the tree and the pages do for a sequence: found, put, grown, ended.

use vramlab_sim::allocator::{Notice, Reply};
use vramlab_sim::driver::Address;
use vramlab_sim::kv::{
    Admitted, Below, KvCache, KvError, KvFull, KvUsage, MoreTokens, NewSequence, Sequence,
    SlotRange,
};

use super::sequence::Held;
use super::tree::{Cursor, Page, Tree};
use super::{Pool, Radix};
use crate::serving::layout;
use crate::serving::tokens::{Prefix, Tokens};

impl Radix {
    fn pages(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.page)
    }

    fn check_length(&self, tokens: u64) -> Result<(), KvError> {
        match self.length {
            Some(limit) if tokens > limit => Err(KvError::TooLong { tokens, limit }),
            _ => Ok(()),
        }
    }

    /// Pages that can be had once a sequence's full pages are in the tree, without putting them there.
    fn available_after(&self, held: &Held) -> u64 {
        let mut cursor = Cursor::default();
        let known = held.pages.iter().take_while(|page| self.tree.step(&mut cursor, page.key));
        let duplicates = (known.count() - held.in_tree) as u64;
        self.slots.len() + duplicates + self.tree.evictable() - cursor.idle
    }

    /// Puts a sequence's full pages into the tree, and goes on with the tree's (rules `after_prefill` and `no_duplicates`).
    fn put(&mut self, held: &mut Held) {
        held.pending = false;
        self.count(held, false);
        let known = self.tree.insert(&held.pages);
        let mut slots = Vec::with_capacity(held.pages.len());
        let node = self.tree.find(&held.keys(), &mut slots);
        self.freed.extend(held.pages[held.in_tree..known].iter().map(|page| page.slot));
        self.duplicates += (known - held.in_tree) as u64;
        for (page, slot) in held.pages.iter_mut().zip(slots) {
            page.slot = slot;
        }
        self.tree.unlock(held.node);
        self.tree.lock(node);
        (held.node, held.in_tree) = (node, held.pages.len());
        self.count(held, true);
        self.slots.give(&mut self.freed);
    }

    /// Takes a sequence's own pages into the sums, or out of them.
    fn count(&mut self, held: &Held, more: bool) {
        let (pages, tokens) = (held.private(), held.private_tokens(self.page));
        if more {
            (self.private, self.private_tokens) =
                (self.private + pages, self.private_tokens + tokens);
        } else {
            (self.private, self.private_tokens) =
                (self.private - pages, self.private_tokens - tokens);
        }
    }

    /// Makes room for so many tokens, as far as there is any (rules `evict` and `shortfall`).
    fn make_room(&mut self, tokens: u64) {
        let missing = tokens.saturating_sub(self.slots.len() * self.page);
        if missing > 0 {
            self.tree.evict(self.pages(missing), &mut self.freed);
            self.evicted += self.freed.len() as u64 * self.page;
            self.slots.give(&mut self.freed);
        }
    }

    /// Gives slots to the next `count` tokens, with room for `want`.
    fn append(&mut self, held: &mut Held, tokens: &mut Tokens<'_>, count: u64, want: u64) -> u64 {
        self.make_room(want);
        let pages = self.pages(held.tokens + count) - self.pages(held.tokens);
        held.append(self.page, tokens, count, self.slots.take(pages));
        self.tokens += count;
        pages
    }

    /// Tokens for which there is made room when `count` are asked for.
    const fn want(&self, count: u64, decode: bool) -> u64 {
        match self.page {
            1 => count,
            page if decode && count == 1 => page,
            page => count + page,
        }
    }

    fn grow(&mut self, held: &mut Held, more: &MoreTokens<'_>) -> Result<u64, KvError> {
        let end = held.tokens.saturating_add(more.tokens);
        self.check_length(end)?;
        let needed = self.pages(end) - self.pages(held.tokens);
        let free = if held.pending {
            self.available_after(held)
        } else {
            self.slots.len() + self.tree.evictable()
        };
        if needed > free {
            return Err(KvError::Full(KvFull { needed, free, ..KvFull::default() }));
        }
        if held.pending {
            self.put(held);
        }
        let prefill = held.tokens < held.prompt;
        let mut tokens = Tokens::new(more.keys, held.serial, held.unknown);
        self.count(held, false);
        let want = self.want(more.tokens, !prefill);
        let taken = self.append(held, &mut tokens, more.tokens, want);
        self.count(held, true);
        held.pending = prefill;
        Ok(taken)
    }

    /// Rule `flush`.
    fn flush(&mut self) {
        if self.live.len() == 0 {
            self.tree = Tree::new();
            self.slots.reset();
        }
    }

    fn address(&self, slot: u32) -> Address {
        self.pool.address + u64::from(slot) * self.pool.page_bytes
    }

    /// Bytes of tokens in each page.
    fn filled(&self) -> Vec<u64> {
        let mut filled = vec![0; self.slots.pages() as usize + 1];
        for held in self.live.iter() {
            for page in &held.pages {
                filled[page.slot as usize] = self.pool.page_bytes;
            }
            if let Some(part) = held.part {
                filled[part as usize] = held.tokens % self.page * self.bytes.get();
            }
        }
        filled
    }
}

impl KvCache for Radix {
    fn begin(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<Admitted, KvError> {
        self.start(below, new.token_bytes)?;
        self.check_length(new.tokens)?;
        self.serials += 1;
        let most = new.tokens.saturating_sub(1) / self.page;
        let mut tokens = Tokens::new(new.keys, self.serials, 0);
        let (mut cursor, mut keys) = (Cursor::default(), Vec::new());
        while (keys.len() as u64) < most {
            let mut after = tokens;
            let key = Prefix::default().with_next(&mut after, self.page).hash();
            if !self.tree.step(&mut cursor, key) {
                break;
            }
            keys.push(key);
            tokens = after;
        }
        let found = keys.len() as u64;
        let hit = found * self.page;
        let count = new.now(new.tokens - hit)?;
        let room = new.headroom.map_or(hit + count, |more| new.tokens.saturating_add(more));
        let needed = self.pages(room.max(hit + count)) - found;
        let free = self.slots.len() + self.tree.evictable() - cursor.idle;
        if needed > free {
            return Err(KvError::Full(KvFull { hit, needed, free, watermark: 0 }));
        }
        let mut slots = Vec::with_capacity(keys.len());
        let node = self.tree.find(&keys, &mut slots);
        self.tree.lock(node);
        let pages = keys.iter().zip(slots).map(|(key, slot)| Page { key: *key, slot }).collect();
        let mut held = Held {
            pages,
            in_tree: keys.len(),
            node,
            tokens: hit,
            prompt: new.tokens,
            pending: true,
            serial: self.serials,
            ..Held::default()
        };
        self.tokens += hit;
        let want = self.want(count, false);
        let blocks = self.append(&mut held, &mut tokens, count, want);
        self.count(&held, true);
        Ok(Admitted { sequence: self.live.insert(held), hit, blocks })
    }

    fn more(
        &mut self,
        _below: &mut Below<'_>,
        sequence: Sequence,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError> {
        let mut held = std::mem::take(self.live.get_mut(sequence)?);
        let grown = self.grow(&mut held, more);
        *self.live.get_mut(sequence)? = held;
        grown
    }

    fn fork(&mut self, _below: &mut Below<'_>, from: Sequence) -> Result<Admitted, KvError> {
        let parent = self.live.get(from)?;
        let needed = u64::from(parent.part.is_some());
        let free = self.available_after(parent);
        if needed > free {
            return Err(KvError::Full(KvFull { needed, free, ..KvFull::default() }));
        }
        let mut parent = std::mem::take(self.live.get_mut(from)?);
        self.put(&mut parent);
        self.tree.lock(parent.node);
        self.serials += 1;
        let mut child = Held { serial: self.serials, ..parent.clone() };
        *self.live.get_mut(from)? = parent;
        if child.part.is_some() {
            self.make_room(self.page);
            child.part = self.slots.take(1).next();
            self.copied += child.tokens % self.page;
        }
        self.tokens += child.tokens;
        self.count(&child, true);
        let hit = child.tokens;
        Ok(Admitted { sequence: self.live.insert(child), hit, blocks: needed })
    }

    fn end(&mut self, _below: &mut Below<'_>, sequence: Sequence) -> Result<(), KvError> {
        let held = self.live.remove(sequence)?;
        self.tokens -= held.tokens;
        self.count(&held, false);
        let known = self.tree.insert(&held.pages);
        self.duplicates += (known - held.in_tree) as u64;
        self.freed.extend(held.pages[held.in_tree..known].iter().map(|page| page.slot));
        self.freed.extend(held.part);
        self.tree.unlock(held.node);
        self.slots.give(&mut self.freed);
        Ok(())
    }

    fn notice(&mut self, _below: &mut Below<'_>, notice: Notice<'_>) -> Result<Reply, KvError> {
        match notice {
            Notice::Mark { .. } => {
                for sequence in self.live.all() {
                    let mut held = std::mem::take(self.live.get_mut(sequence)?);
                    if held.pending {
                        self.put(&mut held);
                    }
                    *self.live.get_mut(sequence)? = held;
                }
            }
            Notice::Set { key: "flush_cache" | "reset_prefix_cache", .. } => self.flush(),
            Notice::Walk => {
                let Pool { address, size, page_bytes } = self.pool;
                return Ok(Reply::Layout(layout::of_pages(
                    address,
                    size,
                    page_bytes,
                    &self.filled(),
                )));
            }
            Notice::Counters => {
                return Ok(Reply::Counters(vec![
                    ("evicted_tokens", self.evicted),
                    ("duplicate_pages", self.duplicates),
                    ("copied_tokens", self.copied),
                ]));
            }
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    fn table(&self, sequence: Sequence) -> Result<Vec<SlotRange>, KvError> {
        let held = self.live.get(sequence)?;
        let range = |slot, tokens| SlotRange {
            address: self.address(slot),
            tokens,
            stride: self.bytes.get(),
        };
        let full = held.pages.iter().map(|page| range(page.slot, self.page));
        Ok(full.chain(held.part.map(|part| range(part, held.tokens % self.page))).collect())
    }

    fn usage(&self) -> KvUsage {
        let used = self.tree.locked() + self.private;
        KvUsage {
            sequences: self.live.len(),
            tokens: self.tokens,
            filled: self.tree.locked() * self.page + self.private_tokens,
            slots: used * self.page,
            used,
            free: self.slots.len() + self.tree.evictable(),
            cached: self.tree.evictable(),
            token_bytes: self.bytes.get(),
            allocated: used * self.pool.page_bytes,
            arena: self.pool.size,
            own: 0,
        }
    }
}
