//! Requests and frees in the order in which they happened, held in memory: what formats become whose lines are in another order.
//!
//! | rule | what it says |
//! |---|---|
//! | `order` | by time; at equal times as in the file, but for static plans (`plan`) |
//! | `slots` | a buffer's slot is given to a later one when it is free; its name is the file's own number |
//! | `failed` | a request that failed in the recording is made, and given back at once if it succeeds here |

use std::sync::Arc;

use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, StreamId};

/// Most events that are held: some GB.
pub const EVENTS_MAX: usize = 50_000_000;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The next of the buffers that are asked for.
    Alloc {
        slot: u32,
    },
    Free {
        slot: u32,
    },
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    /// The file's own number.
    name: u64,
    size: u64,
}

/// Events of one device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Events {
    list: Vec<Event>,
    /// When each is, where times are known.
    times: Vec<u64>,
    /// Buffers in the order in which they are asked for.
    buffers: Vec<Asked>,
    /// Those whose requests failed, in order.
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
    /// Of events whose times are ns of a host clock.
    pub(crate) fn timed() -> Self {
        Self { events: Events { timed: true, ..Events::default() }, ..Self::default() }
    }

    /// Of the requests and frees of so many buffers, whose times mean nothing but an order.
    pub(crate) fn untimed(buffers: usize) -> Self {
        let (list, asked) = (Vec::with_capacity(2 * buffers), Vec::with_capacity(buffers));
        Self { events: Events { list, buffers: asked, ..Events::default() }, ..Self::default() }
    }

    fn push(&mut self, time: u64, event: Event) {
        self.events.list.push(event);
        if self.events.timed {
            self.events.times.push(time);
        }
    }

    /// A buffer called `name` is asked for; gives its slot.
    pub(crate) fn alloc(&mut self, time: u64, name: u64, size: u64) -> u32 {
        self.ask(name, size);
        self.alloc_asked(time)
    }

    /// A buffer called `name` will be asked for, after those that were told of before.
    pub(crate) fn ask(&mut self, name: u64, size: u64) {
        self.events.buffers.push(Asked { name, size });
    }

    /// The next of the buffers that were told of is asked for; gives its slot.
    pub(crate) fn alloc_asked(&mut self, time: u64) -> u32 {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.push(time, Event::Alloc { slot });
        slot
    }

    /// The buffer of a slot is freed.
    pub(crate) fn free(&mut self, time: u64, slot: u32) {
        self.unused.push(slot);
        self.push(time, Event::Free { slot });
    }

    /// A request failed.
    pub(crate) fn failed(&mut self, time: u64, size: u64) {
        self.events.failed.push(self.events.buffers.len() as u32);
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

/// Plays events.
pub struct EventSource {
    events: Arc<Events>,
    keep_times: bool,
    next: usize,
    /// Buffers that were asked for.
    asked: usize,
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
        let (next, asked, names) = (0, 0, Vec::new());
        Self { events, keep_times, next, asked, waited: false, failed: false, names }
    }
}

impl Source for EventSource {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        let Some(event) = self.events.list.get(self.next) else { return Ok(Step::End) };
        if self.keep_times && !self.waited {
            self.waited = true;
            return Ok(Step::WaitUntil(Nanos(self.events.times[self.next])));
        }
        self.waited = false;
        self.next += 1;
        Ok(Step::Op(match *event {
            Event::Alloc { slot } => {
                let Asked { name, size } = self.events.buffers[self.asked];
                self.failed = self.events.failed.binary_search(&(self.asked as u32)).is_ok();
                self.asked += 1;
                if slot as usize >= self.names.len() {
                    self.names.resize(slot as usize + 1, 0);
                }
                self.names[slot as usize] = name;
                Op::Alloc { id: BufferId(slot), stream: StreamId(0), site: NameId(0), size }
            }
            Event::Free { slot } => Op::Free { id: BufferId(slot), stream: None },
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
    fn times_are_kept_where_they_mean_something() {
        let build = |timed| {
            let mut builder = if timed { Builder::timed() } else { Builder::untimed(1) };
            let slot = builder.alloc(7, 1, 512);
            builder.free(9, slot);
            builder.finish()
        };
        assert_eq!(steps(build(true), true), ["@7", "+1 512", "@9", "-1"]);
        assert_eq!(steps(build(true), false), ["+1 512", "-1"]);
        assert_eq!(steps(build(false), true), ["+1 512", "-1"]);
    }
}
