//! A source's steps, decoded once and held, so that many runs may play them side by side.
//!
//! Only a source whose ops do not depend on answers can be held ([`Source::independent`]), and only one without sequences of a cache: what
//! those ask for is not kept here. Texts of sites, marks and settings are kept once each.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

/// The steps of a source.
#[derive(Debug, Default)]
pub struct Held {
    steps: Box<[Step]>,
    uses: Vec<BufferUse>,
    /// Of the n-th work: where its uses end.
    uses_end: Vec<usize>,
    /// Of the n-th touch.
    touches: Vec<TouchRange>,
    /// By name; number 0 is none.
    texts: Vec<Box<str>>,
    /// The workload's own number of a buffer from this step on, where it changes.
    names: Vec<(usize, BufferId, u64)>,
    gaps: u64,
}

impl Held {
    /// Reads `source` to its end; `None` if it cannot be held, or would take more than `most` bytes.
    ///
    /// # Errors
    /// When the input behind the source is bad.
    pub fn read(source: &mut dyn Source, most: u64) -> Result<Option<Self>, SourceError> {
        if !source.independent() {
            return Ok(None);
        }
        let mut reading = Reading::default();
        loop {
            match source.next(Nanos(0), Answered::Done)? {
                Step::End => break,
                Step::Op(
                    Op::KvNew { .. } | Op::KvMore { .. } | Op::KvFork { .. } | Op::KvFree { .. },
                ) => return Ok(None),
                step => reading.take(step, source),
            }
            if reading.bytes() > most {
                return Ok(None);
            }
        }
        let Reading { steps, mut held, .. } = reading;
        held.steps = steps.into_boxed_slice();
        held.gaps = source.gaps();
        Ok(Some(held))
    }

    /// Bytes that it takes, without the texts.
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.steps) + self.side_bytes()) as u64
    }

    fn side_bytes(&self) -> usize {
        size_of_val(&*self.uses)
            + size_of_val(&*self.uses_end)
            + size_of_val(&*self.touches)
            + size_of_val(&*self.names)
    }

    fn text(&self, name: NameId) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }
}

/// A [`Held`] in the making.
#[derive(Default)]
struct Reading {
    steps: Vec<Step>,
    held: Held,
    known: FxHashMap<Box<str>, NameId>,
    text_bytes: usize,
    /// The number that each slot's buffer has now.
    current: Vec<Option<u64>>,
}

impl Reading {
    fn bytes(&self) -> u64 {
        let steps = self.steps.len() * size_of::<Step>();
        (steps + self.held.side_bytes() + self.text_bytes) as u64
    }

    fn take(&mut self, mut step: Step, source: &dyn Source) {
        if let Step::Op(op) = &mut step {
            match op {
                Op::Alloc { site: name, .. } | Op::Mark { name } => {
                    *name = self.name(*name, source)
                }
                Op::Set { key, value } => {
                    *key = self.name(*key, source);
                    *value = self.name(*value, source);
                }
                Op::Work { .. } => {
                    self.held.uses.extend_from_slice(source.uses());
                    self.held.uses_end.push(self.held.uses.len());
                }
                Op::Touch { .. } => self.held.touches.push(source.touch()),
                _ => {}
            }
            if let Some(id) = buffer(op) {
                self.number(id, source);
            }
            for used in source.uses().iter().filter(|_| matches!(op, Op::Work { .. })) {
                self.number(used.id, source);
            }
        }
        self.steps.push(step);
    }

    /// Our number for the text that `name` has now.
    fn name(&mut self, name: NameId, source: &dyn Source) -> NameId {
        let text = source.text(name);
        if self.held.texts.is_empty() {
            self.held.texts.push("".into());
        }
        if text.is_empty() {
            return NameId(0);
        }
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let name = NameId(self.held.texts.len() as u32);
        self.text_bytes += 2 * (text.len() + size_of::<Box<str>>());
        self.held.texts.push(text.into());
        self.known.insert(text.into(), name);
        name
    }

    fn number(&mut self, id: BufferId, source: &dyn Source) {
        let (slot, number) = (id.0 as usize, source.name(id));
        if self.current.len() <= slot {
            self.current.resize(slot + 1, None);
        }
        if self.current[slot] != Some(number) {
            self.current[slot] = Some(number);
            self.held.names.push((self.steps.len(), id, number));
        }
    }
}

/// The buffer that an op names itself.
fn buffer(op: &Op) -> Option<BufferId> {
    match *op {
        Op::Alloc { id, .. }
        | Op::Free { id, .. }
        | Op::FreeDeferred { id }
        | Op::FreeCompleted { id }
        | Op::Realloc { id, .. }
        | Op::RecordStream { id, .. }
        | Op::Touch { id } => Some(id),
        _ => None,
    }
}

/// Plays a [`Held`].
#[derive(Debug)]
pub struct HeldSource {
    held: Arc<Held>,
    next: usize,
    works: usize,
    touches: usize,
    renamed: usize,
    names: Vec<u64>,
}

impl HeldSource {
    /// From the start.
    pub fn new(held: Arc<Held>) -> Self {
        Self { held, next: 0, works: 0, touches: 0, renamed: 0, names: Vec::new() }
    }

    fn rename(&mut self) {
        while let Some((at, id, number)) = self.held.names.get(self.renamed).copied()
            && at < self.next
        {
            let slot = id.0 as usize;
            if self.names.len() <= slot {
                self.names.resize(slot + 1, 0);
            }
            self.names[slot] = number;
            self.renamed += 1;
        }
    }
}

impl Source for HeldSource {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        let Some(step) = self.held.steps.get(self.next).copied() else { return Ok(Step::End) };
        self.next += 1;
        match step {
            Step::Op(Op::Work { .. }) => self.works += 1,
            Step::Op(Op::Touch { .. }) => self.touches += 1,
            _ => {}
        }
        self.rename();
        Ok(step)
    }

    fn uses(&self) -> &[BufferUse] {
        let end = |n: usize| self.held.uses_end.get(n).copied();
        let Some(last) = self.works.checked_sub(1) else { return &[] };
        let begin = last.checked_sub(1).and_then(end).unwrap_or(0);
        end(last).map_or(&[], |end| &self.held.uses[begin..end])
    }

    fn touch(&self) -> TouchRange {
        let last = self.touches.checked_sub(1);
        last.and_then(|n| self.held.touches.get(n)).copied().unwrap_or_default()
    }

    fn text(&self, name: NameId) -> &str {
        self.held.text(name)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.names.get(id.0 as usize).copied().unwrap_or(u64::from(id.0))
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.held.gaps
    }
}

#[cfg(test)]
mod tests {
    use vramlab_sim::trace::JsonlSource;

    use super::*;

    const TEXT: &str = r#"{"op":"alloc","id":70,"size":100,"site":"a","t":5}
{"op":"alloc","id":71,"size":200,"site":"b"}
{"op":"work","stream":1,"dur":9,"reads":[70],"writes":[71]}
{"op":"touch","id":70,"offset":4,"bytes":8,"write":true}
{"op":"mark","name":"step 1"}
{"op":"free","id":70}
{"op":"alloc","id":72,"size":300,"site":"a","device":1}
{"op":"work","stream":0,"dur":1}
{"op":"free","id":71,"device":0}
"#;

    fn source() -> JsonlSource<&'static [u8]> {
        JsonlSource::new(TEXT.as_bytes(), "t")
    }

    /// A step, and all that can be asked about it.
    fn told(source: &mut dyn Source) -> Option<String> {
        let step = source.next(Nanos(0), Answered::Done).expect("reads");
        let Step::Op(op) = step else {
            return (step != Step::End).then(|| format!("{step:?}"));
        };
        let text = match op {
            Op::Alloc { site: name, .. } | Op::Mark { name } => source.text(name).to_owned(),
            _ => String::new(),
        };
        let uses = matches!(op, Op::Work { .. }).then(|| source.uses().to_vec());
        let touch = matches!(op, Op::Touch { .. }).then(|| source.touch());
        let number = buffer(&op).map(|id| source.name(id));
        Some(format!("{} {text} {uses:?} {touch:?} {number:?}", op.name()))
    }

    #[test]
    fn what_is_held_tells_the_same_as_the_source() {
        let held = Arc::new(Held::read(&mut source(), 1 << 20).expect("reads").expect("held"));
        for _ in 0..2 {
            let (mut first, mut again) = (source(), HeldSource::new(Arc::clone(&held)));
            while let Some(expected) = told(&mut first) {
                assert_eq!(told(&mut again), Some(expected));
            }
            assert_eq!(told(&mut again), None);
        }
        assert_eq!(held.texts.len(), 4, "each text once, and none: {:?}", held.texts);
    }

    #[test]
    fn more_than_the_bytes_allowed_is_not_held() {
        assert!(Held::read(&mut source(), 100).expect("reads").is_none());
    }

    #[test]
    fn sequences_are_not_held() {
        let text = "{\"op\":\"kv_new\",\"seq\":1,\"tokens\":5}\n";
        let mut source = JsonlSource::new(text.as_bytes(), "t");
        assert!(Held::read(&mut source, 1 << 20).expect("reads").is_none());
    }
}
