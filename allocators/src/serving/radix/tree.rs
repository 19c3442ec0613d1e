//! A tree of prefixes: each node is a run of pages; its path from the root is what they continue.
//!
//! ```text
//! root ─┬─ a b c ─┬─ d e       a sequence a b c d e, and one a b c f, of which the first is no longer live:
//!       │         └─ f 🔒      d e may go (a leaf that nobody locks), the others may not
//!       └─ x y
//! ```

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

pub(super) const ROOT: u32 = 0;

/// A page: what its tokens are, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) key: u64,
    pub(super) slot: u32,
}

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    pages: Vec<Page>,
    children: u32,
    /// Live sequences whose pages end here or below.
    locks: u32,
    accessed: u64,
}

/// A place in the tree, for looking without touching.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    node: u32,
    /// Pages of the node that were passed.
    passed: usize,
    /// Pages that were passed and that nobody locks.
    pub(super) idle: u64,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    /// Child of a node by its first page's key.
    children: FxHashMap<(u32, u64), u32>,
    /// Leaves that nobody locks, least recently used first.
    leaves: BTreeSet<(u64, u32)>,
    clock: u64,
    /// Pages that nobody locks, and the others.
    evictable: u64,
    locked: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node { locks: 1, ..Node::default() }],
            vacant: Vec::new(),
            children: FxHashMap::default(),
            leaves: BTreeSet::new(),
            clock: 0,
            evictable: 0,
            locked: 0,
        }
    }

    pub(super) const fn evictable(&self) -> u64 {
        self.evictable
    }

    pub(super) const fn locked(&self) -> u64 {
        self.locked
    }

    /// Goes on by one page, if the tree has it there.
    pub(super) fn step(&self, cursor: &mut Cursor, key: u64) -> bool {
        let mut at = *cursor;
        if at.passed == self.nodes[at.node as usize].pages.len() {
            let Some(child) = self.children.get(&(at.node, key)) else { return false };
            (at.node, at.passed) = (*child, 0);
        }
        let node = &self.nodes[at.node as usize];
        if node.pages[at.passed].key != key {
            return false;
        }
        at.passed += 1;
        at.idle += u64::from(node.locks == 0);
        *cursor = at;
        true
    }

    /// Finds the longest known beginning of `keys`, as used now. Gives its last node, which ends where it ends, and appends its slots.
    pub(super) fn find(&mut self, keys: &[u64], slots: &mut Vec<u32>) -> u32 {
        let now = self.tick();
        let (mut node, mut rest) = (ROOT, keys);
        while let Some(child) = rest.first().and_then(|key| self.children.get(&(node, *key))) {
            node = *child;
            self.touch(node, now);
            let common = self.common(node, rest);
            if common < self.nodes[node as usize].pages.len() {
                node = self.split(node, common);
            }
            slots.extend(self.nodes[node as usize].pages.iter().map(|page| page.slot));
            rest = &rest[common..];
        }
        node
    }

    /// Adds what is not known of `pages`; says how many were known already.
    pub(super) fn insert(&mut self, pages: &[Page]) -> usize {
        let now = self.tick();
        let keys: Vec<u64> = pages.iter().map(|page| page.key).collect();
        let (mut node, mut known) = (ROOT, 0);
        while let Some(child) = keys.get(known).and_then(|key| self.children.get(&(node, *key))) {
            node = *child;
            self.touch(node, now);
            let common = self.common(node, &keys[known..]);
            if common < self.nodes[node as usize].pages.len() {
                node = self.split(node, common);
            }
            known += common;
        }
        if known < pages.len() {
            let accessed = self.tick();
            let pages = pages[known..].to_vec();
            self.evictable += pages.len() as u64;
            let leaf = self.add(Node { parent: node, pages, accessed, ..Node::default() });
            self.nodes[node as usize].children += 1;
            self.children.insert((node, keys[known]), leaf);
            self.update_leaf(node);
            self.update_leaf(leaf);
        }
        known
    }

    /// A live sequence ends at this node.
    pub(super) fn lock(&mut self, node: u32) {
        self.climb(node, |locks| *locks += 1);
    }

    /// It does no longer.
    pub(super) fn unlock(&mut self, node: u32) {
        self.climb(node, |locks| *locks -= 1);
    }

    fn climb(&mut self, mut at: u32, change: impl Fn(&mut u32)) {
        while at != ROOT {
            let node = &mut self.nodes[at as usize];
            let (before, pages) = (node.locks, node.pages.len() as u64);
            change(&mut node.locks);
            match (before, node.locks) {
                (0, _) => {
                    (self.evictable, self.locked) = (self.evictable - pages, self.locked + pages)
                }
                (_, 0) => {
                    (self.evictable, self.locked) = (self.evictable + pages, self.locked - pages)
                }
                _ => {}
            }
            let parent = node.parent;
            self.update_leaf(at);
            at = parent;
        }
    }

    /// Takes whole leaves away, least recently used first, until `pages` pages are gone or none is left that may go.
    pub(super) fn evict(&mut self, pages: u64, slots: &mut Vec<u32>) {
        let before = slots.len();
        while ((slots.len() - before) as u64) < pages {
            let Some((_, leaf)) = self.leaves.pop_first() else { break };
            let node = std::mem::take(&mut self.nodes[leaf as usize]);
            self.vacant.push(leaf);
            self.evictable -= node.pages.len() as u64;
            slots.extend(node.pages.iter().map(|page| page.slot));
            self.children.remove(&(node.parent, node.pages[0].key));
            self.nodes[node.parent as usize].children -= 1;
            self.update_leaf(node.parent);
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// How many pages of a node are those of `keys`.
    fn common(&self, node: u32, keys: &[u64]) -> usize {
        let pages = &self.nodes[node as usize].pages;
        pages.iter().zip(keys).take_while(|(page, key)| page.key == **key).count()
    }

    fn touch(&mut self, at: u32, now: u64) {
        let before = std::mem::replace(&mut self.nodes[at as usize].accessed, now);
        if self.leaves.remove(&(before, at)) {
            self.leaves.insert((now, at));
        }
    }

    fn add(&mut self, node: Node) -> u32 {
        if let Some(vacant) = self.vacant.pop() {
            self.nodes[vacant as usize] = node;
            return vacant;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Gives the first `common` pages of a node a node of their own, above it.
    fn split(&mut self, at: u32, common: usize) -> u32 {
        let accessed = self.tick();
        let node = &mut self.nodes[at as usize];
        let below = node.pages.split_off(common);
        let pages = std::mem::replace(&mut node.pages, below);
        let (parent, locks, next) = (node.parent, node.locks, node.pages[0].key);
        let first = pages[0].key;
        let above = self.add(Node { parent, pages, children: 1, locks, accessed });
        self.nodes[at as usize].parent = above;
        self.children.insert((parent, first), above);
        self.children.insert((above, next), at);
        above
    }

    fn update_leaf(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let entry = (node.accessed, at);
        if node.locks == 0 && node.children == 0 {
            self.leaves.insert(entry);
        } else {
            self.leaves.remove(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(text: &str, first: u32) -> Vec<Page> {
        let page =
            |(n, c): (usize, char)| Page { key: u64::from(u32::from(c)), slot: first + n as u32 };
        text.chars().enumerate().map(page).collect()
    }

    fn find(tree: &mut Tree, text: &str) -> (u32, Vec<u32>) {
        let keys: Vec<u64> = text.chars().map(|c| u64::from(u32::from(c))).collect();
        let mut slots = Vec::new();
        (tree.find(&keys, &mut slots), slots)
    }

    #[test]
    fn a_node_is_split_where_sequences_part_and_each_part_keeps_its_slots() {
        let mut tree = Tree::new();
        assert_eq!(tree.insert(&pages("abcde", 10)), 0);
        assert_eq!(tree.insert(&pages("abcf", 20)), 3);
        assert_eq!(find(&mut tree, "abcfg").1, [10, 11, 12, 23]);
        assert_eq!(find(&mut tree, "abcde").1, [10, 11, 12, 13, 14]);
        assert_eq!((find(&mut tree, "x").1, tree.evictable()), (vec![], 6));
    }

    #[test]
    fn the_least_recently_used_leaf_goes_first_and_its_parent_after_it() {
        let mut tree = Tree::new();
        tree.insert(&pages("abde", 10));
        tree.insert(&pages("abf", 20));
        find(&mut tree, "abde");
        let mut gone = Vec::new();
        tree.evict(1, &mut gone);
        assert_eq!(gone, [22], "f");
        tree.evict(1, &mut gone);
        assert_eq!(gone, [22, 12, 13], "d and e are one node");
        tree.evict(9, &mut gone);
        assert_eq!((gone.len(), tree.evictable()), (5, 0));
    }

    #[test]
    fn what_a_sequence_locks_stays_and_a_split_does_not_unlock_it() {
        let mut tree = Tree::new();
        tree.insert(&pages("abcd", 10));
        let (node, _) = find(&mut tree, "abcd");
        tree.lock(node);
        let (above, _) = find(&mut tree, "ab");
        let mut gone = Vec::new();
        tree.evict(9, &mut gone);
        assert_eq!((gone.len(), tree.locked(), tree.evictable()), (0, 4, 0));
        tree.lock(above);
        tree.unlock(node);
        tree.evict(9, &mut gone);
        assert_eq!((gone, tree.locked()), (vec![12, 13], 2));
        tree.unlock(above);
        assert_eq!((tree.locked(), tree.evictable()), (0, 2));
    }

    #[test]
    fn looking_with_a_cursor_touches_nothing() {
        let mut tree = Tree::new();
        tree.insert(&pages("ab", 1));
        tree.insert(&pages("ac", 5));
        let before = format!("{tree:?}");
        let mut cursor = Cursor::default();
        let found =
            "abz".chars().take_while(|c| tree.step(&mut cursor, u64::from(u32::from(*c)))).count();
        assert_eq!((found, cursor.idle), (2, 2));
        assert_eq!(format!("{tree:?}"), before);
    }
}
