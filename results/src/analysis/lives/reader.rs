//! The walk: each op begins or ends a life.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use vramlab_sim::op::Op;
use vramlab_sim::source::Source;
use vramlab_workloads::live::Live;

use super::{Life, Lives, NEVER, Phase};

/// A run of requests must have so many on the mean to be taken for a phase.
const PHASE_REQUESTS_MIN: u64 = 8;
/// Phases that are kept; later ones belong to the last.
const PHASES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Reader {
    lives: Lives,
    /// Where texts lie that are kept here, so that each place means one text.
    known: FxHashMap<*const u8, u32>,
    kept: Vec<Rc<str>>,
    /// The number of the live buffer in a slot.
    buffers: Vec<u32>,
    sequences: Vec<u32>,
    marks: Vec<Phase>,
    runs: Vec<(u32, u64)>,
}

impl Reader {
    pub(super) fn take(&mut self, op: &Op, live: &Live, source: &dyn Source) {
        let now = live.ops() - 1;
        match *op {
            Op::Alloc { id, stream, site, .. } => {
                self.lives.allocs += 1;
                let Some(buffer) = live.buffer(id) else { return };
                if buffer.failed {
                    self.lives.failed += 1;
                    self.lives.failed_largest = self.lives.failed_largest.max(buffer.size);
                }
                let text = self.site(&buffer.site);
                let last = self.runs.last().map(|(last, _)| *last);
                if last.is_none() || (text != 0 && last != Some(text)) {
                    self.runs.push((text, now));
                }
                self.begin(Life {
                    name: source.name(id),
                    size: buffer.size,
                    birth: now,
                    death: NEVER,
                    site: text,
                    stack: site.0,
                    stream: stream.0,
                    device: u16::try_from(live.device()).unwrap_or(u16::MAX),
                    sequence: false,
                    failed: buffer.failed,
                });
                let number = self.last();
                *slot(&mut self.buffers, id.0) = number;
            }
            Op::Free { id, .. } | Op::FreeDeferred { id } => {
                let number = std::mem::replace(slot(&mut self.buffers, id.0), u32::MAX);
                // what failed when it was recorded was never there: that it is given back here is no free of the recording
                let failed = self.lives.list.get(number as usize).is_some_and(|life| life.failed);
                self.lives.frees += u64::from(!failed);
                self.end(number, now);
            }
            Op::Realloc { id, .. } => {
                let number = *slot(&mut self.buffers, id.0);
                if let Some(buffer) = live.buffer(id) {
                    *slot(&mut self.buffers, id.0) = self.again(number, buffer.size, now);
                }
            }
            Op::KvNew { seq } | Op::KvFork { seq, .. } => {
                self.lives.sequences += 1;
                let Some(size) = live.sequence(seq) else { return };
                self.begin(Life {
                    name: source.sequence(seq),
                    size,
                    birth: now,
                    death: NEVER,
                    site: 0,
                    stack: 0,
                    stream: 0,
                    device: u16::try_from(live.device()).unwrap_or(u16::MAX),
                    sequence: true,
                    failed: false,
                });
                let number = self.last();
                *slot(&mut self.sequences, seq.0) = number;
            }
            Op::KvMore { seq } => {
                let number = *slot(&mut self.sequences, seq.0);
                if let Some(size) = live.sequence(seq) {
                    *slot(&mut self.sequences, seq.0) = self.again(number, size, now);
                }
            }
            Op::KvFree { seq } => {
                let number = std::mem::replace(slot(&mut self.sequences, seq.0), u32::MAX);
                self.end(number, now);
            }
            Op::Mark { name } if self.marks.len() < PHASES_MAX => {
                self.marks.push(Phase { name: source.text(name).to_owned(), op: now });
            }
            _ => {}
        }
        if live.bytes() > self.lives.peak_bytes {
            (self.lives.peak_bytes, self.lives.peak_op) = (live.bytes(), now);
        }
    }

    fn site(&mut self, text: &Rc<str>) -> u32 {
        let place = text.as_ptr();
        if text.is_empty() {
            return 0;
        }
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        self.kept.push(Rc::clone(text));
        let number = self.kept.len() as u32;
        self.known.insert(place, number);
        number
    }

    fn begin(&mut self, life: Life) {
        self.lives.list.push(life);
    }

    fn last(&self) -> u32 {
        (self.lives.list.len() - 1) as u32
    }

    fn end(&mut self, number: u32, now: u64) {
        if let Some(life) = self.lives.list.get_mut(number as usize) {
            life.death = now;
        }
    }

    /// Rule `resized`.
    fn again(&mut self, number: u32, size: u64, now: u64) -> u32 {
        let Some(old) = self.lives.list.get(number as usize).copied() else { return u32::MAX };
        self.end(number, now);
        self.begin(Life { size, birth: now, death: NEVER, ..old });
        self.last()
    }

    pub(super) fn finish(self, end: &Live, gaps: u64) -> Lives {
        let Self { mut lives, kept, marks, runs, .. } = self;
        lives.sites = std::iter::once(String::new())
            .chain(kept.iter().map(|text| text.to_string()))
            .collect();
        (lives.ops, lives.end_bytes, lives.gaps) = (end.ops(), end.bytes(), gaps);
        lives.saturated = end.saturated();
        lives.token_bytes = (lives.sequences > 0).then(|| end.token_bytes());
        let long = lives.allocs >= PHASE_REQUESTS_MIN * runs.len() as u64;
        let named = runs.iter().any(|(site, _)| *site != 0);
        lives.marked = !marks.is_empty();
        lives.phases = if lives.marked {
            marks
        } else if long && named && runs.len() > 1 {
            let runs = runs.into_iter().take(PHASES_MAX);
            runs.map(|(site, op)| Phase { name: lives.site_text(site).to_owned(), op }).collect()
        } else {
            Vec::new()
        };
        lives
    }
}

fn slot(slots: &mut Vec<u32>, number: u32) -> &mut u32 {
    let index = number as usize;
    if index >= slots.len() {
        slots.resize(index + 1, u32::MAX);
    }
    &mut slots[index]
}
