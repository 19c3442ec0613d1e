//! A source of ops: a recording, a generator, or a server that reacts to what it is answered.

use crate::kv::NewSequence;
use crate::op::{BufferUse, NameId, Op, TouchRange};
use crate::report::{Answers, Done, Served};
use crate::units::{BufferId, Nanos, SequenceId};

/// The next step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do this now.
    Op(Op),
    /// The host has nothing to do before this time.
    WaitUntil(Nanos),
    /// The workload is over.
    End,
}

/// How the last op was answered: enough for a server to shed load, preempt and retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answered {
    /// Done (or there was no op yet).
    #[default]
    Done,
    /// The sequence has its slots.
    Slots {
        /// Tokens that were found in the cache.
        hit: u64,
        /// Blocks taken.
        blocks: u64,
    },
    /// The request did not fit.
    OutOfMemory,
    /// The request's size was refused.
    InvalidSize,
    /// The sequence has more new tokens than may be computed now, and may not be cut.
    OverChunk,
    /// Nothing happened: the buffer's request had failed, or the strategy does not know the op.
    Skipped,
}

/// A workload ended with an error: the input it reads is bad.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct SourceError {
    /// File and line, or byte, or op.
    pub place: String,
    /// What was found and what was expected.
    pub what: String,
}

/// Yields ops. Buffers are dense slots ([`BufferId`]); the slot of a freed buffer may be given to a later one.
pub trait Source {
    /// The next step, at host time `now`, after the last op was answered so.
    ///
    /// # Errors
    /// When the input behind the source is bad.
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError>;

    /// The buffers that the last yielded [`Op::Work`] uses.
    fn uses(&self) -> &[BufferUse];

    /// What the last yielded [`Op::Touch`] reaches.
    fn touch(&self) -> TouchRange;

    /// What the last yielded [`Op::KvNew`] asks for; of [`Op::KvMore`], only its tokens and their keys. A source without such ops need
    /// not say.
    fn kv(&self) -> NewSequence<'_> {
        NewSequence::default()
    }

    /// The text of a site, mark or setting of the last yielded op.
    fn text(&self, name: NameId) -> &str;

    /// The workload's own number for a live buffer, for reports.
    fn name(&self, id: BufferId) -> u64;

    /// The workload's own number for a live sequence, for reports.
    fn sequence(&self, seq: SequenceId) -> u64 {
        u64::from(seq.0)
    }

    /// What a server counted of the requests that it served, at the end of the run. A source that is none need not say.
    fn served(&self) -> Option<Served> {
        None
    }

    /// The first requests that a server answered, in the order of their ends; of others the engine knows from the ops of their arrival and answer.
    fn done(&self) -> &[Done] {
        &[]
    }

    /// What a service that may refuse to answer counted, at the end of the run. A source that is none need not say.
    fn answers(&self) -> Option<Answers> {
        None
    }

    /// Did the request that was yielded last fail when it was recorded? It is made all the same, and freed at once. A source that is no recording need not say.
    fn failed_when_recorded(&self) -> bool {
        false
    }

    /// Are the ops the same whatever they are answered? Only then may a strategy look ahead.
    fn independent(&self) -> bool;

    /// Frees of buffers that the input never allocated: the front of a recording is missing.
    fn gaps(&self) -> u64;
}
