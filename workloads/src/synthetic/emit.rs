//! What generators that are no graphs share: a queue of ops, live buffers, and the [`Source`] around a script.
//!
//! ```text
//! Script ──writes a piece (an exchange)──▶ Out ──one op at a time──▶ engine
//! ```
//!
//! A [`Script`] writes a bounded number of ops into [`Out`] each time the queue runs dry. Slots of freed buffers are used again, latest first, so ids
//! stay dense. A buffer's name is the number of its allocation, from 0.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, StreamId};

use crate::graph::DType;
use crate::rates::Rates;

/// Marks get name numbers from here on, so that they never meet a site's.
const MARK_NAME_FIRST: u32 = 1 << 24;

/// A generator's program: writes its ops piece by piece.
pub(crate) trait Script {
    /// Writes the next piece; false when there is none.
    fn advance(&mut self, out: &mut Out) -> bool;
}

/// An op, and how many of the uses are its.
struct Queued {
    op: Op,
    uses: u32,
}

/// Where a script writes its ops.
pub(crate) struct Out {
    queue: VecDeque<Queued>,
    uses: VecDeque<BufferUse>,
    marks: VecDeque<String>,
    marks_written: u32,
    /// By slot: size of the buffer in it.
    sizes: Vec<u64>,
    slots_free: Vec<BufferId>,
    site_ids: FxHashMap<&'static str, NameId>,
    sites: Vec<&'static str>,
    rates: Rates,
    math: DType,
}

impl Out {
    fn new(rates: Rates, math: DType) -> Self {
        Self {
            queue: VecDeque::new(),
            uses: VecDeque::new(),
            marks: VecDeque::new(),
            marks_written: 0,
            sizes: Vec::new(),
            slots_free: Vec::new(),
            site_ids: FxHashMap::default(),
            sites: vec![""],
            rates,
            math,
        }
    }

    /// Any op that has no buffers to account for.
    pub(crate) fn op(&mut self, op: Op) {
        self.queue.push_back(Queued { op, uses: 0 });
    }

    /// A step or phase begins.
    pub(crate) fn mark(&mut self, text: String) {
        let name = NameId(MARK_NAME_FIRST + self.marks_written % MARK_NAME_FIRST);
        self.marks_written = self.marks_written.wrapping_add(1);
        self.marks.push_back(text);
        self.op(Op::Mark { name });
    }

    /// A buffer of `size` bytes for use on stream 0.
    pub(crate) fn alloc(&mut self, site: &'static str, size: u64) -> BufferId {
        self.alloc_on(StreamId(0), site, size)
    }

    /// A buffer of `size` bytes for use on `stream`.
    pub(crate) fn alloc_on(&mut self, stream: StreamId, site: &'static str, size: u64) -> BufferId {
        let id = self.slots_free.pop().unwrap_or_else(|| {
            self.sizes.push(0);
            BufferId(self.sizes.len() as u32 - 1)
        });
        self.sizes[id.0 as usize] = size;
        let site = self.site(site);
        self.op(Op::Alloc { id, stream, site, size });
        id
    }

    /// The buffer is freed.
    pub(crate) fn release(&mut self, id: BufferId) {
        self.slots_free.push(id);
        self.op(Op::Free { id, stream: None });
    }

    /// Size of a live buffer (B).
    pub(crate) fn size(&self, id: BufferId) -> u64 {
        self.sizes[id.0 as usize]
    }

    /// Work on stream 0 of `flops` operations; its duration follows from them and from the buffers' sizes.
    pub(crate) fn work(&mut self, flops: f64, reads: &[BufferId], writes: &[BufferId]) {
        let bytes = reads.iter().chain(writes).map(|id| self.size(*id)).sum();
        let duration = self.rates.duration(flops, self.math, bytes);
        self.work_for(StreamId(0), duration, reads, writes);
    }

    /// Work on `stream` that takes `duration` ns.
    pub(crate) fn work_for(
        &mut self,
        stream: StreamId,
        duration: u64,
        reads: &[BufferId],
        writes: &[BufferId],
    ) {
        self.uses.extend(reads.iter().map(|id| BufferUse { id: *id, write: false }));
        self.uses.extend(writes.iter().map(|id| BufferUse { id: *id, write: true }));
        let uses = (reads.len() + writes.len()) as u32;
        self.queue.push_back(Queued { op: Op::Work { stream, duration }, uses });
    }

    fn site(&mut self, site: &'static str) -> NameId {
        let sites = &mut self.sites;
        *self.site_ids.entry(site).or_insert_with(|| {
            sites.push(site);
            NameId(sites.len() as u32 - 1)
        })
    }
}

/// A script as a source.
pub(crate) struct Generated<S> {
    script: S,
    out: Out,
    over: bool,
    uses: Vec<BufferUse>,
    mark: (NameId, String),
    /// By slot: the number of the allocation that holds it.
    names: Vec<u64>,
    allocs: u64,
}

impl<S: Script> Generated<S> {
    /// `math` is the type in which work is done.
    pub(crate) fn new(script: S, rates: Rates, math: DType) -> Self {
        Self {
            script,
            out: Out::new(rates, math),
            over: false,
            uses: Vec::new(),
            mark: (NameId(0), String::new()),
            names: Vec::new(),
            allocs: 0,
        }
    }

    fn handed_out(&mut self, op: Op, uses: u32) {
        self.uses.clear();
        match op {
            Op::Work { .. } => self.uses.extend(self.out.uses.drain(..uses as usize)),
            Op::Mark { name } => {
                self.mark = (name, self.out.marks.pop_front().unwrap_or_default());
            }
            Op::Alloc { id, .. } => {
                let slot = id.0 as usize;
                if slot >= self.names.len() {
                    self.names.resize(slot + 1, 0);
                }
                self.names[slot] = self.allocs;
                self.allocs += 1;
            }
            _ => {}
        }
    }
}

impl<S: Script> Source for Generated<S> {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        loop {
            match self.out.queue.pop_front() {
                Some(Queued { op, uses }) => {
                    self.handed_out(op, uses);
                    return Ok(Step::Op(op));
                }
                None if self.over => return Ok(Step::End),
                None => self.over = !self.script.advance(&mut self.out),
            }
        }
    }

    fn uses(&self) -> &[BufferUse] {
        &self.uses
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, name: NameId) -> &str {
        if name == self.mark.0 {
            &self.mark.1
        } else {
            self.out.sites.get(name.0 as usize).copied().unwrap_or("")
        }
    }

    fn name(&self, id: BufferId) -> u64 {
        self.names.get(id.0 as usize).copied().unwrap_or(0)
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        0
    }
}
