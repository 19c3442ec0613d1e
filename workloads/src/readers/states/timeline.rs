//! The memory timeline that PyTorch's profiler exports: bytes by category over time.
//!
//! | form | content |
//! |---|---|
//! | `export_memory_timeline("….json")` | `[times, rows]`: times in µs, and for each a row of 0 and the bytes of the eight categories |
//! | `export_memory_timeline("….raw.json.gz")` | a list of `[time in ns, action, bytes, category]`; time −1 is the start |
//!
//! | action | meaning |
//! |---|---|
//! | 1, 2 | bytes were there at the start, or were created |
//! | 3 | a tensor was written: what its old category loses and its new one gains are two events |
//! | 4 | bytes were destroyed; they are negative |
//!
//! | rule | what it says |
//! |---|---|
//! | `sum` | a point is the sum of all events up to its time; events of one time are one point |
//! | `forward` | times do not go back |
//! | `below_zero` | a category may not fall below 0 in `[times, rows]`; in the raw form it may, since what was there at the start is not always known |
//!
//! Source: pytorch/pytorch, torch/profiler/_memory_profiler.py, `MemoryProfileTimeline`, 2.0 to 2.9.

use std::io::Read;

use vramlab_sim::source::SourceError;

use super::numbers::{Numbers, Token};
use crate::readers::text::Lines;

/// The categories, in the order of the file.
pub const CATEGORIES: [&str; 8] = [
    "parameter",
    "optimizer state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd detail",
    "unknown",
];

/// Most points that are held.
const POINTS_MAX: usize = 20_000_000;

/// Bytes by category over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// In order of time.
    pub points: Vec<Point>,
    /// The file ends in the middle: what is missing.
    pub missing: Option<String>,
}

/// Bytes by category from a time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Host time (ns), of the profiler's clock. What was there at the start has the time of the first event.
    pub time: u64,
    /// Of each category (B).
    pub bytes: [i64; 8],
}

/// Above what a category may hold, so that sums stay numbers.
const BYTES_MAX: u64 = 1 << 60;

impl Point {
    /// Bytes of all categories.
    pub fn total(&self) -> i64 {
        self.bytes.iter().sum()
    }
}

impl Timeline {
    /// The first point with the most bytes.
    pub fn peak(&self) -> Option<&Point> {
        self.points.iter().rev().max_by_key(|point| point.total())
    }
}

/// Reads a timeline of either form; `origin` names it in messages.
///
/// # Errors
/// It cannot be read, or is no such list: byte, found, expected.
pub fn read(input: impl Read, origin: &str) -> Result<Timeline, SourceError> {
    // Tells other encodings, and steps over a byte order mark.
    let lines = Lines::new(input, origin)?;
    let mut numbers = Numbers::new(lines.into_input(), origin);
    let mut timeline = Timeline::default();
    match either_form(&mut numbers, &mut timeline) {
        // what is there is whole
        Err(_) if numbers.ended() && !timeline.points.is_empty() => {
            timeline.missing.get_or_insert_with(|| "what came after these times".to_owned());
            return Ok(timeline);
        }
        done => done?,
    }
    match numbers.next()? {
        None => Ok(timeline),
        Some(_) => Err(numbers.error(EXPECTED)),
    }
}

fn either_form<R: Read>(
    numbers: &mut Numbers<R>,
    timeline: &mut Timeline,
) -> Result<(), SourceError> {
    if numbers.next()? != Some(Token::Open) {
        return Err(numbers.error(EXPECTED));
    }
    match numbers.next()? {
        Some(Token::Open) => {}
        Some(Token::Close) => return Ok(()),
        _ => return Err(numbers.error(EXPECTED)),
    }
    let first = numbers.list(POINTS_MAX)?;
    if numbers.next()? == Some(Token::Open) {
        // What the second list begins with tells the form.
        return match numbers.next()? {
            Some(Token::Open) => rows(numbers, &first, timeline),
            Some(Token::Number(number)) => events(numbers, &first, Some(number), timeline),
            _ => Err(numbers.error(EXPECTED)),
        };
    }
    events(numbers, &first, None, timeline)
}

const EXPECTED: &str = "found another list, expected [times, rows of nine numbers] or a list of [time, action 1 to 4, bytes, category 0 to 7]";

/// `[times, rows]`, of which the first row is open.
fn rows<R: Read>(
    numbers: &mut Numbers<R>,
    times: &[i128],
    timeline: &mut Timeline,
) -> Result<(), SourceError> {
    loop {
        let row = numbers.list(9)?;
        let point = row_point(timeline, times, &row).map_err(|what| numbers.error(what))?;
        timeline.points.push(point);
        let left = times.len() - timeline.points.len();
        timeline.missing = (left > 0).then(|| format!("the rows of the last {left} times"));
        match numbers.next()? {
            Some(Token::Open) => {}
            Some(Token::Close) => break,
            _ => return Err(numbers.error(EXPECTED)),
        }
    }
    if numbers.next()? != Some(Token::Close) || timeline.points.len() < times.len() {
        let (rows, times) = (timeline.points.len(), times.len());
        return Err(numbers.error(format!(
            "found {rows} rows for {times} times, expected one for each and nothing more"
        )));
    }
    Ok(())
}

fn row_point(timeline: &Timeline, times: &[i128], row: &[i128]) -> Result<Point, String> {
    let at = timeline.points.len();
    let time = *times
        .get(at)
        .ok_or_else(|| format!("found over {at} rows, expected one for each time"))?;
    let nanos = u64::try_from(time).ok().and_then(|time| time.checked_mul(1000));
    let time = nanos.ok_or_else(|| format!("found the time {time}, expected µs since 1970"))?;
    forward(timeline.points.last().map(|last| last.time), time)?;
    let bytes: Vec<i64> = row
        .iter()
        .skip(1)
        .filter_map(|bytes| u64::try_from(*bytes).ok().filter(|bytes| *bytes < BYTES_MAX))
        .map(|bytes| bytes as i64)
        .collect();
    let bytes = bytes.try_into().map_err(|_| {
        format!("found the row {row:?}, expected nine numbers from 0 to below 2^60")
    })?;
    Ok(Point { time, bytes })
}

fn forward(last: Option<u64>, time: u64) -> Result<(), String> {
    match last.filter(|last| time < *last) {
        None => Ok(()),
        Some(last) => Err(format!(
            "found the time {time} ns after {last} ns, expected times that do not go back"
        )),
    }
}

/// A list of events, the first of which was read, and of the second the first number.
fn events<R: Read>(
    numbers: &mut Numbers<R>,
    first: &[i128],
    begun: Option<i128>,
    timeline: &mut Timeline,
) -> Result<(), SourceError> {
    let mut sums = Sums::default();
    let read = add_up(numbers, first, begun, &mut sums);
    timeline.points = sums.finish();
    read
}

fn add_up<R: Read>(
    numbers: &mut Numbers<R>,
    first: &[i128],
    begun: Option<i128>,
    sums: &mut Sums,
) -> Result<(), SourceError> {
    sums.take(first).map_err(|what| numbers.error(what))?;
    let mut next = begun.map(|number| vec![number]);
    while let Some(mut event) = next {
        event.extend(numbers.list(4)?);
        sums.take(&event).map_err(|what| numbers.error(what))?;
        next = match numbers.next()? {
            Some(Token::Open) => Some(Vec::new()),
            Some(Token::Close) | None => None,
            Some(Token::Number(_)) => return Err(numbers.error(EXPECTED)),
        };
    }
    Ok(())
}

/// Adds events up.
#[derive(Default)]
struct Sums {
    points: Vec<Point>,
    sum: [i64; 8],
    /// Something was there at the start.
    start: bool,
}

impl Sums {
    fn take(&mut self, event: &[i128]) -> Result<(), String> {
        let wrong =
            || format!("found {event:?}, expected [time, action 1 to 4, bytes, category 0 to 7]");
        let [time, action @ 1..=4, bytes, category @ 0..=7] = *event else { return Err(wrong()) };
        let bytes = i64::try_from(bytes).map_err(|_| wrong())?;
        let at_start = time == -1 && action == 1;
        if at_start && self.points.is_empty() {
            self.start = true;
        } else {
            self.advance(u64::try_from(time).map_err(|_| wrong())?)?;
        }
        let sum = &mut self.sum[category as usize];
        *sum = sum
            .checked_add(bytes)
            .filter(|sum| sum.unsigned_abs() < BYTES_MAX)
            .ok_or_else(wrong)?;
        if let Some(point) = self.points.last_mut() {
            point.bytes = self.sum;
        }
        Ok(())
    }

    /// A point for a later time.
    fn advance(&mut self, time: u64) -> Result<(), String> {
        let last = self.points.last().map(|last| last.time);
        forward(last, time)?;
        if last.is_none() && self.start {
            self.points.push(Point { time, bytes: self.sum });
            self.start = false;
        } else if last == Some(time) {
            return Ok(());
        }
        if self.points.len() >= POINTS_MAX {
            return Err(format!("found over {POINTS_MAX} times, expected fewer"));
        }
        self.points.push(Point { time, bytes: self.sum });
        Ok(())
    }

    fn finish(mut self) -> Vec<Point> {
        if self.start {
            self.points.push(Point { time: 0, bytes: self.sum });
        }
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(text: &str) -> Timeline {
        read(text.as_bytes(), "t").unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(text: &str) -> String {
        read(text.as_bytes(), "t").expect_err("bad input").to_string()
    }

    #[test]
    fn raw_events_are_added_up() {
        let text = "[[-1, 1, 100, 7], [-1, 1, 20, 0],\r\n [500, 4, -100, 7], [500, 2, 5, 4], [600, 3, -5, 4], [600, 3, 5, 1]]";
        let mut start = Point { time: 500, bytes: [20, 0, 0, 0, 0, 0, 0, 100] };
        let first = Point { time: 500, bytes: [20, 0, 0, 0, 5, 0, 0, 0] };
        let second = Point { time: 600, bytes: [20, 5, 0, 0, 0, 0, 0, 0] };
        assert_eq!(timeline(text).points, [start, first, second]);
        assert_eq!(timeline(text).peak().map(Point::total), Some(120));
        start.time = 0;
        assert_eq!(timeline("[[-1, 1, 100, 7], [-1, 1, 20, 0]]").points, [start]);
        assert_eq!(timeline("[[7, 2, 1, 0]]").points.len(), 1);
        assert_eq!(timeline("[]").points, []);
    }

    #[test]
    fn rows_by_category() {
        let text = "\u{feff}[[5, 5, 9], [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 9],[0, 0, 0, 0, 0, 0, 0, 0, 0]]]\n";
        let read = timeline(text);
        assert_eq!(read.points[0], Point { time: 5000, bytes: [1, 2, 3, 4, 5, 6, 7, 8] });
        assert_eq!(read.points.len(), 3);
        assert_eq!(read.peak().map(|point| (point.time, point.total())), Some((5000, 37)));
        assert_eq!(CATEGORIES[7], "unknown");
    }

    #[test]
    fn a_list_that_ends_early_gives_what_is_there_and_says_so() {
        let read = timeline("[[7, 2, 1, 0], [8, 2, 1, 0], [9, 2, 3");
        assert_eq!(read.points.len(), 2);
        assert_eq!(read.missing.as_deref(), Some("what came after these times"));
        let read = timeline("[[5, 6, 7], [[0,1,1,1,1,1,1,1,1],[0,1,1,");
        assert_eq!(read.points.len(), 1);
        assert_eq!(read.missing.as_deref(), Some("the rows of the last 2 times"));
        assert_eq!(timeline("[[7, 2, 1, 0]]").missing, None);
    }

    #[test]
    fn bad_lists_are_refused() {
        let list = "expected [time, action 1 to 4, bytes, category 0 to 7]";
        assert_eq!(error(""), "t: byte 0: the file ends in the middle; expected the end of a list");
        assert_eq!(
            error("[[1, 2, 3"),
            "t: byte 9: the file ends in the middle; expected the end of a list"
        );
        assert_eq!(error("[[1, 2, 3, 8]]"), format!("t: byte 14: found [1, 2, 3, 8], {list}"));
        assert_eq!(error("[[1, 5, 3, 0]]"), format!("t: byte 14: found [1, 5, 3, 0], {list}"));
        assert_eq!(error("[[1, 2, 3]]"), format!("t: byte 11: found [1, 2, 3], {list}"));
        assert_eq!(error("[[-2, 2, 3, 0]]"), format!("t: byte 15: found [-2, 2, 3, 0], {list}"));
        assert!(
            error("[[2, 2, 3, 0], [1, 2, 3, 0]]")
                .contains("found the time 1 ns after 2 ns, expected times that do not go back")
        );
        let least = i64::MIN;
        assert!(error(&format!("[[5, 2, {least}, 0]]")).contains("expected [time, action"));
        let most = i64::MAX;
        let rows = format!("[[1], [[0,{most},{most},0,0,0,0,0,0]]]");
        assert!(error(&rows).contains("expected nine numbers from 0 to below 2^60"));
        assert!(error("[[1, 2, 1.5, 0]]").contains("found '.', expected lists of whole numbers"));
        assert!(error("[[1, 2, NaN, 0]]").contains("found 'N', expected lists of whole numbers"));
        assert!(error("[[1], [[0,0,0,0,0,0,0,0,-1]]]").contains("expected nine numbers from 0"));
        assert!(error("[[1, 2], [[0,0,0,0,0,0,0,0,1]]]").contains("found 1 rows for 2 times"));
        assert!(
            error("[[1], [[0,0,0,0,0,0,0,0,1],[0,0,0,0,0,0,0,0,1]]]").contains("found over 1 rows")
        );
        assert!(
            error("[[9, 8], [[0,0,0,0,0,0,0,0,1],[0,0,0,0,0,0,0,0,1]]]")
                .contains("found the time 8000 ns after 9000 ns")
        );
        assert!(error("[] 7").contains("found '7'"));
        assert!(error("5").contains("expected [times, rows"));
        assert!(error("[[1, 2, 99999999999999999999999, 0]]").contains("found '9'"));
        assert!(error("\u{0}[").contains("expected lists of whole numbers"));
    }
}
