//! All requests of a file.

use std::io::Read;
use std::path::Path;

use vramlab_sim::kv::KeyRun;
use vramlab_sim::source::SourceError;

use super::{Request, Requests, open};
use crate::readers::bytes::FileError;

/// Most requests and runs of keys that are held, together: some GB.
const HELD_MAX: usize = 100_000_000;

/// The requests of a file in the order of their arrival, with what their prompts are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    requests: Vec<Request>,
    keys: Vec<KeyRun>,
    /// Where the keys of each request end.
    ends: Vec<usize>,
}

impl RequestLog {
    /// Reads a file, plain or compressed.
    ///
    /// # Errors
    /// It cannot be read, is no file of requests, or a line is bad; the error names the file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::collect(open(path)?).map_err(|error| FileError::new(path, error))
    }

    /// Takes what is left of a reader.
    ///
    /// # Errors
    /// A line is bad, or there are more requests than can be held.
    pub fn collect<R: Read>(mut requests: Requests<R>) -> Result<Self, SourceError> {
        let mut log = Self::default();
        while let Some(request) = requests.next()? {
            log.requests.push(request);
            log.keys.extend_from_slice(requests.keys());
            log.ends.push(log.keys.len());
            if log.requests.len() + log.keys.len() > HELD_MAX {
                let what =
                    format!("found over {HELD_MAX} requests and blocks of keys, expected fewer");
                return Err(requests.error(what));
            }
        }
        Ok(log)
    }

    /// How many requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Has the file times of arrival?
    pub fn timed(&self) -> bool {
        self.requests.first().is_some_and(|request| request.arrival.is_some())
    }

    /// All requests, in order.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// What the first tokens of the n-th request's prompt are; tokens beyond them are like no other.
    pub fn keys(&self, index: usize) -> &[KeyRun] {
        let Some(end) = self.ends.get(index) else { return &[] };
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[begin..*end]
    }
}
