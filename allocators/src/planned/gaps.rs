//! Placing buffers one after the other in a given order: where each may go.

use super::busy::Busy;
use super::plan::{NOWHERE, Offsets, Span, Spans, end_of};

/// The lowest of the smallest holes that `units` fit in, or else the end of what is taken.
fn smallest_gap(taken: &[(u32, u32)], units: u32) -> u32 {
    let (mut at, mut best) = (0, None);
    for (begin, end) in taken {
        let gap = begin - at;
        if gap >= units && best.is_none_or(|(least, _)| gap < least) {
            best = Some((gap, at));
        }
        at = *end;
    }
    best.map_or(at, |(_, offset)| offset)
}

/// The lowest hole that `units` fit in.
fn first_gap(taken: &[(u32, u32)], units: u32) -> u32 {
    let mut at = 0;
    for (begin, end) in taken {
        if begin - at >= units {
            break;
        }
        at = *end;
    }
    at
}

/// Places the spans in an order; `place` can ask what those before it take.
fn in_order(
    spans: Spans<'_>,
    order: &[u32],
    mut place: impl FnMut(&mut Busy, Span) -> u32,
) -> Offsets {
    let (mut busy, mut offsets) = (Busy::new(spans.moments), vec![NOWHERE; spans.list.len()]);
    for &at in order {
        let span = spans.list[at as usize];
        let offset = place(&mut busy, span);
        if let Some(top) = end_of(offset, span.units) {
            busy.take(span.begin, span.end, (offset, top));
            offsets[at as usize] = offset;
        }
    }
    offsets
}

/// Each in the smallest hole.
pub(crate) fn in_smallest_gap(spans: Spans<'_>, order: &[u32]) -> Offsets {
    in_order(spans, order, |busy, span| smallest_gap(busy.taken(span.begin, span.end), span.units))
}

/// Each on top of all that it meets.
pub(super) fn on_top(spans: Spans<'_>, order: &[u32]) -> Offsets {
    in_order(spans, order, |busy, span| busy.top(span.begin, span.end))
}

/// Each in a slot that serves one at a time: the first made that is free while it is alive, or a new one. A slot has the size of its first.
/// Gives the offsets, slots laid side by side as they were made.
pub(super) fn in_slots(spans: Spans<'_>, order: &[u32]) -> Offsets {
    let alone: Vec<Span> = spans.list.iter().map(|span| Span { units: 1, ..*span }).collect();
    let slots = in_order(Spans { list: &alone, ..spans }, order, |busy, span| {
        first_gap(busy.taken(span.begin, span.end), 1)
    });
    let (mut begins, mut top) = (Vec::new(), 0);
    for &at in order {
        let slot = slots[at as usize] as usize;
        if slot == begins.len() {
            let end = end_of(top, spans.list[at as usize].units);
            begins.push(end.map_or(NOWHERE, |_| top));
            top = end.unwrap_or(top);
        }
    }
    slots.iter().map(|slot| begins[*slot as usize]).collect()
}

/// Of objects that lie side by side: beginning, end, and where nothing lies above in it.
fn tops<'a>(
    taken: &'a [(u32, u32)],
    objects: &'a [(u32, u32)],
) -> impl Iterator<Item = (u32, u32, u32)> + 'a {
    let mut taken = taken.iter().peekable();
    objects.iter().map(move |&(begin, end)| {
        let mut above = begin;
        // a range may reach over several objects
        while let Some((_, to)) = taken.peek().filter(|(from, _)| *from < end) {
            above = above.max((*to).min(end));
            if *to > end {
                break;
            }
            taken.next();
        }
        (begin, end, above)
    })
}

/// The top of what is taken in the first object that has room for `units` above it.
pub(crate) fn first_room_above(
    taken: &[(u32, u32)],
    objects: &[(u32, u32)],
    units: u32,
) -> Option<u32> {
    let found = tops(taken, objects).find(|(_, end, above)| end - above >= units);
    found.map(|(_, _, above)| above)
}

/// Objects as ExecuTorch shares them: an object has the size of its first buffer; the first object that is free while a buffer is alive
/// takes it at its beginning; else the first with room above what is alive in it; else a new object.
pub(super) fn in_shared_objects(spans: Spans<'_>, order: &[u32]) -> Offsets {
    let mut objects: Vec<(u32, u32)> = Vec::new();
    in_order(spans, order, |busy, Span { begin, end, units }| {
        let taken = busy.taken(begin, end);
        let free = tops(taken, &objects).find(|(begin, _, above)| begin == above);
        let place = free.map(|(begin, _, _)| begin);
        place.or_else(|| first_room_above(taken, &objects, units)).unwrap_or_else(|| {
            let top = objects.last().map_or(0, |(_, end)| *end);
            objects.extend(end_of(top, units).map(|end| (top, end)));
            top
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_told_apart_by_size_and_place() {
        let taken = [(2, 4), (9, 10), (13, 20), (23, 30)];
        for (units, smallest, first) in
            [(1, 0, 0), (2, 0, 0), (3, 10, 4), (4, 4, 4), (5, 4, 4), (6, 30, 30)]
        {
            assert_eq!(smallest_gap(&taken, units), smallest, "{units} units");
            assert_eq!(first_gap(&taken, units), first, "{units} units");
        }
        assert_eq!((smallest_gap(&[], 5), first_gap(&[], 5)), (0, 0));
    }

    #[test]
    fn room_is_above_what_lies_in_an_object() {
        let objects = [(0, 10), (10, 14), (14, 20)];
        let taken = [(2, 7), (9, 12), (15, 16)];
        let found = tops(&taken, &objects).map(|(_, _, above)| above);
        assert_eq!(found.collect::<Vec<_>>(), [10, 12, 16]);
        for (units, want) in [(1, Some(12)), (2, Some(12)), (3, Some(16)), (5, None)] {
            assert_eq!(first_room_above(&taken, &objects, units), want);
        }
    }

    #[test]
    fn what_would_pass_the_end_is_not_placed() {
        let span = |units| Span { begin: 0, end: 1, units };
        let list = [span(u32::MAX - 1), span(5)];
        let spans = Spans { list: &list, moments: 1 };
        for planner in [in_smallest_gap, on_top, in_slots, in_shared_objects] {
            assert_eq!(planner(spans, &[0, 1]), [0, NOWHERE]);
        }
    }
}
