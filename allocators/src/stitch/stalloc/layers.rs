//! The plan of an iteration's buffers: sizes from large to small, in layers of one size each, laid on top of each other.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `fuse` | before a size gets layers of its own, each of its buffers goes into the first layer with room for it above what is alive in it | `allocator.py` allocate_group, add_and_locate |
//! | `layers` | buffers of one size, by birth: into the layer whose last buffer ended latest before, if it is free; else a new layer | form_layer |
//! | `period` | in a layer a buffer of the second iteration also stands for itself an iteration later | MemoryLayer.add_block |
//!
//! Source: infinigence/STAlloc at 3a9f97f, `Synthesizer/`, `--static-algo split-and-fuse` (the default there). Left out: the trial placements that
//! reorder buffers of one size, and the other algorithm, `group`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::planned::busy::Busy;
use crate::planned::gaps::first_room_above;
use crate::planned::plan::{NOWHERE, Offsets, end_of};

/// A buffer: alive from op `born` to before op `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) born: u64,
    pub(super) ends: u64,
    /// 1 or more.
    pub(super) units: u32,
}

/// When buffers come again (rule `period`): those born at `from` or later, `length` ops later, as far as `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: u64,
    pub(super) length: u64,
    pub(super) until: u64,
}

/// Buffers of one size that are never alive at the same time.
#[derive(Clone, Debug, Default)]
struct Layer {
    members: Vec<usize>,
    /// When each is alive, and comes again: end by beginning.
    taken: BTreeMap<u64, u64>,
    /// The end of the last member.
    tail: u64,
}

impl Layer {
    fn is_free(&self, born: u64, ends: u64) -> bool {
        self.taken.range(..ends).next_back().is_none_or(|(_, end)| *end <= born)
    }

    fn add(&mut self, at: usize, buffer: &Buffer, period: Option<Period>) {
        self.members.push(at);
        self.tail = buffer.ends;
        self.taken.insert(buffer.born, buffer.ends);
        if let Some(Period { from, length, until }) = period
            && buffer.born >= from
            && buffer.born + length <= until
        {
            self.taken.insert(buffer.born + length, buffer.ends.saturating_add(length).min(until));
        }
    }
}

/// Rule `layers`; `members` by birth.
fn form(buffers: &[Buffer], members: &[usize], period: Option<Period>) -> Vec<Layer> {
    let mut layers: Vec<Layer> = Vec::new();
    for &at in members {
        let buffer = &buffers[at];
        let open = layers.iter().enumerate().filter(|(_, layer)| {
            layer.tail <= buffer.born && layer.is_free(buffer.born, buffer.ends)
        });
        let latest = open.max_by_key(|(number, layer)| (layer.tail, Reverse(*number)));
        let number = latest.map(|(number, _)| number).unwrap_or_else(|| {
            layers.push(Layer::default());
            layers.len() - 1
        });
        layers[number].add(at, buffer, period);
    }
    layers
}

/// Offsets in units of the buffers, which come in the order of their births, and how many units they take.
pub(super) fn plan(buffers: &[Buffer], period: Option<Period>) -> (Offsets, u32) {
    let births: Vec<u64> = buffers.iter().map(|buffer| buffer.born).collect();
    let moments = |at: usize| {
        let end = births.partition_point(|born| *born < buffers[at].ends);
        (at as u32, (end as u32).max(at as u32 + 1))
    };
    let mut sizes: BTreeMap<Reverse<u32>, Vec<usize>> = BTreeMap::new();
    for (at, buffer) in buffers.iter().enumerate() {
        sizes.entry(Reverse(buffer.units)).or_default().push(at);
    }
    let mut busy = Busy::new(buffers.len() as u32);
    let mut offsets = vec![NOWHERE; buffers.len()];
    // beginning and end of each layer
    let mut layers: Vec<(u32, u32)> = Vec::new();
    for (Reverse(units), members) in sizes {
        let mut rest = Vec::new();
        for at in form(buffers, &members, period).into_iter().flat_map(|layer| layer.members) {
            let (begin, end) = moments(at);
            match first_room_above(busy.taken(begin, end), &layers, units) {
                None => rest.push(at),
                Some(offset) => {
                    busy.take(begin, end, (offset, offset + units));
                    offsets[at] = offset;
                }
            }
        }
        rest.sort_unstable();
        for layer in form(buffers, &rest, period) {
            let begin = layers.last().map_or(0, |(_, end)| *end);
            let Some(end) = end_of(begin, units) else { continue };
            layers.push((begin, end));
            for at in layer.members {
                let (from, to) = moments(at);
                busy.take(from, to, (begin, end));
                offsets[at] = begin;
            }
        }
    }
    (offsets, layers.last().map_or(0, |(_, end)| *end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::Dice;

    const fn buffer(born: u64, ends: u64, units: u32) -> Buffer {
        Buffer { born, ends, units }
    }

    #[test]
    fn layers_hold_one_size_and_the_latest_end_is_followed() {
        // two layers of 4; the third follows the one that ended last, the fourth the other
        let buffers = [buffer(0, 2, 4), buffer(1, 3, 4), buffer(4, 9, 4), buffer(5, 9, 4)];
        assert_eq!(plan(&buffers, None), (vec![0, 4, 4, 0], 8));
    }

    #[test]
    fn fuse_puts_smaller_ones_above_what_is_alive() {
        let buffers = [buffer(0, 2, 9), buffer(3, 9, 5), buffer(4, 9, 4), buffer(5, 9, 1)];
        assert_eq!(plan(&buffers, None), (vec![0, 0, 5, 9], 10));
    }

    #[test]
    fn period_keeps_a_place_for_the_next_iteration() {
        // alive over the end of the iteration: its place is not free at the next one's beginning, where the first comes again
        let buffers = [buffer(10, 12, 4), buffer(15, 25, 4)];
        let period = Period { from: 10, length: 10, until: 30 };
        assert_eq!(plan(&buffers, None), (vec![0, 0], 4));
        assert_eq!(plan(&buffers, Some(period)), (vec![0, 4], 8));
    }

    #[test]
    fn plans_are_valid() {
        let mut dice = Dice::of_step_1(3);
        for _ in 0..20 {
            let mut buffers: Vec<Buffer> = (0..150)
                .map(|at| {
                    let length = if dice.below(5) == 0 { 200 } else { 1 + dice.below(20) };
                    buffer(2 * at, 2 * at + length, [1, 2, 3, 8, 20][dice.below(5) as usize])
                })
                .collect();
            buffers.sort_by_key(|buffer| buffer.born);
            let (offsets, units) = plan(&buffers, None);
            for (i, (a, at)) in buffers.iter().zip(&offsets).enumerate() {
                assert!(at + a.units <= units);
                for (b, other) in buffers.iter().zip(&offsets).skip(i + 1) {
                    let apart = at + a.units <= *other || other + b.units <= *at;
                    assert!(apart || b.born >= a.ends, "{a:?} at {at} and {b:?} at {other}");
                }
            }
        }
    }
}
