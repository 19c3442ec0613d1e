//! The same snapshot as JSON: into the same values and the same sink. `serde_json` bounds the depth at 128.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::collect::Collector;
use crate::readers::pickle::{Heap, Sink, Value};
use crate::readers::text::ShortPieces;

pub(super) fn read(
    reader: impl Read,
    heap: &mut Heap,
    collector: &mut Collector,
) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_reader(ShortPieces::new(reader));
    let value = Into { heap, collector }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Where values go.
struct Into<'a> {
    heap: &'a mut Heap,
    collector: &'a mut Collector,
}

impl Into<'_> {
    fn again(&mut self) -> Into<'_> {
        Into { heap: self.heap, collector: self.collector }
    }
}

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::NONE)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.heap.new_int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.heap.new_wide(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.heap.new_float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.heap.new_str(value.as_bytes()).ok_or_else(|| E::custom("more than 4 GiB of strings"))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element_seed(self.again())? {
            items.push(item);
        }
        if items.is_empty() {
            return Ok(Value::FRESH_LIST);
        }
        Ok(match self.collector.take_list(self.heap, &items) {
            Some(handle) => Value::taken(handle),
            None => self.heap.new_list(&items),
        })
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(key) = map.next_key_seed(self.again())? {
            items.push(key);
            items.push(map.next_value_seed(self.again())?);
        }
        if items.is_empty() {
            return Ok(Value::FRESH_DICT);
        }
        Ok(match self.collector.take_dict(self.heap, &items) {
            Some(handle) => Value::taken(handle),
            None => self.heap.new_dict_unplaced(&items),
        })
    }
}
