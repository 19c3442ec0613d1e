//! A writer of pickles, for tests.

use serde_json::Value;

/// Pickles as CPython would (protocol 4, or key by key as protocol 0), sharing equal lists and strings by the memo.
#[derive(Default)]
struct Pickler {
    out: Vec<u8>,
    memo: Vec<Value>,
    stored: Vec<u32>,
    count: u32,
    key_by_key: bool,
}

impl Pickler {
    fn put(&mut self, shared: Option<&Value>) {
        if let Some(value) = shared {
            self.memo.push(value.clone());
            self.stored.push(self.count);
        }
        self.count += 1;
        self.out.push(0x94);
    }

    fn get(&mut self, value: &Value) -> bool {
        let Some(at) = self.memo.iter().position(|old| old == value) else { return false };
        self.out.push(b'j');
        self.out.extend_from_slice(&self.stored[at].to_le_bytes());
        true
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.push(b'N'),
            Value::Bool(flag) => self.out.push(if *flag { 0x88 } else { 0x89 }),
            Value::Number(number) => match number.as_i64() {
                Some(int) => {
                    self.out.extend_from_slice(&[0x8a, 8]);
                    self.out.extend_from_slice(&int.to_le_bytes());
                }
                None => {
                    self.out.push(b'G');
                    let float = number.as_f64().expect("a float");
                    self.out.extend_from_slice(&float.to_be_bytes());
                }
            },
            Value::String(text) => {
                if !self.get(value) {
                    self.out.extend_from_slice(&[0x8c, text.len() as u8]);
                    self.out.extend_from_slice(text.as_bytes());
                    self.put(Some(value));
                }
            }
            Value::Array(items) => {
                if items.is_empty() || !self.get(value) {
                    self.out.push(b']');
                    self.put((!items.is_empty()).then_some(value));
                    self.many(items.iter().map(|item| (None, item)), b'a', b'e');
                }
            }
            Value::Object(items) => {
                self.out.push(b'}');
                self.put(None);
                self.many(items.iter().map(|(key, item)| (Some(key), item)), b's', b'u');
            }
        }
    }

    fn many<'a>(
        &mut self,
        items: impl Iterator<Item = (Option<&'a String>, &'a Value)>,
        one: u8,
        all: u8,
    ) {
        if !self.key_by_key {
            self.out.push(b'(');
        }
        for (key, item) in items {
            if let Some(key) = key {
                self.value(&Value::String(key.clone()));
            }
            self.value(item);
            if self.key_by_key {
                self.out.push(one);
            }
        }
        if !self.key_by_key {
            self.out.push(all);
        }
    }
}

/// `value` as a pickle.
pub(super) fn pickled(value: &Value, key_by_key: bool) -> Vec<u8> {
    let mut pickler = Pickler { key_by_key, ..Pickler::default() };
    pickler.out.extend_from_slice(b"\x80\x04");
    pickler.value(value);
    pickler.out.push(b'.');
    pickler.out
}
