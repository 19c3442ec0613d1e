//! Looking into dicts and lists, with errors that say where.

use std::fmt;

use super::draft::{self, Mismatch};
use super::error::SnapshotError;
use super::model::PoolId;
use crate::readers::pickle::{Heap, StrId, Value, View};

/// A place in the snapshot, such as `device_traces[0][17]`. Only written out for an error.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    Root,
    Key(&'a At<'a>, &'a str),
    Index(&'a At<'a>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Root => Ok(()),
            At::Key(At::Root, key) => write!(f, "{key}"),
            At::Key(outer, key) => write!(f, "{outer}.{key}"),
            At::Index(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, SnapshotError>;

/// An error about `value`, which stands at `at`.
#[cold]
pub(super) fn wrong(heap: &Heap, at: &At<'_>, value: Value, expected: &str) -> SnapshotError {
    SnapshotError::Shape {
        path: at.to_string(),
        found: heap.describe(value),
        expected: expected.to_owned(),
        offset: heap.dict_offset(value),
    }
}

/// The items of a list.
pub(super) fn list<'h>(heap: &'h Heap, at: &At<'_>, value: Value) -> Result<&'h [Value]> {
    match heap.view(value) {
        View::List(items) | View::Tuple(items) => Ok(items),
        _ => Err(wrong(heap, at, value, "a list")),
    }
}

/// A dict whose keys are asked for by name.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) heap: &'a Heap,
    pub(super) at: &'a At<'a>,
    dict: Value,
    pub(super) items: &'a [Value],
}

impl<'a> Fields<'a> {
    pub(super) fn of(heap: &'a Heap, at: &'a At<'a>, dict: Value, what: &str) -> Result<Self> {
        match heap.view(dict) {
            View::Dict(items) => Ok(Fields { heap, at, dict, items }),
            _ => Err(wrong(heap, at, dict, what)),
        }
    }

    /// The value of a key; `None` if it is missing or Python's `None`.
    pub(super) fn get(&self, key: StrId) -> Option<Value> {
        let value = self.heap.get(self.items, key).map(|value| self.heap.resolve(value));
        value.filter(|value| *value != Value::NONE)
    }

    pub(super) fn required(&self, key: StrId, expected: &'static str) -> Result<Value> {
        self.get(key).ok_or_else(|| self.mismatch(Mismatch { key, found: None, expected }))
    }

    #[cold]
    pub(super) fn mismatch(&self, mismatch: Mismatch) -> SnapshotError {
        let key = self.heap.strings().get(mismatch.key);
        let found = match mismatch.found {
            Some(value) => self.heap.describe(value),
            None => "no such key".to_owned(),
        };
        SnapshotError::Shape {
            path: At::Key(self.at, key).to_string(),
            found,
            expected: mismatch.expected.to_owned(),
            offset: self.heap.dict_offset(self.dict),
        }
    }

    fn parsed<T>(
        &self,
        key: StrId,
        expected: &'static str,
        parse: impl FnOnce(&Heap, Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match parse(self.heap, value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(self.mismatch(Mismatch { key, found: Some(value), expected })),
        }
    }

    fn needed<T>(&self, key: StrId, expected: &'static str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.mismatch(Mismatch { key, found: None, expected }))
    }

    /// A number of bytes or microseconds, if present.
    pub(super) fn count(&self, key: StrId) -> Result<Option<u64>> {
        self.parsed(key, draft::SIZE_EXPECTED, draft::count)
    }

    pub(super) fn count_needed(&self, key: StrId) -> Result<u64> {
        self.needed(key, draft::SIZE_EXPECTED, self.count(key)?)
    }

    /// A 64-bit address or handle, if present.
    pub(super) fn bits(&self, key: StrId) -> Result<Option<u64>> {
        self.parsed(key, draft::ADDRESS_EXPECTED, draft::bits)
    }

    pub(super) fn bits_needed(&self, key: StrId) -> Result<u64> {
        self.needed(key, draft::ADDRESS_EXPECTED, self.bits(key)?)
    }

    pub(super) fn signed(&self, key: StrId) -> Result<Option<i64>> {
        let parse = |heap: &Heap, value| heap.int(value).and_then(|int| i64::try_from(int).ok());
        self.parsed(key, "an int of 64 bits", parse)
    }

    /// A line number; 0 if missing.
    pub(super) fn line(&self, key: StrId) -> Result<i32> {
        Ok(self.parsed(key, "a line number (int)", draft::line)?.unwrap_or(0))
    }

    pub(super) fn device(&self, key: StrId) -> Result<u32> {
        let expected = "a device index (int from 0)";
        let parse = |heap: &Heap, value| heap.int(value).and_then(|int| u32::try_from(int).ok());
        self.needed(key, expected, self.parsed(key, expected, parse)?)
    }

    pub(super) fn pool(&self, key: StrId) -> Result<Option<PoolId>> {
        self.parsed(key, draft::POOL_EXPECTED, draft::pool)
    }

    pub(super) fn text(&self, key: StrId) -> Result<Option<StrId>> {
        self.parsed(key, "a string", |_, value| value.as_str())
    }

    pub(super) fn text_needed(&self, key: StrId, expected: &'static str) -> Result<StrId> {
        self.needed(key, expected, self.parsed(key, expected, |_, value| value.as_str())?)
    }

    pub(super) fn flag(&self, key: StrId) -> Result<Option<bool>> {
        let parse = |heap: &Heap, value| match heap.view(value) {
            View::Bool(flag) => Some(flag),
            _ => None,
        };
        self.parsed(key, "True or False", parse)
    }

    pub(super) fn float(&self, key: StrId) -> Result<Option<f64>> {
        let parse = |heap: &Heap, value| match heap.view(value) {
            View::Float(float) => Some(float),
            View::Int(int) => Some(int as f64),
            _ => None,
        };
        self.parsed(key, "a number", parse)
    }
}
