//! From the lives of a workload's buffers to an offset for each: what all planners share.
//!
//! | rule | what it says |
//! |---|---|
//! | `moments` | time is cut where a request follows a free: two buffers meet if they share a moment |
//! | `unit` | sizes are whole units of `alignment` bytes |
//! | `admitted` | planned is what fits: a request that would take the planned bytes alive past the device's free memory is left out, since no strategy can serve it |
//! | `streams` | a plan looks at no stream: memory that goes from one to another is ordered when it is served |
//! | `release` | with `release=last_use` a buffer ends after its last use, if the workload tells its uses |

use vramlab_sim::future::Future;

/// Not planned.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A buffer: moments from `begin` to before `end`, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begin: u32,
    pub(crate) end: u32,
    /// 1 or more.
    pub(crate) units: u32,
}

#[cfg(test)]
impl Span {
    /// Do they share a moment?
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.begin < other.end && other.begin < self.end
    }
}

/// Buffers, in order of `begin`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans<'a> {
    pub(crate) list: &'a [Span],
    /// Moments are below this.
    pub(crate) moments: u32,
}

/// Offsets in units, one a span, [`NOWHERE`] where it would pass 2^32.
pub(crate) type Offsets = Vec<u32>;

/// A way of planning.
pub(crate) type Planner = fn(Spans<'_>) -> Offsets;

/// The units that a plan takes.
pub(crate) fn units_of(spans: Spans<'_>, offsets: &[u32]) -> u32 {
    let ends = spans.list.iter().zip(offsets).filter(|(_, offset)| **offset != NOWHERE);
    ends.map(|(span, offset)| offset + span.units).max().unwrap_or(0)
}

/// The end of a range, if it is below 2^32.
pub(crate) fn end_of(offset: u32, units: u32) -> Option<u32> {
    offset.checked_add(units).filter(|end| *end < NOWHERE)
}

/// What is asked of the device, as far as planning goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) size: u64,
    born: u64,
    /// The op after which its memory is free; `u64::MAX`: none.
    ends: u64,
}

/// The requests of a future, by ordinal (rule `release`).
pub(crate) fn asked(future: &Future, to_last_use: bool) -> Vec<Asked> {
    let mut asked: Vec<Asked> = future
        .requests
        .iter()
        .map(|life| Asked {
            size: life.size,
            born: life.born,
            ends: life.freed.unwrap_or(u64::MAX),
        })
        .collect();
    if to_last_use {
        // uses come in the order of the ops: the last one stays
        let mut last = vec![u64::MAX; asked.len()];
        future.uses.iter().for_each(|used| last[used.ordinal as usize] = used.op);
        asked.iter_mut().zip(last).for_each(|(asked, last)| asked.ends = asked.ends.min(last));
    }
    asked
}

/// The plan for a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Offset in bytes by ordinal; `u64::MAX`: not planned.
    offsets: Vec<u64>,
    /// Planned buffers in the order in which they end: the request before which each is over, and its ordinal.
    pub(crate) ends: Vec<(u32, u32)>,
    /// Bytes of it.
    pub(crate) bytes: u64,
    /// Most bytes alive at a moment of those that are planned: no plan takes less.
    pub(crate) lower_bound: u64,
}

impl Plan {
    /// Where the n-th request goes.
    pub(crate) fn offset(&self, ordinal: u64) -> Option<u64> {
        let offset = self.offsets.get(usize::try_from(ordinal).ok()?)?;
        (*offset != u64::MAX).then_some(*offset)
    }

    /// Plans `asked` for a device with `free` bytes, in units of `unit` bytes.
    pub(crate) fn new(
        asked: &[Asked],
        unit: u64,
        free: u64,
        planner: impl FnOnce(Spans<'_>) -> Offsets,
    ) -> Self {
        let admitted = Admitted::new(asked, unit, free);
        let planned = (0_u32..).zip(&admitted.spans).filter(|(_, span)| span.units > 0);
        let (ordinals, list): (Vec<u32>, Vec<Span>) = planned.unzip();
        let spans = Spans { list: &list, moments: admitted.moments };
        let units = planner(spans);
        let mut offsets = vec![u64::MAX; asked.len()];
        let mut ends = Vec::new();
        for (ordinal, offset) in ordinals.into_iter().zip(&units) {
            if *offset != NOWHERE {
                offsets[ordinal as usize] = u64::from(*offset) * unit;
                ends.push((admitted.over_at[ordinal as usize], ordinal));
            }
        }
        ends.sort_unstable();
        let bytes = u64::from(units_of(spans, &units)) * unit;
        Self { offsets, ends, bytes, lower_bound: admitted.peak_units() * unit }
    }
}

/// The requests that are planned.
struct Admitted {
    /// By ordinal; without units: not planned.
    spans: Vec<Span>,
    /// By ordinal: the first request after its end.
    over_at: Vec<u32>,
    moments: u32,
}

impl Admitted {
    /// Rules `admitted` and `moments`.
    fn new(asked: &[Asked], unit: u64, free: u64) -> Self {
        let none = Span { begin: 0, end: 0, units: 0 };
        let (mut spans, mut over_at) = (vec![none; asked.len()], vec![NOWHERE; asked.len()]);
        let mut ends: Vec<(u64, u32)> =
            (0..).zip(asked).map(|(ordinal, asked)| (asked.ends, ordinal)).collect();
        ends.sort_unstable();
        let (mut ends, mut moment, mut freed) = (ends.into_iter().peekable(), 0, false);
        let (limit, mut alive) = (free / unit, 0);
        for (ordinal, request) in (0_u32..).zip(asked) {
            while let Some((_, over)) = ends.next_if(|(at, _)| *at < request.born) {
                let span = &mut spans[over as usize];
                alive -= u64::from(span.units);
                span.end = moment + 1;
                over_at[over as usize] = ordinal;
                freed |= span.units > 0;
            }
            let units = request.size.div_ceil(unit);
            if units == 0 || alive + units.min(limit + 1) > limit {
                continue;
            }
            let Some(units) = u32::try_from(units).ok() else { continue };
            moment += u32::from(std::mem::take(&mut freed));
            alive += u64::from(units);
            spans[ordinal as usize] = Span { begin: moment, end: 0, units };
        }
        for span in spans.iter_mut().filter(|span| span.end == 0) {
            span.end = moment + 1;
        }
        Self { spans, over_at, moments: moment + 1 }
    }

    /// Most units alive at a moment.
    fn peak_units(&self) -> u64 {
        let mut changes = vec![0_i64; self.moments as usize + 1];
        for span in &self.spans {
            changes[span.begin as usize] += i64::from(span.units);
            changes[span.end as usize] -= i64::from(span.units);
        }
        let alive = changes.iter().scan(0, |alive, change| {
            *alive += change;
            Some(*alive)
        });
        alive.max().unwrap_or(0) as u64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use vramlab_sim::future::{Life, PlannedUse};
    use vramlab_sim::testing::Dice;
    use vramlab_sim::units::StreamId;

    /// Random buffers: many short ones, some that stay.
    pub(crate) fn random_spans(seed: u64, count: usize) -> (Vec<Span>, u32) {
        let mut dice = Dice::new(seed);
        let mut random = |below: u32| dice.below(below.into()) as u32;
        let moments = (count as u32 / 3).max(2);
        let mut spans: Vec<Span> = (0..count)
            .map(|_| {
                let begin = random(moments);
                let most = if random(4) == 0 { moments } else { 8 };
                let end = (begin + 1 + random(most)).min(moments);
                let most = 1 << random(10);
                Span { begin, end, units: 1 + random(most) }
            })
            .collect();
        spans.sort_by_key(|span| span.begin);
        (spans, moments)
    }

    /// No two that meet share a unit, by looking at every pair.
    pub(crate) fn check(spans: &[Span], offsets: &[u32]) {
        assert_eq!(spans.len(), offsets.len());
        for (i, (a, at)) in spans.iter().zip(offsets).enumerate() {
            for (b, other) in spans.iter().zip(offsets).skip(i + 1) {
                let apart = at + a.units <= *other || other + b.units <= *at;
                assert!(apart || !a.meets(b), "{a:?} at {at} and {b:?} at {other}");
            }
        }
    }

    /// Valid on random buffers, and not below the bound.
    pub(crate) fn check_planner(planner: Planner) {
        for seed in 0..30 {
            let (list, moments) = random_spans(seed, 1 + 13 * seed as usize);
            let spans = Spans { list: &list, moments };
            let offsets = planner(spans);
            check(&list, &offsets);
            let alive = |moment: u32| {
                let alive = list.iter().filter(|span| (span.begin..span.end).contains(&moment));
                alive.map(|span| span.units).sum::<u32>()
            };
            let bound = (0..moments).map(alive).max().unwrap_or(0);
            assert!(units_of(spans, &offsets) >= bound);
        }
    }

    fn life(size: u64, born: u64, freed: Option<u64>) -> Life {
        Life { size, stream: StreamId(0), born, freed, shared: false }
    }

    /// Puts everything side by side.
    fn bump(spans: Spans<'_>) -> Offsets {
        let sum = |sum: &mut u32, span: &Span| {
            *sum += span.units;
            Some(*sum - span.units)
        };
        spans.list.iter().scan(0, sum).collect()
    }

    #[test]
    fn moments_are_cut_where_a_request_follows_a_free() {
        let asked = asked(
            &Future {
                requests: vec![
                    life(1, 0, Some(4)),
                    life(1, 1, Some(2)),
                    life(1, 3, None),
                    life(1, 5, Some(6)),
                    life(1, 7, Some(8)),
                ],
                ..Future::default()
            },
            false,
        );
        let admitted = Admitted::new(&asked, 256, 1 << 30);
        let spans: Vec<_> = admitted.spans.iter().map(|span| (span.begin, span.end)).collect();
        assert_eq!(spans, [(0, 2), (0, 1), (1, 4), (2, 3), (3, 4)]);
        assert_eq!((admitted.moments, admitted.peak_units()), (4, 2));
        assert_eq!(admitted.over_at[..4], [3, 2, NOWHERE, 4]);
    }

    #[test]
    fn admitted_is_what_fits() {
        let mib = 1 << 20;
        let future = Future {
            requests: vec![
                life(mib + 1, 0, None),
                life(u64::MAX, 1, Some(2)),
                life(mib, 3, Some(4)),
                life(0, 7, Some(8)),
                life(mib, 9, None),
                life(mib, 10, None),
            ],
            ..Future::default()
        };
        let plan = Plan::new(&asked(&future, false), 512, 3 * mib, bump);
        let offsets: Vec<_> = (0..7).map(|ordinal| plan.offset(ordinal)).collect();
        // the last request would pass 3 MiB
        let want = [Some(0), None, Some(mib + 512), None, Some(2 * mib + 512), None, None];
        assert_eq!(offsets, want);
        assert_eq!((plan.bytes, plan.lower_bound), (3 * mib + 512, 2 * mib + 512));
        assert_eq!(plan.ends, [(3, 2), (NOWHERE, 0), (NOWHERE, 4)]);
    }

    #[test]
    fn release_after_the_last_use_if_it_is_known() {
        let used = |op, ordinal| PlannedUse { op, ordinal, write: false };
        let future = Future {
            requests: vec![life(1, 0, Some(9)), life(1, 1, Some(9)), life(1, 6, Some(9))],
            uses: vec![used(2, 0), used(3, 1), used(4, 0)],
            ..Future::default()
        };
        let ends = |to_last_use| {
            asked(&future, to_last_use).iter().map(|asked| asked.ends).collect::<Vec<_>>()
        };
        assert_eq!(ends(false), [9, 9, 9]);
        assert_eq!(ends(true), [4, 3, 9]);
    }
}
