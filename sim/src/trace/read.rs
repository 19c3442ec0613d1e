//! A trace file as a source: streams, and holds only live buffers.

use std::collections::VecDeque;
use std::io::BufRead;

use rustc_hash::FxHashSet;

use super::explain::{explain, not_utf8, refused_unit};
use super::quick;
use super::raw::{DIRECTIONS, OPS, RawOp};
use super::slots::Slots;
use crate::kv::{KeyRun, NewSequence};
use crate::op::{BufferUse, NameId, Op, TouchRange};
use crate::source::{Answered, Source, SourceError, Step};
use crate::units::{BufferId, DeviceId, EventId, Nanos, PoolId, SequenceId, StreamId};

/// Bytes of the longest line that is accepted.
const LINE_BYTES_MAX: u64 = 1 << 24;
/// Ids of buffers freed last that are remembered, since a `free_completed` may still come for them.
const FREED_KEPT: usize = 4096;
/// UTF-8's byte order mark, which some editors put in front.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads JSON Lines from anything buffered.
pub struct JsonlSource<R> {
    input: R,
    /// Name of the input, for messages.
    origin: String,
    line: u64,
    text: String,
    queued: VecDeque<Step>,
    device: DeviceId,
    thread: u32,
    truncated: bool,
    gaps: u64,
    buffers: Slots,
    sequences: Slots,
    /// Ids whose free is deferred: `free_completed` gives the slot back.
    deferred: FxHashSet<u64>,
    /// Ids of the last frees that were not deferred, newest last.
    freed: VecDeque<u64>,
    uses: Vec<BufferUse>,
    touch: TouchRange,
    /// Texts of the op in hand, by [`NameId`]; the first is always empty.
    texts: [String; 3],
    /// What the last op of a sequence asks for, but for its keys.
    kv: NewSequence<'static>,
    keys: Vec<KeyRun>,
    done: bool,
}

impl<R: BufRead> JsonlSource<R> {
    /// Reads from `input`; `origin` names it in messages.
    pub fn new(input: R, origin: impl Into<String>) -> Self {
        Self {
            input,
            origin: origin.into(),
            line: 0,
            text: String::new(),
            queued: VecDeque::new(),
            device: DeviceId(0),
            thread: 0,
            truncated: false,
            gaps: 0,
            buffers: Slots::new("buffer", "alloc"),
            sequences: Slots::new("sequence", "kv_new"),
            deferred: FxHashSet::default(),
            freed: VecDeque::new(),
            uses: Vec::new(),
            touch: TouchRange::default(),
            texts: Default::default(),
            kv: NewSequence::default(),
            keys: Vec::new(),
            done: false,
        }
    }

    fn error(&self, what: impl Into<String>) -> SourceError {
        SourceError { place: format!("{}: line {}", self.origin, self.line), what: what.into() }
    }

    /// Number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Bytes that the kept texts take.
    #[cfg(test)]
    pub(super) fn kept_text(&self) -> usize {
        self.texts.iter().map(String::capacity).sum()
    }

    /// Keeps a text until the next line is read.
    fn keep(&mut self, place: u32, text: &str) -> NameId {
        let kept = &mut self.texts[place as usize];
        kept.clear();
        kept.push_str(text);
        NameId(place)
    }

    /// The slot of a live buffer; `Ok(None)` for a gap.
    fn live(&mut self, op: &str, id: u64) -> Result<Option<BufferId>, SourceError> {
        let slot = self.buffers.live(op, id, self.truncated).map_err(|what| self.error(what))?;
        self.gaps += u64::from(slot.is_none());
        Ok(slot.map(BufferId))
    }

    /// The slot of a live sequence; `Ok(None)` for a gap.
    fn live_sequence(&mut self, op: &str, id: u64) -> Result<Option<SequenceId>, SourceError> {
        let slot = self.sequences.live(op, id, self.truncated).map_err(|what| self.error(what))?;
        self.gaps += u64::from(slot.is_none());
        Ok(slot.map(SequenceId))
    }

    /// A slot for a sequence that becomes live.
    fn begin(&mut self, op: &str, id: u64) -> Result<SequenceId, SourceError> {
        self.sequences.open(op, id).map(SequenceId).map_err(|what| self.error(what))
    }

    /// A buffer is free at once.
    fn free(&mut self, id: u64, slot: BufferId, stream: Option<StreamId>) -> Op {
        self.buffers.close(id);
        Op::Free { id: slot, stream }
    }

    /// Where a deferred free ends. Without such a free it is the free itself; after one that was not deferred it says nothing new.
    fn complete(&mut self, name: &str, id: u64) -> Result<Option<Op>, SourceError> {
        if self.buffers.get(id).is_none()
            && let Some(at) = self.freed.iter().rposition(|freed| *freed == id)
        {
            self.freed.remove(at);
            return Ok(None);
        }
        let Some(slot) = self.live(name, id)? else { return Ok(None) };
        if !self.deferred.remove(&id) {
            return Ok(Some(self.free(id, slot, None)));
        }
        self.buffers.close(id);
        Ok(Some(Op::FreeCompleted { id: slot }))
    }

    /// Reads lines until one op (or the end) is queued.
    fn fill(&mut self) -> Result<(), SourceError> {
        if self.line == 0 {
            self.check_encoding()?;
        }
        while self.queued.is_empty() {
            let mut text = std::mem::take(&mut self.text);
            text.clear();
            let read = std::io::Read::take(&mut self.input, LINE_BYTES_MAX).read_line(&mut text);
            self.line += 1;
            let read =
                read.map_err(|e| self.error(format!("cannot be read as UTF-8 text: {e}")))?;
            if read == 0 {
                self.queued.push_back(Step::End);
                self.done = true;
            } else if read as u64 == LINE_BYTES_MAX {
                return Err(self.error(format!(
                    "a line of over {LINE_BYTES_MAX} bytes; expected one op a line"
                )));
            } else if !text.trim().is_empty() {
                let line = text.trim_start_matches(BYTE_ORDER_MARK);
                let raw: RawOp<'_> = match quick::read(line) {
                    Some(raw) => raw,
                    None => {
                        serde_json::from_str(line).map_err(|e| self.error(explain(&e, line)))?
                    }
                };
                self.parse(&raw, line)?;
            }
            self.text = text;
        }
        Ok(())
    }

    /// Text of another encoding is told by its first bytes.
    fn check_encoding(&mut self) -> Result<(), SourceError> {
        let start = match self.input.fill_buf() {
            Ok(start) => not_utf8(start),
            Err(error) => Some(error.to_string()),
        };
        self.line = 1;
        match start {
            Some(what) => Err(self.error(what)),
            None => {
                self.line = 0;
                Ok(())
            }
        }
    }

    fn parse(&mut self, raw: &RawOp<'_>, line: &str) -> Result<(), SourceError> {
        if let Some(version) = raw.vramlab_trace {
            if version != 1 {
                return Err(
                    self.error(format!("vramlab_trace is {version}; this program reads version 1"))
                );
            }
            if let Some(what) = refused_unit(line) {
                return Err(self.error(what));
            }
            self.truncated = raw.truncated;
            return Ok(());
        }
        let Some(name) = raw.op.as_deref() else {
            return Err(self.error(format!("no field \"op\"; expected one of {OPS}")));
        };
        let op = self.op(name, raw)?;
        if raw.thread != self.thread {
            self.thread = raw.thread;
            self.queued.push_back(Step::Op(Op::Thread { thread: self.thread }));
        }
        if let Some(t) = raw.t {
            self.queued.push_back(Step::WaitUntil(Nanos(t)));
        }
        if let Some(op) = op {
            if raw.device != self.device.0 {
                self.device = DeviceId(raw.device);
                self.queued.push_back(Step::Op(Op::Device { device: self.device }));
            }
            self.queued.push_back(Step::Op(op));
        }
        Ok(())
    }

    fn op(&mut self, name: &str, raw: &RawOp<'_>) -> Result<Option<Op>, SourceError> {
        let missing = |this: &Self, field: &str| {
            this.error(format!("{name} has no field {field:?}, which it needs"))
        };
        macro_rules! need {
            ($field:ident) => {
                raw.$field.ok_or_else(|| missing(self, stringify!($field)))?
            };
        }
        let stream = StreamId(raw.stream.unwrap_or(0));
        Ok(Some(match name {
            "alloc" => {
                let (id, size) = (need!(id), need!(size));
                let site = raw.site.as_deref().map_or(NameId(0), |s| self.keep(1, s));
                let slot = self.buffers.open(name, id).map_err(|what| self.error(what))?;
                Op::Alloc { id: BufferId(slot), stream, site, size }
            }
            "free" => {
                let id = need!(id);
                let Some(slot) = self.live(name, id)? else { return Ok(None) };
                if raw.deferred {
                    self.deferred.insert(id);
                    return Ok(Some(Op::FreeDeferred { id: slot }));
                }
                if self.freed.len() == FREED_KEPT {
                    self.freed.pop_front();
                }
                self.freed.push_back(id);
                self.free(id, slot, raw.stream.map(StreamId))
            }
            "free_completed" => return self.complete(name, need!(id)),
            "realloc" | "record_stream" | "touch" => {
                let id = need!(id);
                let Some(slot) = self.live(name, id)? else { return Ok(None) };
                match name {
                    "realloc" => Op::Realloc { id: slot, size: need!(size) },
                    "record_stream" => {
                        Op::RecordStream { id: slot, stream: StreamId(need!(stream)) }
                    }
                    _ => {
                        let by_host = match raw.by.as_deref() {
                            None | Some("device") => false,
                            Some("host") => true,
                            Some(other) => {
                                return Err(
                                    self.error(format!("by is {other:?}; expected device or host"))
                                );
                            }
                        };
                        self.touch = TouchRange {
                            offset: raw.offset,
                            bytes: raw.bytes.unwrap_or(0),
                            write: raw.write,
                            by_host,
                            stream: StreamId(raw.stream.unwrap_or_default()),
                        };
                        Op::Touch { id: slot }
                    }
                }
            }
            "work" | "use" => {
                self.uses.clear();
                let reads =
                    raw.reads.iter().chain(if name == "use" { raw.id.as_ref() } else { None });
                let all: Vec<(u64, bool)> = reads
                    .map(|id| (*id, false))
                    .chain(raw.writes.iter().map(|id| (*id, true)))
                    .collect();
                for (id, write) in all {
                    if let Some(slot) = self.live(name, id)? {
                        self.uses.push(BufferUse { id: slot, write });
                    }
                }
                Op::Work { stream, duration: raw.dur.unwrap_or(0) }
            }
            "copy" => {
                let text = raw.dir.as_deref().ok_or_else(|| missing(self, "dir"))?;
                let Some((_, direction)) = DIRECTIONS.iter().find(|(name, _)| *name == text) else {
                    return Err(
                        self.error(format!("dir is {text:?}; expected h2d, d2h, d2d, p2p or disk"))
                    );
                };
                Op::Copy { stream, direction: *direction, bytes: need!(bytes) }
            }
            "event" => Op::Event { event: EventId(need!(event)), stream },
            "wait" => Op::Wait { event: EventId(need!(event)), stream },
            "sync" => Op::Sync { stream: raw.stream.map(StreamId) },
            "empty_cache" => Op::EmptyCache,
            "trim" => Op::Trim { keep: raw.keep.unwrap_or(0) },
            "pool_begin" => Op::PoolBegin { pool: PoolId(need!(pool)), stream },
            "pool_end" => Op::PoolEnd { pool: PoolId(need!(pool)) },
            "pool_release" => Op::PoolRelease { pool: PoolId(need!(pool)) },
            "capture_begin" => Op::CaptureBegin { stream },
            "capture_end" => Op::CaptureEnd { stream },
            "set" => {
                let (Some(key), Some(value)) = (raw.key.as_deref(), raw.value.as_deref()) else {
                    return Err(missing(self, "key\" or \"value"));
                };
                Op::Set { key: self.keep(1, key), value: self.keep(2, value) }
            }
            "kv_new" | "kv_more" => {
                let (id, tokens) = (need!(seq), need!(tokens));
                let slot = if name == "kv_new" {
                    Some(self.begin(name, id)?)
                } else {
                    self.live_sequence(name, id)?
                };
                let Some(seq) = slot else { return Ok(None) };
                self.keys.clear();
                self.keys.extend(raw.keys.iter().map(|run| run.get()));
                self.kv = NewSequence {
                    tokens,
                    keys: &[],
                    chunk: raw.chunk,
                    whole: raw.whole,
                    headroom: raw.headroom,
                    watermark: raw.watermark,
                    waits: raw.waits,
                    token_bytes: raw.token_bytes,
                    layers: raw.layers,
                    longest: raw.longest,
                };
                if name == "kv_new" { Op::KvNew { seq } } else { Op::KvMore { seq } }
            }
            "kv_fork" => {
                let (id, parent) = (need!(seq), need!(from));
                let Some(from) = self.live_sequence(name, parent)? else { return Ok(None) };
                Op::KvFork { seq: self.begin(name, id)?, from }
            }
            "kv_free" => {
                let id = need!(seq);
                let Some(seq) = self.live_sequence(name, id)? else { return Ok(None) };
                self.sequences.close(id);
                Op::KvFree { seq }
            }
            "request" => Op::Request { req: need!(req) },
            "response" => Op::Response { req: need!(req) },
            "mark" => {
                let name = raw.name.as_deref().ok_or_else(|| missing(self, "name"))?;
                Op::Mark { name: self.keep(1, name) }
            }
            other => return Err(self.error(format!("unknown op {other:?}; expected one of {OPS}"))),
        }))
    }
}

impl<R: BufRead> Source for JsonlSource<R> {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        if self.done && self.queued.is_empty() {
            return Ok(Step::End);
        }
        self.fill()?;
        Ok(self.queued.pop_front().unwrap_or(Step::End))
    }

    fn uses(&self) -> &[BufferUse] {
        &self.uses
    }

    fn touch(&self) -> TouchRange {
        self.touch
    }

    fn kv(&self) -> NewSequence<'_> {
        NewSequence { keys: &self.keys, ..self.kv }
    }

    fn text(&self, name: NameId) -> &str {
        self.texts.get(name.0 as usize).map_or("", String::as_str)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.buffers.name(id.0)
    }

    fn sequence(&self, seq: SequenceId) -> u64 {
        self.sequences.name(seq.0)
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.gaps
    }
}
