//! Every buffer of an input with its birth and its end: one walk, no allocator. What else is known of a run is looked up here.
//!
//! | rule | what it says |
//! |---|---|
//! | `ops` | moments are numbers of ops, as the engine counts them; a buffer is live from its birth on, up to before its end |
//! | `resized` | a buffer that is resized, and a sequence that gets tokens, ends, and another of its name begins |
//! | `deferred` | a buffer whose free is deferred ends where the host drops it |
//! | `before` | buffers that were live before a recording began have the site that the file tells of them, or else [`BEFORE`] |
//! | `phases` | from mark to mark; without marks, runs of requests whose site has one text, if those are long (8 requests on the mean): a program that names its phases in a recording names them so. Requests without a text (of autograd's thread, in PyTorch) belong to the phase before |

mod reader;

use serde::Serialize;
use vramlab_workloads::live::walk;

use self::reader::Reader;
use crate::failure::Failure;
use crate::job::Input;

/// The end of what was never freed.
pub const NEVER: u64 = u64::MAX;

/// The site of what a recording began with, where nothing says who asked for it.
pub const BEFORE: &str = "(live before the recording began)";

/// A buffer, or a sequence's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The input's own number: an address in a recording of PyTorch.
    pub name: u64,
    /// Requested bytes.
    pub size: u64,
    /// The op that asked for it.
    pub birth: u64,
    /// The op that freed it, or [`NEVER`].
    pub death: u64,
    /// Which of [`Lives::site`].
    pub site: u32,
    /// The input's number of the site, for [`Input::frames`]; 0 is none.
    pub stack: u32,
    /// The stream that asked.
    pub stream: u32,
    /// Its device.
    pub device: u16,
    /// Tokens of a sequence.
    pub sequence: bool,
    /// Its request failed when it was recorded: it is never live, and given back at once if a replay serves it.
    pub failed: bool,
}

impl Life {
    /// Is it live after op `op`?
    pub const fn at(&self, op: u64) -> bool {
        self.birth <= op && op < self.death && !self.failed
    }

    /// Ops from birth to end, or to the end of an input of so many ops.
    pub fn length(&self, ops: u64) -> u64 {
        self.death.min(ops).saturating_sub(self.birth)
    }
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Its mark's text, or its requests' site.
    pub name: String,
    /// Its first op.
    pub op: u64,
}

/// All of them, in order of birth, and what else the walk saw.
#[derive(Debug, Default)]
pub struct Lives {
    /// In order of birth.
    pub list: Vec<Life>,
    /// In order.
    pub phases: Vec<Phase>,
    /// They are marks of the input, not runs of one site.
    pub marked: bool,
    /// Ops in all.
    pub ops: u64,
    /// Requests, with those that failed when they were recorded.
    pub allocs: u64,
    /// Requests that failed when they were recorded.
    pub failed: u64,
    /// The most bytes that one of these asked for.
    pub failed_largest: u64,
    /// Frees, and deferred ones.
    pub frees: u64,
    /// Sequences that began, forks among them.
    pub sequences: u64,
    /// Bytes of a token, where there are sequences.
    pub token_bytes: Option<u64>,
    /// Frees without a request: the front of a recording is missing.
    pub gaps: u64,
    /// The op after which most bytes were requested, the first of several.
    pub peak_op: u64,
    /// Bytes then, of all devices together.
    pub peak_bytes: u64,
    /// Bytes at the end.
    pub end_bytes: u64,
    /// The sum of live requests passed 2^64 − 1, where it is cut.
    pub saturated: bool,
    sites: Vec<String>,
}

impl Lives {
    /// Walks the input once.
    ///
    /// # Errors
    /// A bad input.
    pub fn read(input: &Input<'_>) -> Result<Self, Failure> {
        let mut source = (input.make)()?;
        let mut reader = Reader::default();
        let end = walk(&mut *source, |op, live, source| {
            reader.take(op, live, source);
            true
        })
        .map_err(Failure::input)?;
        let mut lives = reader.finish(&end, source.gaps());
        lives.name_start(input.live_at_start);
        Ok(lives)
    }

    /// Rule `before`.
    fn name_start(&mut self, count: usize) {
        let site = self.sites.len() as u32;
        let mut unknown = self.list.iter_mut().take(count).filter(|life| life.site == 0).peekable();
        if unknown.peek().is_some() {
            unknown.for_each(|life| life.site = site);
            self.sites.push(BEFORE.to_owned());
        }
    }

    /// The text of a site; empty if none is recorded.
    pub fn site(&self, life: &Life) -> &str {
        self.site_text(life.site)
    }

    /// The text of the n-th site.
    pub fn site_text(&self, site: u32) -> &str {
        self.sites.get(site as usize).map_or("", String::as_str)
    }

    /// How many sites there are.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// Numbers of what is live after an op, in order of birth.
    pub fn live_at(&self, op: u64) -> impl Iterator<Item = usize> + '_ {
        let born = self.list.partition_point(|life| life.birth <= op);
        (0..born).filter(move |&at| self.list[at].at(op))
    }

    /// The number of what op `op` asked for.
    pub fn born_at(&self, op: u64) -> Option<usize> {
        let at = self.list.partition_point(|life| life.birth < op);
        self.list.get(at).filter(|life| life.birth == op).map(|_| at)
    }

    /// The number of the phase in which op `op` is.
    pub fn phase_at(&self, op: u64) -> Option<usize> {
        self.phases.partition_point(|phase| phase.op <= op).checked_sub(1)
    }

    /// Requested bytes after each op at which they change, in order: the curve of a run.
    pub fn curve(&self) -> Vec<(u64, u64)> {
        self.curve_of(0..self.list.len())
    }

    /// The same of the buffers with these numbers.
    pub fn curve_of(&self, which: impl IntoIterator<Item = usize>) -> Vec<(u64, u64)> {
        let mut steps: Vec<(u64, i128)> = Vec::new();
        let counted = |at: usize| self.list.get(at).filter(|life| !life.failed);
        for life in which.into_iter().filter_map(counted) {
            steps.push((life.birth, i128::from(life.size)));
            if life.death != NEVER {
                steps.push((life.death, -i128::from(life.size)));
            }
        }
        steps.sort_unstable_by_key(|(op, _)| *op);
        let (mut now, mut curve) = (0_i128, Vec::<(u64, u64)>::new());
        for (op, change) in steps {
            now += change;
            let bytes = u64::try_from(now.max(0)).unwrap_or(u64::MAX);
            match curve.last_mut() {
                Some(last) if last.0 == op => last.1 = bytes,
                _ => curve.push((op, bytes)),
            }
        }
        curve
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use vramlab_sim::source::Source;
    use vramlab_sim::trace::JsonlSource;

    use super::*;

    /// An input of these lines.
    pub(crate) fn input(lines: &[&str]) -> Input<'static> {
        let text = lines.join("\n");
        let make = move || -> Result<Box<dyn Source>, Failure> {
            Ok(Box::new(JsonlSource::new(std::io::Cursor::new(text.clone()), "t")))
        };
        Input::new("t", Box::new(make))
    }

    fn read(lines: &[&str]) -> Lives {
        Lives::read(&input(lines)).expect("reads")
    }

    #[test]
    fn a_life_is_from_birth_to_free_and_a_resize_begins_another() {
        let lives = read(&[
            r#"{"op":"alloc","id":7,"size":100,"site":"a"}"#,
            r#"{"op":"alloc","id":8,"size":50}"#,
            r#"{"op":"realloc","id":7,"size":700}"#,
            r#"{"op":"free","id":7}"#,
        ]);
        let seen: Vec<_> =
            lives.list.iter().map(|l| (l.name, l.size, l.birth, l.death, lives.site(l))).collect();
        assert_eq!(seen, [(7, 100, 0, 2, "a"), (8, 50, 1, NEVER, ""), (7, 700, 2, 3, "a")]);
        assert_eq!((lives.peak_op, lives.peak_bytes, lives.end_bytes), (2, 750, 50));
        assert_eq!(lives.curve(), [(0, 100), (1, 150), (2, 750), (3, 50)]);
        assert_eq!(lives.live_at(2).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((lives.born_at(2), lives.born_at(3)), (Some(2), None));
    }

    #[test]
    fn marks_are_phases_and_without_them_long_runs_of_one_site() {
        let lives = read(&[
            r#"{"op":"alloc","id":1,"size":1}"#,
            r#"{"op":"mark","name":"m"}"#,
            r#"{"op":"alloc","id":2,"size":1,"site":"x"}"#,
        ]);
        assert_eq!(lives.phases, [Phase { name: "m".into(), op: 1 }]);
        assert_eq!((lives.phase_at(0), lives.phase_at(1)), (None, Some(0)));
        let line =
            |id: usize, site| format!(r#"{{"op":"alloc","id":{id},"size":1,"site":"{site}"}}"#);
        let lines: Vec<String> =
            (0..20).map(|id| line(id, if id < 10 { "load" } else { "step" })).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let names: Vec<_> = read(&lines).phases.into_iter().map(|p| (p.name, p.op)).collect();
        assert_eq!(names, [("load".to_owned(), 0), ("step".to_owned(), 10)]);
        assert!(read(&lines[8..12]).phases.is_empty(), "too short to be phases");
    }

    #[test]
    fn tokens_of_a_sequence_are_lives() {
        let lives = read(&[
            r#"{"op":"kv_new","seq":1,"tokens":20,"token_bytes":10}"#,
            r#"{"op":"kv_more","seq":1,"tokens":12}"#,
            r#"{"op":"kv_free","seq":1}"#,
        ]);
        let seen: Vec<_> = lives.list.iter().map(|l| (l.size, l.birth, l.death)).collect();
        assert_eq!(seen, [(200, 0, 1), (320, 1, 2)]);
    }
}
