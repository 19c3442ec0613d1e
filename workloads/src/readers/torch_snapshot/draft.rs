//! One trace entry while its keys come in.

use super::columns::{Action, Entry, StackId, TagId};
use super::model::{PoolId, Tag};
use super::words as word;
use crate::readers::pickle::{Heap, StrId, Value, View};

/// A value that does not fit its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mismatch {
    pub(super) key: StrId,
    /// `None` if the key is missing.
    pub(super) found: Option<Value>,
    pub(super) expected: &'static str,
}

pub(super) const ADDRESS_EXPECTED: &str = "an address (int of at most 64 bits)";
pub(super) const SIZE_EXPECTED: &str = "bytes (int from 0 to 2^64-1)";

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Draft {
    action: Option<StrId>,
    addr: Option<u64>,
    size: Option<u64>,
    time_us: Option<u64>,
    device_free: Option<u64>,
    /// Slot of the stack, while reading.
    pub(super) stack: Option<StackId>,
    stream: u64,
    pool: Option<PoolId>,
    user_metadata: Option<StrId>,
    compile_context: Option<StrId>,
}

impl Draft {
    /// Takes one key up again, for an entry that gets more keys later.
    pub(super) fn of(entry: &Entry, action: StrId, tag: &Tag) -> Draft {
        Draft {
            action: Some(action),
            addr: entry.addr,
            size: Some(entry.size),
            time_us: entry.time_us,
            device_free: entry.device_free,
            stack: entry.stack,
            stream: tag.stream,
            pool: tag.pool,
            user_metadata: tag.user_metadata,
            compile_context: tag.compile_context,
        }
    }

    /// Everything but `frames`, which the caller handles. Keys that are not known are passed over.
    #[inline]
    pub(super) fn set(&mut self, heap: &Heap, key: StrId, value: Value) -> Result<(), Mismatch> {
        let wrong = |expected| Mismatch { key, found: Some(value), expected };
        match key {
            word::ACTION => {
                self.action = Some(value.as_str().ok_or_else(|| wrong("the name of an action"))?);
            }
            word::ADDR => {
                self.addr = Some(bits(heap, value).ok_or_else(|| wrong(ADDRESS_EXPECTED))?);
            }
            word::SIZE => self.size = Some(count(heap, value).ok_or_else(|| wrong(SIZE_EXPECTED))?),
            word::STREAM => {
                let expected = "a stream handle (int of at most 64 bits)";
                self.stream = bits(heap, value).ok_or_else(|| wrong(expected))?;
            }
            word::TIME_US if value != Value::NONE => {
                let expected = "microseconds since 1970 (int from 0)";
                self.time_us = Some(count(heap, value).ok_or_else(|| wrong(expected))?);
            }
            word::DEVICE_FREE => {
                self.device_free = Some(count(heap, value).ok_or_else(|| wrong(SIZE_EXPECTED))?);
            }
            word::USER_METADATA if value != Value::NONE => {
                self.user_metadata = Some(value.as_str().ok_or_else(|| wrong("a string"))?);
            }
            word::COMPILE_CONTEXT if value != Value::NONE => {
                self.compile_context = Some(value.as_str().ok_or_else(|| wrong("a string"))?);
            }
            word::POOL_ID if value != Value::NONE => {
                self.pool = Some(pool(heap, value).ok_or_else(|| wrong(POOL_EXPECTED))?);
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    pub(super) fn tag(&self) -> Tag {
        Tag {
            stream: self.stream,
            pool: self.pool,
            user_metadata: self.user_metadata,
            compile_context: self.compile_context,
        }
    }

    /// The entry, with a tag and an action number that the caller knows how to make.
    #[inline]
    pub(super) fn finish(
        &self,
        tag: TagId,
        action_of: impl FnOnce(StrId) -> Action,
    ) -> Result<Entry, Mismatch> {
        let missing = |key, expected| Mismatch { key, found: None, expected };
        let Some(name) = self.action else {
            return Err(missing(word::ACTION, "the name of an action"));
        };
        let action = action_of(name);
        let lenient = matches!(action, Action::Unknown(_));
        let no_addr = matches!(action, Action::Oom | Action::Snapshot);
        if self.size.is_none() && !lenient {
            return Err(missing(word::SIZE, SIZE_EXPECTED));
        }
        if self.addr.is_none() && !lenient && !no_addr {
            return Err(missing(word::ADDR, ADDRESS_EXPECTED));
        }
        Ok(Entry {
            action,
            addr: self.addr,
            size: self.size.unwrap_or(0),
            time_us: self.time_us,
            stack: self.stack,
            tag,
            device_free: self.device_free,
        })
    }
}

pub(super) const POOL_EXPECTED: &str = "a pool id (two ints from 0)";

/// A 64-bit pattern: addresses and handles above 2^63 come as positive or, from C++, as negative numbers.
#[inline]
pub(super) fn bits(heap: &Heap, value: Value) -> Option<u64> {
    if let Some(small) = value.as_small_int() {
        return Some(small.cast_unsigned());
    }
    let wide = heap.int(value)?;
    u64::try_from(wide).ok().or_else(|| i64::try_from(wide).ok().map(i64::cast_unsigned))
}

/// A number from 0 up.
#[inline]
pub(super) fn count(heap: &Heap, value: Value) -> Option<u64> {
    if let Some(small) = value.as_small_int() {
        return u64::try_from(small).ok();
    }
    u64::try_from(heap.int(value)?).ok()
}

/// A pool id, tuple or list.
pub(super) fn pool(heap: &Heap, value: Value) -> Option<PoolId> {
    match heap.view(value) {
        View::Tuple([a, b]) | View::List([a, b]) => Some(PoolId(bits(heap, *a)?, bits(heap, *b)?)),
        _ => None,
    }
}

/// A line number. C++ writes an unknown one as -1, with or without its sign; what no file can have becomes 0.
pub(super) fn line(heap: &Heap, value: Value) -> Option<i32> {
    bits(heap, value).map(|line| i32::try_from(line.cast_signed()).unwrap_or(0))
}
