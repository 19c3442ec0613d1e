//! `allocator_settings` and `external_annotations`.

use super::budget::Budget;
use super::draft;
use super::fields::{At, Fields, Result, list, wrong};
use super::model::{AllocatorSettings, Annotation, Stage};
use super::words as word;
use crate::readers::pickle::{Heap, Value, View};

pub(super) fn settings(heap: &Heap, value: Value) -> Result<AllocatorSettings> {
    let at = At::Key(&At::Root, "allocator_settings");
    let fields = Fields::of(heap, &at, value, "a dict of settings")?;
    let mut settings = AllocatorSettings {
        conf: fields.text(word::ALLOC_CONF)?.map(|id| heap.strings().get(id).to_owned()),
        expandable_segments: fields.flag(word::EXPANDABLE_SEGMENTS)?,
        max_split_size: fields.signed(word::MAX_SPLIT_SIZE)?,
        garbage_collection_threshold: fields.float(word::GC_THRESHOLD)?,
        ..AllocatorSettings::default()
    };
    if let Some(value) = fields.get(word::ROUNDUP_DIVISIONS) {
        settings.roundup_power2_divisions = divisions(heap, &at, value)?;
    }
    let named = [
        word::ALLOC_CONF,
        word::EXPANDABLE_SEGMENTS,
        word::MAX_SPLIT_SIZE,
        word::GC_THRESHOLD,
        word::ROUNDUP_DIVISIONS,
    ];
    for pair in fields.items.chunks_exact(2) {
        match pair[0].as_str() {
            Some(key) if !named.contains(&key) => {
                let key = heap.strings().get(key).to_owned();
                settings.other.push((key, heap.describe(pair[1])));
            }
            _ => {}
        }
    }
    Ok(settings)
}

/// A dict from "1", "2", … "32768" to the number of steps.
fn divisions(heap: &Heap, at: &At<'_>, value: Value) -> Result<Vec<(u64, u64)>> {
    let at = At::Key(at, "roundup_power2_divisions");
    let fields = Fields::of(heap, &at, value, "a dict from sizes in MiB to numbers of steps")?;
    let mut divisions = Vec::new();
    for pair in fields.items.chunks_exact(2) {
        let size = match pair[0].as_str() {
            Some(text) => heap.strings().get(text).parse().ok(),
            None => draft::count(heap, pair[0]),
        };
        let Some(size) = size else {
            return Err(wrong(heap, &at, pair[0], "a size in MiB as key"));
        };
        let name = format!("{size}");
        let steps = draft::count(heap, pair[1]).ok_or_else(|| {
            wrong(heap, &At::Key(&at, &name), pair[1], "a number of steps (int from 0)")
        })?;
        divisions.push((size, steps));
    }
    Ok(divisions)
}

pub(super) fn annotations(
    heap: &Heap,
    budget: &mut Budget,
    value: Value,
) -> Result<Vec<Annotation>> {
    let at = At::Key(&At::Root, "external_annotations");
    let mut annotations = Vec::new();
    let items = list(heap, &at, value)?;
    budget.dicts(&at, items.len())?;
    for (index, item) in items.iter().enumerate() {
        let at = At::Index(&at, index);
        if let View::Taken(_) = heap.view(*item) {
            return Err(wrong(heap, &at, *item, "an annotation (dict)"));
        }
        let fields = Fields::of(heap, &at, *item, "an annotation (dict)")?;
        let stage = match fields.text_needed(word::STAGE, "START or END")? {
            word::START => Stage::Start,
            word::END => Stage::End,
            other => Stage::Other(other),
        };
        annotations.push(Annotation {
            stage,
            name: fields.text_needed(word::NAME, "the name of a range")?,
            device: fields.signed(word::DEVICE)?,
            time_us: fields.count_needed(word::TIME_US)?,
        });
    }
    Ok(annotations)
}
