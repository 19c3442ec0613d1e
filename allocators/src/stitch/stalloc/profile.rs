//! From what is known of the first iterations to the two lists of placements that are served.
//!
//! ```text
//!  head ─▶ iteration 0 ─▶ iteration 1 ─▶ iteration 2 ─▶ tail          profiled: up to three iterations
//!  └──── first list ────┘└ second list ┘ served again and again
//! ```
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `iterations` | ours: a mark whose text begins with a word and a number (`step 3 forward`) begins an iteration when the number changes; where no text has a number, each return of the first text that comes back does. What the real one hooks is Megatron's training step | `memory_patcher.py` |
//! | `residents` | born before the first iteration and there at the end: side by side at the beginning (weights); born in iteration 0 and there at the end: behind them (optimiser states) | `plan_generator.py` 29-67, `trace_parser.py` |
//! | `init_phase` | born and freed before the first iteration: side by side where the optimiser's states come later, if their sum leaves that area's peak, else by layers there | make_plan_for_residents_memory |
//! | `unreleased` | born before the first iteration and freed within one: to the caching allocator | load_trace |
//! | `activations` | all others born in iterations 0 and 1, by layers, behind the optimiser's states | `plan_generator.py`, `layers` |
//! | `lists` | the placements of static requests in their order: before and in iteration 0, and in iteration 1 | save_memory_plan |
//! | `cells` | requests of up to 512 B are counted: their peak sizes the area of cells | `data_structures.py` |

use vramlab_sim::future::{Future, Life};

use super::layers::{self, Buffer, Period};
use super::sections::Section;
use crate::planned::plan::NOWHERE;

/// Everything is a multiple of this.
pub(super) const CELL: u64 = 512;
/// Iterations that the trace has.
const PROFILED: usize = 3;

/// A static request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Bytes from the beginning of the static area; `None`: to the caching allocator.
    pub(super) offset: Option<u64>,
    /// Bytes, exactly.
    pub(super) size: u64,
}

/// What is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) first: Vec<Entry>,
    pub(super) second: Vec<Entry>,
    /// Ordinals that go to the caching allocator and are not counted.
    pub(super) unreleased: Vec<u64>,
    /// Bytes of the static area.
    pub(super) bytes: u64,
    /// Peak of requests of up to 512 B, as cells.
    pub(super) cells: u64,
}

/// What becomes of a static request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Weight,
    Optimiser,
    Init,
    Unreleased,
    Activation,
}

/// When an op happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Head,
    Iteration(usize),
    Tail,
}

/// Rule `iterations`: the op at which each begins.
fn iterations(marks: &[(u64, Box<str>)]) -> Vec<u64> {
    let numbered = |text: &str| {
        let mut words = text.split_whitespace();
        let word = words.next()?.to_owned();
        words.next()?.parse::<u64>().ok().map(|number| (word, number))
    };
    let keys: Vec<_> = marks.iter().map(|(op, text)| (*op, numbered(text))).collect();
    if let Some(word) = keys.iter().find_map(|(_, key)| key.as_ref().map(|(word, _)| word)) {
        let of_word = keys.iter().filter_map(|(op, key)| {
            key.as_ref().filter(|(other, _)| other == word).map(|(_, number)| (*op, *number))
        });
        let mut last = None;
        return of_word
            .filter(|(_, number)| last.replace(*number) != Some(*number))
            .map(|(op, _)| op)
            .collect();
    }
    let text = |at: usize| &marks[at].1;
    let back =
        (0..marks.len()).find(|at| (at + 1..marks.len()).any(|later| text(*at) == text(later)));
    let Some(first) = back else { return Vec::new() };
    marks.iter().filter(|(_, other)| other == text(first)).map(|(op, _)| *op).collect()
}

/// The part of a future that is profiled.
pub(super) fn traced(future: &Future) -> Future {
    let tail = iterations(&future.marks).get(PROFILED).copied().unwrap_or(u64::MAX);
    let requests = future.requests.iter().take_while(|life| life.born < tail).copied().collect();
    Future { requests, marks: future.marks.clone(), ..Future::default() }
}

/// What the profile is made from.
struct Trace<'a> {
    future: &'a Future,
    begins: Vec<u64>,
    /// The op at which the tail begins.
    tail: u64,
    /// Requests that are static, by ordinal.
    is_static: Vec<bool>,
}

impl<'a> Trace<'a> {
    fn new(future: &'a Future, dynamic: bool) -> Option<Self> {
        let mut begins = iterations(&future.marks);
        if begins.len() < 2 {
            return None;
        }
        let tail = begins.get(PROFILED).copied().unwrap_or(u64::MAX);
        begins.truncate(PROFILED);
        let (mut marks, mut section) = (future.marks.iter().peekable(), Section::Static);
        let mut is_static = Vec::new();
        for life in future.requests.iter().take_while(|life| life.born < tail) {
            while let Some((_, text)) = marks.next_if(|(op, _)| *op < life.born) {
                section = Section::of(text, dynamic);
            }
            is_static.push(life.size > CELL && section == Section::Static);
        }
        Some(Self { future, begins, tail, is_static })
    }

    fn phase(&self, op: u64) -> Phase {
        match self.begins.partition_point(|begin| *begin <= op) {
            _ if op >= self.tail => Phase::Tail,
            0 => Phase::Head,
            number => Phase::Iteration(number - 1),
        }
    }

    /// When it ends; in the tail if it is still there then.
    fn ends(&self, life: &Life) -> u64 {
        life.freed.unwrap_or(u64::MAX).min(self.tail)
    }

    fn kind(&self, life: &Life) -> Kind {
        match (self.phase(life.born), life.freed.map_or(Phase::Tail, |op| self.phase(op))) {
            (Phase::Head, Phase::Tail) => Kind::Weight,
            (Phase::Head, Phase::Head) => Kind::Init,
            (Phase::Head, Phase::Iteration(_)) => Kind::Unreleased,
            (Phase::Iteration(0), Phase::Tail) => Kind::Optimiser,
            _ => Kind::Activation,
        }
    }

    /// Static requests born before iteration 2, with their ordinals.
    fn served(&self) -> impl Iterator<Item = (usize, &Life)> {
        let all = self.is_static.iter().zip(&self.future.requests).enumerate();
        let is_static = all.filter(|(_, (is_static, _))| **is_static);
        is_static
            .map(|(ordinal, (_, life))| (ordinal, life))
            .filter(|(_, life)| self.phase(life.born) < Phase::Iteration(2))
    }

    fn of(&self, kind: Kind) -> Vec<(usize, &Life)> {
        self.served().filter(|(_, life)| self.kind(life) == kind).collect()
    }

    /// Most bytes alive of `lives`, each rounded to cells.
    fn peak<'b>(&self, lives: impl Iterator<Item = &'b Life>) -> u64 {
        let mut changes: Vec<(u64, bool, u64)> = lives
            .flat_map(|life| {
                let size = life.size.next_multiple_of(CELL);
                [(life.born, true, size), (self.ends(life), false, size)]
            })
            .collect();
        changes.sort_unstable();
        let (mut alive, mut peak) = (0, 0);
        for (_, born, size) in changes {
            alive = if born { alive + size } else { alive - size };
            peak = peak.max(alive);
        }
        peak
    }

    /// Rule `period`: of the activations.
    fn period(&self, activations: &[(usize, &Life)]) -> Option<Period> {
        let born_in_1 =
            activations.iter().filter(|(_, life)| self.phase(life.born) == Phase::Iteration(1));
        let from = born_in_1.map(|(_, life)| life.born).min()?;
        let ends = activations.iter().map(|(_, life)| self.ends(life));
        let in_1 = ends.clone().filter(|op| self.phase(*op) == Phase::Iteration(1));
        let length = in_1.max()?.checked_sub(from)?;
        Some(Period { from, length, until: ends.max()? })
    }

    /// By layers; gives the bytes that they take.
    fn by_layers(
        &self,
        lives: &[(usize, &Life)],
        period: Option<Period>,
        offsets: &mut [Option<u64>],
        base: u64,
    ) -> u64 {
        let buffer = |(_, life): &(usize, &Life)| {
            let units = u32::try_from(life.size.div_ceil(CELL)).unwrap_or(NOWHERE);
            Buffer { born: life.born, ends: self.ends(life), units }
        };
        let buffers: Vec<Buffer> = lives.iter().map(buffer).collect();
        let (found, units) = layers::plan(&buffers, period);
        for ((ordinal, _), offset) in lives.iter().zip(found) {
            offsets[*ordinal] = (offset != NOWHERE).then(|| base + u64::from(offset) * CELL);
        }
        u64::from(units) * CELL
    }
}

/// Side by side from `base`; gives the end.
fn side_by_side(lives: &[(usize, &Life)], offsets: &mut [Option<u64>], base: u64) -> u64 {
    lives.iter().fold(base, |at, (ordinal, life)| {
        offsets[*ordinal] = Some(at);
        at + life.size.next_multiple_of(CELL)
    })
}

impl Profile {
    /// From the first iterations of what is known; empty where there are no two. Buffers above `limit` bytes, which no trace could have had, get
    /// no place.
    pub(super) fn new(future: &Future, dynamic: bool, limit: u64) -> Self {
        let Some(mut trace) = Trace::new(future, dynamic) else { return Self::default() };
        let profiled = &future.requests[..trace.is_static.len()];
        let small = profiled.iter().filter(|life| (1..=CELL).contains(&life.size));
        let cells = trace.peak(small);
        let mut possible = trace.is_static.clone();
        possible.iter_mut().zip(profiled).for_each(|(is, life)| *is &= life.size <= limit);
        let all = std::mem::replace(&mut trace.is_static, possible);

        let mut offsets = vec![None; profiled.len()];
        let optimiser = side_by_side(&trace.of(Kind::Weight), &mut offsets, 0);
        let activations = side_by_side(&trace.of(Kind::Optimiser), &mut offsets, optimiser);
        let init = trace.of(Kind::Init);
        let is_static = trace.is_static.iter().zip(profiled).filter(|(is_static, _)| **is_static);
        let static_peak = trace.peak(is_static.map(|(_, life)| life));
        let sum = side_by_side(&init, &mut offsets, optimiser);
        let mut end = sum;
        if sum - optimiser >= static_peak.saturating_sub(optimiser) && !init.is_empty() {
            end = optimiser + trace.by_layers(&init, None, &mut offsets, optimiser);
        }
        let rest = trace.of(Kind::Activation);
        let period = trace.period(&rest);
        let bytes = activations + trace.by_layers(&rest, period, &mut offsets, activations);

        trace.is_static = all;
        let mut profile = Self { bytes: bytes.max(end), cells, ..Self::default() };
        for (ordinal, life) in trace.served() {
            let entry = Entry { offset: offsets[ordinal], size: life.size };
            match (trace.kind(life), trace.phase(life.born)) {
                (Kind::Unreleased, _) => profile.unreleased.push(ordinal as u64),
                (_, Phase::Iteration(1)) => profile.second.push(entry),
                _ => profile.first.push(entry),
            }
        }
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::units::StreamId;

    fn marks(texts: &[&str]) -> Vec<(u64, Box<str>)> {
        (0..).zip(texts).map(|(op, text)| (10 * op, (*text).into())).collect()
    }

    #[test]
    fn iterations_begin_where_the_number_changes_or_the_text_returns() {
        for (texts, want) in [
            (
                &["model to device", "step 0 forward", "step 0 backward", "step 1 forward"][..],
                &[10, 30][..],
            ),
            (&["request 7", "eval", "request 9", "note 3", "request 9"], &[0, 20]),
            (&["begin", "forward", "backward", "forward", "backward"], &[10, 30]),
            (&["a", "b"], &[]),
            (&[], &[]),
        ] {
            assert_eq!(iterations(&marks(texts)), want, "{texts:?}");
        }
    }

    /// (cells of 512 B, born, freed) with iterations of 100 ops from op 100 on; the first is a quarter of a cell.
    fn profile(lives: &[(u64, u64, Option<u64>)]) -> Profile {
        let life = |&(cells, born, freed): &(u64, u64, Option<u64>)| Life {
            size: cells * CELL,
            stream: StreamId(0),
            born,
            freed,
            shared: false,
        };
        let future = Future {
            requests: lives.iter().map(life).collect(),
            marks: (0..5).map(|n| (100 * (n + 1), format!("step {n}").into())).collect(),
            ..Future::default()
        };
        Profile::new(&future, false, 1 << 40)
    }

    fn cells(entries: &[Entry]) -> Vec<Option<u64>> {
        entries.iter().map(|entry| entry.offset.map(|offset| offset / CELL)).collect()
    }

    #[test]
    fn residents_lie_side_by_side_in_front_and_activations_behind() {
        let got = profile(&[
            (4, 0, None),
            (3, 1, Some(450)),
            (5, 110, None),
            (2, 120, Some(130)),
            (2, 140, Some(150)),
            (2, 210, Some(220)),
            (9, 310, Some(320)),
        ]);
        // weights of 4 and 3, an optimiser's state of 5, then one layer of 2
        assert_eq!(cells(&got.first), [Some(0), Some(4), Some(7), Some(12), Some(12)]);
        assert_eq!(cells(&got.second), [Some(12)]);
        assert_eq!(got.bytes, 14 * CELL);
    }

    #[test]
    fn init_phase_lies_where_the_optimiser_comes_later() {
        let got = profile(&[
            (4, 0, None),
            (3, 1, Some(2)),
            (3, 3, Some(4)),
            (9, 110, None),
            (2, 210, Some(220)),
        ]);
        assert_eq!(cells(&got.first), [Some(0), Some(4), Some(7), Some(4)]);
        // too much of it: by layers
        let got = profile(&[
            (4, 0, None),
            (6, 1, Some(2)),
            (6, 3, Some(4)),
            (9, 110, None),
            (2, 210, Some(220)),
        ]);
        assert_eq!(cells(&got.first), [Some(0), Some(4), Some(4), Some(4)]);
    }

    #[test]
    fn unreleased_are_not_counted() {
        let got = profile(&[(4, 0, Some(150)), (2, 110, Some(120)), (2, 210, Some(220))]);
        assert_eq!((got.unreleased, cells(&got.first)), (vec![0], vec![Some(0)]));
    }

    #[test]
    fn cells_are_counted_apart() {
        let future = Future {
            requests: [(300, 0, 5), (512, 1, 6), (513, 2, 7), (0, 3, 8), (1, 6, 9)]
                .map(|(size, born, freed)| Life {
                    size,
                    stream: StreamId(0),
                    born,
                    freed: Some(freed),
                    shared: false,
                })
                .into(),
            marks: marks(&["step 0", "step 1"]),
            ..Future::default()
        };
        let got = Profile::new(&future, false, 1 << 40);
        assert_eq!((got.cells, got.first.len()), (2 * CELL, 1));
        assert_eq!(got.first[0], Entry { offset: Some(0), size: 513 });
    }

    #[test]
    fn activations_of_iteration_1_come_again() {
        // alive from the end of iteration 1 into iteration 2, where the first one's like is alive
        let got = profile(&[
            (2, 110, Some(120)),
            (2, 190, Some(215)),
            (2, 210, Some(220)),
            (2, 290, Some(315)),
            (2, 295, Some(299)),
            (2, 310, Some(320)),
        ]);
        assert_ne!(got.second[0].offset, got.second[1].offset);
    }

    #[test]
    fn lists_need_two_iterations() {
        let future = Future { marks: marks(&["step 0"]), ..Future::default() };
        assert_eq!(Profile::new(&future, false, 1 << 40), Profile::default());
    }
}
