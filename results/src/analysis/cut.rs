//! A part of an input as an input: what is live before it is asked for first, then its ops follow as they are.
//!
//! | rule | what it says |
//! |---|---|
//! | `live` | what is live before the first op is asked for in order of its slots, on its device and stream, in its private pool, with its site; buffers whose free is deferred are dropped again so |
//! | `order` | where each lies is not kept: a strategy places it anew, as if nothing had been freed before |
//! | `times` | times count from the part's beginning |
//! | `sequences` | a part that begins while sequences are live is refused: what they share is not known without their texts |

use std::collections::{BTreeMap, VecDeque};

use vramlab_sim::kv::NewSequence;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, DeviceId, Nanos, PoolId, SequenceId, StreamId};

use crate::failure::Failure;

/// Ops `from` up to `to`, that included, of a source.
pub struct Cut<'a> {
    inner: Box<dyn Source + 'a>,
    to: u64,
    /// The number of the inner source's next op.
    next: u64,
    before: VecDeque<(Op, String)>,
    /// The site of the op that was yielded last, while `before` lasts.
    site: Option<String>,
    begun_at: u64,
    ended: bool,
}

#[derive(Clone)]
struct Live {
    device: DeviceId,
    stream: StreamId,
    pool: Option<PoolId>,
    size: u64,
    site: String,
    deferred: bool,
    also_on: Vec<StreamId>,
}

impl<'a> Cut<'a> {
    /// Walks to op `from`.
    ///
    /// # Errors
    /// A bad input, or rule `sequences`.
    pub fn new(inner: Box<dyn Source + 'a>, from: u64, to: u64) -> Result<Self, Failure> {
        let mut cut = Self {
            inner,
            to,
            next: 0,
            before: VecDeque::new(),
            site: None,
            begun_at: 0,
            ended: false,
        };
        let mut way = Way::default();
        while cut.next < from {
            match cut.inner.next(Nanos(cut.begun_at), Answered::Done).map_err(Failure::input)? {
                Step::End => {
                    cut.ended = true;
                    break;
                }
                Step::WaitUntil(time) => cut.begun_at = cut.begun_at.max(time.0),
                Step::Op(op) => {
                    way.take(&op, &*cut.inner);
                    cut.next += u64::from(!op.is_setting());
                }
            }
        }
        if way.sequences > 0 {
            return Err(Failure::usage(format!(
                "op {from} is while {} sequences of a cache are live, and a part cannot begin there; begin at op 0",
                way.sequences
            )));
        }
        cut.before = way.ops();
        Ok(cut)
    }
}

/// What is live on the way to the beginning.
#[derive(Default)]
struct Way {
    device: DeviceId,
    thread: u32,
    buffers: BTreeMap<u32, Live>,
    pools: BTreeMap<StreamId, PoolId>,
    sequences: u64,
}

impl Way {
    fn take(&mut self, op: &Op, source: &dyn Source) {
        match *op {
            Op::Device { device } => self.device = device,
            Op::Thread { thread } => self.thread = thread,
            Op::PoolBegin { pool, stream } => drop(self.pools.insert(stream, pool)),
            Op::PoolEnd { pool } => self.pools.retain(|_, known| *known != pool),
            Op::Alloc { id, stream, site, size } => {
                let (device, pool) = (self.device, self.pools.get(&stream).copied());
                let (site, also_on) = (source.text(site).to_owned(), Vec::new());
                let live = Live { device, stream, pool, size, site, deferred: false, also_on };
                self.buffers.insert(id.0, live);
            }
            Op::Free { id, .. } | Op::FreeCompleted { id } => drop(self.buffers.remove(&id.0)),
            Op::FreeDeferred { id } => {
                if let Some(live) = self.buffers.get_mut(&id.0) {
                    live.deferred = true;
                }
            }
            Op::Realloc { id, size } => {
                if let Some(live) = self.buffers.get_mut(&id.0) {
                    live.size = size;
                }
            }
            Op::RecordStream { id, stream } => {
                if let Some(live) = self.buffers.get_mut(&id.0) {
                    live.also_on.push(stream);
                }
            }
            Op::KvNew { .. } | Op::KvFork { .. } => self.sequences += 1,
            Op::KvFree { .. } => self.sequences = self.sequences.saturating_sub(1),
            _ => {}
        }
    }

    /// The ops that make it live, and the sites of its requests.
    fn ops(self) -> VecDeque<(Op, String)> {
        let plain = |op| (op, String::new());
        let mut ops = VecDeque::new();
        let mut device = DeviceId(0);
        for (id, live) in self.buffers {
            if live.device != device {
                device = live.device;
                ops.push_back(plain(Op::Device { device }));
            }
            let Live { stream, size, pool, site, .. } = live;
            let id = BufferId(id);
            let begin = pool.map(|pool| Op::PoolBegin { pool, stream });
            ops.extend(begin.map(plain));
            ops.push_back((Op::Alloc { id, stream, site: NameId(1), size }, site));
            ops.extend(pool.map(|pool| plain(Op::PoolEnd { pool })));
            for stream in live.also_on {
                ops.push_back(plain(Op::RecordStream { id, stream }));
            }
            if live.deferred {
                ops.push_back(plain(Op::FreeDeferred { id }));
            }
        }
        if device != self.device {
            ops.push_back(plain(Op::Device { device: self.device }));
        }
        if self.thread != 0 {
            ops.push_back(plain(Op::Thread { thread: self.thread }));
        }
        let pools = self.pools.into_iter();
        ops.extend(pools.map(|(stream, pool)| plain(Op::PoolBegin { pool, stream })));
        ops
    }
}

impl Source for Cut<'_> {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        if let Some((op, site)) = self.before.pop_front() {
            self.site = Some(site);
            return Ok(Step::Op(op));
        }
        self.site = None;
        if self.ended || self.next > self.to {
            return Ok(Step::End);
        }
        let step = self.inner.next(Nanos(now.0.saturating_add(self.begun_at)), last)?;
        match step {
            Step::Op(op) => self.next += u64::from(!op.is_setting()),
            Step::WaitUntil(time) => {
                return Ok(Step::WaitUntil(Nanos(time.0.saturating_sub(self.begun_at))));
            }
            Step::End => self.ended = true,
        }
        Ok(step)
    }

    fn uses(&self) -> &[BufferUse] {
        self.inner.uses()
    }

    fn touch(&self) -> TouchRange {
        self.inner.touch()
    }

    fn failed_when_recorded(&self) -> bool {
        self.site.is_none() && self.inner.failed_when_recorded()
    }

    fn kv(&self) -> NewSequence<'_> {
        self.inner.kv()
    }

    fn text(&self, name: NameId) -> &str {
        match &self.site {
            Some(site) => site,
            None => self.inner.text(name),
        }
    }

    fn name(&self, id: BufferId) -> u64 {
        self.inner.name(id)
    }

    fn sequence(&self, seq: SequenceId) -> u64 {
        self.inner.sequence(seq)
    }

    fn independent(&self) -> bool {
        self.inner.independent()
    }

    fn gaps(&self) -> u64 {
        self.inner.gaps()
    }
}

#[cfg(test)]
mod tests {
    use vramlab_sim::trace::{JsonlSource, JsonlWriter};

    use super::*;

    const WHOLE: [&str; 7] = [
        r#"{"op":"alloc","id":1,"size":100,"site":"a"}"#,
        r#"{"op":"alloc","id":2,"size":50,"stream":4,"site":"b"}"#,
        r#"{"op":"realloc","id":1,"size":700}"#,
        r#"{"op":"free","id":2,"deferred":true}"#,
        r#"{"op":"alloc","id":3,"size":5,"t":90,"site":"c"}"#,
        r#"{"op":"free_completed","id":2}"#,
        r#"{"op":"free","id":1}"#,
    ];

    fn written(from: u64, to: u64) -> Vec<String> {
        let text = WHOLE.join("\n");
        let source = JsonlSource::new(text.as_bytes(), "t");
        let mut cut = Cut::new(Box::new(source), from, to).expect("can be cut");
        let mut out = Vec::new();
        let mut writer = JsonlWriter::new(&mut out, "t").expect("writes");
        loop {
            let step = cut.next(Nanos(0), Answered::Done).expect("reads");
            writer.step(&step, &cut).expect("writes");
            if step == Step::End {
                break;
            }
        }
        let text = String::from_utf8(out).expect("UTF-8");
        text.lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn the_whole_is_itself() {
        assert_eq!(written(0, 99), WHOLE);
        assert_eq!(written(0, 2), WHOLE[..3]);
    }

    #[test]
    fn what_is_live_before_a_part_is_asked_for_first() {
        let want = [
            r#"{"op":"alloc","id":1,"size":700,"site":"a"}"#,
            r#"{"op":"alloc","id":2,"size":50,"stream":4,"site":"b"}"#,
            r#"{"op":"free","id":2,"deferred":true}"#,
            r#"{"op":"free_completed","id":2}"#,
            r#"{"op":"free","id":1}"#,
        ];
        let live = [want[0], want[1], want[2], r#"{"op":"alloc","id":3,"size":5,"site":"c"}"#];
        assert_eq!(written(5, 99), [&live[..], &want[3..]].concat());
        assert_eq!(written(3, 3), [want[0], want[1], want[2]]);
    }
}
