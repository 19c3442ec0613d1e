//! Which stream a chunk belongs to, and the free chunks of each (rules `streams` and `cross_stream` of [`super::arena`]).

use vramlab_sim::units::StreamId;

use crate::parts::bfc::chunks::{Chunks, Joining};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Pieces;
use crate::parts::size_order::SizeOrder;

/// Belongs to no stream.
const NONE: u32 = 0;

/// Free chunks by stream.
#[derive(Debug)]
pub(super) struct Streams {
    /// Streams that chunks belong to; number n is at n - 1.
    known: Vec<StreamId>,
    /// Free chunks: of no stream, then of each.
    free: Vec<SizeOrder>,
    /// Number of a chunk's stream, by slot; past the end: none.
    owner: Vec<u32>,
    /// Do chunks get streams at all?
    aware: bool,
}

struct SameStream<'a>(&'a [u32]);

impl Joining for SameStream<'_> {
    fn may_join(&self, a: u32, b: u32) -> bool {
        owner(self.0, a) == owner(self.0, b)
    }

    fn joined(&mut self, _: u32, _: u32) {}
}

fn owner(owners: &[u32], slot: u32) -> u32 {
    owners.get(slot as usize).copied().unwrap_or(NONE)
}

impl Streams {
    pub(super) fn new(aware: bool) -> Self {
        Self { known: Vec::new(), free: vec![SizeOrder::new()], owner: Vec::new(), aware }
    }

    fn number(&mut self, stream: StreamId) -> u32 {
        if !self.aware {
            return NONE;
        }
        let at = self.known.iter().position(|known| *known == stream).unwrap_or_else(|| {
            self.known.push(stream);
            self.free.push(SizeOrder::new());
            self.known.len() - 1
        });
        at as u32 + 1
    }

    fn set_owner(&mut self, slot: u32, number: u32) {
        let at = slot as usize;
        if self.owner.len() <= at {
            self.owner.resize(at + 1, NONE);
        }
        self.owner[at] = number;
    }

    /// The smallest of the chunks that these streams' orders offer, lowest address first.
    fn smallest(
        &self,
        chunks: &Chunks,
        units: u32,
        numbers: impl Iterator<Item = u32>,
    ) -> Option<u32> {
        let offered = numbers
            .filter_map(|number| self.free[number as usize].smallest_from(&chunks.pieces, units));
        offered.min_by_key(|slot| {
            let piece = chunks.pieces.get(*slot);
            (piece.units, piece.address())
        })
    }

    /// A chunk of no stream or of this one, cut to size. It belongs to this one from now on.
    pub(super) fn take(
        &mut self,
        chunks: &mut Chunks,
        units: u32,
        stream: StreamId,
        uses: &mut LastUses,
    ) -> Option<u32> {
        let number = self.number(stream);
        let own = (number != NONE).then_some(number);
        let slot = self.smallest(chunks, units, std::iter::once(NONE).chain(own))?;
        let of = owner(&self.owner, slot);
        if let Some(rest) = chunks.cut(&mut self.free[of as usize], slot, units, uses) {
            self.set_owner(rest, of);
        }
        self.set_owner(slot, number);
        Some(slot)
    }

    /// A chunk of another stream, whole. It stays that stream's.
    pub(super) fn take_from_another(
        &mut self,
        chunks: &mut Chunks,
        units: u32,
        stream: StreamId,
    ) -> Option<u32> {
        let own = self.number(stream);
        let others = (1..=self.known.len() as u32).filter(|number| *number != own);
        let slot = self.smallest(chunks, units, others)?;
        let piece = *chunks.pieces.get(slot);
        let order = &mut self.free[owner(&self.owner, slot) as usize];
        order.remove(&mut chunks.pieces, slot, piece.units, piece.address());
        Some(slot)
    }

    /// A free chunk, which is joined with those of its stream.
    pub(super) fn give(&mut self, chunks: &mut Chunks, slot: u32, uses: &mut LastUses) {
        let order = &mut self.free[owner(&self.owner, slot) as usize];
        chunks.settle(order, slot, &mut SameStream(&self.owner), uses);
    }

    /// A chunk of new memory belongs to no stream.
    pub(super) fn add(&mut self, chunks: &mut Chunks, slot: u32, uses: &mut LastUses) {
        self.set_owner(slot, NONE);
        self.give(chunks, slot, uses);
    }

    /// A chunk is dropped with its region.
    pub(super) fn forget(&mut self, pieces: &mut Pieces, slot: u32) {
        let piece = *pieces.get(slot);
        let order = &mut self.free[owner(&self.owner, slot) as usize];
        order.remove(pieces, slot, piece.units, piece.address());
    }

    /// No chunk belongs to a stream any more; all free neighbours are joined.
    pub(super) fn release(&mut self, chunks: &mut Chunks, uses: &mut LastUses) {
        if !self.known.is_empty() {
            *self = Self::new(self.aware);
            chunks.settle_all(&mut self.free[NONE as usize], uses);
        }
    }

    /// Units of the largest free chunk.
    pub(super) fn largest(&self, chunks: &Chunks) -> u32 {
        let pieces = &chunks.pieces;
        let largest = self.free.iter().filter_map(|order| order.largest(pieces));
        largest.map(|slot| pieces.get(slot).units).max().unwrap_or(0)
    }
}
