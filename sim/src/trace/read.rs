//! A trace file as a source: streams, and holds only live buffers.

use std::collections::VecDeque;
use std::io::BufRead;

use rustc_hash::{FxHashMap, FxHashSet};

use super::raw::{DIRECTIONS, OPS, RawOp};
use crate::op::{BufferUse, NameId, Op, TouchRange};
use crate::source::{Answered, Source, SourceError, Step};
use crate::units::{BufferId, DeviceId, EventId, Nanos, PoolId, StreamId};

/// Bytes of the longest line that is accepted.
const LINE_BYTES_MAX: u64 = 1 << 24;

/// Reads JSON Lines from anything buffered.
pub struct JsonlSource<R> {
    input: R,
    /// Name of the input, for messages.
    origin: String,
    line: u64,
    text: String,
    queued: VecDeque<Step>,
    device: DeviceId,
    truncated: bool,
    seen_alloc: bool,
    gaps: u64,
    /// Slot of each live id.
    slots: FxHashMap<u64, BufferId>,
    /// Id of each slot.
    names: Vec<u64>,
    unused: Vec<BufferId>,
    /// Ids whose free is deferred: `free_completed` gives the slot back.
    deferred: FxHashSet<u64>,
    uses: Vec<BufferUse>,
    touch: TouchRange,
    texts: Vec<String>,
    text_ids: FxHashMap<String, NameId>,
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
            truncated: false,
            seen_alloc: false,
            gaps: 0,
            slots: FxHashMap::default(),
            names: Vec::new(),
            unused: Vec::new(),
            deferred: FxHashSet::default(),
            uses: Vec::new(),
            touch: TouchRange::default(),
            texts: vec![String::new()],
            text_ids: FxHashMap::default(),
            done: false,
        }
    }

    fn error(&self, what: impl Into<String>) -> SourceError {
        SourceError { place: format!("{}: line {}", self.origin, self.line), what: what.into() }
    }

    fn intern(&mut self, text: &str) -> NameId {
        if let Some(id) = self.text_ids.get(text) {
            return *id;
        }
        let id = NameId(self.texts.len() as u32);
        self.texts.push(text.to_owned());
        self.text_ids.insert(text.to_owned(), id);
        id
    }

    /// A slot for an id that becomes live.
    fn open(&mut self, id: u64) -> Result<BufferId, SourceError> {
        if self.slots.contains_key(&id) {
            return Err(self.error(format!(
                "alloc of buffer {id}, which is live already; expected an id that is not in use"
            )));
        }
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.names[slot.0 as usize] = id;
                slot
            }
            None => {
                self.names.push(id);
                BufferId(self.names.len() as u32 - 1)
            }
        };
        self.slots.insert(id, slot);
        Ok(slot)
    }

    /// The slot of a live id; `Ok(None)` for a gap.
    fn live(&mut self, op: &str, id: u64) -> Result<Option<BufferId>, SourceError> {
        match self.slots.get(&id) {
            Some(slot) => Ok(Some(*slot)),
            None if self.truncated || !self.seen_alloc => {
                self.gaps += 1;
                Ok(None)
            }
            None => Err(self.error(format!(
                "{op} of buffer {id}, which is not live; expected an id of an earlier alloc that was not freed since"
            ))),
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(slot) = self.slots.remove(&id) {
            self.unused.push(slot);
        }
    }

    /// Reads lines until one op (or the end) is queued.
    fn fill(&mut self) -> Result<(), SourceError> {
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
                let raw: RawOp<'_> =
                    serde_json::from_str(&text).map_err(|e| self.error(explain(&e, &text)))?;
                self.parse(&raw)?;
            }
            self.text = text;
        }
        Ok(())
    }

    fn parse(&mut self, raw: &RawOp<'_>) -> Result<(), SourceError> {
        if let Some(version) = raw.vramlab_trace {
            if version != 1 {
                return Err(
                    self.error(format!("vramlab_trace is {version}; this program reads version 1"))
                );
            }
            self.truncated = raw.truncated;
            return Ok(());
        }
        let Some(name) = raw.op.as_deref() else {
            return Err(self.error(format!("no field \"op\"; expected one of {OPS}")));
        };
        let op = self.op(name, raw)?;
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
                let site = raw.site.as_deref().map_or(NameId(0), |s| self.intern(s));
                self.seen_alloc = true;
                Op::Alloc { id: self.open(id)?, stream, site, size }
            }
            "free" => {
                let id = need!(id);
                let Some(slot) = self.live(name, id)? else { return Ok(None) };
                if raw.deferred {
                    self.deferred.insert(id);
                    return Ok(Some(Op::FreeDeferred { id: slot }));
                }
                self.close(id);
                Op::Free { id: slot, stream: raw.stream.map(StreamId) }
            }
            "free_completed" => {
                let id = need!(id);
                if !self.deferred.remove(&id) {
                    return Ok(None); // of a free that was not deferred: it came back at once
                }
                let Some(slot) = self.live(name, id)? else { return Ok(None) };
                self.close(id);
                Op::FreeCompleted { id: slot }
            }
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
                Op::Set { key: self.intern(key), value: self.intern(value) }
            }
            "request" => Op::Request { req: need!(req) },
            "response" => Op::Response { req: need!(req) },
            "mark" => {
                let name = raw.name.as_deref().ok_or_else(|| missing(self, "name"))?;
                Op::Mark { name: self.intern(name) }
            }
            other => return Err(self.error(format!("unknown op {other:?}; expected one of {OPS}"))),
        }))
    }
}

/// serde's message, with what a person can do.
fn explain(error: &serde_json::Error, text: &str) -> String {
    let start: String = text.trim().chars().take(60).collect();
    format!(
        "not an op: {error}; found {start:?}, expected an object such as {{\"op\":\"alloc\",\"id\":1,\"size\":512}}"
    )
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

    fn text(&self, name: NameId) -> &str {
        self.texts.get(name.0 as usize).map_or("", String::as_str)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.names.get(id.0 as usize).copied().unwrap_or(u64::from(id.0))
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(text: &str) -> Result<Vec<Op>, SourceError> {
        let mut source = JsonlSource::new(text.as_bytes(), "t.jsonl");
        let mut ops = Vec::new();
        loop {
            match source.next(Nanos(0), Answered::Done)? {
                Step::Op(op) => ops.push(op),
                Step::WaitUntil(_) => {}
                Step::End => return Ok(ops),
            }
        }
    }

    #[test]
    fn slots_are_used_again_after_a_free() {
        let got = ops("{\"op\":\"alloc\",\"id\":70,\"size\":1}\n{\"op\":\"free\",\"id\":70}\n{\"op\":\"alloc\",\"id\":71,\"size\":2}").expect("reads");
        assert!(matches!(got[2], Op::Alloc { id: BufferId(0), size: 2, .. }), "{got:?}");
    }

    #[test]
    fn frees_before_the_first_alloc_are_gaps_and_later_ones_errors() {
        assert_eq!(ops("{\"op\":\"free\",\"id\":1}").expect("a gap"), []);
        let error = ops("{\"op\":\"alloc\",\"id\":1,\"size\":1}\n{\"op\":\"free\",\"id\":2}")
            .expect_err("an error");
        assert_eq!(error.place, "t.jsonl: line 2");
        assert!(error.what.starts_with("free of buffer 2, which is not live"), "{}", error.what);
    }

    #[test]
    fn bad_lines_name_the_line_and_what_was_expected() {
        for (text, want) in [
            ("{\"op\":\"alloc\",\"id\":1}", "alloc has no field \"size\""),
            (
                "{\"op\":\"alloc\",\"id\":1,\"size\":-5}",
                "invalid value: integer `-5`, expected u64",
            ),
            ("{\"op\":\"alok\"}", "unknown op \"alok\""),
            ("hello", "not an op"),
            ("{\"op\":\"copy\",\"dir\":\"up\",\"bytes\":1}", "expected h2d, d2h, d2d, p2p or disk"),
            ("{\"vramlab_trace\":2}", "this program reads version 1"),
            ("{}", "no field \"op\""),
        ] {
            let error = ops(text).expect_err(text);
            assert_eq!(error.place, "t.jsonl: line 1");
            assert!(error.what.contains(want), "{text}: {}", error.what);
        }
    }
}
