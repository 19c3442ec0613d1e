//! The sink of the pickle reader: trace entries, stack frames and stacks are taken out of the stream as they end.

use std::collections::HashMap;

use super::alike::Alike;
use super::budget::Budget;
use super::columns::{Action, Entry, StackId, TagId, Trace};
use super::draft::{self, Draft, Mismatch};
use super::model::{Stacks, Tag};
use super::words as word;
use crate::readers::pickle::{Heap, Refusal, Seed, Sink, StrId, Value, View};

/// Something that the collector keeps, as a handle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// Row of [`Collector::trace`].
    Entry(u32),
    /// Number of a frame.
    Frame(u32),
    /// Slot of a stack: what the list is now, which may still grow.
    Stack(u32),
}

impl Object {
    fn handle(self) -> u64 {
        match self {
            Object::Entry(row) => u64::from(row) << 2,
            Object::Frame(frame) => u64::from(frame) << 2 | 1,
            Object::Stack(slot) => u64::from(slot) << 2 | 2,
        }
    }

    #[inline]
    pub(super) fn of(handle: u64) -> Object {
        let index = (handle >> 2) as u32;
        match handle & 3 {
            0 => Object::Entry(index),
            1 => Object::Frame(index),
            _ => Object::Stack(index),
        }
    }
}

/// What a stack's slot holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    /// A finished stack.
    Stack(StackId),
    /// A list of the heap, since the stack grew after it was taken.
    Open(Value),
}

/// From so many rows on, their number in the whole file is guessed.
const ROWS_TO_GUESS: u64 = 2000;
/// Slots with this bit hold an index into the open lists.
const OPEN: u32 = 1 << 31;

/// Rows, stacks and texts collected so far.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Entries of all devices in the order in which they ended.
    pub(super) trace: Trace,
    pub(super) tags: Vec<Tag>,
    tag_numbers: HashMap<Tag, u32>,
    last_tag: u32,
    pub(super) stacks: Stacks,
    seed: Seed,
    slots: Vec<u32>,
    open: Vec<Value>,
    /// Names of unknown actions, by number.
    pub(super) unknown: Vec<StrId>,
    scratch: Vec<u32>,
    /// Kinds of entries that look alike, by number.
    pub(super) shapes: Vec<Alike>,
    /// How often objects may be read once the whole value is there.
    pub(super) budget: Budget,
}

impl Collector {
    /// Number of rows, frames or slots that handles can tell apart.
    const OBJECTS_MAX: usize = (OPEN - 1) as usize;
    /// Kinds of entry worth remembering; files have one or two.
    const SHAPES_MAX: usize = 256;

    #[inline]
    pub(super) fn tag_number(&mut self, tag: Tag) -> TagId {
        if self.tags.get(self.last_tag as usize) != Some(&tag) {
            let next = self.tags.len() as u32;
            self.last_tag = *self.tag_numbers.entry(tag).or_insert(next);
            if self.last_tag == next {
                self.tags.push(tag);
            }
        }
        TagId(self.last_tag)
    }

    #[inline]
    pub(super) fn action(&mut self, name: StrId) -> Action {
        match Action::KNOWN.get(name.0 as usize) {
            Some(action) => *action,
            None => self.unknown_action(name),
        }
    }

    #[cold]
    fn unknown_action(&mut self, name: StrId) -> Action {
        let known = self.unknown.iter().position(|old| *old == name);
        let index = known.unwrap_or(self.unknown.len()).min(usize::from(u8::MAX));
        if index == self.unknown.len() {
            self.unknown.push(name);
        }
        Action::Unknown(index as u8)
    }

    /// Adds a row.
    #[inline]
    pub(super) fn push_entry(&mut self, draft: &Draft) -> Result<u32, Mismatch> {
        let entry = self.entry(draft)?;
        let row = self.trace.len() as u32;
        self.trace.push(&entry);
        Ok(row)
    }

    #[inline]
    fn entry(&mut self, draft: &Draft) -> Result<Entry, Mismatch> {
        let tag = self.tag_number(draft.tag());
        draft.finish(tag, |name| self.action(name))
    }

    /// The number of a frame.
    pub(super) fn frame(&mut self, filename: StrId, line: i32, name: StrId) -> Option<u32> {
        let triple = [filename.0, line.cast_unsigned(), name.0];
        let hash = self.seed.words(triple.iter().map(|part| u64::from(*part)));
        self.stacks.frames.intern(&triple, hash).map(|(frame, _)| frame)
    }

    /// The number of a stack.
    pub(super) fn stack(&mut self, frames: &[u32]) -> Option<StackId> {
        let hash = self.seed.words(frames.iter().map(|frame| u64::from(*frame)));
        self.stacks.stacks.intern(frames, hash).map(|(stack, _)| StackId(stack))
    }

    /// A new slot for a finished stack.
    pub(super) fn new_slot(&mut self, stack: StackId) -> Option<u32> {
        if self.slots.len() >= Self::OBJECTS_MAX || stack.0 & OPEN != 0 {
            return None;
        }
        self.slots.push(stack.0);
        Some(self.slots.len() as u32 - 1)
    }

    pub(super) fn slot(&self, slot: u32) -> Option<Slot> {
        let held = *self.slots.get(slot as usize)?;
        match held & OPEN {
            0 => Some(Slot::Stack(StackId(held))),
            _ => self.open.get((held & !OPEN) as usize).copied().map(Slot::Open),
        }
    }

    /// Says what an open slot came to in the end.
    pub(super) fn close_slot(&mut self, slot: u32, stack: StackId) {
        if let Some(held) = self.slots.get_mut(slot as usize) {
            *held = stack.0;
        }
    }

    /// Slots that are open still.
    pub(super) fn open_slots(&self) -> Vec<(u32, Value)> {
        let slots = 0..self.slots.len() as u32;
        let open = slots.filter_map(|slot| match self.slot(slot) {
            Some(Slot::Open(list)) => Some((slot, list)),
            _ => None,
        });
        if self.open.is_empty() { Vec::new() } else { open.collect() }
    }

    /// The stack of a `frames` value as far as it needs no closer look: `Some(None)` is an empty list.
    #[inline]
    pub(super) fn easy_stack(heap: &Heap, value: Value) -> Option<Option<StackId>> {
        let value = heap.resolve(value);
        if let Some(handle) = value.as_taken() {
            return match Object::of(handle) {
                Object::Stack(slot) => Some(Some(StackId(slot))),
                _ => None,
            };
        }
        match heap.view(value) {
            View::List([]) | View::None => Some(None),
            _ => None,
        }
    }

    #[inline]
    fn take_entry(&mut self, heap: &Heap, items: &[Value]) -> Option<u32> {
        let mut draft = Draft::default();
        let (pairs, _) = items.as_chunks::<2>();
        for [key, value] in pairs {
            Collector::draft_one(&mut draft, heap, key.as_str()?, *value)?;
        }
        self.take_draft(&draft)
    }

    /// One key of an entry, if it needs no closer look.
    #[inline]
    pub(super) fn draft_one(
        draft: &mut Draft,
        heap: &Heap,
        key: StrId,
        value: Value,
    ) -> Option<()> {
        if key == word::FRAMES {
            draft.stack = Collector::easy_stack(heap, value)?;
            return Some(());
        }
        draft.set(heap, key, value).ok()
    }

    /// Adds a row that is known piece by piece.
    #[inline]
    pub(super) fn push_plain(
        &mut self,
        action: Action,
        addr: u64,
        size: u64,
        time_us: Option<u64>,
        stack: Option<StackId>,
        tag: u32,
    ) -> Option<u32> {
        let row = self.trace.len();
        if row >= Self::OBJECTS_MAX {
            return None;
        }
        let (addr, tag) = (Some(addr), TagId(tag));
        self.trace.push(&Entry { action, addr, size, time_us, stack, tag, device_free: None });
        Some(row as u32)
    }

    #[inline]
    pub(super) fn take_draft(&mut self, draft: &Draft) -> Option<u32> {
        if self.trace.len() >= Self::OBJECTS_MAX {
            return None;
        }
        self.push_entry(draft).ok()
    }

    fn take_frame(&mut self, heap: &Heap, items: &[Value]) -> Option<u32> {
        let (mut filename, mut line, mut name) = (None, Some(0), None);
        let (pairs, _) = items.as_chunks::<2>();
        for [key, value] in pairs {
            match key.as_str()? {
                word::FILENAME => filename = value.as_str(),
                word::LINE => line = draft::line(heap, *value),
                word::NAME => name = value.as_str(),
                _ => {}
            }
        }
        self.frame(filename?, line?, name?).filter(|frame| *frame < OPEN)
    }

    fn more_of_entry(&mut self, heap: &Heap, row: u32, items: &[Value]) -> Refusal {
        let refused = |mismatch: Mismatch| {
            let key = heap.strings().get(mismatch.key);
            let found = match mismatch.found {
                Some(value) => format!("{} for {key} of a trace entry", heap.describe(value)),
                None => format!("a trace entry without {key}"),
            };
            (found, mismatch.expected.to_owned())
        };
        let Some(entry) = self.trace.get(row as usize) else { return Ok(()) };
        let action = match entry.action {
            Action::Unknown(index) => self.unknown.get(usize::from(index)).copied(),
            known => Action::KNOWN.iter().position(|a| *a == known).map(|at| StrId(at as u32)),
        };
        let tag = self.tags.get(entry.tag.0 as usize).copied();
        let (Some(action), Some(tag)) = (action, tag) else { return Ok(()) };
        let mut draft = Draft::of(&entry, action, &tag);
        let (pairs, _) = items.as_chunks::<2>();
        for [key, value] in pairs {
            let Some(key) = key.as_str() else { continue };
            if key == word::FRAMES {
                draft.stack = Collector::easy_stack(heap, *value).ok_or_else(|| {
                    (heap.describe(*value), "a list of stack frames for frames".to_owned())
                })?;
            } else {
                draft.set(heap, key, *value).map_err(refused)?;
            }
        }
        let entry = self.entry(&draft).map_err(refused)?;
        self.trace.set(row as usize, &entry);
        Ok(())
    }
}

impl Sink for Collector {
    #[inline]
    fn take_dict(&mut self, heap: &Heap, items: &[Value]) -> Option<u64> {
        let (pairs, _) = items.as_chunks::<2>();
        let first = pairs.first().and_then(|[key, _]| key.as_str());
        let has =
            |word| first == Some(word) || pairs.iter().any(|[key, _]| key.as_str() == Some(word));
        if has(word::ACTION) {
            return self.take_entry(heap, items).map(|row| Object::Entry(row).handle());
        }
        if has(word::FILENAME) {
            return self.take_frame(heap, items).map(|frame| Object::Frame(frame).handle());
        }
        None
    }

    fn expect(&mut self, done: u64, total: u64) {
        let rows = self.trace.len() as u64;
        if rows > ROWS_TO_GUESS && done > 0 {
            let all = u128::from(rows) * u128::from(total) / u128::from(done);
            self.trace.expect(usize::try_from(all).unwrap_or(usize::MAX));
        }
    }

    fn learn(&mut self, _: &Heap, keys: &[Value]) -> Option<u32> {
        let keys: Option<Vec<StrId>> = keys.iter().map(|key| key.as_str()).collect();
        let keys = keys.filter(|keys| keys.contains(&word::ACTION))?;
        if self.shapes.len() >= Self::SHAPES_MAX {
            return None;
        }
        self.shapes.push(Alike::new(keys));
        Some(self.shapes.len() as u32 - 1)
    }

    #[inline]
    fn take_again(&mut self, heap: &Heap, number: u32, values: &[Value]) -> Option<u64> {
        self.take_alike(heap, number, values).map(|row| Object::Entry(row).handle())
    }

    fn take_list(&mut self, _: &Heap, items: &[Value]) -> Option<u64> {
        let frame = |item: &Value| match Object::of(item.as_taken()?) {
            Object::Frame(frame) => Some(frame),
            _ => None,
        };
        frame(items.first()?)?;
        self.scratch.clear();
        for item in items {
            self.scratch.push(frame(item)?);
        }
        let frames = std::mem::take(&mut self.scratch);
        let stack = self.stack(&frames);
        self.scratch = frames;
        self.new_slot(stack?).map(|slot| Object::Stack(slot).handle())
    }

    fn more_items(&mut self, heap: &mut Heap, handle: u64, items: &[Value]) -> Refusal {
        match Object::of(handle) {
            Object::Entry(row) => self.more_of_entry(heap, row, items),
            Object::Frame(_) => {
                Err(("more keys for a finished stack frame".into(), "all keys at once".into()))
            }
            Object::Stack(_) => Err(("keys for a list of frames".into(), "a dict".into())),
        }
    }

    /// The stack becomes a list of the heap, so that however often it grows, nothing is copied twice.
    fn more_list(&mut self, heap: &mut Heap, handle: u64, items: &[Value]) -> Refusal {
        let Object::Stack(slot) = Object::of(handle) else {
            return Err(("items for a trace entry or stack frame".into(), "a list".into()));
        };
        let list = match self.slot(slot) {
            Some(Slot::Open(list)) => list,
            Some(Slot::Stack(stack)) => {
                let frames = self.stacks.frame_ids(stack).iter();
                let values: Vec<Value> =
                    frames.map(|frame| Value::taken(Object::Frame(*frame).handle())).collect();
                let list = heap.new_list(&values);
                if let Some(held) = self.slots.get_mut(slot as usize) {
                    *held = OPEN | self.open.len() as u32;
                }
                self.open.push(list);
                list
            }
            None => return Ok(()),
        };
        heap.extend_list(list, items);
        Ok(())
    }
}
