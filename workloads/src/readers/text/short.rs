//! JSON whose strings and numbers are bounded, before a parser holds them.
//!
//! A parser keeps a string until its end, and a small compressed file may have one of many GB.

use std::io::{self, Read};

use memchr::{memchr, memchr2, memrchr, memrchr3};

use crate::readers::bytes::read_some;

/// Bytes of the longest string or number that is accepted.
pub(crate) const PIECE_BYTES_MAX: u64 = 1 << 24;

/// Passes JSON on, up to a string or number of over [`PIECE_BYTES_MAX`] bytes.
pub(crate) struct ShortPieces<R> {
    input: R,
    /// Bytes that were passed on.
    offset: u64,
    /// Bytes of the piece at hand.
    piece: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    String,
    /// Behind a backslash of a string.
    Escaped,
}

impl<R: Read> ShortPieces<R> {
    pub(crate) const fn new(input: R) -> Self {
        Self { input, offset: 0, piece: 0, state: State::Between }
    }

    fn pass(&mut self, mut text: &[u8]) -> io::Result<()> {
        while !text.is_empty() {
            let end = match self.state {
                State::Between => memchr(b'"', text),
                State::String => memchr2(b'"', b'\\', text),
                State::Escaped => Some(0),
            };
            let taken = end.map_or(text.len(), |at| at + 1);
            let (now, rest) = text.split_at(taken);
            self.piece = match self.state {
                State::Between => {
                    let comma = memrchr3(b',', b':', b']', now).max(memrchr(b'\n', now));
                    comma.map_or(self.piece + taken as u64, |at| (taken - at) as u64)
                }
                State::String | State::Escaped => self.piece + taken as u64,
            };
            self.offset += taken as u64;
            if self.piece > PIECE_BYTES_MAX {
                let what = format!(
                    "byte {}: found a string or number of over {PIECE_BYTES_MAX} bytes, expected shorter ones",
                    self.offset
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            self.state = match (self.state, end.map(|_| now.last())) {
                (State::Between, Some(_)) => {
                    self.piece = 0;
                    State::String
                }
                (State::String, Some(Some(b'"'))) => {
                    self.piece = 0;
                    State::Between
                }
                (State::String, Some(_)) => State::Escaped,
                (State::Escaped, _) => State::String,
                (state, None) => state,
            };
            text = rest;
        }
        Ok(())
    }
}

impl<R: Read> Read for ShortPieces<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = read_some(&mut self.input, buffer)?;
        self.pass(&buffer[..read])?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&[u8]], repeats: u64) -> Result<u64, String> {
        let [before, repeated, after] = parts else { panic!("three parts") };
        let many = io::repeat(repeated[0]).take(repeats);
        let mut short = ShortPieces::new(before.chain(many).chain(*after));
        io::copy(&mut short, &mut io::sink()).map_err(|error| error.to_string())
    }

    #[test]
    fn long_strings_and_numbers_are_refused_and_long_documents_are_not() {
        let most = PIECE_BYTES_MAX;
        for (before, repeated, after) in [
            (&b"{\"a\": \""[..], b"x", &b"\"}"[..]),
            (b"{\"a\": \"\\", b"\\", b"\"}"),
            (b"[1, ", b"7", b"]"),
        ] {
            let error = read(&[before, repeated, after], most + 100).expect_err("too long");
            assert!(error.contains("a string or number of over 16777216 bytes"), "{error}");
            assert!(error.starts_with("byte 1677"), "{error}");
            assert!(read(&[before, repeated, after], most - 100).is_ok());
        }
        assert!(read(&[b"[", b",", b"]"], 3 * most).is_ok(), "no JSON, but bounded");
        let text = "\"a\\\"b\",".repeat(4_000_000);
        assert!(read(&[b"[", b" ", text.as_bytes()], 1).is_ok());
    }
}
