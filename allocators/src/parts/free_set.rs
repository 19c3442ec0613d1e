//! A set of free blocks in exact best-fit order: by size, then by an order of the owner's.
//!
//! ```text
//!  summary   1 bit a word      ┌ first word with a bit
//!  words     1 bit a bin       └─▶ first bin with a block
//!  heads     1 node a bin          ├─ size 96 ─▶ size 97 ─▶ size 99        distinct sizes of a bin, rising (Links::next, Links::prev)
//!                                  │               │
//!                                  │            pairing heap               blocks of one size, the first by the owner's order on top
//! ```
//!
//! | operation | cost |
//! |---|---|
//! | [`FreeSet::insert`] | constant, and the distinct sizes that share the bin |
//! | [`FreeSet::remove`] | amortised logarithm of the blocks of that very size |
//! | [`FreeSet::find`] | constant, and the distinct sizes that share the bin |
//! | [`FreeSet::from`] | a walk in order, that sorts the blocks of each size as it comes to them; for rare cases |
//!
//! Bins are exact up to 2^(`mantissa` + 1) units and then keep `mantissa` bits after the leading one, so few sizes share a bin. Many blocks of
//! one size, which a sorted list or a search tree suffers from, cost no more than few.
//!
//! Nodes are numbers in an arena of the owner's, which implements [`Nodes`]; node 0 means "none" and must have size 0.

/// No node.
pub const NONE: u32 = 0;

/// Links of a free node. Meaningless while it is in no set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// First child in the heap of its size.
    pub child: u32,
    /// Next sibling in that heap; of the top: top of the next larger size in the bin.
    pub next: u32,
    /// Sibling before, or parent; of the top: top of the next smaller size in the bin. A node whose `prev` has another size is a top.
    pub prev: u32,
}

/// The owner's arena.
pub trait Nodes {
    /// Size in the owner's units; 0 for node 0 and for no other.
    fn size(&self, node: u32) -> u32;
    /// Does `a` come before `b`, both of one size?
    fn before(&self, a: u32, b: u32) -> bool;
    /// Its links.
    fn links(&self, node: u32) -> Links;
    /// Its links, to be changed.
    fn links_mut(&mut self, node: u32) -> &mut Links;
}

/// Words of bins that the summary can cover: 64 bits of 8 words.
const SUMMARY_WORDS: usize = 8;
/// Most mantissa bits: the classes of all 32-bit sizes then still fit under the summary.
pub const MANTISSA_MAX: u32 = 10;
const _: () = assert!(
    ((32 - MANTISSA_MAX as usize + 1) << MANTISSA_MAX) <= SUMMARY_WORDS * 64 * 64,
    "every class has a summary bit"
);

/// The set. It holds heads and bits only; the nodes are the owner's.
#[derive(Clone, Debug)]
pub struct FreeSet {
    summary: [u64; SUMMARY_WORDS],
    words: Vec<u64>,
    heads: Vec<u32>,
    mantissa: u32,
    len: usize,
}

impl FreeSet {
    /// An empty set whose bins keep `mantissa` bits (at most [`MANTISSA_MAX`]) of a size.
    pub fn new(mantissa: u32) -> Self {
        let mantissa = mantissa.min(MANTISSA_MAX);
        Self { summary: [0; SUMMARY_WORDS], words: Vec::new(), heads: Vec::new(), mantissa, len: 0 }
    }

    /// Nodes in the set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No nodes?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn class(&self, size: u32) -> usize {
        let shift = (31 - (size | 1).leading_zeros()).saturating_sub(self.mantissa);
        ((shift << self.mantissa) + (size >> shift)) as usize
    }

    /// Puts a node in.
    #[inline]
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: u32) {
        let size = nodes.size(node);
        let class = self.class(size);
        if class >= self.heads.len() {
            self.grow(class);
        }
        self.len += 1;
        let head = self.heads[class];
        if head == NONE {
            self.heads[class] = node;
            self.words[class >> 6] |= 1 << (class & 63);
            self.summary[class >> 12] |= 1 << ((class >> 6) & 63);
            *nodes.links_mut(node) = Links::default();
            return;
        }
        let (mut smaller, mut top) = (NONE, head);
        while nodes.size(top) < size {
            let next = nodes.links(top).next;
            if next == NONE {
                *nodes.links_mut(node) = Links { child: NONE, next: NONE, prev: top };
                nodes.links_mut(top).next = node;
                return;
            }
            (smaller, top) = (top, next);
        }
        if nodes.size(top) > size {
            *nodes.links_mut(node) = Links { child: NONE, next: top, prev: smaller };
            nodes.links_mut(top).prev = node;
            self.replace_in_list(nodes, class, smaller, node);
        } else if nodes.before(node, top) {
            let Links { next, prev, .. } = nodes.links(top);
            *nodes.links_mut(node) = Links { child: top, next, prev };
            let links = nodes.links_mut(top);
            links.next = NONE;
            links.prev = node;
            if next != NONE {
                nodes.links_mut(next).prev = node;
            }
            self.replace_in_list(nodes, class, prev, node);
        } else {
            adopt(nodes, top, node, NONE);
        }
    }

    #[cold]
    fn grow(&mut self, class: usize) {
        let words = (class >> 6) + 1;
        self.words.resize(words, 0);
        self.heads.resize(words << 6, NONE);
    }

    /// Makes `node` follow `smaller` in the list of sizes, or lead the bin.
    #[inline]
    fn replace_in_list<N: Nodes>(&mut self, nodes: &mut N, class: usize, smaller: u32, node: u32) {
        if smaller == NONE {
            self.heads[class] = node;
        } else {
            nodes.links_mut(smaller).next = node;
        }
    }

    /// Takes a node out. It must be in the set, and its size unchanged since it was put in.
    #[inline]
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: u32) {
        self.len -= 1;
        let size = nodes.size(node);
        let Links { child, next, prev } = nodes.links(node);
        let heir = if child == NONE { NONE } else { merge_pairs(nodes, child) };
        if nodes.size(prev) == size {
            // Not the top: its heir comes after it, hence after its parent, and takes its place.
            let follower = if heir == NONE { next } else { heir };
            let links = nodes.links_mut(prev);
            if links.child == node {
                links.child = follower;
            } else {
                links.next = follower;
            }
            if heir != NONE {
                let links = nodes.links_mut(heir);
                links.prev = prev;
                links.next = next;
            }
            if next != NONE {
                nodes.links_mut(next).prev = if heir == NONE { prev } else { heir };
            }
            return;
        }
        let class = self.class(size);
        let follower = if heir == NONE { next } else { heir };
        self.replace_in_list(nodes, class, prev, follower);
        if heir != NONE {
            let links = nodes.links_mut(heir);
            links.prev = prev;
            links.next = next;
            if next != NONE {
                nodes.links_mut(next).prev = heir;
            }
        } else if next != NONE {
            nodes.links_mut(next).prev = prev;
        } else if prev == NONE {
            let word = &mut self.words[class >> 6];
            *word &= !(1 << (class & 63));
            if *word == 0 {
                self.summary[class >> 12] &= !(1 << ((class >> 6) & 63));
            }
        }
    }

    /// The first node of at least `size`, or [`NONE`]. It stays in the set.
    #[inline]
    pub fn find<N: Nodes>(&self, nodes: &N, size: u32) -> u32 {
        let class = self.class(size);
        let Some(&head) = self.heads.get(class) else { return NONE };
        let mut top = head;
        while top != NONE {
            if nodes.size(top) >= size {
                return top;
            }
            top = nodes.links(top).next;
        }
        self.next_class(class + 1).map_or(NONE, |class| self.heads[class])
    }

    /// The first bin from `class` on that is not empty.
    #[inline]
    fn next_class(&self, class: usize) -> Option<usize> {
        let at = class >> 6;
        let word = self.words.get(at)? & (u64::MAX << (class & 63));
        if word != 0 {
            return Some((at << 6) | word.trailing_zeros() as usize);
        }
        let mut group = (at + 1) >> 6;
        let mut bits = self.summary.get(group)? & (u64::MAX << ((at + 1) & 63));
        while bits == 0 {
            group += 1;
            bits = *self.summary.get(group)?;
        }
        let at = (group << 6) | bits.trailing_zeros() as usize;
        Some((at << 6) | self.words[at].trailing_zeros() as usize)
    }

    /// Every node of at least `size`, in order.
    pub fn from<'a, N: Nodes>(&'a self, nodes: &'a N, size: u32) -> InOrder<'a, N> {
        let class = self.next_class(self.class(size));
        let mut top = class.map_or(NONE, |class| self.heads[class]);
        while top != NONE && nodes.size(top) < size {
            top = nodes.links(top).next;
        }
        let class = class.unwrap_or(self.heads.len());
        InOrder { set: self, nodes, class, top, batch: Vec::new() }
    }

    /// The size of the largest node; 0 if there is none.
    pub fn largest<N: Nodes>(&self, nodes: &N) -> u32 {
        let Some(group) = self.summary.iter().rposition(|bits| *bits != 0) else { return 0 };
        let at = (group << 6) | self.summary[group].ilog2() as usize;
        let mut top = self.heads[(at << 6) | self.words[at].ilog2() as usize];
        while nodes.links(top).next != NONE {
            top = nodes.links(top).next;
        }
        nodes.size(top)
    }
}

/// Makes `node` the first child of `parent`, and `child` (or none) the node's only child.
#[inline]
fn adopt<N: Nodes>(nodes: &mut N, parent: u32, node: u32, child: u32) {
    let first = nodes.links(parent).child;
    *nodes.links_mut(node) = Links { child, next: first, prev: parent };
    if first != NONE {
        nodes.links_mut(first).prev = node;
    }
    nodes.links_mut(parent).child = node;
}

/// Joins two heaps; the top of the result has no siblings.
#[inline]
fn meld<N: Nodes>(nodes: &mut N, a: u32, b: u32) -> u32 {
    let (top, under) = if nodes.before(b, a) { (b, a) } else { (a, b) };
    let child = nodes.links(under).child;
    adopt(nodes, top, under, child);
    top
}

/// Joins the siblings from `first` on into one heap: in pairs from the left, then the pairs from the right.
fn merge_pairs<N: Nodes>(nodes: &mut N, first: u32) -> u32 {
    if nodes.links(first).next == NONE {
        return first;
    }
    // Pairs wait in a list linked by `next`, the latest first.
    let (mut pairs, mut left) = (NONE, first);
    while left != NONE {
        let right = nodes.links(left).next;
        let (pair, rest) = if right == NONE {
            (left, NONE)
        } else {
            let rest = nodes.links(right).next;
            (meld(nodes, left, right), rest)
        };
        nodes.links_mut(pair).next = pairs;
        pairs = pair;
        left = rest;
    }
    let mut top = pairs;
    let mut rest = nodes.links(top).next;
    while rest != NONE {
        let after = nodes.links(rest).next;
        top = meld(nodes, top, rest);
        rest = after;
    }
    nodes.links_mut(top).next = NONE;
    top
}

/// A walk over a set in order.
#[derive(Clone, Debug)]
pub struct InOrder<'a, N> {
    set: &'a FreeSet,
    nodes: &'a N,
    /// Bin of `top`.
    class: usize,
    /// The first block of the size that comes next; none: look in the bins after this one.
    top: u32,
    /// What is left of the size that the walk is in, last first.
    batch: Vec<u32>,
}

impl<N: Nodes> Iterator for InOrder<'_, N> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if let Some(node) = self.batch.pop() {
            return Some(node);
        }
        if self.top == NONE {
            self.class = self.set.next_class(self.class + 1)?;
            self.top = self.set.heads[self.class];
        }
        let node = self.top;
        self.top = self.nodes.links(node).next;
        descendants(self.nodes, node, &mut self.batch);
        self.batch.sort_unstable_by(|&a, &b| self.nodes.before(a, b).cmp(&self.nodes.before(b, a)));
        Some(node)
    }
}

/// Appends what is under `top` in its heap, in no order.
fn descendants<N: Nodes>(nodes: &N, top: u32, list: &mut Vec<u32>) {
    let mut at = list.len();
    let mut node = top;
    loop {
        let mut child = nodes.links(node).child;
        while child != NONE {
            list.push(child);
            child = nodes.links(child).next;
        }
        let Some(&next) = list.get(at) else { return };
        node = next;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Arena(Vec<(u32, u32, Links)>);

    impl Nodes for Arena {
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
    fn check(mantissa: u32, size_of: impl Fn(u64) -> u32) {
        let mut arena = Arena(vec![(0, 0, Links::default())]);
        let mut set = FreeSet::new(mantissa);
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
            assert_eq!(set.len(), model.len());
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
        check(7, |random| 1 + (random % 5) as u32);
    }

    #[test]
    fn exact_bins() {
        check(10, |random| 1 + (random % 2048) as u32);
    }

    #[test]
    fn several_sizes_a_bin() {
        check(2, |random| 100 + (random % 300) as u32);
    }

    #[test]
    fn sizes_up_to_the_largest() {
        check(7, |random| 1 + ((random >> 32) as u32 >> (random % 32)).min(u32::MAX - 1));
        check(10, |random| u32::MAX - (random % 3) as u32);
    }
}
