//! A state of an allocator, judged: its bytes by cause, its segments with their pieces, and what keeps each. How it is judged stands in
//! [`causes`](super::causes), with the meaning of each cause.

use serde::Serialize;
use vramlab_sim::units::PoolId;

/// Bytes by cause. Their sum is reserved less requested, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the table in `causes`
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

    pub(super) fn add(&mut self, other: &Self) {
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
#[allow(missing_docs)] // the table in `causes`
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

impl Segment {
    /// One more part; nothing if it has no bytes.
    pub(super) fn put(&mut self, address: u64, size: u64, what: What) {
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
