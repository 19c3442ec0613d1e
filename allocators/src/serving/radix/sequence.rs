//! A live sequence: its pages, and how many of them are in the tree.

use super::tree::Page;
use crate::serving::tokens::{Prefix, Tokens};

/// A live sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// Pages that are full.
    pub(super) pages: Vec<Page>,
    /// Of these, pages in the tree; they come first.
    pub(super) in_tree: usize,
    /// The tree's node where those end.
    pub(super) node: u32,
    /// The page that is not full, if there is one.
    pub(super) part: Option<u32>,
    /// What is in it.
    pub(super) content: Prefix,
    pub(super) tokens: u64,
    /// Tokens that were known when it came.
    pub(super) prompt: u64,
    /// Prompt tokens have slots that the tree has not heard of.
    pub(super) pending: bool,
    pub(super) serial: u64,
    /// Tokens so far that no key told.
    pub(super) unknown: u64,
}

impl Held {
    /// The next `count` tokens have slots, in new pages where the last is full.
    pub(super) fn append(
        &mut self,
        page: u64,
        tokens: &mut Tokens<'_>,
        count: u64,
        mut new: impl Iterator<Item = u32>,
    ) {
        for _ in 0..count {
            let slot = self.part.take().or_else(|| new.next());
            self.content = self.content.with(tokens.next());
            self.tokens += 1;
            if self.tokens.is_multiple_of(page) {
                let key = std::mem::take(&mut self.content).hash();
                self.pages.extend(slot.map(|slot| Page { key, slot }));
            } else {
                self.part = slot;
            }
        }
        self.unknown = tokens.unknown();
    }

    /// Pages outside of the tree.
    pub(super) fn private(&self) -> u64 {
        (self.pages.len() - self.in_tree) as u64 + u64::from(self.part.is_some())
    }

    /// Tokens in them.
    pub(super) const fn private_tokens(&self, page: u64) -> u64 {
        self.tokens - self.in_tree as u64 * page
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        self.pages.iter().map(|page| page.key).collect()
    }
}
