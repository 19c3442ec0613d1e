//! What a run is made of, and what an observer sees of it.

use super::{Locking, Prelude};
use crate::allocator::{AllocError, Allocator, Layout, Placement, Usage};
use crate::kv::{KvCache, KvError};
use crate::machine::{Held, Machine, Memory};
use crate::op::Op;
use crate::source::{Answered, Source};

/// What a run is made of.
pub struct Setup<'a> {
    /// The device, or devices.
    pub machine: &'a mut dyn Machine,
    /// One strategy per device, by device number.
    pub strategies: &'a mut [Box<dyn Allocator>],
    /// One cache per device, above its strategy; with none, ops of sequences are skipped and counted.
    pub caches: &'a mut [Box<dyn KvCache>],
    /// Host time of an alloc or free that needs no driver call, in ns.
    pub host_ns: u64,
    /// The memory that the strategies manage: what `reserved` counts.
    pub memory: Memory,
    /// The locks that host threads queue for.
    pub locking: Locking,
    /// Hears every op.
    pub observer: Option<&'a mut dyn Observer>,
    /// Keep figures at each mark.
    pub keep_marks: bool,
    /// Buffers that are live before the first op (a state that was adopted), for device 0.
    pub prelude: Prelude,
}

impl<'a> Setup<'a> {
    /// The plain run: no caches, no observer, no marks, no prelude, hits cost nothing.
    pub fn new(machine: &'a mut dyn Machine, strategies: &'a mut [Box<dyn Allocator>]) -> Self {
        Self {
            machine,
            strategies,
            caches: &mut [],
            host_ns: 0,
            memory: Memory::Device,
            locking: Locking::Pool,
            observer: None,
            keep_marks: false,
            prelude: Prelude::default(),
        }
    }
}

/// What became of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done.
    Done,
    /// A request was served.
    Placed(Placement),
    /// A request was not served.
    Refused(AllocError),
    /// A sequence has its slots: tokens found, and blocks taken.
    Slots {
        /// Tokens that were found in the cache.
        hit: u64,
        /// Blocks taken.
        blocks: u64,
    },
    /// A sequence did not get its slots.
    NoSlots(KvError),
    /// Nothing happened.
    Skipped,
}

impl Outcome {
    /// Did something happen?
    pub(super) const fn is_progress(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::NoSlots(_) | Self::Skipped)
    }

    /// What the source hears of it.
    pub(super) const fn answer(&self) -> Answered {
        match self {
            Self::Done | Self::Placed(_) => Answered::Done,
            Self::Slots { hit, blocks } => Answered::Slots { hit: *hit, blocks: *blocks },
            Self::Refused(AllocError::InvalidSize { .. })
            | Self::NoSlots(
                KvError::TooLong { .. } | KvError::Below(AllocError::InvalidSize { .. }),
            ) => Answered::InvalidSize,
            Self::NoSlots(KvError::OverChunk { .. }) => Answered::OverChunk,
            Self::Refused(_) | Self::NoSlots(_) => Answered::OutOfMemory,
            Self::Skipped => Answered::Skipped,
        }
    }
}

/// An op as an observer sees it, after it is done.
pub struct Seen<'a> {
    /// Its index, from 0 (device changes are not counted).
    pub index: u64,
    /// The op.
    pub op: &'a Op,
    /// What became of it.
    pub outcome: &'a Outcome,
    /// Bytes requested by live buffers of the current device.
    pub requested: u64,
    /// The strategy's count.
    pub usage: Usage,
    /// The machine's count.
    pub held: Held,
    /// The machine, for origins and the clock.
    pub machine: &'a dyn Machine,
    /// The source, for names.
    pub source: &'a dyn Source,
}

/// Hears every op.
pub trait Observer {
    /// After an op.
    fn after(&mut self, seen: &Seen<'_>);

    /// Is what is where wanted after op `index`? Then [`Observer::layout`] hears it, if the strategy of the op's device can tell.
    fn wants_layout(&self, _index: u64) -> bool {
        false
    }

    /// What is where after an op, on the device of the op.
    fn layout(&mut self, _seen: &Seen<'_>, _layout: &Layout) {}

    /// Is what was seen enough? Then the run ends here, and its figures are those up to here.
    fn is_enough(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvFull;

    #[test]
    fn what_counts_as_a_limit_is_heard_as_one() {
        let invalid = AllocError::InvalidSize { asked: 5, why: "a test" };
        for (error, heard) in [
            (KvError::Below(invalid), Answered::InvalidSize),
            (KvError::TooLong { tokens: 5, limit: 4 }, Answered::InvalidSize),
            (KvError::OverChunk { tokens: 5, chunk: 4 }, Answered::OverChunk),
            (KvError::Full(KvFull::default()), Answered::OutOfMemory),
        ] {
            assert_eq!(error.is_limit(), heard != Answered::OutOfMemory, "{error}");
            assert_eq!(Outcome::NoSlots(error).answer(), heard);
        }
    }
}
