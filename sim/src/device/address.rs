//! Bookkeeping of addresses: which ranges of an address space are given out.
//!
//! ```text
//! base                                   top                     limit
//!  │ live │ gap │ live │ live │  gap  │ live │ never given out …    │
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `granule` | a range is a whole number of granules and begins on one |
//! | `first_fit` | the lowest gap that is large enough; ranges given back are used again, neighbours touch |
//! | `bump` | above everything ever given out, until the space ends; from then on first fit |
//!
//! Gaps lie in a treap ordered by address, each node with the largest gap below it, so that the lowest fitting gap is found in
//! O(log n). Priorities are a hash of the address: same calls, same tree. Gaps that touch `top` are no gaps: `top` moves down.

use crate::driver::Address;

/// How a device chooses the addresses of new ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressPlacement {
    /// The lowest free range that is large enough.
    #[default]
    FirstFit,
    /// Always above what was ever given out.
    Bump,
}

/// No node.
const NIL: u32 = 0;
/// Far more than a treap of 2^32 nodes is deep (about 2 ln n).
const DEPTH_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Gap {
    start: Address,
    size: u64,
    /// Largest size in this subtree.
    largest: u64,
    left: u32,
    right: u32,
    priority: u32,
}

/// Free ranges in address order. `boundary`: ranges never join across its multiples (0: they always join).
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Node 0 is the empty tree.
    nodes: Vec<Gap>,
    root: u32,
    spare: Vec<u32>,
    boundary: u64,
}

impl Gaps {
    pub(super) fn new(boundary: u64) -> Self {
        let nil = Gap { start: 0, size: 0, largest: 0, left: NIL, right: NIL, priority: 0 };
        Self { nodes: vec![nil], root: NIL, spare: Vec::new(), boundary }
    }

    fn node(&self, at: u32) -> &Gap {
        &self.nodes[at as usize]
    }

    fn refresh(&mut self, at: u32) {
        let Gap { left, right, size, .. } = *self.node(at);
        let below = self.node(left).largest.max(self.node(right).largest);
        self.nodes[at as usize].largest = size.max(below);
    }

    /// Subtrees of starts below `key`, and of the others.
    fn split(&mut self, at: u32, key: Address) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        if self.node(at).start < key {
            let (low, high) = self.split(self.node(at).right, key);
            self.nodes[at as usize].right = low;
            self.refresh(at);
            (at, high)
        } else {
            let (low, high) = self.split(self.node(at).left, key);
            self.nodes[at as usize].left = high;
            self.refresh(at);
            (low, at)
        }
    }

    fn join(&mut self, low: u32, high: u32) -> u32 {
        if low == NIL || high == NIL {
            return low | high;
        }
        if self.node(low).priority >= self.node(high).priority {
            let joined = self.join(self.node(low).right, high);
            self.nodes[low as usize].right = joined;
            self.refresh(low);
            low
        } else {
            let joined = self.join(low, self.node(high).left);
            self.nodes[high as usize].left = joined;
            self.refresh(high);
            high
        }
    }

    fn insert(&mut self, start: Address, size: u64) {
        // splitmix64's finaliser
        let mixed = (start ^ (start >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let priority = (mixed >> 32) as u32;
        let gap = Gap { start, size, largest: size, left: NIL, right: NIL, priority };
        let at = if let Some(at) = self.spare.pop() {
            self.nodes[at as usize] = gap;
            at
        } else {
            self.nodes.push(gap);
            (self.nodes.len() - 1) as u32
        };
        let (low, high) = self.split(self.root, start);
        let low = self.join(low, at);
        self.root = self.join(low, high);
    }

    /// Takes the gap that begins at `start` out of the tree.
    fn remove(&mut self, start: Address) {
        let (low, rest) = self.split(self.root, start);
        let (gap, high) = self.split(rest, start + 1);
        debug_assert!(gap != NIL && self.node(gap).left == NIL && self.node(gap).right == NIL);
        self.spare.push(gap);
        self.root = self.join(low, high);
    }

    /// Gives the gap that begins at `start` other bounds, still between its neighbours.
    fn resize(&mut self, start: Address, new_start: Address, new_size: u64) {
        let mut path = [NIL; DEPTH_MAX];
        let (mut at, mut depth) = (self.root, 0);
        loop {
            path[depth] = at;
            let gap = &mut self.nodes[at as usize];
            if gap.start == start {
                (gap.start, gap.size) = (new_start, new_size);
                break;
            }
            at = if start < gap.start { gap.left } else { gap.right };
            depth += 1;
        }
        for at in path[..=depth].iter().rev() {
            self.refresh(*at);
        }
    }

    /// The last gap that begins below `address`.
    fn before(&self, address: Address) -> Option<(Address, u64)> {
        let (mut at, mut found) = (self.root, None);
        while at != NIL {
            let gap = self.node(at);
            if gap.start < address {
                found = Some((gap.start, gap.size));
                at = gap.right;
            } else {
                at = gap.left;
            }
        }
        found
    }

    /// The size of the gap that begins at `address`.
    fn at(&self, address: Address) -> Option<u64> {
        self.before(address + 1).filter(|(start, _)| *start == address).map(|(_, size)| size)
    }

    /// Takes `size` bytes from the front of the lowest gap that has them.
    pub(super) fn take_lowest(&mut self, size: u64) -> Option<Address> {
        if self.node(self.root).largest < size {
            return None;
        }
        let mut path = [NIL; DEPTH_MAX];
        let (mut at, mut depth) = (self.root, 0);
        loop {
            path[depth] = at;
            let gap = self.node(at);
            if self.node(gap.left).largest >= size {
                at = gap.left;
            } else if gap.size >= size {
                break;
            } else {
                at = gap.right;
            }
            depth += 1;
        }
        let start = self.node(at).start;
        if self.node(at).size == size {
            self.remove(start);
        } else {
            let gap = &mut self.nodes[at as usize];
            gap.start += size;
            gap.size -= size;
            for at in path[..=depth].iter().rev() {
                self.refresh(*at);
            }
        }
        Some(start)
    }

    /// Adds a free range and joins it with its neighbours; the joined range.
    pub(super) fn give(&mut self, start: Address, size: u64) -> (Address, u64) {
        let (mut low, mut high) = (start, start + size);
        let apart = |address: u64| self.boundary > 0 && address.is_multiple_of(self.boundary);
        let before = self.before(low).filter(|(start, size)| start + size == low && !apart(low));
        let after = self.at(high).filter(|_| !apart(high));
        low = before.map_or(low, |(start, _)| start);
        high += after.unwrap_or_default();
        match (before, after) {
            (Some(_), Some(_)) => {
                self.remove(start + size);
                self.resize(low, low, high - low);
            }
            (Some(_), None) => self.resize(low, low, high - low),
            (None, Some(_)) => self.resize(start + size, low, high - low),
            (None, None) => self.insert(low, high - low),
        }
        (low, high - low)
    }

    /// Takes the gap that begins at `start` away.
    pub(super) fn forget(&mut self, start: Address) {
        self.remove(start);
    }
}

/// One kind's address space.
#[derive(Clone, Debug)]
pub(super) struct AddressSpace {
    placement: AddressPlacement,
    gaps: Gaps,
    top: Address,
    limit: Address,
}

impl AddressSpace {
    /// The space from `base` up to `limit`.
    pub(super) fn new(base: Address, limit: Address, placement: AddressPlacement) -> Self {
        Self { placement, gaps: Gaps::new(0), top: base, limit }
    }

    /// A free range of `size` bytes (a multiple of the granule); `None` if the space is used up.
    pub(super) fn take(&mut self, size: u64) -> Option<Address> {
        if self.placement == AddressPlacement::Bump {
            return self.take_top(size).or_else(|| self.gaps.take_lowest(size));
        }
        self.gaps.take_lowest(size).or_else(|| self.take_top(size))
    }

    fn take_top(&mut self, size: u64) -> Option<Address> {
        let start = self.top;
        self.top = start.checked_add(size).filter(|end| *end <= self.limit)?;
        Some(start)
    }

    /// Takes a range back that [`AddressSpace::take`] gave.
    pub(super) fn give(&mut self, start: Address, size: u64) {
        let (low, size) = self.gaps.give(start, size);
        if low + size == self.top && self.placement == AddressPlacement::FirstFit {
            self.gaps.forget(low);
            self.top = low;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;

    /// Every byte of a small space, first fit by search.
    #[derive(Default)]
    struct Model(Vec<(u64, u64)>);

    impl Model {
        fn take(&mut self, size: u64) -> u64 {
            let mut at = 100;
            for (start, len) in &self.0 {
                if at + size <= *start {
                    break;
                }
                at = start + len;
            }
            self.0.push((at, size));
            self.0.sort_unstable();
            at
        }
    }

    #[test]
    fn first_fit_takes_what_a_search_of_all_ranges_takes() {
        let mut space = AddressSpace::new(100, u64::MAX, AddressPlacement::FirstFit);
        let mut model = Model::default();
        let mut dice = Dice::of_step_1(7);
        for _ in 0..20_000 {
            let draw = dice.bits() >> 33;
            if draw % 5 < 3 && model.0.len() < 300 {
                let size = 1 + draw % 40;
                assert_eq!(space.take(size), Some(model.take(size)));
            } else if !model.0.is_empty() {
                let (start, size) = model.0.remove(draw as usize % model.0.len());
                space.give(start, size);
            }
        }
    }

    #[test]
    fn bump_goes_up_and_falls_back_to_gaps_at_the_end() {
        let mut space = AddressSpace::new(10, 40, AddressPlacement::Bump);
        assert_eq!([space.take(10), space.take(10)], [Some(10), Some(20)]);
        space.give(10, 10);
        space.give(20, 10);
        assert_eq!([space.take(10), space.take(10)], [Some(30), Some(10)]);
        assert_eq!([space.take(20), space.take(10)], [None, Some(20)]);
    }

    #[test]
    fn gaps_do_not_join_across_a_boundary() {
        let mut gaps = Gaps::new(16);
        assert_eq!(gaps.give(8, 8), (8, 8));
        assert_eq!(gaps.give(16, 8), (16, 8));
        assert_eq!(gaps.give(24, 8), (16, 16));
        assert_eq!(gaps.take_lowest(12), Some(16));
    }
}
