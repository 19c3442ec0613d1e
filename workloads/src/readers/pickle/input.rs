//! The bytes of a pickle, read through one buffer, so that a file of any size needs little memory.

use std::io::Read;

use super::error::{Error, Problem, Result};
use crate::readers::bytes::read_some;

/// Bytes read at a time: large enough that refilling does not show, small enough for the second-level cache.
const BUFFER_BYTES: usize = 256 << 10;
/// Zero bytes kept behind the data, so that [`Input::window`] always has something to copy.
const PAD_BYTES: usize = 16;
/// Below this a refill is tried before the next opcode.
pub(super) const LOW_BYTES: usize = 32;

pub(super) struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Offset of `buffer[0]` in the pickle.
    base: u64,
    done: bool,
    /// Length of the whole pickle, if known beforehand.
    total: Option<u64>,
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R, total: Option<u64>) -> Self {
        let size = total.map_or(BUFFER_BYTES, |total| total.min(BUFFER_BYTES as u64) as usize);
        let buffer = vec![0; size.max(LOW_BYTES) + PAD_BYTES];
        Input { reader, buffer, at: 0, end: 0, base: 0, done: false, total }
    }

    /// Length of the whole, if it is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Offset of the next byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    #[inline]
    pub(super) fn is_low(&self) -> bool {
        self.end - self.at < LOW_BYTES && !self.done
    }

    /// The next 16 bytes, with zeros behind the end. Call [`Input::refill`] when low, then this.
    #[inline]
    pub(super) fn window(&self) -> [u8; 16] {
        let mut window = [0; 16];
        window.copy_from_slice(&self.buffer[self.at..self.at + 16]);
        window
    }

    /// The buffer with its zero bytes, and where in it the next byte and the end of the data are.
    #[inline]
    pub(super) fn buffered(&self) -> (&[u8], usize, usize) {
        (&self.buffer[..self.end + PAD_BYTES], self.at, self.end)
    }

    /// Steps to a place in the buffer that [`Input::buffered`] showed.
    #[inline]
    pub(super) fn skip_to(&mut self, at: usize) {
        self.at = at.min(self.end);
    }

    /// Steps over `count` ≤ 16 bytes that [`Input::window`] showed.
    #[inline]
    pub(super) fn skip(&mut self, count: usize) -> Result<()> {
        let at = self.at + count;
        if at > self.end {
            return Err(self.cut(count as u64));
        }
        self.at = at;
        Ok(())
    }

    #[cold]
    fn cut(&self, need: u64) -> Error {
        let left = self.end - self.at;
        let found = match left {
            0 => "the end of the data".to_owned(),
            _ => format!("only {left} more bytes"),
        };
        let expected = match (left, need) {
            (0, 1) => "an opcode (the pickle has no STOP)".to_owned(),
            _ => format!("{need} bytes of opcode and argument"),
        };
        Error::new(self.offset(), Problem::Truncated, found, expected)
    }

    /// Moves what is left to the front and reads until a buffer's worth is there or the data ends.
    #[cold]
    pub(super) fn refill(&mut self) -> Result<()> {
        self.fill(BUFFER_BYTES.min(self.buffer.len() - PAD_BYTES))?;
        if self.buffer.len() > BUFFER_BYTES + PAD_BYTES && self.end <= BUFFER_BYTES {
            self.buffer.truncate(BUFFER_BYTES + PAD_BYTES);
            self.buffer.shrink_to_fit();
            self.buffer[self.end..].fill(0);
        }
        Ok(())
    }

    fn fill(&mut self, room: usize) -> Result<()> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < room {
            match read_some(&mut self.reader, &mut self.buffer[self.end..room]) {
                Ok(0) => {
                    self.done = true;
                    break;
                }
                Ok(count) => self.end += count,
                Err(error) => {
                    let at = self.base + self.end as u64;
                    return Err(Error::new(at, Problem::Io, error.to_string(), "readable data"));
                }
            }
        }
        self.buffer[self.end..self.end + PAD_BYTES].fill(0);
        Ok(())
    }

    /// `length` bytes that an opcode at byte `opcode_at` declared. Memory grows with the data that is really there.
    #[inline]
    pub(super) fn bytes(&mut self, length: u64, max: u64, opcode_at: u64) -> Result<&[u8]> {
        if length > (self.end - self.at) as u64 {
            self.gather(length, max, opcode_at)?;
        }
        let start = self.at;
        self.at += length as usize;
        Ok(&self.buffer[start..self.at])
    }

    #[cold]
    fn gather(&mut self, length: u64, max: u64, opcode_at: u64) -> Result<()> {
        self.check_length(length, max, opcode_at)?;
        while ((self.end - self.at) as u64) < length {
            if self.done {
                return Err(self.too_long(length, (self.end - self.at) as u64, opcode_at));
            }
            let full = self.end - self.at + LOW_BYTES >= self.buffer.len() - PAD_BYTES;
            if full {
                let size = (self.buffer.len() * 2).min(length as usize + LOW_BYTES + PAD_BYTES);
                self.buffer.resize(size.max(self.buffer.len() + LOW_BYTES), 0);
            }
            self.fill(self.buffer.len() - PAD_BYTES)?;
        }
        Ok(())
    }

    fn check_length(&self, length: u64, max: u64, opcode_at: u64) -> Result<()> {
        if let Some(total) = self.total {
            let left = total.saturating_sub(self.offset());
            if length > left {
                return Err(self.too_long(length, left, opcode_at));
            }
        }
        if length > max {
            let found = format!("a length of {length} bytes");
            return Err(Error::new(
                opcode_at,
                Problem::Limit,
                found,
                format!("at most {max} bytes"),
            ));
        }
        Ok(())
    }

    #[cold]
    fn too_long(&self, length: u64, left: u64, opcode_at: u64) -> Error {
        let found = format!("a length of {length} bytes");
        let expected = format!("at most the {left} bytes that are left");
        Error::new(opcode_at, Problem::Length, found, expected)
    }

    /// Steps over `length` bytes without keeping them.
    pub(super) fn skip_long(&mut self, length: u64, opcode_at: u64) -> Result<()> {
        self.check_length(length, u64::MAX, opcode_at)?;
        let mut left = length;
        loop {
            let step = left.min((self.end - self.at) as u64);
            self.at += step as usize;
            left -= step;
            if left == 0 {
                return Ok(());
            }
            if self.done {
                return Err(self.too_long(length, length - left, opcode_at));
            }
            self.refill()?;
        }
    }

    /// The text up to the next line feed, which is stepped over.
    pub(super) fn line(&mut self, max: u64, opcode_at: u64) -> Result<&[u8]> {
        let mut seen = 0;
        loop {
            let found = self.buffer[self.at + seen..self.end].iter().position(|b| *b == b'\n');
            if let Some(more) = found {
                let start = self.at;
                let stop = start + seen + more;
                self.at = stop + 1;
                return Ok(&self.buffer[start..stop]);
            }
            seen = self.end - self.at;
            if self.done {
                let found = format!("{seen} bytes without a line feed");
                return Err(Error::new(opcode_at, Problem::Truncated, found, "a line of text"));
            }
            if seen as u64 > max {
                let found = format!("a line of more than {max} bytes");
                let expected = format!("at most {max} bytes");
                return Err(Error::new(opcode_at, Problem::Limit, found, expected));
            }
            if seen + LOW_BYTES >= self.buffer.len() - PAD_BYTES {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            self.fill(self.buffer.len() - PAD_BYTES)?;
        }
    }
}
