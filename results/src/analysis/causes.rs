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

use serde::Serialize;
use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};
use vramlab_sim::units::PoolId;

use super::lives::NEVER;

/// Bytes by cause. Their sum is reserved less requested, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the module's table
pub struct Causes {
    pub rounding: u64,
    pub unsplit_remainder: u64,
    pub waiting: u64,
    pub wrong_pool: u64,
    pub wrong_stream: u64,
    pub cached: u64,
    pub split_remainder: u64,
    pub pinned: u64,
    pub outside: u64,
}

impl Causes {
    /// Each with its name, in the order of the rules.
    pub const fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("rounding", self.rounding),
            ("unsplit remainder", self.unsplit_remainder),
            ("waiting for a stream", self.waiting),
            ("wrong pool", self.wrong_pool),
            ("wrong stream", self.wrong_stream),
            ("cached, can go back", self.cached),
            ("split remainder", self.split_remainder),
            ("pinned segment", self.pinned),
            ("outside of segments", self.outside),
        ]
    }

    /// Each with the name of its field, in the order of the rules.
    pub const fn by_key(&self) -> [(&'static str, u64); 9] {
        [
            ("rounding", self.rounding),
            ("unsplit_remainder", self.unsplit_remainder),
            ("waiting", self.waiting),
            ("wrong_pool", self.wrong_pool),
            ("wrong_stream", self.wrong_stream),
            ("cached", self.cached),
            ("split_remainder", self.split_remainder),
            ("pinned", self.pinned),
            ("outside", self.outside),
        ]
    }

    /// Reserved less requested.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Free bytes that no emptied cache gives back.
    pub const fn stuck(&self) -> u64 {
        self.split_remainder + self.pinned
    }

    fn add(&mut self, other: &Self) {
        self.rounding += other.rounding;
        self.unsplit_remainder += other.unsplit_remainder;
        self.waiting += other.waiting;
        self.wrong_pool += other.wrong_pool;
        self.wrong_stream += other.wrong_stream;
        self.cached += other.cached;
        self.split_remainder += other.split_remainder;
        self.pinned += other.pinned;
        self.outside += other.outside;
    }
}

/// The request by which free memory is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The op that asked.
    pub op: u64,
    /// Bytes.
    pub size: u64,
    /// On this stream.
    pub stream: u32,
    /// From this private pool.
    #[serde(skip)]
    pub private_pool: Option<PoolId>,
    /// It failed.
    pub failed: bool,
}

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

/// The buffer that keeps a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// Where.
    pub address: u64,
    /// Bytes of its block.
    pub size: u64,
    /// Its number among the run's lives, if that is known.
    pub life: Option<usize>,
    /// Blocks in use or waiting in the segment, this one among them.
    pub of: u64,
}

/// A part of a segment with one meaning, for maps of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// What it is.
    pub what: What,
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the module's table
pub enum What {
    /// Asked for by the n-th life, where that is known.
    Requested(Option<usize>),
    Rounding,
    UnsplitRemainder,
    Waiting,
    WrongPool,
    WrongStream,
    Cached,
    SplitRemainder,
    Pinned,
}

/// A segment, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The stream that it serves.
    pub stream: u32,
    /// Its pool.
    pub pool: &'static str,
    /// It belongs to a private pool.
    pub private: bool,
    /// Pages mapped into a range.
    pub expandable: bool,
    /// Bytes asked for that live in it.
    pub requested: u64,
    /// Why the others hold nothing.
    pub causes: Causes,
    /// What keeps it, if anything lives in it.
    pub pin: Option<Pin>,
    /// Its parts, in order of addresses.
    pub pieces: Vec<Piece>,
}

/// A state, judged. `causes.total()` is `reserved - requested`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// Bytes held from the device.
    pub reserved: u64,
    /// Bytes asked for that are live.
    pub requested: u64,
    /// The request by which free memory was judged.
    pub wanted: Option<Wanted>,
    /// Sums over all segments.
    pub causes: Causes,
    /// The largest free piece.
    pub largest_free: u64,
    /// The largest free piece that the wanted request could have come from, had it been large enough.
    pub largest_free_for_wanted: u64,
    /// In order of addresses.
    pub segments: Vec<Segment>,
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

impl Segment {
    /// One more part; nothing if it has no bytes.
    fn put(&mut self, address: u64, size: u64, what: What) {
        if size == 0 {
            return;
        }
        let causes = &mut self.causes;
        let sum = match what {
            What::Requested(_) => &mut self.requested,
            What::Rounding => &mut causes.rounding,
            What::UnsplitRemainder => &mut causes.unsplit_remainder,
            What::Waiting => &mut causes.waiting,
            What::WrongPool => &mut causes.wrong_pool,
            What::WrongStream => &mut causes.wrong_stream,
            What::Cached => &mut causes.cached,
            What::SplitRemainder => &mut causes.split_remainder,
            What::Pinned => &mut causes.pinned,
        };
        *sum += size;
        self.pieces.push(Piece { address, size, what });
    }

    /// Free bytes that its pin keeps.
    pub const fn kept(&self) -> u64 {
        self.causes.stuck()
    }
}

#[cfg(test)]
mod tests;
