//! Entries that have the keys of an entry before: the usual case, without looking at a key again.

use super::collect::Collector;
use super::columns::{Action, StackId};
use super::draft::Draft;
use super::words as word;
use crate::readers::pickle::{Heap, SHAPE_KEYS_MAX, StrId, Value};

/// Number of values of a shape, with one more place that is always absent.
const PLACES: usize = SHAPE_KEYS_MAX + 1;
/// The place of a key that the shape has not.
const NOWHERE: usize = SHAPE_KEYS_MAX;

/// Where in a shape each field stands.
#[derive(Debug, Clone, Copy)]
struct Plan {
    action: usize,
    addr: usize,
    size: usize,
    time_us: usize,
    frames: usize,
    /// Stream, pool, user metadata, compile context.
    tag: [usize; 4],
}

/// A kind of entry.
#[derive(Debug)]
pub(super) struct Alike {
    keys: Vec<StrId>,
    plan: Plan,
    /// Values of the tag of the last entry of this shape, and its number.
    last_tag: Option<([Value; 4], u32)>,
}

impl Alike {
    pub(super) fn new(keys: Vec<StrId>) -> Alike {
        // The last of equal keys counts, as in a dict.
        let place = |key| keys.iter().rposition(|k| *k == key).unwrap_or(NOWHERE);
        let plan = Plan {
            action: place(word::ACTION),
            addr: place(word::ADDR),
            size: place(word::SIZE),
            time_us: place(word::TIME_US),
            frames: place(word::FRAMES),
            tag: [word::STREAM, word::POOL_ID, word::USER_METADATA, word::COMPILE_CONTEXT]
                .map(place),
        };
        Alike { keys, plan, last_tag: None }
    }
}

impl Collector {
    /// Adds the row of an entry with these values; `None` if it needs a closer look.
    #[inline]
    pub(super) fn take_alike(&mut self, heap: &Heap, number: u32, values: &[Value]) -> Option<u32> {
        if let Some(row) = self.take_plain(heap, number, values) {
            return Some(row);
        }
        let alike = self.shapes.get(number as usize)?;
        let mut draft = Draft::default();
        for (key, value) in alike.keys.iter().zip(values) {
            Collector::draft_one(&mut draft, heap, *key, *value)?;
        }
        self.take_draft(&draft)
    }

    /// The case that needs no draft: a known action with an address, small numbers, and the tag of the entry before.
    #[inline]
    fn take_plain(&mut self, heap: &Heap, shape: u32, values: &[Value]) -> Option<u32> {
        let alike = self.shapes.get(shape as usize)?;
        let mut places = [Value::NONE; PLACES];
        places.get_mut(..values.len())?.copy_from_slice(values);
        let plan = &alike.plan;
        let number =
            |place: usize| places[place].as_small_int().and_then(|n| u64::try_from(n).ok());
        let action = *Action::KNOWN.get(places[plan.action].as_str()?.0 as usize)?;
        if matches!(action, Action::Oom) {
            return None;
        }
        let addr = number(plan.addr)?;
        let size = number(plan.size)?;
        let time_us = match places[plan.time_us] {
            Value::NONE => None,
            _ => Some(number(plan.time_us)?),
        };
        let stack: Option<StackId> = match places[plan.frames] {
            Value::NONE => None,
            frames => Collector::easy_stack(heap, frames)?,
        };
        let parts = plan.tag.map(|place| places[place]);
        let tag = match alike.last_tag {
            Some((last, tag)) if last == parts => tag,
            _ => {
                let mut draft = Draft::default();
                for (place, part) in plan.tag.iter().zip(parts) {
                    if let Some(key) = alike.keys.get(*place) {
                        draft.set(heap, *key, part).ok()?;
                    }
                }
                // A pool id that is a list may change later; its number says nothing.
                let lasting = heap.is_immutable(parts[1]);
                let tag = self.tag_number(draft.tag()).0;
                self.shapes.get_mut(shape as usize)?.last_tag = lasting.then_some((parts, tag));
                tag
            }
        };
        self.push_plain(action, addr, size, time_us, stack, tag)
    }
}
