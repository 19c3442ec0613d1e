//! The tables of vLLM's KV-cache manager, over a pool of blocks: which blocks a sequence has, and what it may find and take.
//!
//! | rule | what it says |
//! |---|---|
//! | `whole_blocks` | found are whole blocks from the start, at most all tokens but one: the last one is computed again |
//! | `first_miss` | the search ends at the first block that is not known |
//! | `need` | new blocks, and found ones that lie among the free, and the watermark, must be free; a refusal changes nothing |
//! | `watermark` | trunc(share × blocks), for new sequences while others run |
//! | `known_when_placed` | full blocks are registered when their slots are given, those of later tokens too |
//! | `tail_first` | a sequence's blocks are given back from its tail to its head |
//! | `copy_on_write` | a fork shares all blocks; who writes to a last block that is shared and not full takes a copy of it first |
//!
//! Sources: vLLM 0.33.0, `vllm/v1/core/kv_cache_manager.py` and `single_type_kv_cache_manager.py`; for `copy_on_write`, which 0.33.0 has not,
//! W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023, section 4.4.

use vramlab_sim::allocator::{Notice, Reply};
use vramlab_sim::kv::{
    Admitted, Below, KvCache, KvError, KvFull, KvUsage, MoreTokens, NewSequence, Sequence,
    SlotRange,
};

use super::layout;
use super::options::TokenBytes;
use super::pool::Pool;
use super::refused::Refused;
use super::sequences::Sequences;
use super::tokens::{Prefix, Tokens};

/// What holds for all sequences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Tokens of a block.
    pub(super) block_size: u64,
    /// Are blocks found by content?
    pub(super) caching: bool,
    /// Share of the blocks that must stay free while others run.
    pub(super) watermark: f64,
    /// Most tokens of a sequence.
    pub(super) max_model_len: Option<u64>,
}

/// A sequence.
#[derive(Clone, Debug, Default)]
struct Table {
    blocks: Vec<u32>,
    tokens: u64,
    prefix: Prefix,
    serial: u64,
    /// Tokens so far that no key told.
    unknown: u64,
}

/// Sequences over a pool of blocks.
#[derive(Debug)]
pub struct Manager<P> {
    pub(super) pool: P,
    rules: Rules,
    bytes: TokenBytes,
    live: Sequences<Table>,
    /// Sequences so far.
    serials: u64,
    tokens: u64,
    filled: u64,
    used: u64,
    copied: u64,
    /// Blocks on their way in or out.
    moving: Vec<u32>,
    /// Prefixes that end with the blocks that a look-up found.
    prefixes: Vec<Prefix>,
    refused: Refused,
    /// How often blocks were taken, given back or registered.
    changes: u64,
}

impl<P: Pool> Manager<P> {
    pub(super) fn new(pool: P, rules: Rules, bytes: TokenBytes) -> Self {
        Self {
            pool,
            rules,
            bytes,
            live: Sequences::default(),
            serials: 0,
            tokens: 0,
            filled: 0,
            used: 0,
            copied: 0,
            moving: Vec::new(),
            prefixes: Vec::new(),
            refused: Refused::default(),
            changes: 0,
        }
    }

    fn block_bytes(&self) -> u64 {
        self.bytes.get().saturating_mul(self.rules.block_size)
    }

    fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.rules.block_size)
    }

    fn check_length(&self, tokens: u64) -> Result<(), KvError> {
        match self.rules.max_model_len {
            Some(limit) if tokens > limit => Err(KvError::TooLong { tokens, limit }),
            _ => Ok(()),
        }
    }

    /// A table with the blocks that are found (rules `whole_blocks` and `first_miss`), and the tokens after them.
    fn look_up<'k>(&mut self, new: &NewSequence<'k>) -> (Table, Tokens<'k>) {
        self.serials += 1;
        let (serial, size) = (self.serials, self.rules.block_size);
        let mut tokens = Tokens::new(new.keys, serial, 0);
        let mut table =
            Table { blocks: Vec::new(), tokens: 0, prefix: Prefix::default(), serial, unknown: 0 };
        let most = if self.rules.caching { new.tokens.saturating_sub(1) / size } else { 0 };
        self.prefixes.clear();
        let known = self.refused.found(new).iter().take(most as usize);
        for (block, prefix) in known.take_while(|(block, p)| self.pool.finds(*block, p.hash())) {
            table.blocks.push(*block);
            table.prefix = *prefix;
            self.prefixes.push(*prefix);
        }
        tokens.skip(table.blocks.len() as u64 * size);
        while (table.blocks.len() as u64) < most {
            let mut after = tokens;
            let prefix = table.prefix.with_next(&mut after, size);
            let Some(block) = self.pool.find(prefix.hash()) else { break };
            table.blocks.push(block);
            self.prefixes.push(prefix);
            (table.prefix, tokens) = (prefix, after);
        }
        table.tokens = table.blocks.len() as u64 * size;
        (table, tokens)
    }

    /// Is there room (rule `need`)?
    fn check_room(&mut self, below: &mut Below<'_>, mut full: KvFull) -> Result<(), KvError> {
        full.free = self.pool.free(below)?;
        if full.needed.saturating_add(full.watermark) > full.free {
            return Err(KvError::Full(full));
        }
        Ok(())
    }

    /// Slots of `table`'s blocks go to the next `count` tokens; blocks that are full then are registered.
    fn fill(&mut self, table: &mut Table, tokens: &mut Tokens<'_>, count: u64) {
        let size = self.rules.block_size;
        self.tokens += count;
        self.filled += count;
        let end = table.tokens + count;
        while self.rules.caching && table.tokens < end {
            let step = (size - table.tokens % size).min(end - table.tokens);
            table.prefix = table.prefix.with_next(tokens, step);
            table.tokens += step;
            if table.tokens.is_multiple_of(size) {
                let block = table.blocks[(table.tokens / size) as usize - 1];
                self.changes += 1;
                self.pool.register(block, table.prefix.hash());
            }
        }
        table.tokens = end;
        table.unknown = tokens.unknown();
    }

    /// Further slots for a sequence that is there.
    fn grow(
        &mut self,
        below: &mut Below<'_>,
        table: &mut Table,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError> {
        let size = self.rules.block_size;
        let end = table.tokens.saturating_add(more.tokens);
        self.check_length(end)?;
        let shared = |block: &u32| self.pool.holders(*block) > 1;
        let last = table.blocks.last().copied().filter(shared);
        let begun = table.tokens % size;
        let copied = last.filter(|_| begun > 0 && more.tokens > 0);
        let needed = self.blocks(end) - table.blocks.len() as u64 + u64::from(copied.is_some());
        self.check_room(below, KvFull { needed, ..KvFull::default() })?;
        self.moving.clear();
        self.changes += u64::from(needed > 0);
        self.pool.take(below, &[], needed, &mut self.moving)?;
        self.used += needed;
        if let Some(old) = copied {
            table.blocks.pop();
            self.pool.release(below, &[old])?;
            self.copied += begun;
            self.filled += begun;
        }
        table.blocks.extend_from_slice(&self.moving);
        let mut tokens = Tokens::new(more.keys, table.serial, table.unknown);
        self.fill(table, &mut tokens, more.tokens);
        Ok(needed)
    }

    /// Tokens in the `index`-th block of a table.
    fn in_block(&self, table: &Table, index: usize) -> u64 {
        let size = self.rules.block_size;
        size.min(table.tokens - index as u64 * size)
    }

    fn layout(&self) -> vramlab_sim::allocator::Layout {
        let mut filled = vec![0; self.pool.blocks() as usize];
        for table in self.live.iter() {
            for (index, block) in table.blocks.iter().enumerate() {
                filled[*block as usize] = self.in_block(table, index) * self.bytes.get();
            }
        }
        layout::of_blocks(&self.pool, self.block_bytes(), &filled)
    }
}

impl<P: Pool> KvCache for Manager<P> {
    fn begin(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<Admitted, KvError> {
        if let Some(bytes) = self.bytes.undecided(new.token_bytes) {
            self.pool.start(below, bytes.saturating_mul(self.rules.block_size), new.layers)?;
            self.bytes.decide(bytes);
        }
        self.check_length(new.tokens)?;
        if let Some(full) = self.refused.still(new, self.changes) {
            self.check_room(below, full)?;
        }
        let (mut table, mut tokens) = self.look_up(new);
        let hit = table.tokens;
        let count = new.now(new.tokens - hit)?;
        let held = hit + count;
        let room = new.headroom.map_or(held, |more| new.tokens.saturating_add(more));
        let found = table.blocks.len() as u64;
        let idle =
            table.blocks.iter().filter(|block| self.pool.holders(**block) == 0).count() as u64;
        let watermark = if new.watermark {
            (self.rules.watermark * f64::from(self.pool.blocks())) as u64
        } else {
            0
        };
        let needed = self.blocks(room.max(held)) - found + idle;
        let full = KvFull { hit, needed, watermark, free: 0 };
        if let Err(refusal) = self.check_room(below, full) {
            let found = table.blocks.iter().copied().zip(self.prefixes.iter().copied());
            self.refused.set(new, full, self.changes, found);
            return Err(refusal);
        }
        self.changes += 1;
        let blocks = self.blocks(held) - found;
        self.moving.clear();
        self.pool.take(below, &table.blocks, blocks, &mut self.moving)?;
        table.blocks.extend_from_slice(&self.moving);
        self.used += idle + blocks;
        self.tokens += hit;
        self.filled += idle * self.rules.block_size;
        self.fill(&mut table, &mut tokens, count);
        Ok(Admitted { sequence: self.live.insert(table), hit, blocks })
    }

    fn more(
        &mut self,
        below: &mut Below<'_>,
        sequence: Sequence,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError> {
        let mut table = std::mem::take(self.live.get_mut(sequence)?);
        let grown = self.grow(below, &mut table, more);
        *self.live.get_mut(sequence)? = table;
        grown
    }

    fn fork(&mut self, below: &mut Below<'_>, from: Sequence) -> Result<Admitted, KvError> {
        let mut table = self.live.get(from)?.clone();
        self.changes += 1;
        self.pool.take(below, &table.blocks, 0, &mut Vec::new())?;
        self.serials += 1;
        table.serial = self.serials;
        self.tokens += table.tokens;
        let hit = table.tokens;
        Ok(Admitted { sequence: self.live.insert(table), hit, blocks: 0 })
    }

    fn end(&mut self, below: &mut Below<'_>, sequence: Sequence) -> Result<(), KvError> {
        let table = self.live.remove(sequence)?;
        self.changes += 1;
        self.tokens -= table.tokens;
        for (index, block) in table.blocks.iter().enumerate() {
            if self.pool.holders(*block) == 1 {
                self.used -= 1;
                self.filled -= self.in_block(&table, index);
            }
        }
        self.moving.clear();
        self.moving.extend(table.blocks.iter().rev());
        self.pool.release(below, &self.moving)
    }

    fn notice(&mut self, below: &mut Below<'_>, notice: Notice<'_>) -> Result<Reply, KvError> {
        match notice {
            Notice::Mark { .. } => Ok(Reply::Done),
            Notice::Walk => Ok(Reply::Layout(self.layout())),
            Notice::Counters => {
                let mut list = self.pool.counters();
                list.push(("copied_tokens", self.copied));
                Ok(Reply::Counters(list))
            }
            other => {
                self.changes += 1; // it may empty the cache
                self.pool.notice(below, &other)
            }
        }
    }

    fn table(&self, sequence: Sequence) -> Result<Vec<SlotRange>, KvError> {
        let table = self.live.get(sequence)?;
        let blocks = table.blocks.iter().enumerate();
        Ok(blocks
            .map(|(index, block)| SlotRange {
                address: self.pool.address(*block),
                tokens: self.in_block(table, index),
                stride: self.bytes.get(),
            })
            .collect())
    }

    fn usage(&self) -> KvUsage {
        let pool = self.pool.usage();
        KvUsage {
            sequences: self.live.len(),
            tokens: self.tokens,
            filled: self.filled,
            slots: self.used * self.rules.block_size,
            used: self.used,
            free: pool.free,
            cached: pool.cached,
            token_bytes: self.bytes.get(),
            allocated: self.used * self.block_bytes(),
            arena: pool.arena,
            own: pool.own,
        }
    }
}
