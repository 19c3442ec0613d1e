//! What is where, and starting from it.
//!
//! | rule | what it says |
//! |---|---|
//! | `runs` | segments by address; of an expandable segment one entry per run of neighbouring mapped blocks |
//! | `age` | of free blocks: searches in their pool since they were put there |
//! | `adopt-order` | adopted segments are as old as their registration says, else as the layout lists them |
//! | `adopt-ranges` | runs of one stream and pool within one range's size form one range, which begins where the first of them does. Their pages must be the driver's first handles, in the layout's order |
//! | `adopt-waiting` | a waiting block comes back when it is told, or when everything is waited for |

use std::collections::BTreeMap;

use vramlab_sim::allocator::{AllocError, Block, BlockState, Layout, LayoutBlock, LayoutSegment};
use vramlab_sim::driver::{Driver, Handle};
use vramlab_sim::units::{PoolId, StreamId};

use super::Caching;
use super::pieces::{NO_RANGE, RANGE_SIZE_MAX, State, UNIT, WALL};
use super::stats::{LARGE, SMALL};

/// Pools as a layout calls them.
pub(super) const KIND_NAMES: [&str; 2] = ["small", "large"];

impl Caching {
    /// Rules `runs` and `age`.
    pub(super) fn walk(&self) -> Layout {
        let mut firsts: Vec<u32> = self.pieces.firsts().collect();
        firsts.sort_by_key(|&piece| self.pieces.address(piece));
        let mut layout = Layout::default();
        for first in firsts {
            let mut piece = first;
            let mut run = None;
            while piece != WALL {
                if self.pieces.state(piece) == State::Unmapped {
                    layout.segments.extend(run.take());
                } else {
                    let run = run.get_or_insert_with(|| self.empty_run(piece));
                    let block = self.layout_block(piece);
                    run.size += block.size;
                    run.blocks.push(block);
                }
                piece = self.pieces.get(piece).next();
            }
            layout.segments.extend(run);
        }
        layout
    }

    fn empty_run(&self, piece: u32) -> LayoutSegment {
        let segment = self.pieces.segment_of(piece);
        let set = self.pools.set(segment.set);
        LayoutSegment {
            address: self.pieces.address(piece),
            size: 0,
            stream: set.stream,
            pool: KIND_NAMES[set.kind],
            private_pool: self.pools.pool_of(segment.set).private,
            expandable: segment.is_expandable(),
            registration: (!self.by_address()).then_some(segment.registration),
            blocks: Vec::new(),
        }
    }

    fn layout_block(&self, piece: u32) -> LayoutBlock {
        let at = self.pieces.get(piece);
        let state = match at.state() {
            State::Used | State::Shared => BlockState::Allocated,
            State::Free => BlockState::Free,
            _ => BlockState::Pending,
        };
        let free = state == BlockState::Free;
        LayoutBlock {
            address: self.pieces.address(piece),
            size: at.bytes(),
            requested: if free { 0 } else { at.requested() },
            state,
            age: if free { self.age(piece) } else { 0 },
        }
    }

    /// Starts from a recorded state. Gives the tokens of the blocks in use or waiting, in the layout's order.
    pub(super) fn adopt(
        &mut self,
        driver: &mut dyn Driver,
        layout: &Layout,
    ) -> Result<Vec<Block>, AllocError> {
        if !self.pieces.is_new() {
            return Err(AllocError::BadSetting(
                "a state can be adopted only before the first request".into(),
            ));
        }
        check(layout).map_err(|why| AllocError::BadSetting(why.into()))?;
        let total = self.total(driver)?;
        let mut order: Vec<usize> = (0..layout.segments.len()).collect();
        order.sort_by_key(|&at| {
            (layout.segments[at].registration.is_none(), layout.segments[at].registration)
        });
        let mut handles = first_handles(layout, |kind| self.rounding.page(kind));
        let mut places = vec![WALL; layout.segments.len()];
        let mut grown = BTreeMap::new();
        for at in order {
            let run = &layout.segments[at];
            places[at] = if run.expandable {
                self.adopt_run(run, total, handles[at].take().unwrap_or_default(), &mut grown)?
            } else {
                self.adopt_segment(run)
            };
            if let Some(registration) = run.registration {
                self.pieces.set_registration(places[at], registration);
            }
        }
        let mut tokens = Vec::new();
        for (run, first) in layout.segments.iter().zip(places) {
            self.adopt_blocks(run, first, &mut tokens);
        }
        Ok(tokens)
    }

    fn set_of_run(&mut self, run: &LayoutSegment) -> u32 {
        let kind = kind_of(run);
        let pool = match run.private_pool {
            None => kind as u32,
            Some(id) => {
                let pool = self.pools.private_pool(id);
                pool.uses = pool.uses.max(1);
                pool.pools[kind]
            }
        };
        self.pools.set_in(pool, run.stream)
    }

    fn adopt_segment(&mut self, run: &LayoutSegment) -> u32 {
        let set = self.set_of_run(run);
        let units = (run.size / UNIT) as u32;
        self.tally.add_segment(kind_of(run), run.size);
        self.pools.count_held(set, 1);
        if units >= self.split_limit {
            self.tally.oversize_segments.rise(1);
        }
        self.pieces.add_segment(run.address, set, NO_RANGE, units, State::Used)
    }

    /// Rule `adopt-ranges`. `grown` holds the unmapped rest of the range that each stream and pool is in.
    fn adopt_run(
        &mut self,
        run: &LayoutSegment,
        total: u64,
        first_handle: u32,
        grown: &mut BTreeMap<(Option<PoolId>, StreamId, usize), u32>,
    ) -> Result<u32, AllocError> {
        let set = self.set_of_run(run);
        let kind = kind_of(run);
        let page = self.rounding.page(kind);
        let key = (run.private_pool, run.stream, kind);
        let fits = |rest: u32| {
            let (begin, size) = (self.pieces.address(rest), self.pieces.get(rest).bytes());
            run.address >= begin && run.address + run.size <= begin + size
        };
        let rest = match grown.get(&key).copied().filter(|&rest| fits(rest)) {
            Some(rest) => rest,
            None => {
                let size = self.range_size(total, page).max(run.size) / page * page;
                self.add_range(run.address, set, page, (size / UNIT) as u32)
            }
        };
        let gap = run.address - self.pieces.address(rest);
        if !gap.is_multiple_of(page) || !run.size.is_multiple_of(page) {
            return Err(AllocError::BadSetting(
                format!(
                    "an expandable run of {} bytes is no number of pages of {page} bytes",
                    run.size
                )
                .into(),
            ));
        }
        let mut piece = rest;
        if gap > 0 {
            piece = self.pieces.split(rest, (gap / UNIT) as u32);
            self.pools.sets[set as usize].unmapped.insert(run.address, piece);
        }
        let range = self.pieces.segment_of(piece).range;
        let base = self.pieces.address(rest);
        let first_page = (run.address - self.ranges[range as usize].base()) / page;
        debug_assert!(run.address >= base);
        for n in 0..run.size / page {
            self.ranges[range as usize].set_handle(first_page + n, Handle(first_handle + n as u32));
        }
        let units = (run.size / UNIT) as u32;
        if units < self.pieces.get(piece).size {
            let after = self.pieces.split(piece, units);
            self.pools.sets[set as usize].unmapped.insert(self.pieces.address(after), after);
            grown.insert(key, after);
        } else {
            grown.remove(&key);
        }
        self.pools.sets[set as usize].unmapped.remove(&run.address);
        self.pieces.get_mut(piece).set_state(State::Used);
        self.tally.reserve(kind, run.size);
        self.pools.count_held(set, 1);
        Ok(piece)
    }

    /// Bytes of addresses that a range gets, as far as pieces can describe them.
    pub(super) fn range_size(&self, total: u64, page: u64) -> u64 {
        self.reserve_size(total, page).min(RANGE_SIZE_MAX)
    }

    /// Cuts an adopted segment, which is one piece, into its blocks.
    fn adopt_blocks(&mut self, run: &LayoutSegment, first: u32, tokens: &mut Vec<Block>) {
        let mut pieces = vec![first];
        for block in &run.blocks[..run.blocks.len() - 1] {
            let last = *pieces.last().unwrap_or(&first);
            pieces.push(self.pieces.split(last, (block.size / UNIT) as u32));
        }
        let kind = kind_of(run);
        for (block, &piece) in run.blocks.iter().zip(&pieces) {
            let units = self.pieces.get(piece).size;
            if block.state == BlockState::Free {
                let set = self.pieces.segment_of(piece).set;
                self.put(set, piece);
                if !run.expandable && self.pieces.get(piece).is_split() {
                    self.tally.part_made(kind, block.size);
                }
                continue;
            }
            self.pieces.get_mut(piece).set_requested(block.requested);
            self.tally.alloc(kind, block.size, block.requested);
            if units >= self.split_limit {
                self.tally.oversize_blocks.rise(1);
            }
            if block.state == BlockState::Pending {
                self.free_unseen(piece);
            }
            tokens.push(Block(u64::from(piece)));
        }
    }
}

fn kind_of(run: &LayoutSegment) -> usize {
    if run.pool == KIND_NAMES[SMALL] { SMALL } else { LARGE }
}

/// The number of the first handle of each expandable run: pages are numbered in the layout's order.
fn first_handles(layout: &Layout, page: impl Fn(usize) -> u64) -> Vec<Option<u32>> {
    let mut next = 0;
    let number = |run: &LayoutSegment| {
        run.expandable.then(|| {
            let first = next;
            next += (run.size / page(kind_of(run))) as u32;
            first
        })
    };
    layout.segments.iter().map(number).collect()
}

/// A layout that pieces can describe: blocks tile their segments, in units.
fn check(layout: &Layout) -> Result<(), String> {
    for run in &layout.segments {
        let at = run.address;
        if !KIND_NAMES.contains(&run.pool) {
            return Err(format!(
                "segment at {at:#x}: pool {:?}; expected small or large",
                run.pool
            ));
        }
        if run.size >= RANGE_SIZE_MAX {
            return Err(format!(
                "segment at {at:#x}: {} bytes; expected less than 2 TiB",
                run.size
            ));
        }
        let mut address = run.address;
        for block in &run.blocks {
            if block.address != address || block.size == 0 || block.size % UNIT != 0 {
                return Err(format!(
                    "block at {:#x} of {} bytes in the segment at {at:#x}; expected one at {address:#x} of a multiple of {UNIT}",
                    block.address, block.size
                ));
            }
            address += block.size;
        }
        if run.blocks.is_empty() || address != run.address + run.size {
            return Err(format!(
                "segment at {at:#x}: its blocks do not add up to its {} bytes",
                run.size
            ));
        }
    }
    Ok(())
}
