//! The objects of a long list in JSON, one at a time, without reading the rest of the document into memory.

use std::io::Read;
use std::ops::Range;

use memchr::{memchr2, memchr3};
use vramlab_sim::source::SourceError;

use crate::readers::bytes::read_some;

/// Bytes of the longest object that is accepted.
const OBJECT_BYTES_MAX: usize = 1 << 24;
/// Read at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// Finds the objects of the lists that are fields of a document, or of the list that a document is.
pub(super) struct Objects<R> {
    input: R,
    origin: String,
    buffer: Vec<u8>,
    filled: usize,
    /// Where the search goes on.
    at: usize,
    /// Place of the buffer's beginning in the input.
    offset: u64,
    /// Braces that are open.
    depth: usize,
    /// How many are open within the objects that are looked for: 2 in a document that is an object, 1 in one that is a list.
    level: usize,
    in_text: bool,
    /// Where the object at hand begins.
    begin: Option<usize>,
}

impl<R: Read> Objects<R> {
    /// Of `input`; `origin` names it in messages. `listed`: the document is a list.
    pub(super) fn new(input: R, origin: &str, listed: bool) -> Self {
        Self {
            input,
            origin: origin.to_owned(),
            buffer: vec![0; BUFFER_BYTES],
            filled: 0,
            at: 0,
            offset: 0,
            depth: 0,
            level: if listed { 1 } else { 2 },
            in_text: false,
            begin: None,
        }
    }

    /// The next object; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, SourceError> {
        loop {
            if self.at >= self.filled {
                if self.fill()? {
                    continue;
                }
                if self.in_text || self.depth > 0 {
                    return Err(
                        self.error("the file ends in the middle; expected the end of the JSON")
                    );
                }
                return Ok(None);
            }
            let rest = &self.buffer[self.at..self.filled];
            if self.in_text {
                match memchr2(b'"', b'\\', rest) {
                    None => self.at = self.filled,
                    Some(found) if rest[found] == b'"' => {
                        self.at += found + 1;
                        self.in_text = false;
                    }
                    Some(found) => self.at += found + 2, // what it escapes is no end
                }
                continue;
            }
            let Some(found) = memchr3(b'"', b'{', b'}', rest) else {
                self.at = self.filled;
                continue;
            };
            let byte = rest[found];
            self.at += found + 1;
            match byte {
                b'"' => self.in_text = true,
                b'{' => {
                    self.depth += 1;
                    if self.depth == self.level {
                        self.begin = Some(self.at - 1);
                    }
                }
                _ => {
                    if self.depth == 0 {
                        return Err(self.error("found } that closes nothing"));
                    }
                    self.depth -= 1;
                    if self.depth < self.level
                        && let Some(begin) = self.begin.take()
                    {
                        return Ok(Some(begin..self.at));
                    }
                }
            }
        }
    }

    /// The bytes of the object that was found last.
    pub(super) fn bytes(&self, object: &Range<usize>) -> &[u8] {
        &self.buffer[object.clone()]
    }

    /// An error about the place where the search is.
    pub(super) fn error(&self, what: impl Into<String>) -> SourceError {
        let place = format!("{}: byte {}", self.origin, self.offset + self.at as u64);
        SourceError { place, what: what.into() }
    }

    /// Reads more behind the object at hand; false at the end.
    fn fill(&mut self) -> Result<bool, SourceError> {
        let kept = self.begin.unwrap_or(self.at).min(self.filled);
        self.buffer.copy_within(kept..self.filled, 0);
        (self.filled, self.at) = (self.filled - kept, self.at - kept);
        self.begin = self.begin.map(|begin| begin - kept);
        self.offset += kept as u64;
        if self.filled > OBJECT_BYTES_MAX {
            let what =
                format!("found an object of over {OBJECT_BYTES_MAX} bytes, expected shorter ones");
            return Err(self.error(what));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, listed: bool) -> Result<Vec<String>, String> {
        let mut objects = Objects::new(text.as_bytes(), "t", listed);
        let mut all = Vec::new();
        while let Some(range) = objects.next().map_err(|error| error.to_string())? {
            all.push(String::from_utf8_lossy(objects.bytes(&range)).into_owned());
        }
        Ok(all)
    }

    #[test]
    fn objects_are_found_whatever_their_texts() {
        let text = r#"{"a": {"b": "}{\"\\"}, "list": [{}, {"x": {"y": [1]}}], "c": "{"}"#;
        assert_eq!(
            found(text, false).expect("reads"),
            [r#"{"b": "}{\"\\"}"#, "{}", r#"{"x": {"y": [1]}}"#]
        );
        assert_eq!(found(r#"[{"a": {}}, 5, {}"#, true).expect("reads"), [r#"{"a": {}}"#, "{}"]);
        assert_eq!(found("[]", true).expect("reads"), [""; 0]);
    }

    #[test]
    fn what_is_cut_off_is_told_with_its_place() {
        let cut = "the file ends in the middle; expected the end of the JSON";
        assert_eq!(found(r#"{"a": [{"b": 1}, {"#, false), Err(format!("t: byte 18: {cut}")));
        assert_eq!(found(r#"["a"#, true), Err(format!("t: byte 3: {cut}")));
        assert_eq!(found("[}", true), Err("t: byte 2: found } that closes nothing".to_owned()));
    }

    #[test]
    fn an_endless_object_is_not_kept() {
        let endless = std::io::repeat(b' ').take(1 << 30);
        let mut objects = Objects::new("[{".as_bytes().chain(endless), "t", true);
        let error = objects.next().expect_err("too long").to_string();
        assert!(
            error.ends_with("found an object of over 16777216 bytes, expected shorter ones"),
            "{error}"
        );
        assert!(objects.buffer.capacity() < 3 * OBJECT_BYTES_MAX);
    }
}
