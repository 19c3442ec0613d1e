//! Free pieces in order of (size, address), exactly: one search tree per size class, under a two-level bitmap.
//!
//! ```text
//! bitmap      ..0 1 0 1 1 0..         up to 128 units: one class per size, the tree is ordered by address alone
//! trees            │   │ └ 5210       above: 64 classes per power of two, a class rarely holds more than a few sizes
//!                 12   40
//!                 ╱ ╲                 a treap: the links are in the pieces, the priority is a hash of the slot
//! ```
//! The smallest piece of at least a size is in the size's own class, or else the first of the next class that is not empty.
//! Source: R. Seidel, C. Aragon, "Randomized search trees", Algorithmica 16, 1996; a fixed hash in place of random numbers keeps runs equal.

use super::pieces::{NIL, Pieces};
use super::two_level::TwoLevel;

type Levels = TwoLevel<6>;

/// The order. The links are [`super::pieces::Piece`]'s `a` (smaller) and `b` (larger).
#[derive(Debug)]
pub(crate) struct SizeOrder {
    levels: Levels,
    roots: Vec<u32>,
}

/// Where a piece hangs.
#[derive(Clone, Copy)]
enum Link {
    Root(usize),
    Smaller(u32),
    Larger(u32),
}

/// Priority of a slot; all are different.
#[inline]
const fn priority(slot: u32) -> u32 {
    let mixed = slot.wrapping_mul(0x9E37_79B9);
    mixed ^ (mixed >> 15)
}

impl SizeOrder {
    pub(crate) fn new() -> Self {
        Self { levels: Levels::new(), roots: vec![NIL; Levels::CLASSES] }
    }

    #[inline]
    fn hang(&mut self, pieces: &mut Pieces, link: Link, slot: u32) {
        match link {
            Link::Root(class) => self.roots[class] = slot,
            Link::Smaller(parent) => pieces.get_mut(parent).a = slot,
            Link::Larger(parent) => pieces.get_mut(parent).b = slot,
        }
    }

    /// Takes a piece in.
    pub(crate) fn insert(&mut self, pieces: &mut Pieces, slot: u32) {
        let piece = pieces.get(slot);
        let (units, address) = (piece.units, piece.address());
        let class = Levels::class(units);
        let (mut link, mut at, rank) = (Link::Root(class), self.roots[class], priority(slot));
        if at == NIL {
            self.levels.set(class);
        }
        while at != NIL && priority(at) > rank {
            let piece = pieces.get(at);
            if (units, address) < (piece.units, piece.address()) {
                (link, at) = (Link::Smaller(at), piece.a);
            } else {
                (link, at) = (Link::Larger(at), piece.b);
            }
        }
        self.hang(pieces, link, slot);
        // what hung there is cut in two: smaller ones below `a`, larger ones below `b`
        let (mut smaller, mut larger) = (Link::Smaller(slot), Link::Larger(slot));
        while at != NIL {
            let piece = pieces.get(at);
            if (units, address) < (piece.units, piece.address()) {
                let next = piece.a;
                self.hang(pieces, larger, at);
                (larger, at) = (Link::Smaller(at), next);
            } else {
                let next = piece.b;
                self.hang(pieces, smaller, at);
                (smaller, at) = (Link::Larger(at), next);
            }
        }
        self.hang(pieces, smaller, NIL);
        self.hang(pieces, larger, NIL);
    }

    /// Takes a piece out that was put in with this size and address (which may have changed since).
    pub(crate) fn remove(&mut self, pieces: &mut Pieces, slot: u32, units: u32, address: u64) {
        let class = Levels::class(units);
        let (mut link, mut at) = (Link::Root(class), self.roots[class]);
        while at != slot {
            let piece = pieces.get(at);
            if (units, address) < (piece.units, piece.address()) {
                (link, at) = (Link::Smaller(at), piece.a);
            } else {
                (link, at) = (Link::Larger(at), piece.b);
            }
        }
        let piece = pieces.get(slot);
        let (mut a, mut b) = (piece.a, piece.b);
        while a != NIL && b != NIL {
            if priority(a) > priority(b) {
                self.hang(pieces, link, a);
                link = Link::Larger(a);
                a = pieces.get(a).b;
            } else {
                self.hang(pieces, link, b);
                link = Link::Smaller(b);
                b = pieces.get(b).a;
            }
        }
        self.hang(pieces, link, if a == NIL { b } else { a });
        if self.roots[class] == NIL {
            self.levels.clear(class);
        }
    }

    /// A piece that was put in with this size and address changed them.
    #[inline]
    pub(crate) fn resized(
        &mut self,
        pieces: &mut Pieces,
        slot: u32,
        old_units: u32,
        old_address: u64,
    ) {
        let piece = pieces.get(slot);
        let class = Levels::class(piece.units);
        let alone = self.roots[class] == slot && piece.a == NIL && piece.b == NIL;
        if !alone || class != Levels::class(old_units) {
            self.remove(pieces, slot, old_units, old_address);
            self.insert(pieces, slot);
        }
    }

    /// The smallest piece of at least `units`, lowest address first.
    pub(crate) fn smallest_from(&self, pieces: &Pieces, units: u32) -> Option<u32> {
        let own = Levels::class(units);
        let class = self.levels.first_from(own)?;
        if class == own
            && let Some(found) = Self::first_in(pieces, self.roots[own], units)
        {
            return Some(found);
        }
        let class = if class == own { self.levels.first_from(own + 1)? } else { class };
        Some(Self::first(pieces, self.roots[class]))
    }

    /// The first piece of a tree that has at least `units`.
    fn first_in(pieces: &Pieces, root: u32, units: u32) -> Option<u32> {
        let (mut at, mut found) = (root, None);
        while at != NIL {
            let piece = pieces.get(at);
            if piece.units >= units {
                (found, at) = (Some(at), piece.a);
            } else {
                at = piece.b;
            }
        }
        found
    }

    /// The piece that follows one that is in the order.
    pub(crate) fn next(&self, pieces: &Pieces, slot: u32) -> Option<u32> {
        let key = |slot: u32| (pieces.get(slot).units, pieces.get(slot).address());
        let class = Levels::class(pieces.get(slot).units);
        let (mut at, mut found) = (self.roots[class], None);
        while at != NIL {
            if key(at) > key(slot) {
                (found, at) = (Some(at), pieces.get(at).a);
            } else {
                at = pieces.get(at).b;
            }
        }
        found.or_else(|| Some(Self::first(pieces, self.roots[self.levels.first_from(class + 1)?])))
    }

    /// The first piece of a tree.
    fn first(pieces: &Pieces, root: u32) -> u32 {
        let mut at = root;
        while pieces.get(at).a != NIL {
            at = pieces.get(at).a;
        }
        at
    }

    /// The largest piece, lowest address first.
    pub(crate) fn largest(&self, pieces: &Pieces) -> Option<u32> {
        let root = self.roots[self.levels.last()?];
        Self::first_in(pieces, root, pieces.get(self.last(pieces)?).units)
    }

    /// The last piece of the order: the largest, highest address first.
    pub(crate) fn last(&self, pieces: &Pieces) -> Option<u32> {
        let mut at = self.roots[self.levels.last()?];
        while pieces.get(at).b != NIL {
            at = pieces.get(at).b;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::pieces::Segment;
    use std::collections::BTreeSet;
    use vramlab_sim::testing::Dice;

    /// Against an ordered set, on sizes that share classes and sizes that are equal.
    #[test]
    fn order_agrees_with_an_ordered_set() {
        let (mut pieces, mut order) = (Pieces::new(512), SizeOrder::new());
        let (mut model, mut live) = (BTreeSet::new(), Vec::new());
        let mut dice = Dice::of_step_1(7);
        for step in 0..20_000_u64 {
            let units =
                if dice.below(2) == 0 { 1 + dice.below(4) } else { 1 + dice.below(3000) } as u32;
            if live.is_empty() || dice.below(5) < 3 {
                let address = (step + 1) << 22;
                let slot = pieces.add(Segment { address, size: u64::from(units) * 512 });
                order.insert(&mut pieces, slot);
                model.insert((units, address, slot));
                live.push((units, address, slot));
            } else {
                let (units, address, slot) =
                    live.swap_remove(dice.below(live.len() as u64) as usize);
                order.remove(&mut pieces, slot, units, address);
                model.remove(&(units, address, slot));
                pieces.remove(slot);
            }
            let want = model.range((units, 0, 0)..).next().map(|(_, _, slot)| *slot);
            assert_eq!(order.smallest_from(&pieces, units), want, "of at least {units}");
            let most = model.last().map(|(units, _, _)| *units);
            let want = most.and_then(|most| model.range((most, 0, 0)..).next()).map(|(_, _, s)| *s);
            assert_eq!(order.largest(&pieces), want);
            if step % 500 == 0 {
                let first = order.smallest_from(&pieces, 1);
                let walk = std::iter::successors(first, |slot| order.next(&pieces, *slot));
                assert!(walk.eq(model.iter().map(|(_, _, slot)| *slot)), "in order");
            }
            assert_eq!(order.last(&pieces), model.last().map(|(_, _, slot)| *slot));
        }
    }
}
