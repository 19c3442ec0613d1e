//! The stack machine: one opcode after the other, no recursion.

use std::io::Read;

use super::again::Shape;
use super::error::{Error, Problem, Result};
use super::heap::Heap;
use super::input::Input;
use super::opcode as op;
use super::sink::Sink;
use super::value::{Tag, Value};
use super::{Limits, text};

/// Highest protocol known.
const PROTOCOL_MAX: u8 = 5;

pub(super) struct Machine<'a, R, S> {
    pub(super) input: Input<R>,
    pub(super) limits: Limits,
    pub(super) heap: &'a mut Heap,
    pub(super) sink: &'a mut S,
    pub(super) stack: Vec<Value>,
    /// Stack length at the innermost open mark: what lies below is out of reach until the mark is used up.
    pub(super) floor: usize,
    /// The floors of the marks outside it.
    pub(super) floors: Vec<usize>,
    /// Byte of the opcode in hand.
    pub(super) at: u64,
    /// Byte of the last EMPTY_DICT that was carried out.
    pub(super) dict_at: u64,
    pub(super) shapes: Vec<Shape>,
}

impl<'a, R: Read, S: Sink> Machine<'a, R, S> {
    pub(super) fn new(
        reader: R,
        total: Option<u64>,
        limits: Limits,
        heap: &'a mut Heap,
        sink: &'a mut S,
    ) -> Self {
        let input = Input::new(reader, total);
        Machine {
            input,
            limits,
            heap,
            sink,
            stack: Vec::new(),
            floor: 0,
            floors: Vec::new(),
            at: 0,
            dict_at: 0,
            shapes: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<Value> {
        self.input.refill()?;
        loop {
            if self.input.is_low() {
                self.check_memory()?;
                self.input.refill()?;
                self.expect();
            }
            self.at = self.input.offset();
            let window = self.input.window();
            if window[0] == op::STOP {
                self.input.skip(1)?;
                let value = self.pop()?;
                return Ok(self.heap.resolve(value));
            }
            self.step(window)?;
        }
    }

    /// Lets memo and sink make room for as much again as came from the part that is read.
    fn expect(&mut self) {
        if let Some(total) = self.input.total() {
            let done = self.input.offset().min(total);
            self.heap.memo.expect(done, total);
            self.sink.expect(done, total);
        }
    }

    #[inline(always)]
    fn step(&mut self, w: [u8; 16]) -> Result<()> {
        match w[0] {
            op::BINGET => {
                self.input.skip(2)?;
                self.get(u32::from(w[1]))
            }
            op::LONG_BINGET => {
                self.input.skip(5)?;
                self.get(u32_at(&w))
            }
            op::LONG1 if w[1] <= 8 => {
                self.input.skip(2 + usize::from(w[1]))?;
                let value = self.heap.new_int(short_int(&w));
                self.push(value)
            }
            op::BININT1 => {
                self.input.skip(2)?;
                self.push(Value::int_unsigned(u32::from(w[1])))
            }
            op::BININT2 => {
                self.input.skip(3)?;
                self.push(Value::int_unsigned(u32::from(w[1]) | u32::from(w[2]) << 8))
            }
            op::BININT => {
                self.input.skip(5)?;
                let value = self.heap.new_int(i64::from(u32_at(&w) as i32));
                self.push(value)
            }
            op::MEMOIZE => {
                self.input.skip(1)?;
                self.put(self.heap.memo.next())
            }
            op::MARK => {
                self.input.skip(1)?;
                self.mark()
            }
            op::EMPTY_DICT => {
                if self.again() {
                    return Ok(());
                }
                self.dict_at = self.at;
                self.input.skip(1)?;
                self.push(Value::FRESH_DICT)
            }
            op::SETITEMS => {
                self.input.skip(1)?;
                self.set_items()
            }
            op::SHORT_BINUNICODE => {
                self.input.skip(2)?;
                self.string(u64::from(w[1]))
            }
            op::TUPLE2 => {
                self.input.skip(1)?;
                self.pair()
            }
            op::EMPTY_LIST => {
                self.input.skip(1)?;
                self.push(Value::FRESH_LIST)
            }
            op::APPENDS => {
                self.input.skip(1)?;
                self.append_marked()
            }
            _ => self.rarer(w),
        }
    }

    fn rarer(&mut self, w: [u8; 16]) -> Result<()> {
        let (count, value) = match w[0] {
            op::NEWTRUE => (1, Value::TRUE),
            op::NEWFALSE => (1, Value::FALSE),
            op::NONE => (1, Value::NONE),
            op::BINFLOAT => (9, self.heap.new_float(f64::from_bits(u64_at(&w).swap_bytes()))),
            op::EMPTY_SET => (1, Value::FRESH_LIST),
            op::EMPTY_TUPLE => (1, self.tuple_of(&[])?),
            op::PROTO => {
                self.input.skip(2)?;
                return self.protocol(w[1]);
            }
            op::FRAME => return self.input.skip(9),
            op::BINPUT => {
                self.input.skip(2)?;
                return self.put(u32::from(w[1]));
            }
            op::LONG_BINPUT => {
                self.input.skip(5)?;
                return self.put(u32_at(&w));
            }
            op::BINUNICODE | op::BINSTRING => {
                self.input.skip(5)?;
                return self.string(u64::from(u32_at(&w)));
            }
            op::BINUNICODE8 => {
                self.input.skip(9)?;
                return self.string(u64_at(&w));
            }
            op::SHORT_BINSTRING => {
                self.input.skip(2)?;
                return self.string(u64::from(w[1]));
            }
            op::SHORT_BINBYTES => {
                self.input.skip(2)?;
                return self.bytes(u64::from(w[1]));
            }
            op::BINBYTES => {
                self.input.skip(5)?;
                return self.bytes(u64::from(u32_at(&w)));
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                self.input.skip(9)?;
                return self.bytes(u64_at(&w));
            }
            op::LONG1 => {
                self.input.skip(2)?;
                return self.long(u64::from(w[1]));
            }
            op::LONG4 => {
                self.input.skip(5)?;
                let length = u32_at(&w) as i32;
                let Ok(length) = u64::try_from(length) else {
                    let found = format!("a length of {length} bytes");
                    return Err(self.error(Problem::Length, found, "no negative length"));
                };
                return self.long(length);
            }
            op::INT | op::LONG | op::FLOAT | op::STRING | op::UNICODE | op::GET | op::PUT => {
                return text::read(self, w[0]);
            }
            _ => {
                self.input.skip(1)?;
                return self.structure(w[0]);
            }
        };
        self.input.skip(count)?;
        self.push(value)
    }

    /// Opcodes without an argument that change the stack.
    fn structure(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            op::APPEND => {
                let item = self.pop()?;
                self.append(self.stack.len(), &[item])
            }
            op::SETITEM => self.set_item(),
            op::ADDITEMS => self.append_marked(),
            op::LIST | op::DICT => self.whole(opcode),
            op::TUPLE | op::FROZENSET => {
                let items = self.take_marked()?;
                let tuple = self.tuple_of(&items)?;
                self.push(tuple)
            }
            op::TUPLE1 => {
                let item = self.pop()?;
                let tuple = self.tuple_of(&[item])?;
                self.push(tuple)
            }
            op::TUPLE3 => {
                let (c, b, a) = (self.pop()?, self.pop()?, self.pop()?);
                let tuple = self.tuple_of(&[a, b, c])?;
                self.push(tuple)
            }
            op::POP => {
                // As in CPython, POP right behind a MARK takes the mark away.
                if self.stack.len() == self.floor {
                    return self.take_marked().map(drop);
                }
                self.pop().map(drop)
            }
            op::POP_MARK => self.take_marked().map(drop),
            op::DUP => self.dup(),
            _ => Err(self.no_opcode(opcode)),
        }
    }

    #[cold]
    fn no_opcode(&self, opcode: u8) -> Error {
        match op::refused(opcode) {
            Some(name) => {
                let found =
                    format!("opcode {name} (0x{opcode:02x}), which runs code or fetches objects");
                self.error(Problem::Code, found, "plain data; nothing in a pickle is ever executed")
            }
            None => {
                let found = format!("byte 0x{opcode:02x}");
                self.error(Problem::Opcode, found, "an opcode of pickle protocols 0 to 5")
            }
        }
    }

    #[cold]
    pub(super) fn error(
        &self,
        problem: Problem,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        Error::new(self.at, problem, found, expected)
    }

    fn protocol(&mut self, version: u8) -> Result<()> {
        if version <= PROTOCOL_MAX {
            return Ok(());
        }
        let found = format!("pickle protocol {version}");
        Err(self.error(Problem::Opcode, found, format!("at most {PROTOCOL_MAX}")))
    }

    /// Called once per buffer: between two calls at most a buffer's worth of values comes in.
    fn check_memory(&self) -> Result<()> {
        let bytes = self.heap.bytes() + 8 * (self.stack.len() + self.floors.len());
        if bytes <= self.limits.heap_bytes_max {
            return Ok(());
        }
        let found = format!("values of {bytes} bytes");
        let expected = format!("at most {} bytes", self.limits.heap_bytes_max);
        Err(self.error(Problem::Limit, found, expected))
    }

    #[inline]
    pub(super) fn push(&mut self, value: Value) -> Result<()> {
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<Value> {
        if self.stack.len() == self.floor {
            return Err(self.underflow("a value"));
        }
        self.stack.pop().ok_or_else(|| self.underflow("a value"))
    }

    #[cold]
    pub(super) fn underflow(&self, expected: &str) -> Error {
        let found = match self.floors.is_empty() {
            true => "nothing on the stack",
            false => "nothing on the stack above the mark",
        };
        self.error(Problem::Stack, found, expected)
    }

    #[inline]
    fn mark(&mut self) -> Result<()> {
        if self.floors.len() >= self.limits.depth_max {
            let found = format!("more than {} open marks", self.limits.depth_max);
            return Err(self.error(Problem::Limit, found, "a value that nests less deeply"));
        }
        self.floors.push(self.floor);
        self.floor = self.stack.len();
        Ok(())
    }

    /// Closes the innermost mark and says where its items begin.
    #[inline]
    pub(super) fn close_mark(&mut self) -> Result<usize> {
        let start = self.floor;
        match self.floors.pop() {
            Some(outer) => self.floor = outer,
            None => return Err(self.error(Problem::Stack, "no open mark", "a mark")),
        }
        Ok(start)
    }

    pub(super) fn take_marked(&mut self) -> Result<Vec<Value>> {
        let start = self.close_mark()?;
        Ok(self.stack.split_off(start))
    }

    #[inline]
    pub(super) fn get(&mut self, index: u32) -> Result<()> {
        match self.heap.memo.get(index) {
            Some(value) => self.push(value),
            None => {
                let found = format!("a reference to memo entry {index}");
                let stored = self.heap.memo.next();
                let expected = format!("one of the {stored} entries stored before");
                Err(self.error(Problem::Memo, found, expected))
            }
        }
    }

    #[inline]
    pub(super) fn put(&mut self, index: u32) -> Result<()> {
        if self.stack.len() == self.floor {
            return Err(self.underflow("a value to store in the memo"));
        }
        let Some(top) = self.stack.last_mut() else {
            return Err(self.underflow("a value to store in the memo"));
        };
        // From here on the memo entry is the empty object's identity.
        if matches!(top.tag(), Tag::FreshDict | Tag::FreshList) && top.payload() == 0 {
            *top = Value::new(top.tag(), u64::from(index) + 1);
        }
        let value = *top;
        self.heap.memo.put(index, value).map_err(|old| {
            let found = format!("a second value for memo entry {index}");
            let expected = format!("only the first, {}", self.heap.describe(old));
            self.error(Problem::Memo, found, expected)
        })
    }

    /// A copy of the top of the stack. An empty object without a memo entry gets its identity from the heap.
    fn dup(&mut self) -> Result<()> {
        let mut value = self.pop()?;
        if value == Value::FRESH_LIST {
            value = self.heap.new_list(&[]);
        } else if value == Value::FRESH_DICT {
            value = self.heap.new_dict(&[], self.at);
        }
        self.push(value)?;
        self.push(value)
    }

    #[inline]
    fn string(&mut self, length: u64) -> Result<()> {
        let bytes = self.input.bytes(length, self.limits.string_bytes_max, self.at)?;
        match self.heap.new_str(bytes) {
            Some(value) => self.push(value),
            None => Err(self.full("strings of 4 GiB")),
        }
    }

    #[cold]
    pub(super) fn full(&self, found: &str) -> Error {
        self.error(Problem::Limit, found, "less than 4 GiB of text and 4 G values in tuples")
    }

    fn bytes(&mut self, length: u64) -> Result<()> {
        self.input.skip_long(length, self.at)?;
        self.push(Value::new(Tag::Bytes, length))
    }

    /// Little-endian two's complement of any length.
    fn long(&mut self, length: u64) -> Result<()> {
        if length > 16 {
            self.input.skip_long(length, self.at)?;
            return self.push(Value::HUGE);
        }
        let bytes = self.input.bytes(length, 16, self.at)?;
        let negative = bytes.last().is_some_and(|last| *last >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let value = self.heap.new_wide(i128::from_le_bytes(wide));
        self.push(value)
    }

    fn tuple_of(&mut self, items: &[Value]) -> Result<Value> {
        self.heap.new_tuple(items).ok_or_else(|| self.full("tuples of 4 G values"))
    }

    #[inline]
    fn pair(&mut self) -> Result<()> {
        let (second, first) = (self.pop()?, self.pop()?);
        match self.heap.new_pair(first, second) {
            Some(value) => self.push(value),
            None => Err(self.full("tuples of 4 G values")),
        }
    }
}

#[inline]
pub(super) fn u32_at(w: &[u8; 16]) -> u32 {
    u32::from_le_bytes([w[1], w[2], w[3], w[4]])
}

#[inline]
fn u64_at(w: &[u8; 16]) -> u64 {
    u64::from_le_bytes([w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]])
}

/// The integer of a LONG1 of at most eight bytes.
#[inline]
pub(super) fn short_int(w: &[u8; 16]) -> i64 {
    let raw = u64::from_le_bytes([w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9]]);
    let unused_bits = 64 - 8 * u32::from(w[1]);
    match unused_bits {
        64 => 0,
        bits => (raw << bits) as i64 >> bits,
    }
}
