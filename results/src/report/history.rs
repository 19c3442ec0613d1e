//! The buffers of a history, as the page reads them: who asked, when, for how long, what for.
//!
//! | rule | what it says |
//! |---|---|
//! | `kept` | of more than `LIVES_MAX` buffers those stay that have most bytes times ops; the page says how many are left out |
//! | `stacks` | of each stack the innermost `FRAMES_MAX` frames, and `FRAMES_IN_ALL` of all; behind that a buffer has its site alone |
//! | `shown` | a text from a file may hold anything: control characters and those that turn the direction of writing are shown by their numbers, a long text is cut |

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::columns::{Column, Columns};
use crate::analysis::category::{CATEGORIES, Categories};
use crate::analysis::lives::{Life, Lives, NEVER};
use crate::job::Input;
use crate::output::acts;

/// Most buffers that a page holds.
const LIVES_MAX: usize = 600_000;
/// Most phases that a page shows.
const PHASES_MAX: usize = 2_000;
const FRAMES_MAX: usize = 64;
const FRAMES_IN_ALL: usize = 1_000_000;
/// Longest text, in characters.
const TEXT_CHARS_MAX: usize = 400;

/// Buffers, as columns: the n-th value of each is of the n-th buffer that is kept, in order of birth.
#[derive(Debug, Serialize)]
pub struct Buffers {
    /// How many there are, and how many are kept.
    all: usize,
    kept: usize,
    ops: u64,
    phases: Vec<(String, u64)>,
    categories: Vec<&'static str>,
    sites: Vec<String>,
    frames: Vec<String>,
    /// Of each stack: how many frames; then all of them.
    stack_frames: Column,
    stack_list: Column,
    birth: Column,
    /// Ops to its end; 0 is never.
    length: Column,
    size: Column,
    site: Column,
    /// Twice the category, and one more where the recording states it.
    told: Column,
    /// One more than the stack; 0 is none.
    stack: Column,
    stream: Column,
    device: Column,
    name: Column,
    sequence: Column,
}

/// Which lives a page holds.
pub struct Kept {
    /// Their numbers among the lives, in order.
    pub list: Vec<u32>,
    /// Of each life: its place in `list`, or `u32::MAX`.
    pub place: Vec<u32>,
}

impl Kept {
    /// Rule `kept`.
    pub fn of(lives: &Lives) -> Self {
        Self::at_most(lives, LIVES_MAX)
    }

    fn at_most(lives: &Lives, most: usize) -> Self {
        let mut list: Vec<u32> = (0..lives.list.len() as u32).collect();
        if list.len() > most {
            let weight = |at: &u32| {
                let life = &lives.list[*at as usize];
                u128::from(life.size) * u128::from(life.length(lives.ops).max(1))
            };
            list.sort_by_cached_key(|at| std::cmp::Reverse(weight(at)));
            list.truncate(most);
            list.sort_unstable();
        }
        let mut place = vec![u32::MAX; lives.list.len()];
        for (at, life) in (0..).zip(&list) {
            place[*life as usize] = at;
        }
        Self { list, place }
    }
}

impl Buffers {
    /// Writes the columns.
    pub fn put(
        columns: &mut Columns,
        input: &Input<'_>,
        lives: &Lives,
        categories: &Categories,
        kept: &Kept,
    ) -> Self {
        let all = || kept.list.iter().map(|at| &lives.list[*at as usize]);
        let of = |value: fn(&Life) -> u64| all().map(value).collect::<Vec<u64>>();
        let told: Vec<u64> = kept
            .list
            .iter()
            .map(|at| categories.get(*at as usize))
            .map(|told| 2 * told.category as u64 + u64::from(told.stated))
            .collect();
        let mut stacks = Stacks::default();
        let stack: Vec<u64> = all().map(|life| stacks.number(life, input)).collect();
        let length = |life: &Life| if life.death == NEVER { 0 } else { life.death - life.birth };
        let phases = lives.phases.iter().take(PHASES_MAX);
        Self {
            all: lives.list.len(),
            kept: kept.list.len(),
            ops: lives.ops,
            phases: phases.map(|phase| (shown(&phase.name), phase.op)).collect(),
            categories: CATEGORIES.iter().map(|category| category.text()).collect(),
            sites: (0..lives.site_count() as u32).map(|at| shown(lives.site_text(at))).collect(),
            stack_frames: columns.plain(stacks.frames.iter().map(|(count, _)| *count as u64)),
            stack_list: columns.plain(stacks.list.iter().map(|frame| u64::from(*frame))),
            frames: stacks.texts,
            birth: columns.delta(all().map(|life| life.birth)),
            length: columns.plain(all().map(length)),
            size: columns.words(&of(|life| life.size)),
            site: columns.words(&of(|life| u64::from(life.site))),
            told: columns.plain(told),
            stack: columns.words(&stack),
            stream: columns.words(&of(|life| u64::from(life.stream))),
            device: columns.words(&of(|life| u64::from(life.device))),
            name: columns.words(&of(|life| life.name)),
            sequence: columns.words(&of(|life| u64::from(life.sequence))),
        }
    }
}

/// Stacks, each once, and their frames, each text once.
#[derive(Default)]
struct Stacks {
    known: FxHashMap<u32, u64>,
    /// Of each stack: frames, and where they begin in the list.
    frames: Vec<(usize, usize)>,
    list: Vec<u32>,
    texts: Vec<String>,
    numbers: FxHashMap<String, u32>,
}

impl Stacks {
    fn number(&mut self, life: &Life, input: &Input<'_>) -> u64 {
        let Some(frames) = input.frames.as_ref().filter(|_| life.stack != 0) else { return 0 };
        if let Some(known) = self.known.get(&life.stack) {
            return *known;
        }
        let frames = frames(life.stack);
        let room = FRAMES_IN_ALL.saturating_sub(self.list.len()).min(FRAMES_MAX);
        let number = match frames.is_empty() || room == 0 {
            true => 0,
            false => {
                let begin = self.list.len();
                for frame in frames.into_iter().take(room) {
                    let next = self.texts.len() as u32;
                    let number = *self.numbers.entry(shown(&frame)).or_insert(next);
                    if number == next {
                        self.texts.push(shown(&frame));
                    }
                    self.list.push(number);
                }
                self.frames.push((self.list.len() - begin, begin));
                self.frames.len() as u64
            }
        };
        self.known.insert(life.stack, number);
        number
    }
}

/// Rule `shown`.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (count, c) in text.chars().enumerate() {
        if count == TEXT_CHARS_MAX {
            out.push('…');
            break;
        }
        if acts(c) {
            out += &format!("\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::lives::tests::input;

    #[test]
    fn control_characters_are_shown_by_their_numbers() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}<b>é"), "a\\u{1b}[2J\\u{202e}<b>é");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), TEXT_CHARS_MAX + 1);
    }

    #[test]
    fn those_with_most_bytes_times_ops_are_kept_in_order() {
        let lives = Lives::read(&input(&[
            r#"{"op":"alloc","id":1,"size":10}"#,
            r#"{"op":"alloc","id":2,"size":500}"#,
            r#"{"op":"free","id":2}"#,
            r#"{"op":"alloc","id":3,"size":900}"#,
            r#"{"op":"free","id":3}"#,
            r#"{"op":"alloc","id":4,"size":100}"#,
        ]))
        .expect("reads");
        let kept = Kept::at_most(&lives, 2);
        assert_eq!(kept.list, [1, 2]);
        assert_eq!(kept.place, [u32::MAX, 0, 1, u32::MAX]);
    }
}
