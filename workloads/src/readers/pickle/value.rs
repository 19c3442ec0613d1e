//! A value in eight bytes: four bits of tag, sixty of number or handle.

/// A value of a pickle. Small ones are whole, the others are handles into a [`Heap`](super::Heap); copying one never
/// copies what it names, so shared objects stay shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value(u64);

const TAG_BITS: u32 = 4;
const INLINE_MAX: i64 = (1 << (63 - TAG_BITS)) - 1;
const INLINE_MIN: i64 = -INLINE_MAX - 1;

/// What the low bits of a value say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Payload: 0 absent, 1 None, 2 False, 3 True, 4 an integer of more than 128 bits.
    Single,
    Int,
    /// Integer of up to 128 bits, by number.
    Wide,
    Float,
    Str,
    /// Payload: length in bytes. The content is not kept.
    Bytes,
    Tuple,
    List,
    Dict,
    /// An empty list that may still be filled: payload 0, or 1 + the memo entry that knows what became of it.
    FreshList,
    /// The same for a dict.
    FreshDict,
    /// An object that the sink keeps.
    Taken,
}

const TAGS: [Tag; 1 << TAG_BITS] = [
    Tag::Single,
    Tag::Int,
    Tag::Wide,
    Tag::Float,
    Tag::Str,
    Tag::Bytes,
    Tag::Tuple,
    Tag::List,
    Tag::Dict,
    Tag::FreshList,
    Tag::FreshDict,
    Tag::Taken,
    Tag::Single,
    Tag::Single,
    Tag::Single,
    Tag::Single,
];

impl Value {
    pub(crate) const ABSENT: Value = Value::new(Tag::Single, 0);
    /// Python's `None`.
    pub const NONE: Value = Value::new(Tag::Single, 1);
    pub(crate) const FALSE: Value = Value::new(Tag::Single, 2);
    pub(crate) const TRUE: Value = Value::new(Tag::Single, 3);
    pub(crate) const HUGE: Value = Value::new(Tag::Single, 4);
    pub(crate) const FRESH_LIST: Value = Value::new(Tag::FreshList, 0);
    pub(crate) const FRESH_DICT: Value = Value::new(Tag::FreshDict, 0);

    pub(crate) const fn new(tag: Tag, payload: u64) -> Value {
        Value(payload << TAG_BITS | tag as u64)
    }

    /// A truth value.
    pub fn bool(value: bool) -> Value {
        if value { Value::TRUE } else { Value::FALSE }
    }

    /// An integer that fits 60 bits.
    #[inline]
    pub(crate) fn small_int(value: i64) -> Option<Value> {
        (INLINE_MIN..=INLINE_MAX)
            .contains(&value)
            .then_some(Value((value as u64) << TAG_BITS | Tag::Int as u64))
    }

    #[inline]
    pub(crate) fn int_unsigned(value: u32) -> Value {
        Value::new(Tag::Int, u64::from(value))
    }

    /// A handle to an object of the sink's own; 60 bits are kept.
    pub fn taken(handle: u64) -> Value {
        Value::new(Tag::Taken, handle)
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        TAGS[(self.0 & ((1 << TAG_BITS) - 1)) as usize]
    }

    #[inline]
    pub(crate) fn payload(self) -> u64 {
        self.0 >> TAG_BITS
    }

    /// The integer, if it is held in the value itself (±2^59).
    #[inline]
    pub fn as_small_int(self) -> Option<i64> {
        (self.tag() == Tag::Int).then_some((self.0 as i64) >> TAG_BITS)
    }

    /// The string's id, if this is a string.
    #[inline]
    pub fn as_str(self) -> Option<super::StrId> {
        (self.tag() == Tag::Str).then(|| super::StrId(self.payload() as u32))
    }

    /// The sink's handle, if the sink keeps this object.
    #[inline]
    pub fn as_taken(self) -> Option<u64> {
        (self.tag() == Tag::Taken).then(|| self.payload())
    }

    /// All bits, for hashing.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_int_keeps_sixty_bits_and_sign() {
        for value in [0, 1, -1, INLINE_MAX, INLINE_MIN, 139_637_976_727_552] {
            assert_eq!(Value::small_int(value).and_then(Value::as_small_int), Some(value));
        }
        assert_eq!(Value::small_int(INLINE_MAX + 1), None);
        assert_eq!(Value::small_int(i64::MIN), None);
    }

    #[test]
    fn tag_survives_packing() {
        for tag in TAGS {
            assert_eq!(Value::new(tag, 77).tag(), tag);
            assert_eq!(Value::new(tag, 77).payload(), 77);
        }
    }
}
