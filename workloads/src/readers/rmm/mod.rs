//! Logs of RMM's `logging_resource_adaptor`: CSV with the columns `Thread,Time,Action,Pointer,Size,Stream`.
//!
//! | rule | what it says |
//! |---|---|
//! | `allocate` | a request of `Size` bytes on `Stream`, answered with `Pointer` |
//! | `allocate failure` | a request that failed: it is made, and given back at once if it succeeds here |
//! | `free` | the buffer at `Pointer` is freed on `Stream`; one whose request the log lacks is a gap |
//! | `null` | a pointer of 0 (`(nil)`) is the answer to a request of 0 bytes, and never live |
//! | `streams` | handles become stream numbers in the order in which they appear; 0 is stream 0 |
//! | `time` | a time of day (midnight may pass), or seconds; a line may be up to a second before the one above it, since threads pass each other on the way to the file: its time is then that of the line above, and the first such line is told of ([`RmmSource::telling`]) |
//! | `order` | ops follow the order of the log; which thread wrote a line is not told apart |
//!
//! Source: rapidsai/rmm, `logging_resource_adaptor.hpp` of 0.17 to 25.02 and `logging_resource_adaptor_impl.cpp` of 26.x (pattern `%t,%H:%M:%S.%f,%v`,
//! before 0.19 with `:` in front of the microseconds; pointers as `0x…`, `(nil)`, or bare hexadecimal digits in 24.12 to 25.02).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::trace::Slots;
use vramlab_sim::units::{BufferId, Nanos, StreamId};

use super::bytes::{self, Bytes, FileError};
use super::text::{Csv, Lines, Row, Unit, found, nanos, time_of_day};

const NANOS_IN_DAY: u64 = 86_400_000_000_000;
/// How far a line may lie before the one above it.
const PASSED_MAX: u64 = 1_000_000_000;
/// Most streams that a log may name.
const STREAMS_MAX: usize = 1 << 20;

/// Plays a log, of which only live buffers are held.
pub struct RmmSource<R> {
    csv: Csv<R>,
    columns: Columns,
    keep_times: bool,
    clock: Clock,
    streams: FxHashMap<u64, StreamId>,
    buffers: Slots,
    queued: VecDeque<Step>,
    /// The request that is queued failed.
    failed: bool,
    gaps: u64,
    /// Hears of the first line that lies before the one above it.
    passed: Option<Arc<OnceLock<String>>>,
}

#[derive(Clone, Copy)]
struct Columns {
    time: Option<usize>,
    action: usize,
    pointer: usize,
    size: usize,
    stream: Option<usize>,
}

/// One line of the log.
struct Line {
    time: Option<Time>,
    action: Action,
    pointer: u64,
    size: u64,
    stream: u64,
}

/// ns since midnight, or since some moment.
#[derive(Clone, Copy)]
struct Time {
    ns: u64,
    of_day: bool,
}

enum Action {
    Allocate,
    Failure,
    Free,
}

/// Opens a log, plain or compressed. With `keep_times` ops are issued not before their recorded times, from that of the first on.
///
/// # Errors
/// It cannot be read, or has other columns; the error names the file.
pub fn open(path: &Path, keep_times: bool) -> Result<RmmSource<Bytes>, FileError> {
    let named = |error: SourceError| FileError::new(path, error.what);
    RmmSource::new(bytes::open(path)?, &path.display().to_string(), keep_times).map_err(named)
}

impl<R: Read> RmmSource<R> {
    /// As [`open`], from anywhere; `origin` names it in messages.
    ///
    /// # Errors
    /// It cannot be read, or has other columns.
    pub fn new(input: R, origin: &str, keep_times: bool) -> Result<Self, SourceError> {
        let csv = Csv::new(Lines::new(input, origin)?)?;
        let columns = Columns {
            time: csv.find(&["Time"]),
            action: csv.need(&["Action"])?,
            pointer: csv.need(&["Pointer"])?,
            size: csv.need(&["Size"])?,
            stream: csv.find(&["Stream"]),
        };
        Ok(Self {
            csv,
            columns,
            keep_times,
            clock: Clock::default(),
            streams: FxHashMap::from_iter([(0, StreamId(0))]),
            buffers: Slots::new("pointer", "allocate"),
            queued: VecDeque::new(),
            failed: false,
            gaps: 0,
            passed: None,
        })
    }

    /// The same, and `passed` is told of the first line whose time is before that of the line above.
    #[must_use]
    pub fn telling(mut self, passed: Arc<OnceLock<String>>) -> Self {
        self.passed = Some(passed);
        self
    }

    /// Number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.csv.line()
    }

    /// Has the log times?
    pub fn timed(&self) -> bool {
        self.columns.time.is_some()
    }

    fn take(&mut self, line: &Line) -> Result<(), String> {
        let time = line.time.map(|time| self.clock.advance(time)).transpose()?;
        if let (Some(passed), 1..) = (&self.passed, self.clock.back) {
            let (line, back) = (self.csv.line(), Nanos(self.clock.back));
            passed.get_or_init(|| format!(
                "line {line} is {back} before the line above it; times may go back by a second, since threads pass each other on the way to the file, and count as those of the lines above (further such lines are not told)"
            ));
        }
        if let Some(time) = time.filter(|_| self.keep_times) {
            self.queued.push_back(Step::WaitUntil(Nanos(time)));
        }
        let stream = self.stream(line.stream)?;
        let (pointer, size, site) = (line.pointer, line.size, NameId(0));
        self.failed = matches!(line.action, Action::Failure);
        match line.action {
            Action::Allocate if pointer != 0 => {
                let id = BufferId(self.buffers.open("allocate", pointer)?);
                self.op(Op::Alloc { id, stream, site, size });
            }
            // Nothing is live after it.
            Action::Allocate | Action::Failure => {
                let id = BufferId(self.buffers.open("allocate", 0)?);
                self.buffers.close(0);
                self.op(Op::Alloc { id, stream, site, size });
                self.op(Op::Free { id, stream: None });
            }
            Action::Free if pointer == 0 => {}
            Action::Free => match self.buffers.get(pointer) {
                Some(slot) => {
                    self.buffers.close(pointer);
                    self.op(Op::Free { id: BufferId(slot), stream: Some(stream) });
                }
                None => self.gaps += 1,
            },
        }
        Ok(())
    }

    fn op(&mut self, op: Op) {
        self.queued.push_back(Step::Op(op));
    }

    fn stream(&mut self, handle: u64) -> Result<StreamId, String> {
        let count = self.streams.len();
        if count == STREAMS_MAX && !self.streams.contains_key(&handle) {
            return Err(format!("found over {STREAMS_MAX} streams, expected fewer"));
        }
        Ok(*self.streams.entry(handle).or_insert(StreamId(count as u32)))
    }
}

impl Columns {
    fn line(&self, row: &Row<'_>) -> Result<Line, String> {
        let named = |column| move |what: String| row.named(column, &what);
        let time = |column| -> Result<Time, String> {
            let text = row.bytes(column);
            let of_day = text.contains(&b':');
            let ns = match of_day {
                true => time_of_day(text),
                false => nanos(text, Unit::Seconds),
            };
            Ok(Time { ns: ns.map_err(named(column))?, of_day })
        };
        let action = match row.bytes(self.action).trim_ascii() {
            b"allocate" => Action::Allocate,
            b"allocate failure" => Action::Failure,
            b"free" => Action::Free,
            other => {
                let what =
                    format!("found {}, expected allocate, allocate failure or free", found(other));
                return Err(row.named(self.action, &what));
            }
        };
        let handle = |column| hexadecimal(row.bytes(column)).map_err(named(column));
        Ok(Line {
            time: self.time.map(time).transpose()?,
            action,
            pointer: handle(self.pointer)?,
            size: row.whole(self.size)?,
            stream: self.stream.map(handle).transpose()?.unwrap_or(0),
        })
    }
}

/// `0x7f…`, `7f…` or `(nil)`.
fn hexadecimal(text: &[u8]) -> Result<u64, String> {
    let trimmed = text.trim_ascii();
    if trimmed == b"(nil)" {
        return Ok(0);
    }
    let digits = trimmed.strip_prefix(b"0x").unwrap_or(trimmed);
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let parsed = std::str::from_utf8(digits).ok().filter(|_| all_digits);
    parsed.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        format!("found {}, expected a hexadecimal number such as 0x7f2040000000", found(text))
    })
}

/// Turns times of the log into ns since its first line.
#[derive(Default)]
struct Clock {
    first: Option<u64>,
    last: u64,
    days: u64,
    /// How far the line lies before the one above it.
    back: u64,
}

impl Clock {
    fn advance(&mut self, time: Time) -> Result<u64, String> {
        let first = *self.first.get_or_insert(time.ns);
        let latest = self.last.max(first);
        let mut ns = time.ns.saturating_add(self.days.saturating_mul(NANOS_IN_DAY));
        if time.of_day && latest.saturating_sub(ns) > NANOS_IN_DAY / 2 {
            self.days += 1;
            ns = ns.saturating_add(NANOS_IN_DAY);
        }
        let time = ns;
        self.back = latest.saturating_sub(time);
        if self.back > PASSED_MAX {
            return Err(format!(
                "found a time {} before that of the line above, expected times that go back by a second at most",
                Nanos(self.back)
            ));
        }
        self.last = latest.max(time);
        Ok(self.last - first)
    }
}

impl<R: Read> Source for RmmSource<R> {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        while self.queued.is_empty() {
            let line = match self.csv.next()? {
                Some(row) => self.columns.line(&row),
                None => return Ok(Step::End),
            };
            let taken = line.and_then(|line| self.take(&line));
            taken.map_err(|what| self.csv.error(what))?;
        }
        Ok(self.queued.pop_front().unwrap_or(Step::End))
    }

    fn uses(&self) -> &[BufferUse] {
        &[]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, _name: NameId) -> &str {
        ""
    }

    fn name(&self, id: BufferId) -> u64 {
        self.buffers.name(id.0)
    }

    fn failed_when_recorded(&self) -> bool {
        self.failed
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        self.gaps
    }
}
