//! The seam between a classic strategy's rule and [`super::pool::Pool`], which is around it.

use vramlab_sim::allocator::{Block, LayoutSegment};
use vramlab_sim::units::Bytes;

use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Segment;

/// What the driver gives is a multiple of this in any case, so segments are too.
pub(super) const GRANULE: u64 = Bytes::mib(2).0;

/// A block that a rule set aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// The rule's number of it.
    pub(super) slot: u32,
    /// Told apart from earlier blocks with this slot by this.
    pub(super) generation: u32,
    /// Where it is.
    pub(super) address: u64,
    /// Its bytes.
    pub(super) size: u64,
}

/// Bytes of a new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// With which it works at all.
    pub(super) least: u64,
    /// That it would rather have.
    pub(super) full: u64,
}

/// The rule of one strategy.
pub(super) trait Rule: Send {
    /// Takes a block of at least `size` (1 or more) bytes from free memory, if there is one.
    fn take(&mut self, size: u64, uses: &mut LastUses) -> Option<Taken>;

    /// The segment that a request of `size` bytes needs; `None` if no segment would do.
    fn need(&self, size: u64) -> Option<Need>;

    /// Bytes of the largest segment that it can manage.
    fn segment_max(&self) -> u64;

    /// Takes a segment in, and a block for the request that it was made for out of it.
    fn add(&mut self, segment: Segment, size: u64, uses: &mut LastUses) -> Taken;

    /// The live block of a token.
    fn find(&self, token: Block) -> Option<Taken>;

    /// Takes a live block back; gives a segment that goes back to the driver at once.
    fn give(&mut self, slot: u32, uses: &mut LastUses) -> Option<Segment>;

    /// Wholly free segments, highest address first, by a slot in each.
    fn idle(&self) -> Vec<u32>;

    /// Drops a wholly free segment.
    fn drop_idle(&mut self, slot: u32, uses: &mut LastUses) -> Segment;

    /// Largest free piece in bytes.
    fn largest_free(&self) -> u64;

    /// What is where.
    fn walk(&self) -> Vec<LayoutSegment>;
}

impl Taken {
    /// The token of the block.
    #[inline]
    pub(super) const fn token(&self) -> Block {
        Block((self.generation as u64) << 32 | self.slot as u64)
    }
}
