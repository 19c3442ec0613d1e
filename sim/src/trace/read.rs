//! A trace file as a source: streams, and holds only live buffers.

use std::collections::VecDeque;
use std::io::BufRead;

use rustc_hash::{FxHashMap, FxHashSet};

use super::explain::{explain, not_utf8, refused_unit};
use super::raw::{DIRECTIONS, OPS, RawOp};
use crate::op::{BufferUse, NameId, Op, TouchRange};
use crate::source::{Answered, Source, SourceError, Step};
use crate::units::{BufferId, DeviceId, EventId, Nanos, PoolId, StreamId};

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
    /// Ids of the last frees that were not deferred, newest last.
    freed: VecDeque<u64>,
    uses: Vec<BufferUse>,
    touch: TouchRange,
    /// Texts of the op in hand, by [`NameId`]; the first is always empty.
    texts: [String; 3],
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
            freed: VecDeque::new(),
            uses: Vec::new(),
            touch: TouchRange::default(),
            texts: Default::default(),
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

    /// Keeps a text until the next line is read.
    fn keep(&mut self, place: u32, text: &str) -> NameId {
        let kept = &mut self.texts[place as usize];
        kept.clear();
        kept.push_str(text);
        NameId(place)
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

    /// A buffer is free at once.
    fn free(&mut self, id: u64, slot: BufferId, stream: Option<StreamId>) -> Op {
        self.close(id);
        Op::Free { id: slot, stream }
    }

    /// Where a deferred free ends. Without such a free it is the free itself; after one that was not deferred it says nothing new.
    fn complete(&mut self, name: &str, id: u64) -> Result<Option<Op>, SourceError> {
        if !self.slots.contains_key(&id)
            && let Some(at) = self.freed.iter().rposition(|freed| *freed == id)
        {
            self.freed.remove(at);
            return Ok(None);
        }
        let Some(slot) = self.live(name, id)? else { return Ok(None) };
        if !self.deferred.remove(&id) {
            return Ok(Some(self.free(id, slot, None)));
        }
        self.close(id);
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
                let raw: RawOp<'_> =
                    serde_json::from_str(line).map_err(|e| self.error(explain(&e, line)))?;
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
                "size: found -5, expected a whole number from 0 to 2^64-1",
            ),
            ("{\"op\":\"free\",\"id\":1,\"stream\":\"a\"}", "stream: found \"a\", expected"),
            ("[1,2]", "found a list, expected an object such as"),
            ("{\"op\":", "no JSON (EOF while parsing a value, column 6)"),
            ("{\"op\":\"mark\",\"op\":\"mark\"}", "duplicate field `op`"),
            ("{\"vramlab_trace\":1,\"unit\":\"KiB\"}", "unit is \"KiB\"; expected bytes"),
            ("{\"op\":\"alok\"}", "unknown op \"alok\""),
            ("hello", "no JSON"),
            ("{\"op\":\"copy\",\"dir\":\"up\",\"bytes\":1}", "expected h2d, d2h, d2d, p2p or disk"),
            ("{\"vramlab_trace\":2}", "this program reads version 1"),
            ("{}", "no field \"op\""),
        ] {
            let error = ops(text).expect_err(text);
            assert_eq!(error.place, "t.jsonl: line 1");
            assert!(error.what.contains(want), "{text}: {}", error.what);
        }
    }

    /// Files of the design's own form say `free`, and `free_completed` where it ended; a generator may say the latter alone.
    #[test]
    fn a_completion_without_a_deferred_free_frees_what_is_live_and_only_that() {
        let alloc = "{\"op\":\"alloc\",\"id\":1,\"size\":1}\n";
        let done = "{\"op\":\"free_completed\",\"id\":1}\n";
        let got = ops(&format!("{alloc}{done}{alloc}")).expect("a free");
        assert!(matches!(got[1], Op::Free { id: BufferId(0), stream: None }), "{got:?}");
        let free = "{\"op\":\"free\",\"id\":1}\n";
        let other = "{\"op\":\"alloc\",\"id\":2,\"size\":1}\n";
        assert_eq!(ops(&format!("{alloc}{free}{other}{done}")).expect("passed over").len(), 3);
        let error = ops(&format!("{alloc}{free}{done}{done}")).expect_err("none is left");
        assert_eq!(error.place, "t.jsonl: line 4");
        assert!(error.what.starts_with("free_completed of buffer 1, which is not live"));
        let mut source = JsonlSource::new(done.as_bytes(), "t.jsonl");
        assert_eq!(source.next(Nanos(0), Answered::Done), Ok(Step::End));
        assert_eq!(source.gaps(), 1, "before the first alloc it is a gap");
    }

    #[test]
    fn texts_are_kept_for_the_op_in_hand_only() {
        let text: String =
            (0..1000).map(|n| format!("{{\"op\":\"mark\",\"name\":\"step {n}\"}}\n")).collect();
        let mut source = JsonlSource::new(text.as_bytes(), "t.jsonl");
        for n in 0..1000 {
            let Ok(Step::Op(Op::Mark { name })) = source.next(Nanos(0), Answered::Done) else {
                panic!("a mark")
            };
            assert_eq!(source.text(name), format!("step {n}"));
        }
        let kept: usize = source.texts.iter().map(String::capacity).sum();
        assert!(kept < 100, "{kept} bytes of text");
    }

    #[test]
    fn a_byte_order_mark_is_passed_over_and_utf_16_is_named() {
        let line = "{\"op\":\"alloc\",\"id\":1,\"size\":1}";
        assert_eq!(ops(&format!("\u{feff}{line}")).expect("reads").len(), 1);
        let wide: Vec<u8> =
            format!("\u{feff}{line}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [&wide[..], &wide[2..]] {
            let mut source = JsonlSource::new(bytes, "t.jsonl");
            let error = source.next(Nanos(0), Answered::Done).expect_err("UTF-16");
            assert_eq!(error.place, "t.jsonl: line 1");
            assert!(error.what.contains("UTF-16") && error.what.contains("UTF-8"), "{error}");
        }
    }
}
