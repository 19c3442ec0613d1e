//! Chunks in regions.
//!
//! | rule | what it says |
//! |---|---|
//! | `round` | sizes are multiples of 256 B |
//! | `low_end` | a request takes the low end of its chunk |
//! | `split` | the rest is split off only if the chunk has twice the request or more, or the rest has `dead` bytes or more; else the whole chunk is handed out |
//! | `join` | a freed chunk takes in the next chunk, then goes into the one before, where both are free and the owner's rule allows it |
//! | `numbers` | the low end keeps the chunk's number (slot), what is split off gets the number that was given up last, or a new one |
//!
//! The free chunks of a region are in orders of (size, address) that the owner keeps. The 21 bins of the real ones only make that search faster.

use vramlab_sim::driver::Address;

use crate::parts::last_uses::LastUses;
use crate::parts::pieces::{NIL, Pieces, Segment};
use crate::parts::size_order::SizeOrder;

/// Bytes of a unit.
pub(crate) const UNIT: u64 = 256;
/// Bytes of the largest region: what a chunk's count of units can hold. No device has as much.
pub(crate) const REGION_MAX: u64 = u32::MAX as u64 * UNIT;

/// Memory from the driver that chunks tile.
#[derive(Debug)]
struct Region {
    /// Its first chunk, which keeps its number as long as the region lives.
    head: u32,
    address: Address,
    size: u64,
    /// One, or more where regions that touch were joined, in address order.
    mallocs: Vec<Segment>,
}

impl Region {
    fn end(&self) -> Address {
        self.address + self.size
    }
}

/// A region without a live chunk.
pub(crate) struct Idle {
    /// Its first chunk.
    pub(crate) head: u32,
    /// What goes back to the driver for it, in address order.
    pub(crate) mallocs: Vec<Segment>,
}

impl Idle {
    /// Its bytes.
    pub(crate) fn size(&self) -> u64 {
        self.mallocs.iter().map(|malloc| malloc.size).sum()
    }
}

/// Which neighbours may be joined.
pub(crate) trait Joining {
    /// May these two free neighbours become one?
    fn may_join(&self, a: u32, b: u32) -> bool;
    /// `gone` became part of `into`.
    fn joined(&mut self, into: u32, gone: u32);
}

/// All neighbours may be joined.
pub(crate) struct Always;

impl Joining for Always {
    #[inline]
    fn may_join(&self, _: u32, _: u32) -> bool {
        true
    }
    #[inline]
    fn joined(&mut self, _: u32, _: u32) {}
}

/// All chunks of a strategy.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) pieces: Pieces,
    /// In address order.
    regions: Vec<Region>,
    /// A rest of so many bytes is split off in any case.
    dead: u64,
}

impl Chunks {
    pub(crate) fn new(dead: u64) -> Self {
        Self { pieces: Pieces::new(UNIT), regions: Vec::new(), dead }
    }

    pub(crate) fn set_dead(&mut self, dead: u64) {
        self.dead = dead;
    }

    /// Rule `split`.
    #[inline]
    fn is_split(&self, chunk: u32, units: u32) -> bool {
        u64::from(chunk) >= 2 * u64::from(units) || self.pieces.bytes(chunk - units) >= self.dead
    }

    /// Takes a free chunk out of its order, for a request of `units`; the number of a rest that is split off, and is in the order then.
    #[inline]
    pub(crate) fn cut(
        &mut self,
        order: &mut SizeOrder,
        slot: u32,
        units: u32,
        uses: &mut LastUses,
    ) -> Option<u32> {
        let piece = *self.pieces.get(slot);
        if self.is_split(piece.units, units) && piece.units > units {
            let rest = self.pieces.split_rest(slot, units);
            order.remove(&mut self.pieces, slot, piece.units, piece.address());
            order.insert(&mut self.pieces, rest);
            uses.cut(slot, rest);
            Some(rest)
        } else {
            order.remove(&mut self.pieces, slot, piece.units, piece.address());
            None
        }
    }

    /// Joins a free chunk that is in no order with its free neighbours (rule `join`), and puts the result in the order.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        order: &mut SizeOrder,
        slot: u32,
        rule: &mut impl Joining,
        uses: &mut LastUses,
    ) -> u32 {
        let pieces = &mut self.pieces;
        if let Some(high) = pieces.free_after(slot).filter(|high| rule.may_join(slot, *high)) {
            let piece = *pieces.get(high);
            order.remove(pieces, high, piece.units, piece.address());
            pieces.join_up(slot, high);
            uses.join(slot, high);
            rule.joined(slot, high);
        }
        if let Some(low) = pieces.free_before(slot).filter(|low| rule.may_join(slot, *low)) {
            let piece = *pieces.get(low);
            pieces.join_up(low, slot);
            uses.join(low, slot);
            rule.joined(low, slot);
            order.resized(pieces, low, piece.units, piece.address());
            return low;
        }
        order.insert(pieces, slot);
        slot
    }

    /// A new region: one free chunk, in no order yet.
    pub(crate) fn add(&mut self, segment: Segment) -> u32 {
        let head = self.pieces.add(segment);
        let Segment { address, size } = segment;
        let at = self.regions.partition_point(|region| region.address < address);
        self.regions.insert(at, Region { head, address, size, mallocs: vec![segment] });
        head
    }

    /// More memory for the region that ends where this begins, or else a new region.
    pub(crate) fn add_or_extend(&mut self, segment: Segment) -> u32 {
        let Some(at) = self.regions.iter().position(|r| r.end() == segment.address) else {
            return self.add(segment);
        };
        let head = self.regions[at].head;
        let tail = self.pieces.from(head).last().map_or(head, |(slot, _)| slot);
        let slot = self.pieces.add(segment);
        self.pieces.append(tail, slot);
        self.regions[at].size += segment.size;
        self.regions[at].mallocs.push(segment);
        slot
    }

    /// The regions without a live chunk, in address order.
    pub(crate) fn idle(&self) -> Vec<Idle> {
        let is_idle = |region: &&Region| self.pieces.from(region.head).all(|(_, p)| p.is_free());
        let idle = |region: &Region| Idle { head: region.head, mallocs: region.mallocs.clone() };
        self.regions.iter().filter(is_idle).map(idle).collect()
    }

    /// Of an idle region the first `given` mallocs went back. Its chunks are taken out of their orders by `out`; what is left of it is one
    /// free chunk, in no order yet.
    pub(crate) fn gave_back(
        &mut self,
        head: u32,
        given: usize,
        uses: &mut LastUses,
        mut out: impl FnMut(&mut Pieces, u32),
    ) -> Option<u32> {
        let at = self.regions.iter().position(|region| region.head == head)?;
        let slots: Vec<u32> = self.pieces.from(head).map(|(slot, _)| slot).collect();
        for slot in slots {
            out(&mut self.pieces, slot);
            uses.forget(slot);
        }
        self.pieces.remove_all(head);
        let mallocs = self.regions.remove(at).mallocs.split_off(given);
        let address = mallocs.first()?.address;
        let size = mallocs.iter().map(|malloc| malloc.size).sum();
        let head = self.pieces.add(Segment { address, size });
        uses.fresh(head);
        self.regions.insert(at, Region { head, address, size, mallocs });
        Some(head)
    }

    /// Joins all free neighbours, in all regions, into an order that is empty.
    pub(crate) fn settle_all(&mut self, order: &mut SizeOrder, uses: &mut LastUses) {
        for region in &self.regions {
            let mut at = region.head;
            while at != NIL {
                while let Some(high) = self.pieces.free_after(at)
                    && self.pieces.get(at).is_free()
                {
                    self.pieces.join_up(at, high);
                    uses.join(at, high);
                }
                if self.pieces.get(at).is_free() {
                    order.insert(&mut self.pieces, at);
                }
                at = self.pieces.after(at);
            }
        }
    }
}
