//! `serving.contiguous_max` and `serving.contiguous_pow2`: what paging replaced. A sequence is one buffer of the allocator below, reserved as a whole.
//!
//! | rule | what it says |
//! |---|---|
//! | `max` | a sequence reserves `max_model_len` tokens when it comes in; longer ones are refused |
//! | `pow2` | it reserves the power of two at or above its known tokens and their headroom; when that is outgrown, the tokens are copied to a buffer for the next power |
//! | `alone` | nothing is shared: no content is found, a fork is a copy |
//! | `beside` | while tokens are copied, both buffers are there |
//!
//! The reservations are those of the baselines "Orca (Max)" and "Orca (Pow2)" in W. Kwon et al., "Efficient Memory Management for Large Language Model Serving
//! with PagedAttention", SOSP 2023, section 6.1, with two differences: the paper's Pow2 knows the length of the output when it reserves, and its buffers come from
//! a buddy allocator (`arena=classic.buddy` here). The time of copies is left out.
//!
//! A strategy that is no cache serves sequences through `pow2`: that is how any allocator becomes a cache.

use vramlab_sim::allocator::{AllocError, Notice, Placement, Reply};
use vramlab_sim::kv::{
    Admitted, Below, KvCache, KvError, KvUsage, MoreTokens, NewSequence, Sequence, SlotRange,
};

use super::options::{ARENA, TOKEN, TokenBytes, positive};
use super::sequences::Sequences;
use crate::options::{OptionDoc, Options};
use crate::registry::{MadeCache, Status, Strategy};

/// The registry's line of the one with the longest buffers.
pub const MAX: Strategy = Strategy::cache(
    "serving.contiguous_max",
    max,
    Status::Model,
    MAX_OPTIONS,
    "a buffer of the greatest length for each sequence",
);
/// The registry's line of the one with buffers that double.
pub const POW2: Strategy = Strategy::cache(
    "serving.contiguous_pow2",
    pow2,
    Status::Model,
    POW2_OPTIONS,
    "a buffer for each sequence that doubles when it is outgrown",
);

const LENGTH: OptionDoc = OptionDoc {
    name: "max_model_len",
    default: "as the workload says, or 2048",
    help: "tokens that each sequence reserves; longer ones are refused",
};
/// Tokens of that, where neither the workload nor the option says.
const LENGTH_USUAL: u64 = 2048;
const MAX_OPTIONS: &[OptionDoc] = &[LENGTH, TOKEN, ARENA];
const POW2_OPTIONS: &[OptionDoc] = &[TOKEN, ARENA];

fn max(options: &Options) -> MadeCache {
    options.check(MAX.name, MAX_OPTIONS)?;
    let length = Length::Greatest(positive(options, LENGTH.name)?);
    Ok(Box::new(Contiguous::new(length, TokenBytes::parse(options)?)))
}

fn pow2(options: &Options) -> MadeCache {
    options.check(POW2.name, POW2_OPTIONS)?;
    Ok(Box::new(Contiguous::new(Length::Doubling, TokenBytes::parse(options)?)))
}

/// How many tokens a sequence reserves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// As many as any may come to: the option's, or what the first sequence says, or the usual ones. Decided by the first sequence.
    Greatest(Option<u64>),
    /// As many as it needs, up to the next power of two.
    Doubling,
}

/// A sequence's buffer.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    placement: Placement,
    /// Tokens that it has room for.
    capacity: u64,
    tokens: u64,
}

/// Sequences in buffers.
#[derive(Debug)]
pub(crate) struct Contiguous {
    length: Length,
    bytes: TokenBytes,
    live: Sequences<Buffer>,
    tokens: u64,
    slots: u64,
    /// Bytes of the buffers.
    placed: u64,
    copied: u64,
}

impl Contiguous {
    pub(super) fn new(length: Length, bytes: TokenBytes) -> Self {
        let live = Sequences::default();
        Self { length, bytes, live, tokens: 0, slots: 0, placed: 0, copied: 0 }
    }

    /// Tokens to reserve for a sequence of so many.
    fn capacity(&self, tokens: u64) -> Result<u64, KvError> {
        match self.length {
            Length::Greatest(limit) => {
                let limit = limit.unwrap_or(LENGTH_USUAL);
                if tokens > limit { Err(KvError::TooLong { tokens, limit }) } else { Ok(limit) }
            }
            Length::Doubling => tokens.checked_next_power_of_two().ok_or_else(too_large),
        }
    }

    fn reserve(
        &mut self,
        below: &mut Below<'_>,
        capacity: u64,
        tokens: u64,
    ) -> Result<Buffer, KvError> {
        let size = capacity.checked_mul(self.bytes.get()).ok_or_else(too_large)?;
        let placement = below.alloc(size)?;
        self.slots += capacity;
        self.placed += placement.size;
        Ok(Buffer { placement, capacity, tokens })
    }

    fn give_back(&mut self, below: &mut Below<'_>, buffer: &Buffer) -> Result<(), KvError> {
        below.free(buffer.placement.block)?;
        self.slots -= buffer.capacity;
        self.placed -= buffer.placement.size;
        Ok(())
    }
}

fn too_large() -> KvError {
    let why = "the sequence's buffer passes 2^64 bytes";
    AllocError::InvalidSize { asked: u64::MAX, why }.into()
}

impl KvCache for Contiguous {
    fn begin(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<Admitted, KvError> {
        if let Some(bytes) = self.bytes.undecided(new.token_bytes) {
            self.bytes.decide(bytes);
            if let Length::Greatest(length) = &mut self.length {
                *length = length.or(new.longest.filter(|longest| *longest > 0));
            }
        }
        let capacity = self.capacity(new.tokens.saturating_add(new.headroom.unwrap_or(0)))?;
        let tokens = new.now(new.tokens)?;
        let buffer = self.reserve(below, capacity, tokens)?;
        self.tokens += tokens;
        Ok(Admitted { sequence: self.live.insert(buffer), hit: 0, blocks: 1 })
    }

    fn more(
        &mut self,
        below: &mut Below<'_>,
        sequence: Sequence,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError> {
        let old = *self.live.get(sequence)?;
        let tokens = old.tokens.saturating_add(more.tokens);
        let outgrown = tokens > old.capacity;
        let mut buffer = old;
        if outgrown {
            let capacity = self.capacity(tokens)?;
            buffer = self.reserve(below, capacity, tokens)?;
            self.copied += old.tokens;
            self.give_back(below, &old)?;
        }
        buffer.tokens = tokens;
        self.tokens += more.tokens;
        *self.live.get_mut(sequence)? = buffer;
        Ok(u64::from(outgrown))
    }

    fn fork(&mut self, below: &mut Below<'_>, from: Sequence) -> Result<Admitted, KvError> {
        let Buffer { capacity, tokens, .. } = *self.live.get(from)?;
        let buffer = self.reserve(below, capacity, tokens)?;
        self.tokens += tokens;
        self.copied += tokens;
        Ok(Admitted { sequence: self.live.insert(buffer), hit: tokens, blocks: 1 })
    }

    fn end(&mut self, below: &mut Below<'_>, sequence: Sequence) -> Result<(), KvError> {
        let buffer = self.live.remove(sequence)?;
        self.tokens -= buffer.tokens;
        self.give_back(below, &buffer)
    }

    fn notice(&mut self, _below: &mut Below<'_>, notice: Notice<'_>) -> Result<Reply, KvError> {
        Ok(match notice {
            // no content is kept that could be forgotten
            Notice::Mark { .. } | Notice::Set { key: "reset_prefix_cache", .. } => Reply::Done,
            Notice::Counters => Reply::Counters(vec![("copied_tokens", self.copied)]),
            _ => Reply::Unsupported,
        })
    }

    fn table(&self, sequence: Sequence) -> Result<Vec<SlotRange>, KvError> {
        let Buffer { placement, tokens, .. } = *self.live.get(sequence)?;
        let stride = self.bytes.get();
        Ok(vec![SlotRange { address: placement.address, tokens, stride }])
    }

    fn usage(&self) -> KvUsage {
        KvUsage {
            sequences: self.live.len(),
            tokens: self.tokens,
            filled: self.tokens,
            slots: self.slots,
            used: self.live.len(),
            token_bytes: self.bytes.get(),
            allocated: self.placed,
            arena: self.placed,
            ..KvUsage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::testing::Bench;

    const MIB: u64 = 1 << 20;

    #[test]
    fn max_reserves_the_greatest_length_for_each() {
        let spec = "serving.contiguous_max:max_model_len=100,token_bytes=1048576";
        let mut bench = Bench::new(spec, 250 * MIB);
        let a = bench.begin(1, 7).sequence;
        assert_eq!((bench.usage().allocated, bench.usage().slots), (100 * MIB, 100));
        assert_eq!(bench.more(a, 1, 7, 93), Ok(0));
        assert_eq!(bench.more(a, 1, 100, 1), Err(KvError::TooLong { tokens: 101, limit: 100 }));
        bench.begin(2, 1);
        let third = bench.ask(&NewSequence { tokens: 1, ..NewSequence::default() });
        assert!(third.as_ref().is_err_and(KvError::is_refusal), "{third:?}");
    }

    /// It kept 2048 tokens of its own, and refused what other caches served.
    #[test]
    fn max_reserves_what_the_workload_says_unless_the_spec_says_otherwise() {
        let model = NewSequence {
            tokens: 1,
            token_bytes: Some(MIB),
            longest: Some(30),
            ..NewSequence::default()
        };
        for (spec, length) in
            [("serving.contiguous_max", 30), ("serving.contiguous_max:max_model_len=20", 20)]
        {
            let mut bench = Bench::new(spec, 250 * MIB);
            assert!(bench.ask(&model).is_ok());
            assert_eq!(bench.usage().slots, length, "{spec}");
        }
    }

    #[test]
    fn pow2_moves_to_twice_the_buffer_when_it_is_outgrown() -> Result<(), KvError> {
        let mut bench = Bench::new("serving.contiguous_pow2:token_bytes=1048576", 64 * MIB);
        let a = bench.begin(1, 5).sequence;
        assert_eq!((bench.usage().slots, bench.more(a, 1, 5, 3)?), (8, 0));
        let before = bench.table(a);
        assert_eq!(bench.more(a, 1, 8, 1)?, 1);
        assert_ne!(bench.table(a)[0].0, before[0].0, "both are there while the tokens are copied");
        assert_eq!((bench.usage().slots, bench.counter("copied_tokens")), (16, 8));
        assert_eq!(bench.machine_reserved(), 16 * MIB);
        Ok(())
    }

    #[test]
    fn pow2_reserves_for_the_known_tokens_and_their_headroom() {
        let mut bench = Bench::new("serving.contiguous_pow2:token_bytes=1", 64 * MIB);
        let new =
            NewSequence { tokens: 20, chunk: Some(4), headroom: Some(13), ..Default::default() };
        assert!(bench.ask(&new).is_ok());
        assert_eq!((bench.usage().slots, bench.usage().filled), (64, 4));
        let huge = NewSequence { tokens: u64::MAX, ..NewSequence::default() };
        let refused = bench.ask(&huge);
        assert!(refused.as_ref().is_err_and(KvError::is_refusal), "{refused:?}");
    }

    #[test]
    fn alone_no_content_is_found_and_a_fork_is_a_copy() {
        let mut bench = Bench::new("serving.contiguous_pow2:token_bytes=1024", 64 * MIB);
        let a = bench.begin(1, 8).sequence;
        assert_eq!(bench.begin(1, 8).hit, 0);
        let fork = bench.fork(a).expect("there is room");
        assert_ne!(bench.table(fork.sequence), bench.table(a));
        assert_eq!((bench.usage().slots, bench.counter("copied_tokens")), (24, 8));
    }
}
