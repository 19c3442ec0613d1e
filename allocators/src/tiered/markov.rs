//! `predictor=markov`: what came last after the same few tokens comes again.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `context` | the last 40 tokens are looked up, where they are new the last 12, else the last 4 | Joseph, Grunwald, Prefetching using Markov predictors (ISCA 1997); Bell, Cleary, Witten, Text Compression (1990), blending of orders |
//! | `sure` | an entry that was right is kept through as many wrong ones, 3 at most | Joseph, Grunwald 4 |
//! | `table` | 65,536 entries for each order, by hash; the newest owner of an entry has it | - |

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::plan::Predictor;

/// Orders, the longest first.
const ORDERS: [usize; 3] = [40, 12, 4];
/// Entries of a table, a power of two.
const ENTRIES: usize = 1 << 16;
/// Most wrong guesses that an entry outlives.
const SURE_MAX: u8 = 3;
/// Tokens foretold for each work, and works that the list may reach ahead.
const REACH: (u32, u64) = (256, 4096);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    owner: u32,
    token: u32,
    sure: u8,
}

/// The last tokens.
type Context = [u32; ORDERS[0]];

/// The tables.
pub(super) struct Markov {
    tables: [Vec<Entry>; ORDERS.len()],
    seen: Context,
    cursor: Context,
}

impl Markov {
    pub(super) fn new() -> Self {
        let tables = ORDERS.map(|_| vec![Entry::default(); ENTRIES]);
        Self { tables, seen: [0; ORDERS[0]], cursor: [0; ORDERS[0]] }
    }

    /// Entry and owner's mark of the last `order` tokens.
    fn hash(context: &Context, order: usize) -> (usize, u32) {
        let mut hasher = FxHasher::default();
        context[context.len() - order..].iter().for_each(|token| hasher.write_u32(*token));
        let hash = hasher.finish();
        (hash as usize % ENTRIES, (hash >> 32) as u32 | 1)
    }
}

fn push(context: &mut Context, token: u32) {
    context.rotate_left(1);
    context[ORDERS[0] - 1] = token;
}

impl Predictor for Markov {
    fn see(&mut self, token: u32, _kind: u32) {
        for (table, order) in self.tables.iter_mut().zip(ORDERS) {
            let (at, owner) = Self::hash(&self.seen, order);
            let entry = &mut table[at];
            if entry.owner == owner && entry.token == token {
                entry.sure = (entry.sure + 1).min(SURE_MAX);
            } else if entry.owner == owner && entry.sure > 0 {
                entry.sure -= 1;
            } else {
                *entry = Entry { owner, token, sure: 0 };
            }
        }
        push(&mut self.seen, token);
    }

    fn rewind(&mut self) {
        self.cursor = self.seen;
    }

    fn foretell(&mut self) -> Option<u32> {
        let found = self.tables.iter().zip(ORDERS).find_map(|(table, order)| {
            let (at, owner) = Self::hash(&self.cursor, order);
            Some(table[at]).filter(|entry| entry.owner == owner)
        });
        let token = found?.token;
        push(&mut self.cursor, token);
        Some(token)
    }

    fn reach(&self) -> (u32, u64) {
        REACH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_foretold_once_it_was_seen() {
        let mut markov = Markov::new();
        let turn = [5, 9, 1, 5, 7, 1, 2, 1];
        (0..3).for_each(|_| turn.iter().for_each(|token| markov.see(*token, 0)));
        markov.rewind();
        let foretold: Vec<_> = (0..16).filter_map(|_| markov.foretell()).collect();
        assert_eq!(foretold, [turn, turn].concat());
    }

    #[test]
    fn one_stray_token_does_not_unlearn() {
        let mut markov = Markov::new();
        let turn = [5, 9, 7, 1];
        (0..9).for_each(|_| turn.iter().for_each(|token| markov.see(*token, 0)));
        markov.see(8, 0);
        (0..2).for_each(|_| turn.iter().for_each(|token| markov.see(*token, 0)));
        markov.rewind();
        assert_eq!([markov.foretell(), markov.foretell()], [Some(5), Some(9)]);
    }
}
