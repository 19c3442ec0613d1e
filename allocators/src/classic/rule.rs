//! The seam between a classic strategy's rule and [`super::pool::Pool`], which is around it.

use vramlab_sim::allocator::{Block, LayoutSegment, Placement};
use vramlab_sim::units::Bytes;

use crate::parts::last_uses::LastUses;
use crate::parts::pieces::Segment;

/// What the driver gives is a multiple of this in any case, so segments are too.
pub(super) const GRANULE: u64 = Bytes::mib(2).0;

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
    /// Takes a block of at least `size` (1 or more) bytes from free memory, if there is one; its slot.
    fn take(&mut self, size: u64, uses: &mut LastUses) -> Option<u32>;

    /// The segment that a request of `size` bytes needs; `None` if no segment would do.
    fn need(&self, size: u64) -> Option<Need>;

    /// Bytes of the largest segment that it can manage.
    fn segment_max(&self) -> u64;

    /// Takes a segment in, and a block for the request that it was made for out of it.
    fn add(&mut self, segment: Segment, size: u64, uses: &mut LastUses) -> u32;

    /// The slot of a live block.
    fn find(&self, token: Block) -> Option<u32>;

    /// The live block in a slot.
    fn placement(&self, slot: u32) -> Placement;

    /// The segment that goes back to the driver before this block is taken back, if there is one.
    #[inline]
    fn goes_back(&self, _slot: u32) -> Option<Segment> {
        None
    }

    /// Takes a live block back.
    fn give(&mut self, slot: u32, uses: &mut LastUses);

    /// Wholly free segments, highest address first, and a slot in each.
    fn idle(&self) -> Vec<(u32, Segment)>;

    /// Drops a wholly free segment, which went back to the driver.
    fn drop_idle(&mut self, slot: u32, uses: &mut LastUses);

    /// Largest free piece in bytes.
    fn largest_free(&self) -> u64;

    /// What is where.
    fn walk(&self) -> Vec<LayoutSegment>;
}
