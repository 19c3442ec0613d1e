//! Filling lists and dicts: where finished ones are offered to the sink.

use std::io::Read;

use super::error::{Error, Problem, Result};
use super::machine::Machine;
use super::opcode as op;
use super::sink::Sink;
use super::value::{Tag, Value};

impl<R: Read, S: Sink> Machine<'_, R, S> {
    /// LIST and DICT: everything above the mark becomes one new object.
    pub(super) fn whole(&mut self, opcode: u8) -> Result<()> {
        let start = self.close_mark()?;
        let fresh = if opcode == op::LIST { Value::FRESH_LIST } else { Value::FRESH_DICT };
        self.stack.insert(start, fresh);
        if opcode == op::LIST { self.append_from(start + 1) } else { self.set_from(start + 1) }
    }

    #[inline]
    pub(super) fn set_items(&mut self) -> Result<()> {
        let start = self.close_mark()?;
        self.set_from(start)
    }

    /// Puts the items from `start` up into the dict right below them.
    #[inline]
    fn set_from(&mut self, start: usize) -> Result<()> {
        if start == self.floor {
            return Err(self.underflow("a dict below the items"));
        }
        let items = &self.stack[start..];
        if !items.len().is_multiple_of(2) {
            let found = format!("{} keys and values", items.len());
            return Err(self.error(Problem::Stack, found, "an even number"));
        }
        if items.is_empty() {
            return Ok(());
        }
        let target = self.heap.resolve(self.stack[start - 1]);
        let filled = match target.tag() {
            Tag::FreshDict => Some(match self.sink.take_dict(self.heap, items) {
                Some(handle) => {
                    self.learn(start);
                    Value::taken(handle)
                }
                None => self.heap.new_dict(items, self.at),
            }),
            Tag::Dict => {
                self.heap.extend_dict(target, items);
                None
            }
            Tag::Taken => {
                let more = self.sink.more_items(self.heap, target.payload(), items);
                more.map_err(|(found, expected)| self.error(Problem::Value, found, expected))?;
                None
            }
            _ => return Err(self.wrong_target(target, "a dict below the items")),
        };
        self.stack.truncate(start);
        if let Some(value) = filled {
            self.fill(start - 1, target, value);
        }
        Ok(())
    }

    /// SETITEM, which only old writers use for more than one item: such dicts are kept as dicts.
    pub(super) fn set_item(&mut self) -> Result<()> {
        let (value, key) = (self.pop()?, self.pop()?);
        let top = self.stack.len();
        if top == self.floor {
            return Err(self.underflow("a dict below the item"));
        }
        let target = self.heap.resolve(self.stack[top - 1]);
        if target.tag() == Tag::FreshDict {
            let dict = self.heap.new_dict(&[key, value], self.at);
            self.fill(top - 1, target, dict);
            return Ok(());
        }
        self.stack.extend([key, value]);
        self.set_from(top)
    }

    /// Says what the empty object at `slot` of the stack has become, also to the memo.
    #[inline]
    fn fill(&mut self, slot: usize, fresh: Value, value: Value) {
        if let Some(index) = fresh.payload().checked_sub(1) {
            self.heap.memo.replace(index as u32, value);
        }
        if let Some(slot) = self.stack.get_mut(slot) {
            *slot = value;
        }
    }

    #[inline]
    pub(super) fn append_marked(&mut self) -> Result<()> {
        let start = self.close_mark()?;
        self.append_from(start)
    }

    fn append_from(&mut self, start: usize) -> Result<()> {
        let items = self.stack.split_off(start);
        self.append(start, &items)
    }

    /// Appends to the list that ends at stack length `top`.
    pub(super) fn append(&mut self, top: usize, items: &[Value]) -> Result<()> {
        if top == self.floor {
            return Err(self.underflow("a list below the items"));
        }
        if items.is_empty() {
            return Ok(());
        }
        let target = self.heap.resolve(self.stack[top - 1]);
        match target.tag() {
            Tag::FreshList => {
                let value = match self.sink.take_list(self.heap, items) {
                    Some(handle) => Value::taken(handle),
                    None => self.heap.new_list(items),
                };
                self.fill(top - 1, target, value);
            }
            Tag::List => self.heap.extend_list(target, items),
            Tag::Taken => {
                let more = self.sink.more_list(self.heap, target.payload(), items);
                more.map_err(|(found, expected)| self.error(Problem::Value, found, expected))?;
            }
            _ => return Err(self.wrong_target(target, "a list below the items")),
        }
        Ok(())
    }

    #[cold]
    fn wrong_target(&self, target: Value, expected: &str) -> Error {
        self.error(Problem::Stack, self.heap.describe(target), expected)
    }
}
