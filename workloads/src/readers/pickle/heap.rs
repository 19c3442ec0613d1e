//! What values name: strings, tuples, lists, dicts, big numbers; and the memo.

use super::interned::{Interned, Seed, StrId, Strings};
use super::memo::Memo;
use super::value::{Tag, Value};

/// A value looked at: what it is, with its content borrowed from the heap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of up to 128 bits.
    Int(i128),
    /// An integer beyond 128 bits; its digits are not kept.
    Huge,
    /// A float.
    Float(f64),
    /// A string.
    Str(StrId),
    /// A bytes object of this length; its content is not kept.
    Bytes(u64),
    /// A tuple or frozenset.
    Tuple(&'a [Value]),
    /// A list or set.
    List(&'a [Value]),
    /// A dict: key, value, key, value… in the order in which they were set.
    Dict(&'a [Value]),
    /// An object of the sink.
    Taken(u64),
}

#[derive(Debug)]
struct Dict {
    /// Byte at which it was first filled; `NO_OFFSET` if it came from elsewhere.
    offset: u64,
    items: Vec<Value>,
}

/// Rough cost of an empty list or dict: its header, its smallest buffer, the allocator's own share.
const CONTAINER_BYTES: usize = 72;
const NO_OFFSET: u64 = u64::MAX;
const VALUE_BYTES: usize = size_of::<Value>();

/// Everything that values refer to. Lists and dicts have identity and may grow; strings and tuples are kept once.
#[derive(Debug, Default)]
pub struct Heap {
    pub(super) strings: Strings,
    pub(super) memo: Memo,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Dict>,
    tuples: Interned<Value>,
    wide: Vec<i128>,
    floats: Vec<f64>,
    seed: Seed,
    pair: Option<(Value, Value, Value)>,
    container_bytes: usize,
    /// Room for the items of a list while it is read.
    pub(super) scratch: Vec<Value>,
}

impl Heap {
    /// The strings seen so far.
    pub fn strings(&self) -> &Strings {
        &self.strings
    }

    /// For a sink that knows words beforehand.
    pub fn strings_mut(&mut self) -> &mut Strings {
        &mut self.strings
    }

    /// The strings alone; everything else is dropped.
    pub fn into_strings(self) -> Strings {
        self.strings
    }

    /// Bytes that lists, dicts, strings, memo and numbers take, roughly.
    pub fn bytes(&self) -> usize {
        self.container_bytes
            + self.strings.text_bytes()
            + self.strings.len() * 16
            + self.tuples.len() * 24
            + self.memo.bytes()
            + self.wide.len() * 16
            + self.floats.len() * 8
    }

    /// Number of dicts that were kept.
    pub(crate) fn dict_count(&self) -> usize {
        self.dicts.len()
    }

    /// Follows an unfilled list or dict to what became of it.
    #[inline]
    pub fn resolve(&self, value: Value) -> Value {
        match value.tag() {
            Tag::FreshList | Tag::FreshDict if value.payload() > 0 => {
                self.memo.get((value.payload() - 1) as u32).unwrap_or(value)
            }
            _ => value,
        }
    }

    /// What a value is.
    pub fn view(&self, value: Value) -> View<'_> {
        let value = self.resolve(value);
        let index = value.payload() as usize;
        match value.tag() {
            Tag::Single if value == Value::TRUE => View::Bool(true),
            Tag::Single if value == Value::FALSE => View::Bool(false),
            Tag::Single if value == Value::HUGE => View::Huge,
            Tag::Single => View::None,
            Tag::Int => View::Int(value.as_small_int().unwrap_or(0).into()),
            Tag::Wide => View::Int(self.wide.get(index).copied().unwrap_or(0)),
            Tag::Float => View::Float(self.floats.get(index).copied().unwrap_or(0.0)),
            Tag::Str => View::Str(StrId(value.payload() as u32)),
            Tag::Bytes => View::Bytes(value.payload()),
            Tag::Tuple => View::Tuple(self.tuples.get(index as u32).unwrap_or(&[])),
            Tag::List => View::List(self.lists.get(index).map_or(&[], Vec::as_slice)),
            Tag::Dict => View::Dict(self.dicts.get(index).map_or(&[], |dict| &dict.items)),
            Tag::FreshList => View::List(&[]),
            Tag::FreshDict => View::Dict(&[]),
            Tag::Taken => View::Taken(value.payload()),
        }
    }

    /// Whether a value is a scalar or a tuple of small numbers, which cannot change.
    pub(crate) fn is_immutable(&self, value: Value) -> bool {
        match self.view(value) {
            View::List(_) | View::Dict(_) | View::Taken(_) => false,
            View::Tuple(items) => items.iter().all(|item| item.as_small_int().is_some()),
            _ => true,
        }
    }

    /// Integer of up to 128 bits, or `None` if this is something else.
    #[inline]
    pub fn int(&self, value: Value) -> Option<i128> {
        match value.as_small_int() {
            Some(small) => Some(small.into()),
            None if value.tag() == Tag::Wide => self.wide.get(value.payload() as usize).copied(),
            None => None,
        }
    }

    /// Short text of a value for an error: its type, and its content if that is small.
    pub fn describe(&self, value: Value) -> String {
        match self.view(value) {
            View::None => "None".into(),
            View::Bool(true) => "True".into(),
            View::Bool(false) => "False".into(),
            View::Int(value) => format!("int {value}"),
            View::Huge => "an int beyond 128 bits".into(),
            View::Float(value) => format!("float {value}"),
            View::Str(id) => {
                let text: String = self.strings.get(id).chars().take(40).collect();
                format!("str {text:?}")
            }
            View::Bytes(length) => format!("bytes of length {length}"),
            View::Tuple(items) => format!("tuple of {}", items.len()),
            View::List(items) => format!("list of {}", items.len()),
            View::Dict(items) => format!("dict of {}", items.len() / 2),
            View::Taken(_) => "a trace entry, stack frame or stack".into(),
        }
    }

    /// Byte at which the opcode stands that first filled this dict, if it came from a pickle.
    pub fn dict_offset(&self, value: Value) -> Option<u64> {
        let value = self.resolve(value);
        let dict = self.dicts.get(value.payload() as usize).filter(|_| value.tag() == Tag::Dict)?;
        (dict.offset != NO_OFFSET).then_some(dict.offset)
    }

    /// The value last set under a key.
    pub fn get(&self, dict_items: &[Value], key: StrId) -> Option<Value> {
        let pairs = dict_items.chunks_exact(2).rev();
        pairs.filter(|pair| pair[0].as_str() == Some(key)).map(|pair| pair[1]).next()
    }

    /// An integer.
    #[inline]
    pub fn new_int(&mut self, value: i64) -> Value {
        Value::small_int(value).unwrap_or_else(|| self.new_wide(value.into()))
    }

    #[cold]
    pub(crate) fn new_wide(&mut self, value: i128) -> Value {
        if let Some(small) = i64::try_from(value).ok().and_then(Value::small_int) {
            return small;
        }
        self.wide.push(value);
        Value::new(Tag::Wide, self.wide.len() as u64 - 1)
    }

    /// A float.
    pub(crate) fn new_float(&mut self, value: f64) -> Value {
        self.floats.push(value);
        Value::new(Tag::Float, self.floats.len() as u64 - 1)
    }

    /// A string; `None` once the strings take 4 GiB.
    #[inline]
    pub(crate) fn new_str(&mut self, bytes: &[u8]) -> Option<Value> {
        let id = self.strings.intern_lossy(bytes)?;
        Some(Value::new(Tag::Str, u64::from(id.0)))
    }

    /// A tuple; `None` once tuples take 4 G values.
    pub(crate) fn new_tuple(&mut self, items: &[Value]) -> Option<Value> {
        let hash = self.seed.words(items.iter().map(|item| item.bits()));
        let (id, new) = self.tuples.intern(items, hash)?;
        if new {
            self.container_bytes += size_of_val(items);
        }
        Some(Value::new(Tag::Tuple, u64::from(id)))
    }

    /// A tuple of two; the last one is remembered, for pool ids.
    #[inline]
    pub(super) fn new_pair(&mut self, first: Value, second: Value) -> Option<Value> {
        if let Some((a, b, tuple)) = self.pair
            && (a, b) == (first, second)
        {
            return Some(tuple);
        }
        let tuple = self.new_tuple(&[first, second])?;
        self.pair = Some((first, second, tuple));
        Some(tuple)
    }

    /// A list with these items.
    pub fn new_list(&mut self, items: &[Value]) -> Value {
        self.container_bytes += CONTAINER_BYTES + size_of_val(items);
        self.lists.push(items.to_vec());
        Value::new(Tag::List, self.lists.len() as u64 - 1)
    }

    /// A dict with these items (key, value, key, value…), filled at byte `offset`.
    pub fn new_dict(&mut self, items: &[Value], offset: u64) -> Value {
        self.container_bytes += CONTAINER_BYTES + size_of_val(items);
        self.dicts.push(Dict { offset, items: items.to_vec() });
        Value::new(Tag::Dict, self.dicts.len() as u64 - 1)
    }

    /// A dict that did not come from a pickle.
    pub(crate) fn new_dict_unplaced(&mut self, items: &[Value]) -> Value {
        self.new_dict(items, NO_OFFSET)
    }

    /// Adds to a list of this heap; does nothing for any other value.
    pub fn extend_list(&mut self, list: Value, items: &[Value]) {
        self.container_bytes += VALUE_BYTES * items.len();
        if let Some(list) = self.lists.get_mut(list.payload() as usize) {
            list.extend_from_slice(items);
        }
    }

    /// Adds to a dict of this heap; does nothing for any other value.
    pub(super) fn extend_dict(&mut self, dict: Value, items: &[Value]) {
        self.container_bytes += VALUE_BYTES * items.len();
        if let Some(dict) = self.dicts.get_mut(dict.payload() as usize) {
            dict.items.extend_from_slice(items);
        }
    }
}
