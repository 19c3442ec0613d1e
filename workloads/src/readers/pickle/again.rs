//! Dicts that look like one before: the many entries of a trace differ in their values only.
//!
//! Once the sink has taken a dict whose keys all came from the memo, the bytes of those keys are kept as a shape. A later
//! dict is first tried against the shapes: its key bytes are compared, its values are read straight into an array, and
//! neither stack nor marks are touched. Whatever does not fit is left to the machine, as if nothing had been tried.

use std::io::Read;

use super::heap::Heap;
use super::machine::{Machine, short_int, u32_at};
use super::opcode as op;
use super::sink::Sink;
use super::value::{Tag, Value};

/// Dicts with more keys are not worth a shape.
pub(crate) const KEYS_MAX: usize = 16;
/// A trace has entries of one or two shapes, and frames.
const SHAPES_MAX: usize = 4;
/// What a shape gains by a dict that fits, at most; a dict that does not costs `MISS`. Below 0 the shape is dropped.
const CREDIT_MAX: i32 = 64;
const CREDIT_MISS: i32 = 4;

/// The opcodes that fetch one key: BINGET or LONG_BINGET with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    bytes: u64,
    mask: u64,
    length: usize,
}

#[derive(Debug)]
pub(super) struct Shape {
    keys: Vec<Key>,
    /// The sink's number for it.
    number: u32,
    credit: i32,
}

impl<R: Read, S: Sink> Machine<'_, R, S> {
    /// Tries to read the dict that begins here in one go. `false`: nothing has happened.
    pub(super) fn again(&mut self) -> bool {
        let (bytes, start, end) = self.input.buffered();
        let Some((dict, put)) = opening(bytes, start + 1) else { return false };
        let first = word(bytes, dict);
        let stored = self.heap.memo.next();
        for shape in &mut self.shapes {
            if shape.keys.first().is_none_or(|key| (first ^ key.bytes) & key.mask != 0) {
                continue;
            }
            let mut values = [Value::NONE; KEYS_MAX];
            let values = &mut values[..shape.keys.len()];
            let done = put.store(self.heap, Value::FRESH_DICT).and_then(|index| {
                let stop = read_values(self.heap, self.sink, bytes, dict, &shape.keys, values)?;
                let handle = self.sink.take_again(self.heap, shape.number, values)?;
                (stop <= end).then_some((index, stop, Value::taken(handle)))
            });
            if let Some((index, stop, value)) = done {
                shape.credit = (shape.credit + 1).min(CREDIT_MAX);
                if let Some(index) = index {
                    self.heap.memo.replace(index, value);
                }
                self.input.skip_to(stop);
                self.stack.push(value);
                return true;
            }
            shape.credit -= CREDIT_MISS;
            self.heap.memo.rewind(stored);
        }
        self.shapes.retain(|shape| shape.credit >= 0);
        false
    }

    /// Keeps the shape of the dict that began at `dict_at` and has just been taken, if it is simple enough.
    #[cold]
    pub(super) fn learn(&mut self, items_start: usize) {
        let (bytes, after, _) = self.input.buffered();
        let length = (self.input.offset() - self.dict_at) as usize;
        let Some(start) = after.checked_sub(length) else { return };
        let Some((dict, _)) = opening(bytes, start + 1) else { return };
        let Some(keys) = keys_of(bytes, dict, after) else { return };
        if self.shapes.iter().any(|shape| shape.keys == keys) {
            return;
        }
        let names: Vec<Value> = self.stack[items_start..].iter().step_by(2).copied().collect();
        if names.len() != keys.len() {
            return;
        }
        let Some(number) = self.sink.learn(self.heap, &names) else { return };
        if self.shapes.len() >= SHAPES_MAX {
            let poorest = self.shapes.iter().enumerate().min_by_key(|(_, shape)| shape.credit);
            let poorest = poorest.map_or(0, |(index, _)| index);
            self.shapes.swap_remove(poorest);
        }
        self.shapes.push(Shape { keys, number, credit: CREDIT_MISS });
    }
}

/// How an object is stored in the memo, if it is.
#[derive(Debug, Clone, Copy)]
enum Put {
    None,
    Next,
    At(u32),
}

impl Put {
    /// The opcode at `at`, and where the one behind it stands.
    #[inline]
    fn read(bytes: &[u8], at: usize) -> (Put, usize) {
        match bytes.get(at) {
            Some(&op::MEMOIZE) => (Put::Next, at + 1),
            Some(&op::BINPUT) => (Put::At(u32::from(word(bytes, at + 1) as u8)), at + 2),
            Some(&op::LONG_BINPUT) => (Put::At(word(bytes, at + 1) as u32), at + 5),
            _ => (Put::None, at),
        }
    }

    /// Stores a value as the next entry, which can be taken back; `None` if it is another entry.
    #[inline]
    fn store(self, heap: &mut Heap, value: Value) -> Option<Option<u32>> {
        let next = heap.memo.next();
        let index = match self {
            Put::None => return Some(None),
            Put::Next => next,
            Put::At(index) => index,
        };
        heap.memo.put_last(index, value).then_some(Some(index))
    }
}

/// Eight bytes at `at`; zeros where there are none.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

/// What stands between EMPTY_DICT and the first key: where that key is, and how the dict is stored.
#[inline]
fn opening(bytes: &[u8], at: usize) -> Option<(usize, Put)> {
    let (put, at) = Put::read(bytes, at);
    (bytes.get(at) == Some(&op::MARK)).then_some((at + 1, put))
}

/// Reads the values between the keys; says where the byte behind SETITEMS is.
#[inline]
fn read_values(
    heap: &mut Heap,
    sink: &mut impl Sink,
    bytes: &[u8],
    mut at: usize,
    keys: &[Key],
    values: &mut [Value],
) -> Option<usize> {
    for (key, slot) in keys.iter().zip(values) {
        if (word(bytes, at) ^ key.bytes) & key.mask != 0 {
            return None;
        }
        let (value, next) = read_value(heap, sink, bytes, at + key.length)?;
        (*slot, at) = (value, next);
        // Two numbers in a row are a pool id.
        if !matches!(bytes.get(at), Some(&(op::SETITEMS | op::BINGET | op::LONG_BINGET))) {
            (*slot, at) = read_pair(heap, sink, bytes, value, at)?;
        }
    }
    (bytes.get(at) == Some(&op::SETITEMS)).then_some(at + 1)
}

fn read_pair(
    heap: &mut Heap,
    sink: &mut impl Sink,
    bytes: &[u8],
    first: Value,
    at: usize,
) -> Option<(Value, usize)> {
    first.as_small_int()?;
    let (second, at) = read_value(heap, sink, bytes, at)?;
    second.as_small_int()?;
    if bytes.get(at) != Some(&op::TUPLE2) {
        return None;
    }
    let pair = heap.new_pair(first, second)?;
    let (put, at) = Put::read(bytes, at + 1);
    put.store(heap, pair)?;
    Some((pair, at))
}

#[inline]
fn read_value(
    heap: &mut Heap,
    sink: &mut impl Sink,
    bytes: &[u8],
    at: usize,
) -> Option<(Value, usize)> {
    let w = bytes.get(at..)?.first_chunk::<16>()?;
    Some(match w[0] {
        op::LONG1 if w[1] <= 8 => (Value::small_int(short_int(w))?, at + 2 + usize::from(w[1])),
        op::BINGET => (heap.memo.get(u32::from(w[1]))?, at + 2),
        op::LONG_BINGET => (heap.memo.get(u32_at(w))?, at + 5),
        op::BININT1 => (Value::int_unsigned(u32::from(w[1])), at + 2),
        op::BININT2 => (Value::int_unsigned(u32::from(w[1]) | u32::from(w[2]) << 8), at + 3),
        op::BININT => (Value::small_int(i64::from(u32_at(w) as i32))?, at + 5),
        op::NONE => (Value::NONE, at + 1),
        op::SHORT_BINUNICODE => {
            let end = at + 2 + usize::from(w[1]);
            let value = heap.new_str(bytes.get(at + 2..end)?)?;
            let (put, end) = Put::read(bytes, end);
            put.store(heap, value)?;
            (value, end)
        }
        op::EMPTY_LIST => read_list(heap, sink, bytes, at + 1)?,
        _ => return None,
    })
}

/// A list from behind its EMPTY_LIST: empty, or filled from the memo alone and taken by the sink (a stack of frames).
fn read_list(
    heap: &mut Heap,
    sink: &mut impl Sink,
    bytes: &[u8],
    at: usize,
) -> Option<(Value, usize)> {
    let (put, at) = Put::read(bytes, at);
    let identity = match put {
        Put::None => 0,
        Put::Next => u64::from(heap.memo.next()) + 1,
        Put::At(index) => u64::from(index) + 1,
    };
    let empty = Value::new(Tag::FreshList, identity);
    let index = put.store(heap, empty)?;
    if bytes.get(at) != Some(&op::MARK) {
        return Some((empty, at));
    }
    let mut items = std::mem::take(&mut heap.scratch);
    items.clear();
    let end = read_items(heap, bytes, at + 1, &mut items);
    let taken = end.and_then(|_| sink.take_list(heap, &items));
    heap.scratch = items;
    let (end, value) = (end?, Value::taken(taken?));
    if let Some(index) = index {
        heap.memo.replace(index, value);
    }
    Some((value, end))
}

/// Items up to APPENDS, all from the memo; says where the byte behind it is.
#[inline]
fn read_items(heap: &Heap, bytes: &[u8], mut at: usize, items: &mut Vec<Value>) -> Option<usize> {
    loop {
        let w = word(bytes, at);
        let (number, length) = match w as u8 {
            op::BINGET => (w >> 8 & 0xff, 2),
            op::LONG_BINGET => (w >> 8 & 0xffff_ffff, 5),
            op::APPENDS => return Some(at + 1),
            _ => return None,
        };
        items.push(heap.memo.get(number as u32)?);
        at += length;
    }
}

/// The keys of a dict whose first key is at `at` and whose SETITEMS ends at `after`, if each comes from the memo.
fn keys_of(bytes: &[u8], mut at: usize, after: usize) -> Option<Vec<Key>> {
    let mut keys = Vec::new();
    while at + 1 < after {
        let length = memo_key_length(bytes, at)?;
        let mask = (1 << (8 * length)) - 1;
        keys.push(Key { bytes: word(bytes, at) & mask, mask, length });
        at = value_end(bytes, at + length)?;
        if keys.len() > KEYS_MAX {
            return None;
        }
    }
    (at + 1 == after && !keys.is_empty()).then_some(keys)
}

fn memo_key_length(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        op::BINGET => Some(2),
        op::LONG_BINGET => Some(5),
        _ => None,
    }
}

fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    let single = |at: usize| {
        Some(match *bytes.get(at)? {
            op::BINGET | op::BININT1 => at + 2,
            op::LONG_BINGET | op::BININT => at + 5,
            op::BININT2 => at + 3,
            op::NONE => at + 1,
            op::EMPTY_LIST => list_end(bytes, Put::read(bytes, at + 1).1)?,
            op::LONG1 => at + 2 + usize::from(*bytes.get(at + 1)?),
            op::SHORT_BINUNICODE => Put::read(bytes, at + 2 + usize::from(*bytes.get(at + 1)?)).1,
            _ => return None,
        })
    };
    let end = single(at)?;
    match single(end) {
        Some(pair) if bytes.get(pair) == Some(&op::TUPLE2) => Some(Put::read(bytes, pair + 1).1),
        _ => Some(end),
    }
}

fn list_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&op::MARK) {
        return Some(at);
    }
    let mut at = at + 1;
    while bytes.get(at) != Some(&op::APPENDS) {
        at += memo_key_length(bytes, at)?;
    }
    Some(at + 1)
}
