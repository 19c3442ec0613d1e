//! Recorded requests to a server of a language model: when they came, how long they were, what they shared.
//!
//! | format | columns or fields (units) | source |
//! |---|---|---|
//! | Azure, CSV | `TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens` | Azure/AzurePublicDataset, 2023 and 2024 LLM inference traces |
//! | BurstGPT, CSV | `Timestamp` (s), `Request tokens`, `Response tokens` | HPMLL/BurstGPT |
//! | Vidur, CSV | `arrived_at` (s), `num_prefill_tokens`, `num_decode_tokens` | microsoft/vidur, data/processed_traces |
//! | LLMServingSim, CSV or JSON Lines | `arrival_time_ns`, `input_toks`, `output_toks`, `input_tok_ids` | casys-kaist/LLMServingSim, workloads |
//! | Mooncake, JSON Lines | `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | kvcache-ai/Mooncake, FAST25-release/traces |
//! | vLLM bench, JSON Lines | `arrival_time` (s since 1970), `input_toks`, `output_toks`, `queued_ts`, `scheduled_ts`, `first_token_ts`, `last_token_ts` (s of another clock) | casys-kaist/LLMServingSim, bench |
//!
//! | rule | what it says |
//! |---|---|
//! | `columns` | are known by name, in any order, each name with its unit; others are ignored |
//! | `arrival` | ns since the first request of the file; a file without times has none, and its requests arrive at 0 |
//! | `forward` | a request does not arrive before the one on the line above it: that is an error |
//! | `hash_block` | a `hash_ids` number is 512 tokens of text, the last one the rest; equal numbers are equal texts |
//! | `private` | tokens that no number describes are like no other token |
//!
//! [`Requests`] streams a file of any length; [`RequestLog`] holds a whole one.

mod json;
mod log;
mod table;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

use vramlab_sim::kv::KeyRun;
use vramlab_sim::source::SourceError;
use vramlab_sim::units::Nanos;

use super::bytes::{self, Bytes, FileError};
use super::text::{Csv, Lines};
pub use log::RequestLog;

/// Most tokens of a prompt or of an answer.
const TOKENS_MAX: u64 = u32::MAX as u64;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Since the first request of the file; `None` in a file without times.
    pub arrival: Option<Nanos>,
    /// Tokens of the prompt; below 2^32.
    pub prompt_tokens: u64,
    /// Tokens that were answered; below 2^32.
    pub output_tokens: u64,
    /// What a real server measured, where the file says so.
    pub measured: Option<Measured>,
}

/// When a real server did what with a request: ns of one clock of its own, whose beginning means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Measured {
    pub queued: Nanos,
    pub scheduled: Nanos,
    pub first_token: Nanos,
    pub last_token: Nanos,
}

/// Reads requests one by one.
pub struct Requests<R> {
    rows: Rows<R>,
    /// Arrival of the first request, on the file's own clock.
    first: Option<u64>,
    /// Arrival of the last one.
    last: Option<Nanos>,
    read: u64,
    keys: Vec<KeyRun>,
}

enum Rows<R> {
    Csv(Csv<R>, table::Columns),
    Json(Lines<R>),
}

/// A request as its line says it, with its arrival on the file's own clock.
struct Raw {
    arrival: Option<u64>,
    prompt_tokens: u64,
    output_tokens: u64,
    measured: Option<Measured>,
}

/// Opens a file, plain or compressed.
///
/// # Errors
/// It cannot be read, or does not begin as a file of requests does.
pub fn open(path: &Path) -> Result<Requests<Bytes>, FileError> {
    let input = bytes::open(path)?;
    let named = |error: SourceError| FileError::new(path, error.what);
    Requests::new(input, path.display().to_string()).map_err(named)
}

impl<R: Read> Requests<R> {
    /// Requests of `input`; `origin` names it in messages.
    ///
    /// # Errors
    /// The input cannot be read, or does not begin as a file of requests does.
    pub fn new(input: R, origin: impl Into<String>) -> Result<Self, SourceError> {
        let lines = Lines::new(input, origin)?;
        let rows = if lines.rest().trim_ascii_start().starts_with(b"{") {
            Rows::Json(lines)
        } else {
            let csv = Csv::new(lines)?;
            let columns = table::Columns::of(&csv)?;
            Rows::Csv(csv, columns)
        };
        Ok(Self { rows, first: None, last: None, read: 0, keys: Vec::new() })
    }

    /// The next request; `None` after the last.
    ///
    /// # Errors
    /// The input cannot be read, or a line is no request, or goes back in time: file, line, found, expected.
    #[allow(clippy::should_implement_trait)] // it may fail, and lends its keys
    pub fn next(&mut self) -> Result<Option<Request>, SourceError> {
        self.keys.clear();
        let raw = match &mut self.rows {
            Rows::Csv(csv, columns) => match csv.next()? {
                Some(row) => columns.request(&row),
                None => return Ok(None),
            },
            Rows::Json(lines) => match lines.advance()? {
                true => json::request(lines.line(), &mut self.keys),
                false => return Ok(None),
            },
        };
        let request = raw.and_then(|raw| self.checked(&raw)).map_err(|what| self.error(what))?;
        (self.read, self.last) = (self.read + 1, request.arrival);
        Ok(Some(request))
    }

    /// What the first tokens of the last request's prompt are; tokens beyond them are like no other.
    pub fn keys(&self) -> &[KeyRun] {
        &self.keys
    }

    /// An error about the line that was read last.
    pub fn error(&self, what: impl Into<String>) -> SourceError {
        match &self.rows {
            Rows::Csv(csv, _) => csv.error(what),
            Rows::Json(lines) => lines.error(what),
        }
    }

    fn checked(&mut self, raw: &Raw) -> Result<Request, String> {
        let Raw { prompt_tokens, output_tokens, measured, .. } = *raw;
        let most = prompt_tokens.max(output_tokens);
        if most > TOKENS_MAX {
            return Err(format!("found {most} tokens, expected at most {TOKENS_MAX}"));
        }
        if self.read > 0 && raw.arrival.is_some() != self.first.is_some() {
            let (here, there) = match raw.arrival {
                Some(_) => ("an arrival", "none"),
                None => ("no arrival", "one"),
            };
            return Err(format!("found {here}, expected {there} as in the first line"));
        }
        let first = *self.first.get_or_insert(raw.arrival.unwrap_or_default());
        let arrival = raw.arrival.map(|arrival| {
            arrival.checked_sub(first).map(Nanos).filter(|a| Some(*a) >= self.last).ok_or_else(|| {
                let before = first + self.last.map_or(0, |last| last.0);
                format!(
                    "found an arrival {} ns before that of the request above, expected times that do not go back",
                    before - arrival
                )
            })
        });
        self.first = raw.arrival.map(|_| first);
        Ok(Request { arrival: arrival.transpose()?, prompt_tokens, output_tokens, measured })
    }
}
