//! Requests and frees in the order in which they happened, held in memory: what formats become whose lines are in another order.
//!
//! | rule | what it says |
//! |---|---|
//! | `order` | by time; at equal times frees come first where lives are half-open (`of_lives`), else as in the file |
//! | `slots` | a buffer's slot is given to a later one when it is free; its name is the file's own number |
//! | `failed` | a request that failed in the recording is made, and given back at once if it succeeds here |

use std::sync::Arc;

use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, StreamId};

/// Most events that are held: some GB.
pub const EVENTS_MAX: usize = 50_000_000;

/// One event, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    time: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Alloc { slot: u32, buffer: u32, size: u64 },
    Free { slot: u32 },
}

/// Events of one device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Events {
    list: Vec<Event>,
    /// The file's own number of each buffer, by its number of birth.
    names: Vec<u64>,
    /// Buffers whose requests failed, in order.
    failed: Vec<u32>,
    timed: bool,
    gaps: u64,
}

impl Events {
    /// Have the events times? Otherwise only their order is known.
    pub fn timed(&self) -> bool {
        self.timed
    }

    /// Frees that the file has without a request, or lacks.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Requests and frees.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Collects events in their order.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    events: Events,
    unused: Vec<u32>,
    slots: u32,
}

impl Builder {
    /// Of events whose times are ns of a host clock, or mean nothing but an order.
    pub(crate) fn new(timed: bool) -> Self {
        Self { events: Events { timed, ..Events::default() }, ..Self::default() }
    }

    /// A buffer called `name` is asked for; gives its slot.
    pub(crate) fn alloc(&mut self, time: u64, name: u64, size: u64) -> u32 {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let buffer = self.events.names.len() as u32;
        self.events.names.push(name);
        self.events.list.push(Event { time, what: What::Alloc { slot, buffer, size } });
        slot
    }

    /// The buffer of a slot is freed.
    pub(crate) fn free(&mut self, time: u64, slot: u32) {
        self.unused.push(slot);
        self.events.list.push(Event { time, what: What::Free { slot } });
    }

    /// A request failed.
    pub(crate) fn failed(&mut self, time: u64, size: u64) {
        self.events.failed.push(self.events.names.len() as u32);
        let slot = self.alloc(time, 0, size);
        self.free(time, slot);
    }

    /// One more free without a request, or the other way round.
    pub(crate) fn gap(&mut self) {
        self.events.gaps += 1;
    }

    pub(crate) fn finish(self) -> Events {
        self.events
    }
}

/// A buffer that lives from `lower` on, up to before `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) name: u64,
    pub(crate) lower: u64,
    pub(crate) upper: u64,
    pub(crate) size: u64,
}

/// Events of lives whose times are an order only. A life without length is one of a moment: it is freed right after its request.
pub(crate) fn of_lives(lives: &[Life]) -> Events {
    let ends = lives.iter().zip(0..).filter(|(life, _)| life.lower < life.upper);
    let mut order: Vec<(u64, bool, u32)> = ends.map(|(life, at)| (life.upper, false, at)).collect();
    order.extend(lives.iter().zip(0..).map(|(life, at)| (life.lower, true, at)));
    order.sort_unstable();
    let mut builder = Builder::new(false);
    let mut slots = vec![0; lives.len()];
    for (time, begins, at) in order {
        let life = &lives[at as usize];
        if !begins {
            builder.free(time, slots[at as usize]);
            continue;
        }
        slots[at as usize] = builder.alloc(time, life.name, life.size);
        if life.lower == life.upper {
            builder.free(time, slots[at as usize]);
        }
    }
    builder.finish()
}

/// Plays events.
pub struct EventSource {
    events: Arc<Events>,
    keep_times: bool,
    next: usize,
    /// The host was told to wait for the next event.
    waited: bool,
    /// The request that was yielded last failed.
    failed: bool,
    /// The name of each slot's buffer.
    names: Vec<u64>,
}

impl EventSource {
    /// From the first event on. With `keep_times` ops are issued not before their recorded times, from that of the first on.
    pub fn new(events: Arc<Events>, keep_times: bool) -> Self {
        let keep_times = keep_times && events.timed;
        Self { events, keep_times, next: 0, waited: false, failed: false, names: Vec::new() }
    }
}

impl Source for EventSource {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        let Some(event) = self.events.list.get(self.next) else { return Ok(Step::End) };
        if self.keep_times && !self.waited {
            self.waited = true;
            return Ok(Step::WaitUntil(Nanos(event.time)));
        }
        self.waited = false;
        self.next += 1;
        Ok(Step::Op(match event.what {
            What::Alloc { slot, buffer, size } => {
                if slot as usize >= self.names.len() {
                    self.names.resize(slot as usize + 1, 0);
                }
                self.names[slot as usize] = self.events.names[buffer as usize];
                self.failed = self.events.failed.binary_search(&buffer).is_ok();
                Op::Alloc { id: BufferId(slot), stream: StreamId(0), site: NameId(0), size }
            }
            What::Free { slot } => Op::Free { id: BufferId(slot), stream: None },
        }))
    }

    fn uses(&self) -> &[BufferUse] {
        &[]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, _name: NameId) -> &str {
        ""
    }

    fn name(&self, id: BufferId) -> u64 {
        self.names.get(id.0 as usize).copied().unwrap_or(0)
    }

    fn failed_when_recorded(&self) -> bool {
        self.failed
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.events.gaps
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Steps as text: `+name size`, `-name`, `@time`.
    pub(crate) fn steps(events: Events, keep_times: bool) -> Vec<String> {
        let mut source = EventSource::new(Arc::new(events), keep_times);
        let mut all = Vec::new();
        loop {
            match source.next(Nanos(0), Answered::Done).expect("in memory") {
                Step::Op(Op::Alloc { id, size, .. }) => {
                    all.push(format!("+{} {size}", source.name(id)));
                }
                Step::Op(Op::Free { id, .. }) => all.push(format!("-{}", source.name(id))),
                Step::Op(other) => panic!("{other:?}"),
                Step::WaitUntil(time) => all.push(format!("@{}", time.0)),
                Step::End => return all,
            }
        }
    }

    #[test]
    fn half_open_lives_end_before_others_begin() {
        let life = |name, lower, upper| Life { name, lower, upper, size: name * 10 };
        let events = of_lives(&[life(3, 5, 9), life(1, 0, 5), life(2, 5, 5), life(4, 0, 9)]);
        assert_eq!(
            steps(events, false),
            ["+1 10", "+4 40", "-1", "+3 30", "+2 20", "-2", "-3", "-4"]
        );
    }

    #[test]
    fn times_are_kept_where_they_mean_something() {
        let build = |timed| {
            let mut builder = Builder::new(timed);
            let slot = builder.alloc(7, 1, 512);
            builder.free(9, slot);
            builder.finish()
        };
        assert_eq!(steps(build(true), true), ["@7", "+1 512", "@9", "-1"]);
        assert_eq!(steps(build(true), false), ["+1 512", "-1"]);
        assert_eq!(steps(build(false), true), ["+1 512", "-1"]);
    }
}
