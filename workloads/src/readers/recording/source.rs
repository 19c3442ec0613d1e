//! A recording as a workload for any strategy.
//!
//! The blocks that were live before the first entry are requested first, in address order, on their streams; then the ops follow.
//! A request that failed in the recording is made, and given back at once if it succeeds here: what the program would have done with it
//! is not known.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

use super::{Entries, RecordedStep, Recording, Routes, Steps, Turn};

/// Plays a recording.
pub struct RecordingSource<E: Entries> {
    recording: Arc<Recording<E>>,
    /// Progress of the walk, kept apart from the recording that it borrows.
    cursor: Cursor,
    keep_times: bool,
    site: String,
}

struct Cursor {
    state: State,
    queued: VecDeque<Step>,
    slots: FxHashMap<u64, BufferId>,
    names: Vec<u64>,
    unused: Vec<BufferId>,
    routes: Routes,
    /// The step that is queued is a request that failed.
    failed: bool,
    gaps: u64,
}

enum State {
    /// The n-th block of the start is next.
    Start(usize),
    /// Entries from here on.
    Entries(Saved),
    Over,
}

/// A [`Steps`] without its borrow.
struct Saved {
    next: usize,
    window: Vec<super::Driven>,
    held_back: Option<RecordedStep>,
    reserved: u64,
}

impl<E: Entries> RecordingSource<E> {
    /// From the start. With `keep_times` ops are issued not before their recorded times; those contain the recorded run's own driver stalls.
    pub fn new(recording: Arc<Recording<E>>, keep_times: bool) -> Self {
        let cursor = Cursor {
            state: State::Start(0),
            queued: VecDeque::new(),
            slots: FxHashMap::default(),
            names: Vec::new(),
            unused: Vec::new(),
            routes: Routes::default(),
            failed: false,
            gaps: 0,
        };
        Self { recording, cursor, keep_times, site: String::new() }
    }
}

impl Cursor {
    fn open(&mut self, addr: u64) -> BufferId {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.names.push(0);
            BufferId(self.names.len() as u32 - 1)
        });
        self.names[slot.0 as usize] = addr;
        self.slots.insert(addr, slot);
        slot
    }

    fn close(&mut self, addr: u64) -> Option<BufferId> {
        let slot = self.slots.remove(&addr);
        self.unused.extend(slot);
        slot
    }

    fn push(&mut self, op: Op) {
        self.queued.push_back(Step::Op(op));
    }

    fn take(&mut self, step: RecordedStep) {
        self.failed = matches!(step, RecordedStep::Oom { .. });
        match step {
            RecordedStep::Alloc { addr, size, stream, pool, site } => {
                for turn in self.routes.turn(stream, pool) {
                    self.push(match turn {
                        Turn::End(pool) => Op::PoolEnd { pool },
                        Turn::Begin(pool, stream) => Op::PoolBegin { pool, stream },
                    });
                }
                let id = self.open(addr);
                self.push(Op::Alloc { id, stream, site: NameId(site), size });
            }
            RecordedStep::Oom { size, stream, .. } => {
                let id = self.open(u64::MAX);
                self.push(Op::Alloc { id, stream, site: NameId(0), size });
                self.close(u64::MAX);
                self.push(Op::Free { id, stream: None });
            }
            RecordedStep::Free { addr } => match self.close(addr) {
                Some(id) => self.push(Op::Free { id, stream: None }),
                None => self.gaps += 1,
            },
            RecordedStep::FreeDeferred { addr } => match self.slots.get(&addr) {
                Some(id) => {
                    let id = *id;
                    self.push(Op::FreeDeferred { id });
                }
                None => self.gaps += 1,
            },
            RecordedStep::FreeCompleted { addr } => match self.close(addr) {
                Some(id) => self.push(Op::FreeCompleted { id }),
                None => self.gaps += 1,
            },
            RecordedStep::EmptyCache => self.push(Op::EmptyCache),
        }
    }
}

impl<E: Entries> RecordingSource<E> {
    fn fill(&mut self) {
        let recording = &*self.recording;
        match std::mem::replace(&mut self.cursor.state, State::Over) {
            State::Start(n) => {
                let Some(block) = recording.start.get(n) else {
                    let saved = Saved {
                        next: 0,
                        window: Vec::new(),
                        held_back: None,
                        reserved: recording.start_reserved,
                    };
                    self.cursor.state = State::Entries(saved);
                    return;
                };
                let id = self.cursor.open(block.addr);
                self.cursor.push(Op::Alloc {
                    id,
                    stream: block.stream,
                    site: NameId(block.site),
                    size: block.requested,
                });
                if block.pending {
                    self.cursor.push(Op::FreeDeferred { id });
                }
                self.cursor.state = State::Start(n + 1);
            }
            State::Entries(saved) => {
                let mut steps = Steps::new(recording);
                steps.resume(saved.next, saved.window, saved.held_back, saved.reserved);
                let step = steps.next();
                let time = steps.time.filter(|_| self.keep_times);
                let (next, window, held_back, reserved) = steps.suspend();
                match step {
                    None => self.cursor.queued.push_back(Step::End),
                    Some(step) => {
                        if let Some(time) = time {
                            self.cursor.queued.push_back(Step::WaitUntil(Nanos(time)));
                        }
                        self.cursor.take(step);
                        self.cursor.state =
                            State::Entries(Saved { next, window, held_back, reserved });
                    }
                }
            }
            State::Over => self.cursor.queued.push_back(Step::End),
        }
    }
}

impl<E: Entries> Source for RecordingSource<E> {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        while self.cursor.queued.is_empty() {
            self.fill();
        }
        let step = self.cursor.queued.pop_front().unwrap_or(Step::End);
        if let Step::Op(Op::Alloc { site, .. }) = step
            && site.0 != 0
        {
            self.site = self.recording.entries.site(site.0);
        }
        Ok(step)
    }

    fn uses(&self) -> &[BufferUse] {
        &[]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, name: NameId) -> &str {
        if name.0 == 0 { "" } else { &self.site }
    }

    fn name(&self, id: BufferId) -> u64 {
        self.cursor.names.get(id.0 as usize).copied().unwrap_or(u64::from(id.0))
    }

    fn failed_when_recorded(&self) -> bool {
        self.cursor.failed
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.recording.gaps + self.cursor.gaps
    }
}
