//! A log, line by line: where messages begin and end, and what else it tells.
//!
//! | rule | what it says |
//! |---|---|
//! | `stream` | a line at a time; lines end with LF or CR (progress bars); one of over 64 KiB is cut there; `\n` written out in a line of JSON ends a line of a message too |
//! | `skim` | only lines with one of a few pieces of words are looked at |
//! | `window` | a message is its line and those below it, until it is complete, an empty line, the next message, or 16 KiB |
//! | `bounded` | kept are the first [`KEPT_MAX`] messages that differ; the same again and those beyond are counted |
//! | `fewer_words` | a message near another one of the same program, all of whose figures that one has too, is the same failure said again |

use std::io::{self, BufRead};

use memchr::memmem::Finder;

use super::clean::{clean, without_rank};
use super::environment::Environment;
use super::frameworks::{self, Begins, Dump, Server, Table};
use super::message::{Kind, Message};

/// Most messages that are kept.
pub const KEPT_MAX: usize = 200;
/// Longest piece of a line.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest line that may have been wrapped.
const WRAPPED_BYTES_MAX: usize = 400;
/// Longest message.
const WINDOW_BYTES_MAX: usize = 16 << 10;

/// Pieces of the words of messages and of settings, as few as find all of them.
const WORTH_A_LOOK: [&str; 21] = [
    "emory",
    "EMORY",
    "llocat",
    "LLOC",
    "_alloc",
    "xhausted",
    "EXHAUSTED",
    "bfc_",
    "BFC",
    "in-use",
    "pool size",
    "room to grow",
    "locks:",
    "odel weights",
    "KV cache",
    "oncurrency",
    "max seq len",
    "reempt",
    "ersion",
    "==",
    "indows",
];
/// And of settings and platforms, whose names are written one way.
const SETTINGS: [&str; 10] = [
    "_CONF",
    "_segments not",
    "FLAGS_",
    "XLA_",
    "TF_",
    "CUPY_",
    "PYTORCH_",
    "tilization",
    "max_model_len",
    "packages\\",
];

/// What a log tells.
#[derive(Debug, Default)]
pub struct Told {
    /// Messages that differ, in order.
    pub messages: Vec<Seen>,
    /// Messages beyond those that are kept.
    pub beyond: u64,
    /// Lines.
    pub lines: u64,
    /// Settings, versions, platform.
    pub environment: Environment,
}

/// A message, and how often it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The message.
    pub message: Message,
    /// How often.
    pub times: u64,
    /// Where it came last.
    pub last_line: u64,
}

/// So many lines apart, two messages may be about one failure.
const NEAR_LINES: u64 = 300;

impl Told {
    /// Drops what says in fewer words what another message says (rule `fewer_words`).
    fn settle(&mut self) {
        let all: Vec<Message> = self.messages.iter().map(|seen| seen.message.clone()).collect();
        let within = |one: &Message, other: &Message| {
            one.framework == other.framework
                && one.line.abs_diff(other.line) <= NEAR_LINES
                && one.figures != other.figures
                && (one.kind == other.kind && !one.figures.is_empty()
                    || one.framework.is_torch() && one.figures.is_empty())
                && other.kind != Kind::State
                && one.figures.within(&other.figures)
        };
        self.messages.retain(|seen| !all.iter().any(|other| within(&seen.message, other)));
    }

    fn add(&mut self, message: Message) {
        let known = self.messages.iter().rposition(|seen| seen.message.same(&message));
        match known {
            Some(at) => {
                let seen = &mut self.messages[at];
                (seen.times, seen.last_line) = (seen.times + 1, message.line);
            }
            None if self.messages.len() < KEPT_MAX => {
                let last_line = message.line;
                self.messages.push(Seen { message, times: 1, last_line });
            }
            None => self.beyond += 1,
        }
    }
}

/// A message of sentences in the making.
struct Window {
    begins: Begins,
    line: u64,
    text: String,
    lines_left: u32,
}

/// Reads a log.
pub struct Log {
    look: Vec<Finder<'static>>,
    told: Told,
    window: Option<Window>,
    /// The last line that began nothing, and its number: a message may begin in the middle of two.
    before: (String, u64),
    dump: Dump,
    table: Table,
    server: Server,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            look: WORTH_A_LOOK.iter().chain(&SETTINGS).map(Finder::new).collect(),
            told: Told::default(),
            window: None,
            before: Default::default(),
            dump: Dump::default(),
            table: Table::default(),
            server: Server::default(),
        }
    }
}

/// Reads a log to its end.
///
/// # Errors
/// It cannot be read.
pub fn read(mut input: impl BufRead) -> io::Result<Told> {
    let mut log = Log::default();
    let mut line = Vec::new();
    let mut number = 1;
    // bytes that are read line by line before the next look at all that is ready
    let mut by_line = 0;
    loop {
        if by_line == 0 {
            let ready = fill(&mut input)?;
            let (bytes, lines) = log.skimmed(ready);
            by_line = if bytes == 0 { ready.len() } else { 0 };
            input.consume(bytes);
            number += lines;
        }
        line.clear();
        let end = next_piece(&mut input, &mut line)?;
        by_line = by_line.saturating_sub(line.len() + 1);
        if line.is_empty() && end == End::Input {
            return Ok(log.finish(number - 1));
        }
        log.line(&line, number);
        number += u64::from(end == End::Line);
    }
}

/// The next bytes; empty at the end of the input.
fn fill(input: &mut impl BufRead) -> io::Result<&[u8]> {
    // asked twice, since what is lent cannot be given on from a loop
    while let Err(error) = input.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    input.fill_buf()
}

/// Why a piece ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Line,
    /// A carriage return, or the piece is as long as one may be.
    Piece,
    Input,
}

/// Takes the next piece of a line (rule `stream`).
fn next_piece(input: &mut impl BufRead, piece: &mut Vec<u8>) -> io::Result<End> {
    loop {
        let ready = fill(input)?;
        if ready.is_empty() {
            return Ok(End::Input);
        }
        let room = (LINE_BYTES_MAX - piece.len()).min(ready.len());
        let stop = memchr::memchr2(b'\n', b'\r', &ready[..room]);
        piece.extend_from_slice(&ready[..stop.unwrap_or(room)]);
        match stop {
            Some(at) => {
                let end = if ready[at] == b'\n' { End::Line } else { End::Piece };
                input.consume(at + 1);
                return Ok(end);
            }
            None => input.consume(room),
        }
        if piece.len() == LINE_BYTES_MAX {
            return Ok(End::Piece);
        }
    }
}

impl Log {
    /// Is a message being read?
    fn open(&self) -> bool {
        self.window.is_some() || self.table.is_open() || self.dump.is_open()
    }

    /// Is there a word that is worth a look?
    fn worth_a_look(&self, text: &[u8]) -> bool {
        self.look.iter().any(|finder| finder.find(text).is_some())
    }

    /// Bytes and lines at the beginning of what is ready that need no look at each of them.
    fn skimmed(&self, ready: &[u8]) -> (usize, u64) {
        let end = memchr::memrchr(b'\n', ready).map_or(0, |at| at + 1);
        if self.open() || self.worth_a_look(&ready[..end]) {
            return (0, 0);
        }
        (end, memchr::memchr_iter(b'\n', &ready[..end]).count() as u64)
    }

    /// Takes a line, or a piece of one.
    fn line(&mut self, line: &[u8], number: u64) {
        if !self.open() && !self.worth_a_look(line) {
            return;
        }
        let text = clean(line);
        for part in text.split("\\n") {
            self.part(without_rank(part), number);
        }
    }

    fn part(&mut self, text: &str, number: u64) {
        self.told.environment.take(text);
        if let Some(message) = self.dump.take(text, number) {
            self.close();
            self.told.add(message);
        }
        if let Some(message) = self.table.take(text, number) {
            self.told.add(message);
        }
        let lower = text.to_ascii_lowercase();
        if let Some(message) = self.server.take(text, &lower, number) {
            self.close();
            self.told.add(message);
            return;
        }
        let goes_on = self.window.as_ref().is_some_and(|window| window.begins.goes_on(&lower));
        let before = std::mem::take(&mut self.before);
        if let Some(begins) = frameworks::begins(&lower).filter(|_| !goes_on) {
            self.close();
            self.begin(begins, number, text.to_owned());
        } else if let Some(begins) = self.wrapped(&before, &lower, number) {
            self.begin(begins, before.1, format!("{}\n{text}", before.0));
        } else if let Some(window) = &mut self.window {
            window.lines_left = window.lines_left.saturating_sub(1);
            let blank = text.trim().is_empty();
            if window.lines_left == 0 || blank && window.begins.ends_at_blank() {
                self.close();
                return;
            }
            window.text.push('\n');
            window.text.push_str(text);
        } else if text.len() <= WRAPPED_BYTES_MAX {
            self.before = (text.to_owned(), number);
        }
        let done = self.window.as_ref().is_some_and(|window| {
            window.text.len() > WINDOW_BYTES_MAX || window.begins.complete(&window.text)
        });
        if done {
            self.close();
        }
    }

    fn begin(&mut self, begins: Begins, line: u64, text: String) {
        let lines_left = begins.lines();
        self.window = Some(Window { begins, line, text, lines_left });
    }

    /// What begins with the line before and goes on in this one, if no message is being read.
    fn wrapped(&self, before: &(String, u64), lower: &str, number: u64) -> Option<Begins> {
        let follows = self.window.is_none() && !before.0.is_empty() && before.1 + 1 == number;
        let both = || format!("{} {lower}", before.0.trim_end().to_ascii_lowercase());
        follows.then(|| frameworks::begins(&both())).flatten()
    }

    /// Reads the message in the making.
    fn close(&mut self) {
        let Some(window) = self.window.take() else { return };
        for mut message in window.begins.read(&window.text) {
            message.line = window.line;
            self.told.add(message);
        }
    }

    fn finish(mut self, lines: u64) -> Told {
        self.close();
        let rest = [self.table.finish(), self.dump.finish()];
        rest.into_iter().flatten().for_each(|message| self.told.add(message));
        if self.told.messages.is_empty()
            && let Some(message) = self.server.finish()
        {
            self.told.add(message);
        }
        self.told.lines = lines;
        self.told.settle();
        // a table or a dump is only closed by what comes long behind it
        self.told.messages.sort_by_key(|seen| seen.message.line);
        self.told
    }
}
