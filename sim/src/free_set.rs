//! A set of free blocks in exact best-fit order: by size, then by an order of the owner's.
//!
//! ```text
//!  summary   1 bit a word, 1 word in all      ┌ first word with a bit
//!  words     1 bit a bin, 64 words            └─▶ first bin with a block
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
//! There are 128 bins for each power of two, so each size below 2^8 units has its own, and few sizes share one. Many blocks of one size,
//! which a sorted list or a search tree suffers from, cost no more than few.
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
    /// The arena for a shorter while. Rare paths take it by value, so that on the hot path what it consists of stays in registers.
    type Brief<'a>: Nodes
    where
        Self: 'a;
    /// The arena for a shorter while.
    fn brief(&mut self) -> Self::Brief<'_>;
    /// Size in the owner's units, up to [`SIZE_MAX`]; 0 for node 0 and for no other.
    fn size(&self, node: u32) -> u32;
    /// Does `a` come before `b`, both of one size?
    fn before(&self, a: u32, b: u32) -> bool;
    /// Its links.
    fn links(&self, node: u32) -> Links;
    /// Its links, to be changed.
    fn links_mut(&mut self, node: u32) -> &mut Links;
}

/// Bins: as many as one word of one-word summaries can cover, so that no search loops and no index needs a check.
const BINS: usize = 64 * 64;
/// Bits after the leading one that choose the bin of a size: 32 powers of two of 128 bins each.
const MANTISSA: u32 = 7;
const _: () = assert!((u32::BITS as usize) << MANTISSA == BINS);
/// Largest size: the bins are those of the nearest 32-bit float, which must stay below 2^32.
pub const SIZE_MAX: u32 = u32::MAX - (1 << 8);

/// The leading bits of a size: what a float keeps of it, since converting takes fewer steps than shifting.
#[inline(always)]
fn bin_of(size: u32) -> usize {
    const SHIFT: u32 = f32::MANTISSA_DIGITS - 1 - MANTISSA;
    let first = 1_f32.to_bits() >> SHIFT;
    ((size as f32).to_bits() >> SHIFT).wrapping_sub(first) as usize % BINS
}

/// The set. It holds heads and bits only; the nodes are the owner's.
#[derive(Clone, Debug)]
pub struct FreeSet {
    summary: u64,
    words: [u64; 64],
    /// Of a bin without a bit: anything.
    heads: Box<[u32; BINS]>,
}

impl Default for FreeSet {
    fn default() -> Self {
        Self { summary: 0, words: [0; 64], heads: Box::new([NONE; BINS]) }
    }
}

impl FreeSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// No nodes?
    pub fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// Puts a node in.
    #[inline(always)]
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: u32) {
        let bin = bin_of(nodes.size(node));
        let (at, bit) = (bin / 64, 1 << (bin % 64));
        if self.words[at] & bit != 0 {
            return self.insert_beside(nodes.brief(), node, bin);
        }
        self.words[at] |= bit;
        self.summary |= 1 << at;
        self.heads[bin] = node;
        *nodes.links_mut(node) = Links::default();
    }

    /// Into a bin that is not empty.
    #[inline(never)]
    fn insert_beside<N: Nodes>(&mut self, mut nodes: N, node: u32, bin: usize) {
        let (nodes, head) = (&mut nodes, self.heads[bin]);
        let size = nodes.size(node);
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
            self.follow(nodes, bin, smaller, node);
        } else if nodes.before(node, top) {
            let Links { next, prev, .. } = nodes.links(top);
            *nodes.links_mut(node) = Links { child: top, next, prev };
            let links = nodes.links_mut(top);
            links.next = NONE;
            links.prev = node;
            if next != NONE {
                nodes.links_mut(next).prev = node;
            }
            self.follow(nodes, bin, prev, node);
        } else {
            adopt(nodes, top, node, NONE);
        }
    }

    /// Makes `node` follow `smaller` in the list of sizes, or lead the bin.
    #[inline(always)]
    fn follow<N: Nodes>(&mut self, nodes: &mut N, bin: usize, smaller: u32, node: u32) {
        if smaller == NONE {
            self.heads[bin] = node;
        } else {
            nodes.links_mut(smaller).next = node;
        }
    }

    /// Takes a node out. It must be in the set, and its size unchanged since it was put in.
    #[inline(always)]
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: u32) {
        let Links { child, next, prev } = nodes.links(node);
        if (child | next | prev) != NONE {
            return self.remove_linked(nodes.brief(), node);
        }
        let bin = bin_of(nodes.size(node));
        let word = &mut self.words[bin / 64];
        *word &= !(1 << (bin % 64));
        self.summary &= !(u64::from(*word == 0) << (bin / 64));
    }

    /// Takes a node out that is not alone in its bin.
    #[inline(never)]
    fn remove_linked<N: Nodes>(&mut self, mut nodes: N, node: u32) {
        let nodes = &mut nodes;
        let size = nodes.size(node);
        let Links { child, next, prev } = nodes.links(node);
        let heir = if child == NONE { NONE } else { merge_pairs(nodes, child) };
        let follower = if heir == NONE { next } else { heir };
        if nodes.size(prev) == size {
            // Not the top: its heir comes after it, hence after its parent, and takes its place.
            let links = nodes.links_mut(prev);
            if links.child == node {
                links.child = follower;
            } else {
                links.next = follower;
            }
        } else {
            self.follow(nodes, bin_of(size), prev, follower);
        }
        if heir != NONE {
            let links = nodes.links_mut(heir);
            links.prev = prev;
            links.next = next;
        }
        if next != NONE {
            nodes.links_mut(next).prev = if heir == NONE { prev } else { heir };
        }
    }

    /// The first node of at least `size` (up to [`SIZE_MAX`]), or [`NONE`]. It stays in the set.
    #[inline(always)]
    pub fn find<N: Nodes>(&self, nodes: &N, size: u32) -> u32 {
        let bin = bin_of(size);
        let mut top = self.head_from(bin);
        while nodes.size(top) < size && top != NONE {
            top = nodes.links(top).next;
            if top == NONE {
                // Only in the bin of the size itself can a node be too small.
                return self.next_bin(bin).map_or(NONE, |bin| self.heads[bin]);
            }
        }
        top
    }

    /// The head of the first bin from `bin` on that is not empty, or [`NONE`]. Looks in the bin's word and in the next word with a bit at
    /// once: which of them has it is a matter of chance, and a wrong guess would cost more than both looks.
    #[inline(always)]
    fn head_from(&self, bin: usize) -> u32 {
        let (at, bit) = (bin / 64, bin % 64);
        let own = self.words[at] & (u64::MAX << bit);
        // Twice, since a shift by 64 is none.
        let later = self.summary & (u64::MAX << at << 1);
        let later_at = later.trailing_zeros() as usize % 64;
        let here = own != 0;
        if !here && later == 0 {
            return NONE;
        }
        let at = if here { at } else { later_at };
        let word = if here { own } else { self.words[later_at] };
        self.heads[at * 64 + word.trailing_zeros() as usize % 64]
    }

    /// The first bin after `bin` that is not empty.
    #[inline(always)]
    fn next_bin(&self, bin: usize) -> Option<usize> {
        let (at, bit) = (bin / 64 % 64, bin % 64);
        // Twice, since a shift by 64 is none.
        let word = self.words[at] & (u64::MAX << bit << 1);
        if word != 0 {
            return Some(at * 64 + word.trailing_zeros() as usize);
        }
        let words = self.summary & (u64::MAX << at << 1);
        if words == 0 {
            return None;
        }
        let at = words.trailing_zeros() as usize % 64;
        Some(at * 64 + self.words[at].trailing_zeros() as usize % 64)
    }

    /// The head of a bin, or [`NONE`].
    fn head(&self, bin: usize) -> u32 {
        if self.words[bin / 64] >> (bin % 64) & 1 == 1 { self.heads[bin] } else { NONE }
    }

    /// Every node of at least `size`, in order.
    pub fn from<'a, N: Nodes>(&'a self, nodes: &'a N, size: u32) -> InOrder<'a, N> {
        let bin = bin_of(size);
        let mut top = self.head(bin);
        while top != NONE && nodes.size(top) < size {
            top = nodes.links(top).next;
        }
        InOrder { set: self, nodes, bin, top, batch: Vec::new() }
    }

    /// The size of the largest node; 0 if there is none.
    pub fn largest<N: Nodes>(&self, nodes: &N) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let at = self.summary.ilog2() as usize;
        let mut top = self.heads[at * 64 + self.words[at].ilog2() as usize];
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
    bin: usize,
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
            self.bin = self.set.next_bin(self.bin)?;
            self.top = self.set.heads[self.bin];
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
mod tests;
