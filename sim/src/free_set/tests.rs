//! The set against an ordered set of (size, order, node).

use super::*;
use std::collections::BTreeSet;

#[derive(Default)]
struct Arena(Vec<(u32, u32, Links)>);

impl Nodes for &mut Arena {
    type Brief<'a>
        = &'a mut Arena
    where
        Self: 'a;
    fn brief(&mut self) -> &mut Arena {
        self
    }
    fn size(&self, node: u32) -> u32 {
        self.0[node as usize].0
    }
    fn before(&self, a: u32, b: u32) -> bool {
        self.0[a as usize].1 < self.0[b as usize].1
    }
    fn links(&self, node: u32) -> Links {
        self.0[node as usize].2
    }
    fn links_mut(&mut self, node: u32) -> &mut Links {
        &mut self.0[node as usize].2
    }
}

/// xorshift: the tests need no better.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Random inserts, removals and searches against an ordered set of (size, order, node).
fn check(size_of: impl Fn(u64) -> u32) {
    let mut arena = Arena(vec![(0, 0, Links::default())]);
    let mut arena = &mut arena;
    let mut set = FreeSet::new();
    let mut model: BTreeSet<(u32, u32, u32)> = BTreeSet::new();
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for step in 0..6000_u32 {
        let shrink = step % 2000 > 1200;
        if !model.is_empty() && next(&mut state) % 10 < if shrink { 7 } else { 4 } {
            let at = next(&mut state) as usize % model.len();
            let key = *model.iter().nth(at).expect("within the set");
            model.remove(&key);
            set.remove(&mut arena, key.2);
        } else {
            let (size, order) = (size_of(next(&mut state)), next(&mut state) as u32);
            let node = arena.0.len() as u32;
            arena.0.push((size, order, Links::default()));
            model.insert((size, order, node));
            set.insert(&mut arena, node);
        }
        let size = size_of(next(&mut state));
        let want = model.range((size, 0, 0)..).next().map_or(NONE, |key| key.2);
        assert_eq!(set.find(&arena, size), want, "step {step}, size {size}");
        assert_eq!(set.is_empty(), model.is_empty());
        if step % 50 == 0 {
            let want: Vec<u32> = model.range((size, 0, 0)..).map(|key| key.2).collect();
            assert_eq!(
                set.from(&arena, size).collect::<Vec<_>>(),
                want,
                "step {step}, from {size}"
            );
            assert_eq!(set.largest(&arena), model.last().map_or(0, |key| key.0));
        }
    }
}

#[test]
fn few_sizes_many_blocks() {
    check(|random| 1 + (random % 5) as u32);
}

#[test]
fn exact_bins() {
    check(|random| 1 + (random % 2048) as u32);
}

#[test]
fn several_sizes_a_bin() {
    check(|random| 1_000_000 + (random % 30_000) as u32);
}

#[test]
fn sizes_up_to_the_largest() {
    check(|random| 1 + ((random >> 32) as u32 >> (random % 32)).min(SIZE_MAX - 1));
    check(|random| SIZE_MAX - (random % 3) as u32);
}

#[test]
fn bins_rise_with_sizes() {
    let sizes = (1..5000).chain((13..32).map(|bit| (1 << bit) - 1)).chain([SIZE_MAX]);
    let bins: Vec<usize> = sizes.map(bin_of).collect();
    assert!(bins.is_sorted());
    assert!(bins[..256].windows(2).all(|two| two[0] < two[1]), "exact below 256");
    assert_eq!((bins.first(), bins.last()), (Some(&0), Some(&(BINS - 1))));
}
