//! The seam of a cache of keys and values: sequences of tokens, in slots of device memory.
//!
//! [`KvCache`] stands above an [`Allocator`], from which it may take its memory ([`Below::alloc`]), and beside it above the [`Driver`], for
//! caches that map pages themselves. It is a trait of its own: its answer (tokens found, blocks taken) steers the workload, a block may
//! belong to several sequences, and it is found by its content. [`KvCache`] has no default methods: a wrapper that forgets to forward one must
//! not compile.
//!
//! What a token is, is told by [`KeyRun`]s, whatever the size of a cache's blocks. A refusal ([`KvError::is_refusal`]) is an answer that changes nothing.

use std::fmt;

use crate::allocator::{AllocError, Allocator, Block, Notice, Placement, Reply, Request};
use crate::driver::{Address, Driver};
use crate::units::StreamId;

/// Bytes of keys and values of a token in all layers, where neither the workload nor an option says: 32 layers with 8 heads of 128 values of 2 bytes, each for keys and values.
pub const TOKEN_BYTES: u64 = 131_072;

/// The cache's own token for a live sequence; means nothing to anyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// What a run of tokens is: `count` tokens, the first of which is number `first` of `stream`. Two tokens are the same token if both numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRun {
    /// A text: a document, a conversation, a random stream.
    pub stream: u64,
    /// Number of the first token in it.
    pub first: u64,
    /// How many tokens.
    pub count: u64,
}

impl KeyRun {
    /// One token of a vocabulary.
    pub const fn token(key: u64) -> Self {
        Self { stream: key, first: 0, count: 1 }
    }
}

/// What a new sequence asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewSequence<'a> {
    /// Tokens that are known: all of them are looked up.
    pub tokens: u64,
    /// What they are, from the first on. Tokens beyond the runs are like no other token.
    pub keys: &'a [KeyRun],
    /// Of the tokens that are not found, at most so many get slots now; the others with [`KvCache::more`]. `None`: all.
    pub chunk: Option<u64>,
    /// The chunk must be enough: with more tokens that are not found, the sequence is refused.
    pub whole: bool,
    /// With `Some(n)` there must be room for all known tokens and `n` more, though only the chunk gets slots.
    pub headroom: Option<u64>,
    /// Others are running: what the cache keeps free for them (its watermark) must stay free.
    pub watermark: bool,
    /// Who asks waits and asks again, or makes room by ending another: a refusal is no failure of the run. Also of [`MoreTokens`]' op.
    pub waits: bool,
    /// Bytes of a token in all layers, where the workload says so. The first sequence decides for the run.
    pub token_bytes: Option<u64>,
    /// Layers of the model, where the workload says so. As the bytes of a token, the first sequence decides.
    pub layers: Option<u64>,
    /// Tokens that no sequence passes, where the workload says so: the context length. The first sequence decides.
    pub longest: Option<u64>,
}

/// What further tokens of a sequence ask for: all get slots, or none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoreTokens<'a> {
    /// How many.
    pub tokens: u64,
    /// What they are, as in [`NewSequence::keys`].
    pub keys: &'a [KeyRun],
}

/// A new sequence is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its token for what follows.
    pub sequence: Sequence,
    /// Tokens found in the cache: they need no computing.
    pub hit: u64,
    /// Blocks taken for the others.
    pub blocks: u64,
}

/// There is no room, with the numbers: an answer, never a panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvFull {
    /// Tokens found in the cache (of a new sequence).
    pub hit: u64,
    /// Blocks that would be taken out of the free ones.
    pub needed: u64,
    /// Blocks that are free, cached ones among them.
    pub free: u64,
    /// Of these, how many must stay free.
    pub watermark: u64,
}

impl fmt::Display for KvFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hit, needed, free, watermark } = self;
        write!(f, "no room in the cache: {needed} blocks needed, {free} free")?;
        if *watermark > 0 {
            write!(f, ", of which {watermark} must stay free")?;
        }
        if *hit > 0 { write!(f, "; {hit} tokens were found") } else { Ok(()) }
    }
}

/// Why a cache did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// No room now. Nothing changed.
    #[error("{0}")]
    Full(KvFull),
    /// No room ever: a sequence may not be so long. Nothing changed.
    #[error("a sequence of {tokens} tokens; the cache takes at most {limit}")]
    TooLong {
        /// Its tokens.
        tokens: u64,
        /// What the cache takes.
        limit: u64,
    },
    /// More tokens are to be computed than the asker wants at once ([`NewSequence::whole`]). Nothing changed.
    #[error("{tokens} tokens were not found in the cache; expected at most {chunk}")]
    OverChunk {
        /// Tokens that were not found.
        tokens: u64,
        /// How many there may be.
        chunk: u64,
    },
    /// Every place for a sequence is taken. Nothing changed.
    #[error("all {limit} places for sequences are taken")]
    NoPlace {
        /// How many there are.
        limit: u64,
    },
    /// The token is not live.
    #[error("sequence {} is not live", .0.0)]
    UnknownSequence(Sequence),
    /// The allocator below, or the driver, said so.
    #[error("{0}")]
    Below(#[from] AllocError),
}

impl NewSequence<'_> {
    /// How many of `missing` tokens, which were not found, get slots now.
    ///
    /// # Errors
    /// [`KvError::OverChunk`], where all of them must and the chunk is less.
    pub fn now(&self, missing: u64) -> Result<u64, KvError> {
        match self.chunk {
            Some(chunk) if self.whole && missing > chunk => {
                Err(KvError::OverChunk { tokens: missing, chunk })
            }
            chunk => Ok(missing.min(chunk.unwrap_or(u64::MAX))),
        }
    }
}

impl KvError {
    /// Is it refused for its length alone, however much memory there is?
    pub const fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::TooLong { .. }
                | Self::OverChunk { .. }
                | Self::Below(AllocError::InvalidSize { .. })
        )
    }

    /// Is it an answer, after which the run goes on?
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Full(_)
                | Self::TooLong { .. }
                | Self::OverChunk { .. }
                | Self::NoPlace { .. }
                | Self::Below(AllocError::OutOfMemory(_) | AllocError::InvalidSize { .. })
        )
    }
}

impl From<crate::driver::DriverError> for KvError {
    fn from(error: crate::driver::DriverError) -> Self {
        Self::Below(error.into())
    }
}

/// A cache's count of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// Live sequences.
    pub sequences: u64,
    /// Their tokens that have slots; a slot that several share counts for each.
    pub tokens: u64,
    /// Slots that hold a token of a live sequence; each counts once.
    pub filled: u64,
    /// Slots of the blocks in use: the difference to `filled` is what the blocks waste.
    pub slots: u64,
    /// Blocks that belong to a live sequence.
    pub used: u64,
    /// Blocks that could be handed out; 0 where memory is asked for when it is needed.
    pub free: u64,
    /// Of the free blocks, those whose content can still be found.
    pub cached: u64,
    /// Bytes of a token; 0 before the first sequence.
    pub token_bytes: u64,
    /// Bytes of the blocks in use.
    pub allocated: u64,
    /// Bytes that it holds from the allocator below.
    pub arena: u64,
    /// Bytes that it holds from the driver itself.
    pub own: u64,
}

/// Slots at consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// Where the first token's keys and values are (of the first layer, where each layer has a range of its own).
    pub address: Address,
    /// Tokens in it.
    pub tokens: u64,
    /// Bytes from one token's to the next one's.
    pub stride: u64,
}

/// What a cache stands on.
pub struct Below<'a> {
    /// Gives memory, and serves the workload's other requests.
    pub arena: &'a mut dyn Allocator,
    /// The device, for caches that map pages themselves.
    pub driver: &'a mut dyn Driver,
    /// Requests to `arena` so far.
    pub ordinal: &'a mut u64,
}

impl Below<'_> {
    /// A request to the allocator.
    ///
    /// # Errors
    /// As [`Allocator::alloc`].
    pub fn alloc(&mut self, size: u64) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(0), ordinal: *self.ordinal };
        *self.ordinal += 1;
        self.arena.alloc(self.driver, &request)
    }

    /// Gives a block of it back.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    pub fn free(&mut self, block: Block) -> Result<(), AllocError> {
        self.arena.free(self.driver, block, None)
    }
}

/// A cache of keys and values for one device.
pub trait KvCache: Send {
    /// Looks a new sequence's tokens up, shares what is found, and gives slots to others.
    ///
    /// # Errors
    /// A refusal is an answer and changes nothing; a driver error ends the run.
    fn begin(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<Admitted, KvError>;

    /// Gives slots to further tokens of a sequence; says how many blocks were taken.
    ///
    /// # Errors
    /// A refusal, [`KvError::UnknownSequence`], or a driver error.
    fn more(
        &mut self,
        below: &mut Below<'_>,
        sequence: Sequence,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError>;

    /// A second sequence with the tokens of a live one, as of now; each goes its own way after.
    ///
    /// # Errors
    /// A refusal, [`KvError::UnknownSequence`], or a driver error.
    fn fork(&mut self, below: &mut Below<'_>, from: Sequence) -> Result<Admitted, KvError>;

    /// A sequence ends; its token is used up. What others can find stays for as long as there is room.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`], or a driver error.
    fn end(&mut self, below: &mut Below<'_>, sequence: Sequence) -> Result<(), KvError>;

    /// Hears everything else; one that it does not know is [`Reply::Unsupported`], not an error.
    ///
    /// # Errors
    /// As the notice says.
    fn notice(&mut self, below: &mut Below<'_>, notice: Notice<'_>) -> Result<Reply, KvError>;

    /// Where the tokens of a sequence are, in order. To look at, not to be called for each op.
    ///
    /// # Errors
    /// [`KvError::UnknownSequence`].
    fn table(&self, sequence: Sequence) -> Result<Vec<SlotRange>, KvError>;

    /// Its counts, in O(1).
    fn usage(&self) -> KvUsage;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::OutOfMemory;
    use crate::driver::DriverError;

    #[test]
    fn whole_refuses_what_the_chunk_does_not_hold() {
        let ask = NewSequence { chunk: Some(4), ..NewSequence::default() };
        assert_eq!((ask.now(3), ask.now(9)), (Ok(3), Ok(4)));
        let whole = NewSequence { whole: true, ..ask };
        assert_eq!(whole.now(4), Ok(4));
        assert_eq!(whole.now(5), Err(KvError::OverChunk { tokens: 5, chunk: 4 }));
        assert_eq!(NewSequence { chunk: None, ..whole }.now(5), Ok(5));
    }

    #[test]
    fn a_refusal_is_what_a_run_survives() {
        let full = KvFull { hit: 16, needed: 3, free: 4, watermark: 2 };
        assert_eq!(
            full.to_string(),
            "no room in the cache: 3 blocks needed, 4 free, of which 2 must stay free; 16 tokens were found"
        );
        let oom = OutOfMemory {
            asked: 1,
            device_free: 0,
            reserved: 0,
            active: 0,
            largest_free: 0,
            limit: None,
        };
        let survived = [
            KvError::Full(full),
            KvError::TooLong { tokens: 2, limit: 1 },
            KvError::OverChunk { tokens: 2, chunk: 1 },
            AllocError::from(oom).into(),
        ];
        assert!(survived.iter().all(KvError::is_refusal));
        let failed = DriverError::NotSupported { call: "cuMemCreate" };
        let ends = [KvError::UnknownSequence(Sequence(7)), KvError::from(failed)];
        assert!(!ends.iter().any(KvError::is_refusal));
    }
}
