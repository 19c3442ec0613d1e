//! From values and collected rows to a [`Snapshot`].

use super::budget::Budget;
use super::check::check;
use super::collect::{Collector, Object, Slot};
use super::columns::{Action, StackId, Trace, as_range};
use super::draft::Draft;
use super::fields::{At, Fields, Result, list, wrong};
use super::model::{Form, Snapshot};
use super::words as word;
use super::{segments, settings};
use crate::readers::pickle::{Heap, Value, View};

const TOP_EXPECTED: &str =
    "a snapshot (dict with segments and device_traces) or a list of segments";

pub(super) fn snapshot(heap: Heap, mut collector: Collector, root: Value) -> Result<Snapshot> {
    collector.budget = Budget::of(&heap, collector.trace.len());
    let mut snapshot = match heap.view(root) {
        View::List(items) => {
            let mut snapshot = empty(Form::SegmentList);
            segments::read(&heap, &mut collector, &At::Root, items, &mut snapshot)?;
            snapshot
        }
        View::Dict(_) => whole(&heap, &mut collector, root)?,
        _ => return Err(wrong(&heap, &At::Root, root, TOP_EXPECTED)),
    };
    finish(heap, collector, &mut snapshot);
    Ok(snapshot)
}

fn empty(form: Form) -> Snapshot {
    Snapshot {
        form,
        top_level_keys: Vec::new(),
        traces: Vec::new(),
        segments: Vec::new(),
        blocks: Vec::new(),
        settings: None,
        annotations: Vec::new(),
        host_segments: None,
        tags: Vec::new(),
        stacks: Default::default(),
        strings: Default::default(),
        unknown_actions: Vec::new(),
        warnings: Vec::new(),
    }
}

fn whole(heap: &Heap, collector: &mut Collector, root: Value) -> Result<Snapshot> {
    let mut snapshot = empty(Form::Dict);
    let top = Fields::of(heap, &At::Root, root, TOP_EXPECTED)?;
    for pair in top.items.chunks_exact(2) {
        let name = pair[0].as_str().map(|key| heap.strings().get(key).to_owned());
        snapshot.top_level_keys.push(name.unwrap_or_else(|| heap.describe(pair[0])));
    }
    let at = At::Key(&At::Root, "segments");
    let value = top.required(word::SEGMENTS, "a list of segments")?;
    segments::read(heap, collector, &at, list(heap, &at, value)?, &mut snapshot)?;
    if let Some(value) = top.get(word::ALLOCATOR_SETTINGS) {
        snapshot.settings = Some(settings::settings(heap, value)?);
    }
    if let Some(value) = top.get(word::EXTERNAL_ANNOTATIONS) {
        snapshot.annotations = settings::annotations(heap, &mut collector.budget, value)?;
    }
    if let Some(value) = top.get(word::HOST_SEGMENTS) {
        let at = At::Key(&At::Root, "host_segments");
        snapshot.host_segments = Some(list(heap, &at, value)?.len());
    }
    if let Some(value) = top.get(word::DEVICE_TRACES) {
        snapshot.traces = traces(heap, collector, value)?;
    }
    Ok(snapshot)
}

/// The rows of each device; entries that were not taken while reading are read here.
fn traces(heap: &Heap, collector: &mut Collector, value: Value) -> Result<Vec<Trace>> {
    let at = At::Key(&At::Root, "device_traces");
    let mut devices = Vec::new();
    let all = list(heap, &at, value)?;
    collector.budget.dicts(&at, all.len())?;
    for (device, value) in all.iter().enumerate() {
        let at = At::Index(&at, device);
        let items = list(heap, &at, *value)?;
        collector.budget.entries(&at, items.len())?;
        let plain = items.iter().copied().map(entry_row);
        if plain.clone().all(|row| row.is_some())
            && let Some(range) = as_range(plain.flatten())
        {
            devices.push(Rows::Range(range));
            continue;
        }
        let mut rows = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match entry_row(*item) {
                Some(row) => rows.push(row),
                None => rows.push(late_entry(heap, collector, &At::Index(&at, index), *item)?),
            }
        }
        devices.push(Rows::List(rows));
    }
    settle(heap, collector)?;
    Ok(split(&mut collector.trace, &devices))
}

enum Rows {
    Range(std::ops::Range<u32>),
    List(Vec<u32>),
}

fn entry_row(item: Value) -> Option<u32> {
    match Object::of(item.as_taken()?) {
        Object::Entry(row) => Some(row),
        _ => None,
    }
}

/// Hands each device its rows: without a copy if they follow each other in the order of devices, as writers make them.
fn split(all: &mut Trace, devices: &[Rows]) -> Vec<Trace> {
    let mut next = 0;
    let in_order = devices.iter().all(|rows| match rows {
        Rows::Range(range) if range.is_empty() => true,
        Rows::Range(range) => std::mem::replace(&mut next, range.end) == range.start,
        Rows::List(_) => false,
    });
    let mut traces: Vec<Trace> = if in_order && next as usize == all.len() {
        let starts = devices.iter().rev().map(|rows| match rows {
            Rows::Range(range) if !range.is_empty() => all.split_off(range.start as usize),
            _ => Trace::default(),
        });
        let mut traces: Vec<Trace> = starts.collect();
        traces.reverse();
        traces
    } else {
        let gathered = devices.iter().map(|rows| match rows {
            Rows::Range(range) => all.gather(range.clone()),
            Rows::List(rows) => all.gather(rows.iter().copied()),
        });
        gathered.collect()
    };
    *all = Trace::default();
    traces.iter_mut().for_each(Trace::tidy);
    traces
}

/// Stack slots become stacks.
fn settle(heap: &Heap, collector: &mut Collector) -> Result<()> {
    for (slot, list) in collector.open_slots() {
        let at = At::Key(&At::Root, "device_traces[..].frames");
        if let Some(stack) = stack_of_list(heap, collector, &at, list)? {
            collector.close_slot(slot, stack);
        }
    }
    let mut trace = std::mem::take(&mut collector.trace);
    trace.settle_stacks(|slot| match collector.slot(slot) {
        Some(Slot::Stack(stack)) => Some(stack),
        _ => None,
    });
    collector.trace = trace;
    Ok(())
}

/// An entry that is still a dict: it came key by key, or something in it is wrong.
fn late_entry(heap: &Heap, collector: &mut Collector, at: &At<'_>, value: Value) -> Result<u32> {
    let fields = Fields::of(heap, at, value, "a trace entry (dict)")?;
    let mut draft = Draft::default();
    for pair in fields.items.chunks_exact(2) {
        let Some(key) = pair[0].as_str() else { continue };
        if key == word::FRAMES {
            let stack = stack(heap, collector, &At::Key(at, "frames"), pair[1])?;
            let slot = stack.map(|stack| collector.new_slot(stack).ok_or_else(|| full(at)));
            draft.stack = slot.transpose()?.map(StackId);
        } else {
            draft.set(heap, key, pair[1]).map_err(|mismatch| fields.mismatch(mismatch))?;
        }
    }
    collector.push_entry(&draft).map_err(|mismatch| fields.mismatch(mismatch))
}

#[cold]
fn full(at: &At<'_>) -> super::SnapshotError {
    super::SnapshotError::Shape {
        path: at.to_string(),
        found: "more than 2^31 stacks or 2^32 frames".into(),
        expected: "fewer".into(),
        offset: None,
    }
}

/// The stack of any `frames` value, finished; `None` if it is empty.
pub(super) fn stack(
    heap: &Heap,
    collector: &mut Collector,
    at: &At<'_>,
    value: Value,
) -> Result<Option<StackId>> {
    let value = heap.resolve(value);
    if let Some(Object::Stack(slot)) = value.as_taken().map(Object::of) {
        return match collector.slot(slot) {
            Some(Slot::Stack(stack)) => Ok(Some(stack)),
            Some(Slot::Open(list)) => stack_of_list(heap, collector, at, list),
            None => Ok(None),
        };
    }
    if value == Value::NONE {
        return Ok(None);
    }
    stack_of_list(heap, collector, at, value)
}

fn stack_of_list(
    heap: &Heap,
    collector: &mut Collector,
    at: &At<'_>,
    value: Value,
) -> Result<Option<StackId>> {
    let View::List(items) = heap.view(value) else {
        return Err(wrong(heap, at, value, "a list of stack frames"));
    };
    if items.is_empty() {
        return Ok(None);
    }
    collector.budget.frames(at, items.len())?;
    let mut frames = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match item.as_taken().map(Object::of) {
            Some(Object::Frame(frame)) => frames.push(frame),
            _ => frames.push(late_frame(heap, collector, &At::Index(at, index), *item)?),
        }
    }
    collector.stack(&frames).map(Some).ok_or_else(|| full(at))
}

fn late_frame(heap: &Heap, collector: &mut Collector, at: &At<'_>, value: Value) -> Result<u32> {
    let fields = Fields::of(heap, at, value, "a stack frame (dict)")?;
    let filename = fields.text_needed(word::FILENAME, "a file name")?;
    let name = fields.text_needed(word::NAME, "a function name")?;
    let line = fields.line(word::LINE)?;
    collector.frame(filename, line, name).ok_or_else(|| full(at))
}

/// Moves tables over, counts unknown actions, and runs the checks.
fn finish(heap: Heap, collector: Collector, snapshot: &mut Snapshot) {
    snapshot.strings = heap.into_strings();
    let Collector { tags, stacks, unknown, .. } = collector;
    snapshot.tags = tags;
    snapshot.stacks = stacks;
    let names = unknown.iter().map(|name| (snapshot.strings.get(*name).to_owned(), 0));
    snapshot.unknown_actions = names.collect();
    if !snapshot.unknown_actions.is_empty() {
        if let Some(last) = snapshot.unknown_actions.get_mut(usize::from(u8::MAX)) {
            last.0 = "other unknown actions".to_owned();
        }
        for action in snapshot.traces.iter().flat_map(|trace| trace.actions()) {
            if let Action::Unknown(index) = action
                && let Some((_, count)) = snapshot.unknown_actions.get_mut(usize::from(*index))
            {
                *count += 1;
            }
        }
    }
    snapshot.warnings = check(snapshot);
}
