//! Free pieces in address order, with the largest size of every subtree: finds the first piece from an address on that is large enough in O(log n).
//!
//! ```text
//!             ┌ keys    0  40  95 ┐        a B+ tree of wide nodes; an inner entry keeps the lowest address and the
//!             └ most   16   3   8 ┘        largest size below it, so a search for 5 units goes left, then right
//!              ╱        │        ╲
//!   ┌ 0 12 31 ┐   ┌ 40 61 ┐   ┌ 95 97 ┐
//!   └ 2 16  1 ┘   └  3  1 ┘   └  1  8 ┘
//! ```
//! A node is taken out when its last entry is (Johnson and Shasha, "The performance of current B-tree algorithms", TODS 18, 1993: free-at-empty costs
//! next to nothing against merging at half).

use super::pieces::NIL;

/// Entries of a node.
const FAN: usize = 16;
/// More levels than 2^47 inserts can make.
const HEIGHT_MAX: usize = 16;

#[derive(Clone, Debug)]
struct Node {
    len: usize,
    /// Leaf: addresses of pieces. Inner: the lowest address below the entry. Unused: `u64::MAX`.
    keys: [u64; FAN],
    /// Largest size of the entry, in units. Unused: 0.
    most: [u32; FAN],
    /// Leaf: slots of pieces. Inner: nodes.
    below: [u32; FAN],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    most: u32,
    below: u32,
}

impl Node {
    const EMPTY: Self = Self { len: 0, keys: [u64::MAX; FAN], most: [0; FAN], below: [NIL; FAN] };

    fn most(&self) -> u32 {
        self.most.iter().copied().fold(0, u32::max)
    }

    /// The last entry whose key is at most `address`, or the first.
    #[inline]
    fn position(&self, address: u64) -> usize {
        let at_most: usize = self.keys.iter().map(|key| usize::from(*key <= address)).sum();
        at_most.saturating_sub(1)
    }

    /// The first entry from `from` on that has at least `units`.
    #[inline]
    fn first_from(&self, from: usize, units: u32) -> Option<usize> {
        let mut fits = 0_u32;
        for (i, most) in self.most.iter().enumerate() {
            fits |= u32::from(*most >= units) << i;
        }
        fits &= u32::MAX.checked_shl(from as u32).unwrap_or(0);
        (fits != 0).then_some(fits.trailing_zeros() as usize)
    }

    fn set(&mut self, at: usize, entry: Entry) {
        (self.keys[at], self.most[at], self.below[at]) = (entry.key, entry.most, entry.below);
    }

    fn insert(&mut self, at: usize, entry: Entry) {
        self.keys.copy_within(at..self.len, at + 1);
        self.most.copy_within(at..self.len, at + 1);
        self.below.copy_within(at..self.len, at + 1);
        self.set(at, entry);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1.., at);
        self.most.copy_within(at + 1.., at);
        self.below.copy_within(at + 1.., at);
        self.len -= 1;
        self.set(self.len, Entry { key: u64::MAX, most: 0, below: NIL });
    }

    /// Moves the upper half out.
    fn split(&mut self) -> Self {
        let mut upper = Self::EMPTY;
        for at in FAN / 2..FAN {
            let entry = Entry { key: self.keys[at], most: self.most[at], below: self.below[at] };
            upper.set(at - FAN / 2, entry);
            self.set(at, Entry { key: u64::MAX, most: 0, below: NIL });
        }
        (self.len, upper.len) = (FAN / 2, FAN / 2);
        upper
    }
}

/// The way to an entry: node and position in it, level 0 (the leaf) first.
type Path = [(u32, usize); HEIGHT_MAX];

/// The tree.
#[derive(Debug)]
pub(crate) struct MaxTree {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    root: u32,
    /// Levels; 1 is a leaf alone.
    height: usize,
    /// The way to the entry that was sought last.
    sought: Path,
}

impl MaxTree {
    pub(crate) fn new() -> Self {
        let (vacant, sought) = (Vec::new(), [(0, 0); HEIGHT_MAX]);
        Self { nodes: vec![Node::EMPTY], vacant, root: 0, height: 1, sought }
    }

    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    #[inline]
    fn path(&self, address: u64) -> Path {
        let (mut path, mut at) = ([(0, 0); HEIGHT_MAX], self.root);
        for step in path[..self.height].iter_mut().rev() {
            let node = &self.nodes[at as usize];
            let position = node.position(address);
            *step = (at, position);
            at = node.below[position];
        }
        path
    }

    fn make(&mut self, node: Node) -> u32 {
        if let Some(at) = self.vacant.pop() {
            *self.node(at) = node;
            return at;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Largest size, 0 if there is no piece.
    pub(crate) fn most(&self) -> u32 {
        self.nodes[self.root as usize].most()
    }

    /// Takes a piece in.
    pub(crate) fn insert(&mut self, address: u64, units: u32, slot: u32) {
        let path = self.path(address);
        let mut entry = Entry { key: address, most: units, below: slot };
        for level in 0..self.height {
            let (at, position) = path[level];
            let node = self.node(at);
            let after = position + usize::from(node.len > 0 && node.keys[position] <= entry.key);
            if node.len < FAN {
                node.insert(after, entry);
                return self.repair(&path, level + 1);
            }
            let mut upper = node.split();
            if after <= FAN / 2 {
                node.insert(after, entry);
            } else {
                upper.insert(after - FAN / 2, entry);
            }
            let lower = Entry { key: node.keys[0], most: node.most(), below: at };
            let (key, most) = (upper.keys[0], upper.most());
            entry = Entry { key, most, below: self.make(upper) };
            if level + 1 == self.height {
                return self.grow(lower, entry);
            }
            let (parent, position) = path[level + 1];
            self.node(parent).set(position, lower);
        }
    }

    /// A new root over the old one and its split-off half.
    fn grow(&mut self, lower: Entry, upper: Entry) {
        let mut root = Node::EMPTY;
        root.insert(0, lower);
        root.insert(1, upper);
        self.root = self.make(root);
        self.height += 1;
    }

    /// Brings the entries on the way from `level` up to date.
    #[inline]
    fn repair(&mut self, path: &Path, level: usize) {
        for &(at, position) in &path[level.min(self.height)..self.height] {
            let below = self.nodes[at as usize].below[position];
            let child = &self.nodes[below as usize];
            let (key, most) = (child.keys[0], child.most());
            let node = self.node(at);
            if node.most[position] == most && node.keys[position] == key {
                return;
            }
            node.set(position, Entry { key, most, below });
        }
    }

    /// Takes the piece at `address` out.
    pub(crate) fn remove(&mut self, address: u64) {
        let path = self.path(address);
        debug_assert_eq!(self.nodes[path[0].0 as usize].keys[path[0].1], address);
        self.remove_at(&path);
    }

    /// Takes the piece out that [`MaxTree::seek`] found just before.
    pub(crate) fn remove_sought(&mut self) {
        let path = self.sought;
        self.remove_at(&path);
    }

    #[inline]
    fn remove_at(&mut self, path: &Path) {
        let mut level = 0;
        loop {
            let (at, position) = path[level];
            let node = self.node(at);
            node.remove(position);
            if node.len > 0 || level + 1 == self.height {
                break;
            }
            self.vacant.push(at);
            level += 1;
        }
        self.repair(path, level + 1);
        while self.height > 1 && self.nodes[self.root as usize].len == 1 {
            self.vacant.push(self.root);
            self.root = self.nodes[self.root as usize].below[0];
            self.height -= 1;
        }
        if self.nodes[self.root as usize].len == 0 {
            self.height = 1;
        }
    }

    /// The piece at `old` now begins at `address`, still between the same neighbours, and has this size and slot.
    pub(crate) fn update(&mut self, old: u64, address: u64, units: u32, slot: u32) {
        let path = self.path(old);
        debug_assert_eq!(self.nodes[path[0].0 as usize].keys[path[0].1], old);
        self.update_at(&path, Entry { key: address, most: units, below: slot });
    }

    /// As [`MaxTree::update`], of the piece that [`MaxTree::seek`] found just before.
    pub(crate) fn update_sought(&mut self, address: u64, units: u32, slot: u32) {
        let path = self.sought;
        self.update_at(&path, Entry { key: address, most: units, below: slot });
    }

    #[inline]
    fn update_at(&mut self, path: &Path, entry: Entry) {
        let (at, position) = path[0];
        self.node(at).set(position, entry);
        self.repair(path, 1);
    }

    /// The first piece that has at least `units` (1 or more), and the way to it for the next call.
    #[inline]
    pub(crate) fn seek(&mut self, units: u32) -> Option<u32> {
        let mut at = self.root;
        for step in self.sought[..self.height].iter_mut().rev() {
            let node = &self.nodes[at as usize];
            let position = node.first_from(0, units)?;
            *step = (at, position);
            at = node.below[position];
        }
        Some(at)
    }

    /// As [`MaxTree::seek`], of the piece at `address`.
    pub(crate) fn seek_at(&mut self, address: u64) {
        self.sought = self.path(address);
    }

    /// The first piece at or after `address` that has at least `units` (1 or more).
    pub(crate) fn first_from(&self, address: u64, units: u32) -> Option<u32> {
        if address == 0 {
            return self.descend(self.root, self.height, units, 0);
        }
        let path = self.path(address);
        for (level, &(at, position)) in path[..self.height].iter().enumerate() {
            let node = &self.nodes[at as usize];
            let passed = level > 0 || node.keys[position] < address;
            if let Some(slot) = self.descend(at, level + 1, units, position + usize::from(passed)) {
                return Some(slot);
            }
        }
        None
    }

    /// The first piece of at least `units` below entries `from` and later of a node with so many levels.
    #[inline]
    fn descend(&self, at: u32, levels: usize, units: u32, from: usize) -> Option<u32> {
        let node = &self.nodes[at as usize];
        let mut at = node.below[node.first_from(from, units)?];
        for _ in 1..levels {
            let node = &self.nodes[at as usize];
            at = node.below[node.first_from(0, units)?];
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use vramlab_sim::testing::Dice;

    /// Against an ordered map, while it grows to several levels and shrinks to nothing, more than once.
    #[test]
    fn tree_agrees_with_an_ordered_map() {
        let (mut tree, mut model) = (MaxTree::new(), BTreeMap::<u64, (u32, u32)>::new());
        let mut dice = Dice::of_step_1(1);
        for step in 0..60_000_u64 {
            let growing = (step / 6_000).is_multiple_of(2);
            let address = 1000 + dice.below(1 << 20) * 16;
            let near = model.range(address..).next().map(|(a, v)| (*a, *v));
            match (near, dice.below(10)) {
                (Some((old, (_, slot))), 0..2) => {
                    // a few bytes down or up, as when a piece is cut or grows
                    let (moved, units) = (old + dice.below(15) - 7, 1 + dice.below(1000) as u32);
                    tree.update(old, moved, units, slot);
                    model.remove(&old);
                    model.insert(moved, (units, slot));
                }
                (_, 2..4) => {
                    let (wanted, part) = (1 + dice.below(1000) as u32, dice.below(1000) as u32);
                    let first = model.iter().find(|(_, (units, _))| *units >= wanted);
                    let first = first.map(|(address, (units, slot))| (*address, *units, *slot));
                    assert_eq!(tree.seek(wanted), first.map(|(_, _, slot)| slot));
                    if let Some((old, units, slot)) = first {
                        model.remove(&old);
                        if part < units && growing {
                            tree.update_sought(old + 7, units - part, slot);
                            model.insert(old + 7, (units - part, slot));
                        } else {
                            tree.remove_sought();
                        }
                    }
                }
                (Some((old, _)), n) if growing == (n < 4) => {
                    tree.remove(old);
                    model.remove(&old);
                }
                _ if !model.contains_key(&address) => {
                    let (units, slot) = (1 + dice.below(1000) as u32, step as u32);
                    tree.insert(address, units, slot);
                    model.insert(address, (units, slot));
                }
                _ => {}
            }
            assert_eq!(tree.most(), model.values().map(|(units, _)| *units).max().unwrap_or(0));
            for from in [0, 1000 + dice.below(1 << 24)] {
                let units = 1 + dice.below(1100) as u32;
                let want =
                    model.range(from..).find(|(_, (u, _))| *u >= units).map(|(_, (_, s))| *s);
                assert_eq!(tree.first_from(from, units), want, "{units} from {from}, step {step}");
            }
        }
        let rest: Vec<u64> = model.keys().copied().collect();
        rest.iter().for_each(|address| tree.remove(*address));
        assert_eq!((tree.most(), tree.height, tree.nodes.len() - tree.vacant.len()), (0, 1, 1));
    }
}
