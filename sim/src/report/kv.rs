//! The figures of caches of keys and values.
//!
//! | name | unit | definition |
//! |---|---|---|
//! | `sequences` | - | live sequences |
//! | `tokens` | tokens | of live sequences, with slots; a slot that several share counts for each |
//! | `filled` | tokens | slots that hold a token of a live sequence, each once |
//! | `blocks_used`, `blocks_free` | blocks | of a live sequence; ready to be handed out |
//! | `blocks_cached` | blocks | of the free ones, those whose content can still be found |
//! | `looked_up`, `hit` | tokens | known tokens of new sequences that got in, and of these, found in the cache |
//! | `hit_rate` | ratio | hit / looked up |
//! | `internal_frag` | ratio | 1 − filled / slots of the blocks in use, when these were first at their peak |
//! | `waits` | - | asks that found no room of a source that asks again or makes room itself |
//! | `refused_sequences`, `refused_tokens` | - | new sequences, and later tokens, that found no room |
//! | `token_bytes_differ` | B | bytes of a token as the workload says and as the cache has them, where these differ |
//!
//! In the general figures `requested` counts the bytes of filled slots, `allocated` the bytes of blocks in use.

use super::Level;
use crate::kv::KvUsage;

/// Figures of the caches of a run, summed over devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the module's table says what they are
pub struct KvFigures {
    pub sequences: Level,
    pub tokens: Level,
    pub filled: Level,
    pub blocks_used: Level,
    pub blocks_free: u64,
    pub blocks_cached: Level,
    pub looked_up: u64,
    pub hit: u64,
    pub refused_sequences: u64,
    pub refused_tokens: u64,
    pub waits: u64,
    pub token_bytes_differ: Option<(u64, u64)>,
    slots: Level,
    /// `filled` when `slots` was first at its peak.
    filled_at_peak: u64,
}

impl KvFigures {
    /// Share of looked-up tokens that were found; `None` if nothing was looked up.
    pub fn hit_rate(&self) -> Option<f64> {
        super::ratio(self.hit, self.looked_up)
    }

    /// Share of the slots of blocks in use that held no token, when most slots were in use.
    pub fn internal_frag(&self) -> Option<f64> {
        super::ratio(self.slots.peak - self.filled_at_peak.min(self.slots.peak), self.slots.peak)
    }

    pub(crate) fn admitted(&mut self, tokens: u64, hit: u64) {
        self.looked_up = self.looked_up.saturating_add(tokens);
        self.hit = self.hit.saturating_add(hit);
    }

    /// The workload says that a token has `said` bytes, the cache takes `used` (0: it has none yet).
    pub(crate) fn said(&mut self, said: Option<u64>, used: u64) {
        if let Some(said) = said.filter(|said| *said != used && used > 0) {
            self.token_bytes_differ.get_or_insert((said, used));
        }
    }

    /// A cache's usage went from `before` to `now`.
    pub(crate) fn replace(&mut self, before: &KvUsage, now: &KvUsage) {
        let peak = self.slots.peak;
        for (level, before, now) in [
            (&mut self.sequences, before.sequences, now.sequences),
            (&mut self.tokens, before.tokens, now.tokens),
            (&mut self.filled, before.filled, now.filled),
            (&mut self.slots, before.slots, now.slots),
            (&mut self.blocks_used, before.used, now.used),
            (&mut self.blocks_cached, before.cached, now.cached),
        ] {
            level.set(level.current - before + now);
        }
        self.blocks_free = self.blocks_free - before.free + now.free;
        if self.slots.peak > peak {
            self.filled_at_peak = self.filled.current;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_is_that_of_the_moment_with_most_slots() {
        let mut figures = KvFigures::default();
        assert_eq!((figures.hit_rate(), figures.internal_frag()), (None, None));
        let usage = |filled, slots, free| KvUsage { filled, slots, free, ..KvUsage::default() };
        let steps = [usage(0, 0, 0), usage(30, 40, 6), usage(20, 20, 8), usage(32, 40, 6)];
        steps.windows(2).for_each(|w| figures.replace(&w[0], &w[1]));
        assert_eq!((figures.internal_frag(), figures.filled.peak), (Some(0.25), 32));
        assert_eq!(figures.blocks_free, 6);
        figures.admitted(20, 5);
        assert_eq!(figures.hit_rate(), Some(0.25));
    }
}
