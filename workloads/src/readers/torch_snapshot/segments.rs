//! `segments`: what the allocator holds, in all forms since spring 2023.

use super::collect::Collector;
use super::convert::stack;
use super::draft::Mismatch;
use super::fields::{At, Fields, Result, list, wrong};
use super::model::{Block, BlockState, Segment, SegmentKind, Snapshot};
use super::words as word;
use crate::readers::pickle::{Heap, StrId, Value};

pub(super) fn read(
    heap: &Heap,
    collector: &mut Collector,
    at: &At<'_>,
    items: &[Value],
    snapshot: &mut Snapshot,
) -> Result<()> {
    collector.budget.dicts(at, items.len())?;
    for (index, item) in items.iter().enumerate() {
        let at = At::Index(at, index);
        let segment = segment(heap, collector, &at, *item, &mut snapshot.blocks)?;
        snapshot.segments.push(segment);
    }
    Ok(())
}

fn segment(
    heap: &Heap,
    collector: &mut Collector,
    at: &At<'_>,
    value: Value,
    blocks: &mut Vec<Block>,
) -> Result<Segment> {
    let fields = Fields::of(heap, at, value, "a segment (dict)")?;
    let address = fields.bits_needed(word::ADDRESS)?;
    let first = blocks.len();
    if let Some(value) = fields.get(word::BLOCKS) {
        let at = At::Key(at, "blocks");
        let mut next = address;
        let items = list(heap, &at, value)?;
        collector.budget.dicts(&at, items.len())?;
        for (index, item) in items.iter().enumerate() {
            let block = block(heap, collector, &At::Index(&at, index), *item, next)?;
            next = block.address.saturating_add(block.size);
            blocks.push(block);
        }
    }
    let stack = match fields.get(word::FRAMES) {
        Some(value) => stack(heap, collector, &At::Key(at, "frames"), value)?,
        None => None,
    };
    Ok(Segment {
        device: fields.device(word::DEVICE)?,
        address,
        total_size: fields.count_needed(word::TOTAL_SIZE)?,
        allocated_size: fields.count(word::ALLOCATED_SIZE)?,
        active_size: fields.count(word::ACTIVE_SIZE)?,
        requested_size: fields.count(word::REQUESTED_SIZE)?,
        stream: fields.bits(word::STREAM)?.unwrap_or(0),
        kind: kind(&fields)?,
        pool: fields.pool(word::SEGMENT_POOL_ID)?,
        expandable: fields.flag(word::IS_EXPANDABLE)?.unwrap_or(false),
        stack,
        blocks: first..blocks.len(),
    })
}

/// One of a few words, or an error that lists them.
fn one_of<T: Copy>(
    fields: &Fields<'_>,
    key: StrId,
    words: &[(StrId, T)],
    expected: &'static str,
) -> Result<T> {
    let value = fields.required(key, expected)?;
    let known = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
    match known {
        Some((_, meaning)) => Ok(*meaning),
        None => Err(fields.mismatch(Mismatch { key, found: Some(value), expected })),
    }
}

fn kind(fields: &Fields<'_>) -> Result<SegmentKind> {
    let words = [(word::SMALL, SegmentKind::Small), (word::LARGE, SegmentKind::Large)];
    one_of(fields, word::SEGMENT_TYPE, &words, "small or large")
}

/// `running` is the address behind the block before: where a block of spring 2023 lies.
fn block(
    heap: &Heap,
    collector: &mut Collector,
    at: &At<'_>,
    value: Value,
    running: u64,
) -> Result<Block> {
    let fields = Fields::of(heap, at, value, "a block (dict)")?;
    let states = [
        (word::ACTIVE_ALLOCATED, BlockState::ActiveAllocated),
        (word::ACTIVE_PENDING_FREE, BlockState::ActivePendingFree),
        (word::ACTIVE_AWAITING_FREE, BlockState::ActivePendingFree),
        (word::INACTIVE, BlockState::Inactive),
    ];
    let expected = "active_allocated, active_pending_free, active_awaiting_free or inactive";
    let mut block = Block {
        address: fields.bits(word::ADDRESS)?.unwrap_or(running),
        size: fields.count_needed(word::SIZE)?,
        requested_size: fields.count(word::REQUESTED_SIZE)?,
        state: one_of(&fields, word::STATE, &states, expected)?,
        stack: None,
    };
    if let Some(value) = fields.get(word::FRAMES) {
        block.stack = stack(heap, collector, &At::Key(at, "frames"), value)?;
    } else if let Some(value) = fields.get(word::HISTORY) {
        newest_of_history(heap, collector, &At::Key(at, "history"), value, &mut block)?;
    }
    Ok(block)
}

/// Spring 2023: who has used the block, newest first.
fn newest_of_history(
    heap: &Heap,
    collector: &mut Collector,
    at: &At<'_>,
    value: Value,
    block: &mut Block,
) -> Result<()> {
    let Some(newest) = list(heap, at, value)?.first() else { return Ok(()) };
    let at = At::Index(at, 0);
    if newest.as_taken().is_some() {
        return Err(wrong(heap, &at, *newest, "a history item (dict)"));
    }
    let fields = Fields::of(heap, &at, *newest, "a history item (dict)")?;
    if block.requested_size.is_none() {
        block.requested_size = fields.count(word::REAL_SIZE)?;
    }
    if let Some(value) = fields.get(word::FRAMES) {
        block.stack = stack(heap, collector, &At::Key(&at, "frames"), value)?;
    }
    Ok(())
}
