//! Nested lists of whole numbers in JSON, token by token.

use std::io::{BufRead, BufReader, Read};

use vramlab_sim::source::SourceError;

/// Digits of the longest number.
const DIGITS_MAX: usize = 20;

/// What a document of lists of numbers is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Open,
    Close,
    Number(i128),
}

/// Reads a document of lists of numbers.
pub(super) struct Numbers<R> {
    input: BufReader<R>,
    origin: String,
    /// Bytes that were read.
    offset: u64,
    depth: u32,
    over: bool,
    ended: bool,
}

impl<R: Read> Numbers<R> {
    pub(super) fn new(input: R, origin: &str) -> Self {
        let input = BufReader::with_capacity(128 << 10, input);
        Self { input, origin: origin.to_owned(), offset: 0, depth: 0, over: false, ended: false }
    }

    /// An error about the place that was read last.
    pub(super) fn error(&self, what: impl Into<String>) -> SourceError {
        SourceError { place: format!("{}: byte {}", self.origin, self.offset), what: what.into() }
    }

    /// Did the input end within the document?
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// The next token; `None` behind the list that the document is. Commas are stepped over wherever they stand.
    pub(super) fn next(&mut self) -> Result<Option<Token>, SourceError> {
        loop {
            let Some(byte) = self.peek()? else {
                self.ended = !self.over;
                return match self.over {
                    true => Ok(None),
                    false => {
                        Err(self.error("the file ends in the middle; expected the end of a list"))
                    }
                };
            };
            if self.over && !byte.is_ascii_whitespace() {
                return Err(self.unlike(byte));
            }
            match byte {
                b'[' => {
                    self.step();
                    self.depth += 1;
                    return Ok(Some(Token::Open));
                }
                b']' if self.depth > 0 => {
                    self.step();
                    self.depth -= 1;
                    self.over = self.depth == 0;
                    return Ok(Some(Token::Close));
                }
                b'-' | b'0'..=b'9' => return self.number().map(Token::Number).map(Some),
                b',' | b' ' | b'\n' | b'\r' | b'\t' => self.step(),
                _ => return Err(self.unlike(byte)),
            }
        }
    }

    /// The numbers up to the end of the list that was opened, at most `max`.
    pub(super) fn list(&mut self, max: usize) -> Result<Vec<i128>, SourceError> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                Some(Token::Number(_)) if list.len() == max => {
                    return Err(
                        self.error(format!("found over {max} numbers in a list, expected fewer"))
                    );
                }
                Some(Token::Number(number)) => list.push(number),
                Some(Token::Close) | None => return Ok(list),
                Some(Token::Open) => return Err(self.error("found a list, expected numbers")),
            }
        }
    }

    fn number(&mut self) -> Result<i128, SourceError> {
        let (mut value, mut digits, mut negative) = (0_i128, 0, false);
        while let Some(byte) = self.peek()? {
            match byte {
                b'-' if digits == 0 && !negative => negative = true,
                b'0'..=b'9' if digits < DIGITS_MAX => {
                    value = value * 10 + i128::from(byte - b'0');
                    digits += 1;
                }
                b',' | b']' | b' ' | b'\n' | b'\r' | b'\t' if digits > 0 => break,
                _ => return Err(self.unlike(byte)),
            }
            self.step();
        }
        Ok(if negative { -value } else { value })
    }

    fn peek(&mut self) -> Result<Option<u8>, SourceError> {
        match self.input.fill_buf() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(error) => {
                let what = error.to_string();
                Err(self.error(what))
            }
        }
    }

    fn step(&mut self) {
        self.input.consume(1);
        self.offset += 1;
    }

    fn unlike(&self, byte: u8) -> SourceError {
        self.error(format!("found {:?}, expected lists of whole numbers", char::from(byte)))
    }
}
