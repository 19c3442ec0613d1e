//! Lines of a stream, one at a time, most of them without a copy.

use std::io::{Cursor, Read};
use std::ops::Range;

use memchr::memchr;
use serde::Deserialize;
use vramlab_sim::source::SourceError;
use vramlab_sim::trace::not_utf8;

use super::number::found;
use crate::readers::bytes::read_some;

/// Bytes of the longest line that is accepted.
const LINE_BYTES_MAX: usize = 1 << 24;
/// Read at a time.
const BUFFER_BYTES: usize = 128 << 10;
/// UTF-8's byte order mark, which some editors put in front.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads lines from anything, and numbers them from 1. The line in hand is lent by [`Lines::line`].
pub struct Lines<R> {
    input: R,
    /// Name of the input, for messages.
    origin: String,
    number: u64,
    /// What was read: the line in hand, and what comes after it.
    buffer: Vec<u8>,
    /// How much of the buffer was read into.
    filled: usize,
    /// The line in hand, without its end.
    line: Range<usize>,
    /// Where the next line begins.
    next: usize,
}

impl<R: Read> Lines<R> {
    /// Lines of `input`; `origin` names it in messages.
    ///
    /// # Errors
    /// The input cannot be read, is text of another encoding than UTF-8, or has lines that end in a bare carriage return.
    pub fn new(input: R, origin: impl Into<String>) -> Result<Self, SourceError> {
        let buffer = vec![0; BUFFER_BYTES];
        let (origin, line) = (origin.into(), 0..0);
        let mut lines = Self { input, origin, number: 0, buffer, filled: 0, line, next: 0 };
        // A pipe may give a byte at a time, and what comes first tells the format.
        while lines.filled < BUFFER_BYTES && lines.fill()? {}
        if let Some(what) = not_utf8(&lines.buffer[..lines.filled]) {
            return Err(SourceError { place: lines.origin, what });
        }
        if ends_in_bare_returns(&lines.buffer[..lines.filled]) {
            let what = "found lines that end in CR alone, expected LF or CR LF; convert it, for example with tr '\\r' '\\n'";
            return Err(SourceError { place: lines.origin, what: what.to_owned() });
        }
        if lines.buffer[..lines.filled].starts_with(BYTE_ORDER_MARK) {
            lines.next = BYTE_ORDER_MARK.len();
        }
        Ok(lines)
    }

    /// Number of the line in hand, from 1; 0 before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The line in hand, without its end.
    pub fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Does the input end with the line in hand, without an end of line? It may have been cut there.
    pub fn unended(&self) -> bool {
        self.next == self.filled && self.line.end == self.filled
    }

    /// What was read ahead behind the line in hand, some of the lines to come: enough to tell a format.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.next..self.filled]
    }

    /// What comes behind the line in hand, as bytes.
    pub fn into_input(self) -> impl Read {
        let ahead = self.buffer[self.next..self.filled].to_vec();
        Cursor::new(ahead).chain(self.input)
    }

    /// Name of the input.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// An error about the line in hand.
    pub fn error(&self, what: impl Into<String>) -> SourceError {
        SourceError { place: format!("{}: line {}", self.origin, self.number), what: what.into() }
    }

    /// Takes the next line that is not empty in hand; false after the last.
    ///
    /// # Errors
    /// The input cannot be read, or the line is too long.
    pub fn advance(&mut self) -> Result<bool, SourceError> {
        loop {
            self.number += 1;
            let mut searched = self.next;
            let end = loop {
                if let Some(at) = memchr(b'\n', &self.buffer[searched..self.filled]) {
                    break searched + at;
                }
                // What is kept of this line moves to the front of the buffer.
                searched = self.filled - self.next;
                if !self.fill()? {
                    break self.filled;
                }
            };
            self.line = self.next..end;
            if self.buffer[self.line.clone()].ends_with(b"\r") {
                self.line.end -= 1;
            }
            let last = end == self.filled;
            self.next = if last { end } else { end + 1 };
            if !self.line.is_empty() {
                return Ok(true);
            }
            if last {
                return Ok(false);
            }
        }
    }

    /// Reads more behind what is kept, which is what begins at `next`; false at the end of the input.
    fn fill(&mut self) -> Result<bool, SourceError> {
        self.buffer.copy_within(self.next..self.filled, 0);
        self.filled -= self.next;
        self.next = 0;
        if self.filled > LINE_BYTES_MAX {
            return Err(self.error(format!(
                "found a line of over {LINE_BYTES_MAX} bytes, expected shorter ones"
            )));
        }
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        let read = read_some(&mut self.input, &mut self.buffer[self.filled..]);
        let read = read.map_err(|error| self.error(error.to_string()))?;
        self.filled += read;
        Ok(read > 0)
    }
}

/// Text of several lines without any line feed.
fn ends_in_bare_returns(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    memchr(b'\r', text).is_some() && memchr(b'\n', text).is_none()
}

/// Reads a line as JSON.
///
/// # Errors
/// It is no JSON, or not of this shape: what was found and expected, and in which column.
pub fn from_json<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| json_error(&error, line))
}

/// serde's message, with the column instead of its own line number, and the beginning of what was read.
fn json_error(error: &serde_json::Error, line: &[u8]) -> String {
    let text = error.to_string();
    let bare = text.split(" at line ").next().unwrap_or_default();
    format!("{bare} (column {}); found {}", error.column(), found(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(buffer.len());
            self.0.read(&mut buffer[..count])
        }
    }

    fn lines(text: &[u8], piece: usize) -> Vec<(u64, String)> {
        let mut lines = Lines::new(Pieces(text, piece), "t").expect("UTF-8");
        let mut all = Vec::new();
        while lines.advance().expect("reads") {
            let line = String::from_utf8_lossy(lines.line()).into_owned();
            all.push((lines.number(), line));
        }
        all
    }

    #[test]
    fn lines_end_alike_whatever_the_pieces() {
        let text = b"\xef\xbb\xbfone\r\n\n\r\ntwo\n three \n\nfour";
        let expected = [(1, "one"), (4, "two"), (5, " three "), (7, "four")]
            .map(|(number, line)| (number, line.to_owned()));
        for piece in 1..40 {
            assert_eq!(lines(text, piece), expected, "pieces of {piece} bytes");
        }
        assert_eq!(lines(b"", 8), []);
        assert_eq!(lines(b"\n\n\r\n", 8), []);
    }

    #[test]
    fn another_encoding_is_refused() {
        let utf16: Vec<u8> = "\u{feff}id,size".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let error = Lines::new(&utf16[..], "f.csv").err().expect("refused").to_string();
        assert_eq!(
            error,
            "f.csv: found UTF-16 text (by its byte order mark), expected UTF-8; convert it, for example with iconv"
        );
    }

    #[test]
    fn bare_carriage_returns_are_refused() {
        let error = Lines::new(&b"id,size\r1,2\r"[..], "f.csv").err().expect("refused").to_string();
        assert!(
            error.starts_with("f.csv: found lines that end in CR alone, expected LF"),
            "{error}"
        );
        assert_eq!(lines(b"one\r", 8), [(1, "one".to_owned())]);
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let endless = Read::take(std::io::repeat(b'1'), 1 << 30);
        let mut lines = Lines::new(endless, "f").expect("opens");
        let error = lines.advance().expect_err("refused").to_string();
        assert_eq!(error, "f: line 1: found a line of over 16777216 bytes, expected shorter ones");
        assert!(lines.buffer.capacity() < 3 * LINE_BYTES_MAX);
    }
}
