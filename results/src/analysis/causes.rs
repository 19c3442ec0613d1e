//! Why memory that is reserved holds nothing that was asked for: every byte between requested and reserved has one cause.
//!
//! Fragmentation is judged by a request: the next that made the allocator take more memory, or that failed; at the peak the largest of those that took it there ([`Wanted`]). A free piece
//! is no use to it for one of these reasons, the first that applies. Without such a request the rules `pool` and `stream` are passed over.
//!
//! | cause | bytes |
//! |---|---|
//! | `rounding` | of blocks in use: what the request was rounded up by. `torch.caching` rounds by its settings; of any other strategy a request is taken to be rounded to the smallest block that the run gave to one at least as large |
//! | `unsplit_remainder` | of blocks in use: what is beyond that, since the rest was too small to be cut off, or may not be cut |
//! | `waiting` | blocks that were freed and still wait for a stream |
//! | `wrong_pool` | free, but of another pool (small and large, or a private one) |
//! | `wrong_stream` | free, but of another stream |
//! | `cached` | free, and nothing lives in its segment (of pages: nothing lives in the page): it goes back when the cache is emptied, or before a request fails |
//! | `split_remainder` | free, and not used since its segment was last whole: what was left when blocks were cut off |
//! | `pinned` | free, and used before: its segment stays since something else lives in it, the pin |
//! | `outside` | held from the device, and in no segment that the strategy tells of: what a pool in the driver keeps, or a cache above |
//!
//! `streams`: a strategy that puts buffers of several streams into one segment has no wrong stream. `adopted`: of a recorded state nobody
//! knows what was used before; there a free piece at its segment's end is taken for the remainder.
//!
//! The pin of a segment is the buffer that lives longest of those in it (the last to be freed, or never; then the smallest; then the first).

use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};

pub use super::judged::{Causes, Judged, Piece, Pin, Segment, Wanted, What};
use super::lives::NEVER;

/// What is known of a block in use beyond its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number among the run's lives, if that is known.
    pub life: Option<usize>,
    /// Bytes asked for.
    pub requested: u64,
    /// The stream that asked, if that is known.
    pub stream: Option<u32>,
    /// The op that frees it, or [`NEVER`].
    pub death: u64,
}

/// What a state is judged with.
pub trait Knows {
    /// Who has the block in use at this address.
    fn owner(&self, block: &LayoutBlock) -> Option<Owner>;
    /// What a request of these bytes is rounded up to.
    fn rounded(&self, size: u64) -> u64;
    /// The pool that serves a request, as layouts call it; none if the strategy does not choose by size.
    fn pool(&self, size: u64) -> Option<&'static str>;
    /// Bytes of a page of an expandable segment.
    fn page(&self, pool: &str) -> u64;
    /// The addresses of a segment that were used since it was last whole; none if that is not known (rule `adopted`).
    fn used(&self, segment: &LayoutSegment) -> Option<(u64, u64)>;
}

/// Judges a state of which `reserved` bytes are held and `requested` bytes are live. None if the layout does not add up to that: it shows
/// memory twice (stitched ranges), or more in use than is live.
pub fn judge(
    layout: &Layout,
    (reserved, requested): (u64, u64),
    wanted: Option<Wanted>,
    knows: &dyn Knows,
) -> Option<Judged> {
    let by_stream = !layout.segments.iter().any(|segment| shared(segment, knows));
    let judge = Judge { wanted, by_stream, knows };
    let mut judged = Judged {
        reserved,
        requested,
        wanted,
        causes: Causes::default(),
        largest_free: 0,
        largest_free_for_wanted: 0,
        segments: Vec::with_capacity(layout.segments.len()),
    };
    let mut held = 0_u64;
    let mut live = 0_u64;
    for segment in &layout.segments {
        let free = segment.blocks.iter().filter(|block| block.state == BlockState::Free);
        let largest = free.map(|block| block.size).max().unwrap_or(0);
        judged.largest_free = judged.largest_free.max(largest);
        if judge.misplaced(segment).is_none() {
            judged.largest_free_for_wanted = judged.largest_free_for_wanted.max(largest);
        }
        let one = judge.segment(segment)?;
        held = held.checked_add(one.size)?;
        live = live.checked_add(one.requested)?;
        judged.causes.add(&one.causes);
        judged.segments.push(one);
    }
    // what lives in no segment is asked for all the same
    judged.causes.outside +=
        reserved.checked_sub(held)?.checked_sub(requested.checked_sub(live)?)?;
    Some(judged)
}

/// Rule `streams`.
fn shared(segment: &LayoutSegment, knows: &dyn Knows) -> bool {
    let used = segment.blocks.iter().filter(|block| block.state == BlockState::Allocated);
    let stream = |block| knows.owner(block).and_then(|owner| owner.stream);
    used.filter_map(stream).any(|stream| stream != segment.stream.0)
}

struct Judge<'a> {
    wanted: Option<Wanted>,
    by_stream: bool,
    knows: &'a dyn Knows,
}

impl Judge<'_> {
    /// The reason why nothing in this segment is for the wanted request.
    fn misplaced(&self, segment: &LayoutSegment) -> Option<What> {
        let wanted = self.wanted?;
        let other = |pool: &str| pool != segment.pool;
        if wanted.private_pool != segment.private_pool
            || self.knows.pool(wanted.size).is_some_and(other)
        {
            return Some(What::WrongPool);
        }
        (self.by_stream && wanted.stream != segment.stream.0).then_some(What::WrongStream)
    }

    /// None if its blocks lie outside of it, or are more than it has.
    fn segment(&self, segment: &LayoutSegment) -> Option<Segment> {
        let end = segment.address.checked_add(segment.size)?;
        let mut told = 0_u64;
        for block in &segment.blocks {
            told = told.checked_add(block.size)?;
            let inside = segment.address <= block.address
                && block.address.checked_add(block.size).is_some_and(|last| last <= end);
            if !inside {
                return None;
            }
        }
        let pin = self.pin(segment);
        let mut one = Segment {
            address: segment.address,
            size: segment.size,
            stream: segment.stream.0,
            pool: segment.pool,
            private: segment.private_pool.is_some(),
            expandable: segment.expandable,
            requested: 0,
            causes: Causes::default(),
            pin,
            pieces: Vec::with_capacity(segment.blocks.len()),
        };
        for block in &segment.blocks {
            match block.state {
                BlockState::Allocated => self.in_use(block, &mut one),
                BlockState::Pending => one.put(block.address, block.size, What::Waiting),
                BlockState::Free => self.free(block, segment, &mut one),
            }
        }
        // a strategy may leave gaps between the blocks that it tells of
        one.causes.outside += segment.size.checked_sub(told)?;
        Some(one)
    }

    fn in_use(&self, block: &LayoutBlock, one: &mut Segment) {
        let owner = self.knows.owner(block);
        let requested = owner.map_or(block.requested, |owner| owner.requested).min(block.size);
        let rounded = self.knows.rounded(requested).clamp(requested, block.size);
        let life = owner.and_then(|owner| owner.life);
        let ends = [requested, rounded, block.size];
        let whats = [What::Requested(life), What::Rounding, What::UnsplitRemainder];
        let mut begin = 0;
        for (end, what) in ends.into_iter().zip(whats) {
            one.put(block.address + begin, end - begin, what);
            begin = end;
        }
    }

    fn free(&self, block: &LayoutBlock, segment: &LayoutSegment, one: &mut Segment) {
        let whole = one.pin.is_none().then_some(What::Cached);
        if let Some(what) = self.misplaced(segment).or(whole) {
            return one.put(block.address, block.size, what);
        }
        let (begin, end) = (block.address, block.address + block.size);
        let (from, to) = self.pages(block, segment);
        self.stuck((begin, from), segment, one);
        one.put(from, to - from, What::Cached);
        self.stuck((to, end), segment, one);
    }

    /// The whole pages in a free piece of an expandable segment; nothing of any other.
    fn pages(&self, block: &LayoutBlock, segment: &LayoutSegment) -> (u64, u64) {
        let end = block.address + block.size;
        if !segment.expandable {
            return (end, end);
        }
        let page = self.knows.page(segment.pool).max(1);
        let from = (block.address - segment.address).next_multiple_of(page);
        let to = (end - segment.address) / page * page;
        if from < to { (segment.address + from, segment.address + to) } else { (end, end) }
    }

    /// Free bytes of a segment in which something lives: those within what was used before are pinned.
    fn stuck(&self, (begin, end): (u64, u64), segment: &LayoutSegment, one: &mut Segment) {
        let used = self.knows.used(segment).unwrap_or_else(|| up_to_last_use(segment));
        let (from, to) = (used.0.clamp(begin, end), used.1.clamp(begin, end));
        let to = to.max(from);
        one.put(begin, from - begin, What::SplitRemainder);
        one.put(from, to - from, What::Pinned);
        one.put(to, end - to, What::SplitRemainder);
    }

    fn pin(&self, segment: &LayoutSegment) -> Option<Pin> {
        let live = || segment.blocks.iter().filter(|block| block.state != BlockState::Free);
        let of = live().count() as u64;
        let owned = live().map(|block| (block, self.knows.owner(block)));
        let longest = owned.min_by_key(|(block, owner)| {
            let death = owner.map_or(NEVER, |owner| owner.death);
            // what only waits goes by itself
            let waits = block.state == BlockState::Pending;
            (waits, std::cmp::Reverse(death), block.size, block.address)
        });
        longest.map(|(block, owner)| Pin {
            address: block.address,
            size: block.size,
            life: owner.and_then(|owner| owner.life),
            of,
        })
    }
}

/// Rule `adopted`.
fn up_to_last_use(segment: &LayoutSegment) -> (u64, u64) {
    let last = segment.blocks.iter().rev().find(|block| block.state != BlockState::Free);
    (segment.address, last.map_or(segment.address, |block| block.address + block.size))
}

#[cfg(test)]
mod tests;
