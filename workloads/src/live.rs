//! What of a source is live at each op: buffers by their requested bytes, sequences by their tokens.
//!
//! No allocator and no device: every op is answered "done", and waits pass at once. Sums are kept for each device and for all together; the
//! peak of a device is the floor under anything that keeps its buffers there. A sequence counts all its tokens, since what a cache would let
//! it share is not known here; of a new one that asks for a chunk, the chunk. A request that failed when it was recorded counts nothing.

use std::rc::Rc;

use rustc_hash::FxHashSet;
use vramlab_sim::kv::TOKEN_BYTES;
use vramlab_sim::op::Op;
use vramlab_sim::report::Level;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, SequenceId};

/// A live buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Requested bytes.
    pub size: u64,
    /// Who asked, if that is known.
    pub site: Rc<str>,
    /// Its request failed when it was recorded: it counts in no sum.
    pub failed: bool,
    device: usize,
}

impl Buffer {
    /// Bytes that count.
    const fn counted(&self) -> u64 {
        if self.failed { 0 } else { self.size }
    }
}

#[derive(Clone, Copy, Debug)]
struct Tokens {
    count: u64,
    device: usize,
}

/// What is live after some op.
#[derive(Debug, Default)]
pub struct Live {
    buffers: Vec<Option<Buffer>>,
    buffer_count: u64,
    sequences: Vec<Option<Tokens>>,
    token_bytes: Option<u64>,
    sites: Sites,
    device: usize,
    devices: Vec<Level>,
    total: Level,
    ops: u64,
    saturated: bool,
    amiss: Option<String>,
}

impl Live {
    /// Live bytes of all devices together, cut at 2^64 − 1.
    pub const fn bytes(&self) -> u64 {
        self.total.current
    }

    /// The most that was ever live on one device, in bytes.
    pub fn device_peak(&self) -> u64 {
        self.devices.iter().map(|level| level.peak).max().unwrap_or(0)
    }

    /// Live buffers.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.iter().flatten()
    }

    /// The live buffer in a slot.
    pub fn buffer(&self, id: BufferId) -> Option<&Buffer> {
        self.buffers.get(id.0 as usize)?.as_ref()
    }

    /// Tokens of a live sequence, in bytes.
    pub fn sequence(&self, seq: SequenceId) -> Option<u64> {
        let tokens = self.sequences.get(seq.0 as usize)?.as_ref()?;
        Some(tokens.count.saturating_mul(self.token_bytes()))
    }

    /// The device whose ops come now.
    pub const fn device(&self) -> usize {
        self.device
    }

    /// Bytes of each live sequence.
    pub fn sequences(&self) -> impl Iterator<Item = u64> {
        let token = self.token_bytes();
        self.sequences.iter().flatten().map(move |tokens| tokens.count.saturating_mul(token))
    }

    /// Bytes of a token: what the first sequence said.
    pub fn token_bytes(&self) -> u64 {
        self.token_bytes.unwrap_or(TOKEN_BYTES)
    }

    /// Ops so far, as the engine counts them.
    pub const fn ops(&self) -> u64 {
        self.ops
    }

    /// Did a sum pass 2^64 − 1, where it is cut?
    pub const fn saturated(&self) -> bool {
        self.saturated
    }

    /// The first op that begins what is live, or ends what is not, if there is one: it is passed over.
    pub fn amiss(&self) -> Option<&str> {
        self.amiss.as_deref()
    }

    fn apply(&mut self, op: &Op, source: &dyn Source) {
        match *op {
            Op::Device { device } => self.device = usize::from(device.0),
            Op::Alloc { id, size, site, .. } => {
                let (site, device) = (self.sites.keep(source.text(site)), self.device);
                let slot = slot(&mut self.buffers, id.0);
                if slot.is_some() {
                    return self.wrong(format!("alloc of buffer {id}, which is live"));
                }
                let buffer = Buffer { size, site, failed: source.failed_when_recorded(), device };
                let counted = buffer.counted();
                *slot = Some(buffer);
                self.buffer_count += 1;
                self.grow(device, counted);
            }
            Op::Free { id, .. } | Op::FreeDeferred { id } => {
                let Some(buffer) = slot(&mut self.buffers, id.0).take() else {
                    return self.wrong(format!("free of buffer {id}, which is not live"));
                };
                self.buffer_count -= 1;
                self.shrink(buffer.device, buffer.counted());
            }
            Op::Realloc { id, size } => {
                let Some(buffer) = slot(&mut self.buffers, id.0) else {
                    return self.wrong(format!("realloc of buffer {id}, which is not live"));
                };
                let (device, old) = (buffer.device, std::mem::replace(&mut buffer.size, size));
                self.grow(device, size.saturating_sub(old));
                self.shrink(device, old.saturating_sub(size));
            }
            Op::KvNew { seq } => {
                let ask = source.kv();
                self.token_bytes.get_or_insert(ask.token_bytes.unwrap_or(TOKEN_BYTES));
                self.begin(seq.0, ask.chunk.map_or(ask.tokens, |chunk| chunk.min(ask.tokens)));
            }
            Op::KvFork { seq, from } => match *slot(&mut self.sequences, from.0) {
                Some(Tokens { count, .. }) => self.begin(seq.0, count),
                None => self.wrong(format!("kv_fork of sequence {}, which is not live", from.0)),
            },
            Op::KvMore { seq } => {
                let more = source.kv().tokens;
                let Some(tokens) = slot(&mut self.sequences, seq.0) else {
                    return self.wrong(format!("kv_more of sequence {}, which is not live", seq.0));
                };
                tokens.count = tokens.count.saturating_add(more);
                let device = tokens.device;
                self.grow(device, more.saturating_mul(self.token_bytes()));
            }
            Op::KvFree { seq } => {
                let Some(tokens) = slot(&mut self.sequences, seq.0).take() else {
                    return self.wrong(format!("kv_free of sequence {}, which is not live", seq.0));
                };
                self.shrink(tokens.device, tokens.count.saturating_mul(self.token_bytes()));
            }
            _ => {}
        }
    }

    fn begin(&mut self, seq: u32, count: u64) {
        let device = self.device;
        let slot = slot(&mut self.sequences, seq);
        if slot.is_some() {
            return self.wrong(format!("sequence {seq} begins, which is live"));
        }
        *slot = Some(Tokens { count, device });
        self.grow(device, count.saturating_mul(self.token_bytes()));
    }

    fn grow(&mut self, device: usize, by: u64) {
        let now = self.total.current.checked_add(by);
        self.saturated |= now.is_none();
        self.total.set(now.unwrap_or(u64::MAX));
        let level = self.level(device);
        level.set(level.current.saturating_add(by));
    }

    fn shrink(&mut self, device: usize, by: u64) {
        self.total.current = self.total.current.saturating_sub(by);
        let level = self.level(device);
        level.current = level.current.saturating_sub(by);
    }

    fn level(&mut self, device: usize) -> &mut Level {
        if device >= self.devices.len() {
            self.devices.resize(device + 1, Level::default());
        }
        &mut self.devices[device]
    }

    fn wrong(&mut self, what: String) {
        let op = self.ops;
        self.amiss.get_or_insert_with(|| format!("op {op}: {what}"));
    }
}

fn slot<T>(slots: &mut Vec<Option<T>>, number: u32) -> &mut Option<T> {
    let index = number as usize;
    if index >= slots.len() {
        slots.resize_with(index + 1, || None);
    }
    &mut slots[index]
}

/// Texts of sites, each kept once, and those of dead buffers not for long: a file may name a new one with every request.
#[derive(Debug, Default)]
struct Sites {
    texts: FxHashSet<Rc<str>>,
    kept_max: usize,
}

impl Sites {
    fn keep(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.texts.get(text) {
            return Rc::clone(known);
        }
        if self.texts.len() >= self.kept_max {
            self.texts.retain(|text| Rc::strong_count(text) > 1);
            self.kept_max = (2 * self.texts.len()).max(1024);
        }
        let text: Rc<str> = text.into();
        self.texts.insert(Rc::clone(&text));
        text
    }
}

/// Calls `see` after each op that has a number, until it says no; gives what is live then.
///
/// # Errors
/// When the source's input is bad.
pub fn walk(
    source: &mut dyn Source,
    mut see: impl FnMut(&Op, &Live, &dyn Source) -> bool,
) -> Result<Live, SourceError> {
    let (mut live, mut now) = (Live::default(), Nanos(0));
    loop {
        match source.next(now, Answered::Done)? {
            Step::End => return Ok(live),
            Step::WaitUntil(time) => now = now.max(time),
            Step::Op(op) => {
                live.apply(&op, source);
                if op.is_setting() {
                    continue;
                }
                live.ops += 1;
                if !see(&op, &live, source) {
                    return Ok(live);
                }
            }
        }
    }
}

/// What [`live_peak`] saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LivePeak {
    /// Highest sum of live request sizes (B), cut at 2^64 − 1.
    pub bytes: u64,
    /// The op at which it was first reached, counted from 0.
    pub op: u64,
    /// Sum of live request sizes at the end (B).
    pub bytes_at_end: u64,
    /// Most buffers live at once.
    pub buffers: u64,
    /// Allocations in all.
    pub allocs: u64,
    /// Ops in all.
    pub ops: u64,
}

/// Walks a source to its end.
///
/// # Errors
/// When the source's input is bad, or an op frees what is not live.
pub fn live_peak(source: &mut dyn Source) -> Result<LivePeak, SourceError> {
    let mut seen = LivePeak::default();
    let live = walk(source, |op, live, _source| {
        seen.allocs += u64::from(matches!(op, Op::Alloc { .. }));
        seen.buffers = seen.buffers.max(live.buffer_count);
        if live.bytes() > seen.bytes {
            (seen.bytes, seen.op) = (live.bytes(), live.ops() - 1);
        }
        live.amiss.is_none()
    })?;
    (seen.bytes_at_end, seen.ops) = (live.bytes(), live.ops());
    match live.amiss {
        Some(what) => Err(SourceError { place: "the source".to_owned(), what }),
        None => Ok(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Rates;
    use crate::registry::WORKLOADS;
    use vramlab_sim::trace::JsonlSource;

    #[test]
    fn every_workload_frees_only_what_is_live() {
        for workload in WORKLOADS {
            let mut source = workload.source("", 0, &Rates::free()).unwrap();
            let seen = live_peak(&mut *source).unwrap_or_else(|e| panic!("{}: {e}", workload.name));
            assert!(seen.bytes > 0 && seen.ops > seen.allocs, "{}: {seen:?}", workload.name);
        }
    }

    fn live(lines: &[&str]) -> Live {
        let text = lines.join("\n");
        walk(&mut JsonlSource::new(text.as_bytes(), "t"), |_, _, _| true).unwrap()
    }

    #[test]
    fn each_device_has_a_peak_of_its_own_and_settings_are_no_ops() {
        let seen = live(&[
            r#"{"op":"alloc","id":1,"size":5}"#,
            r#"{"op":"alloc","id":2,"size":7,"device":3}"#,
            r#"{"op":"free","id":2,"device":3}"#,
            r#"{"op":"alloc","id":3,"size":6,"thread":1}"#,
        ]);
        assert_eq!((seen.bytes(), seen.device_peak(), seen.ops()), (11, 11, 4));
        let seen = live(&[
            r#"{"op":"alloc","id":1,"size":5}"#,
            r#"{"op":"alloc","id":2,"size":7,"device":3}"#,
        ]);
        assert_eq!((seen.bytes(), seen.device_peak()), (12, 7));
    }

    #[test]
    fn a_sequence_counts_its_tokens() {
        let lines = [
            r#"{"op":"kv_new","seq":1,"tokens":20,"chunk":8,"token_bytes":10}"#,
            r#"{"op":"kv_more","seq":1,"tokens":12}"#,
            r#"{"op":"kv_fork","seq":2,"from":1}"#,
            r#"{"op":"kv_free","seq":1}"#,
        ];
        let bytes = |count| live(&lines[..count]).bytes();
        assert_eq!([1, 2, 3, 4].map(bytes), [80, 200, 400, 200]);
        assert_eq!(live(&lines[..3]).sequences().collect::<Vec<_>>(), [200, 200]);
    }
}
