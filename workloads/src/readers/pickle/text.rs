//! The opcodes of protocol 0 whose argument is a line of text.

use std::io::Read;

use super::error::{Error, Problem, Result};
use super::machine::Machine;
use super::opcode as op;
use super::sink::Sink;
use super::value::Value;

/// Longest line of digits: integers beyond this are of no use to any reader.
const NUMBER_BYTES_MAX: u64 = 4096;

enum Line {
    Int(i128),
    Huge,
    Bool(bool),
    Float(f64),
    Index(u32),
    Text(Vec<u8>),
}

pub(super) fn read<R: Read, S: Sink>(machine: &mut Machine<'_, R, S>, opcode: u8) -> Result<()> {
    let at = machine.at;
    machine.input.skip(1)?;
    let max = match opcode {
        op::STRING | op::UNICODE => machine.limits.string_bytes_max,
        _ => NUMBER_BYTES_MAX,
    };
    let line = parse(opcode, machine.input.line(max, at)?, at)?;
    let value = match line {
        Line::Int(value) => machine.heap.new_wide(value),
        Line::Huge => Value::HUGE,
        Line::Bool(value) => Value::bool(value),
        Line::Float(value) => machine.heap.new_float(value),
        Line::Index(index) if opcode == op::GET => return machine.get(index),
        Line::Index(index) => return machine.put(index),
        Line::Text(bytes) => {
            machine.heap.new_str(&bytes).ok_or_else(|| machine.full("strings of 4 GiB"))?
        }
    };
    machine.push(value)
}

fn parse(opcode: u8, line: &[u8], at: u64) -> Result<Line> {
    let wrong = |expected: &str| {
        let text: String = String::from_utf8_lossy(line).chars().take(40).collect();
        Error::new(at, Problem::Text, format!("{text:?}"), expected)
    };
    let text = std::str::from_utf8(line).map(str::trim);
    match opcode {
        op::INT if line == b"01" => Ok(Line::Bool(true)),
        op::INT if line == b"00" => Ok(Line::Bool(false)),
        op::INT | op::LONG => {
            let text = text.map_err(|_| wrong("a decimal number"))?;
            let digits = text.strip_suffix('L').filter(|_| opcode == op::LONG).unwrap_or(text);
            integer(digits).ok_or_else(|| wrong("a decimal number"))
        }
        op::FLOAT => {
            let value = text.ok().and_then(|text| text.parse().ok());
            value.map(Line::Float).ok_or_else(|| wrong("a decimal fraction"))
        }
        op::GET | op::PUT => {
            let index = text.ok().and_then(|text| text.parse().ok());
            index.map(Line::Index).ok_or_else(|| wrong("the number of a memo entry"))
        }
        op::STRING => {
            let inner = quoted(line).ok_or_else(|| wrong("text between two equal quotes"))?;
            unescape(inner, true).map(Line::Text).ok_or_else(|| wrong("known escapes"))
        }
        _ => unescape(line, false).map(Line::Text).ok_or_else(|| wrong("whole escapes")),
    }
}

fn integer(digits: &str) -> Option<Line> {
    if let Ok(value) = digits.parse() {
        return Some(Line::Int(value));
    }
    let bare = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let all_digits = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then_some(Line::Huge)
}

fn quoted(line: &[u8]) -> Option<&[u8]> {
    match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => Some(inner),
        _ => None,
    }
}

/// Undoes `\xNN`, `\n` and the like (`repr`), or `\uNNNN` and `\UNNNNNNNN` in Latin-1 text (`raw-unicode-escape`).
fn unescape(line: &[u8], repr: bool) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            push_char(&mut text, u32::from(first));
            continue;
        }
        let kind = rest.first().copied();
        let digits = match kind {
            Some(b'u') if !repr => 4,
            Some(b'U') if !repr => 8,
            Some(b'x') if repr => 2,
            Some(plain) if repr => {
                text.push(simple_escape(plain)?);
                rest = &rest[1..];
                continue;
            }
            _ if repr => return None,
            _ => {
                text.push(b'\\');
                continue;
            }
        };
        let hex = std::str::from_utf8(rest.get(1..=digits)?).ok()?;
        push_char(&mut text, u32::from_str_radix(hex, 16).ok()?);
        rest = &rest[1 + digits..];
    }
    Some(text)
}

fn simple_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'0' => 0,
        b'\\' | b'\'' | b'"' => byte,
        _ => return None,
    })
}

fn push_char(text: &mut Vec<u8>, code: u32) {
    let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}
