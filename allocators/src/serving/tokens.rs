//! What tokens are, and what a prefix of a sequence holds, each as a number of 64 bits.
//!
//! Two prefixes are taken for the same if their numbers are: with a million of them, two different ones meet by chance once in 30 million runs.

use vramlab_sim::kv::KeyRun;

/// The tokens of a sequence, one after the other. Those that the runs do not cover are like no other token; so they never end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a> {
    runs: &'a [KeyRun],
    /// Tokens of the first of `runs` that are behind us.
    passed: u64,
    /// Number of the sequence, where tokens are not known.
    serial: u64,
    /// How many unknown tokens it had.
    unknown: u64,
}

impl<'a> Tokens<'a> {
    /// `runs`, and after them tokens of the sequence with this serial number, of which it had `unknown` before.
    pub(super) const fn new(runs: &'a [KeyRun], serial: u64, unknown: u64) -> Self {
        Self { runs, passed: 0, serial, unknown }
    }

    /// The next token.
    pub(super) fn next(&mut self) -> u64 {
        while let [run, rest @ ..] = self.runs {
            if self.passed < run.count {
                let position = run.first.wrapping_add(self.passed);
                self.passed += 1;
                return mixed(mixed(run.stream) ^ position.wrapping_mul(STEP));
            }
            (self.runs, self.passed) = (rest, 0);
        }
        self.unknown += 1;
        mixed(!mixed(!self.serial) ^ self.unknown.wrapping_mul(STEP))
    }

    /// The next `count` tokens are behind us.
    pub(super) fn skip(&mut self, mut count: u64) {
        while let [run, rest @ ..] = self.runs {
            let left = run.count - self.passed;
            if count < left {
                self.passed += count;
                return;
            }
            count -= left;
            (self.runs, self.passed) = (rest, 0);
        }
        self.unknown += count;
    }

    /// How many unknown tokens the sequence had by now.
    pub(super) const fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// All tokens of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix(u64);

impl Prefix {
    /// With one token more.
    #[must_use]
    pub(super) const fn with(self, token: u64) -> Self {
        let state = (self.0.rotate_left(23) ^ token).wrapping_add(FIRST).wrapping_mul(STEP);
        Self(state ^ state >> 32)
    }

    /// With the next `count` tokens.
    #[must_use]
    pub(super) fn with_next(self, tokens: &mut Tokens<'_>, count: u64) -> Self {
        (0..count).fold(self, |prefix, _| prefix.with(tokens.next()))
    }

    /// Its number; never 0.
    pub(super) const fn hash(self) -> u64 {
        if self.0 == 0 { 1 } else { self.0 }
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Keeps a token that is 0 from leaving no trace.
const FIRST: u64 = 0x2545_f491_4f6c_dd1d;

/// A number with its bits mixed: MurmurHash3's 64-bit finaliser.
const fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ value >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn taken(runs: &[KeyRun], serial: u64, count: usize) -> Vec<u64> {
        let mut tokens = Tokens::new(runs, serial, 0);
        (0..count).map(|_| tokens.next()).collect()
    }

    #[test]
    fn a_token_is_its_place_in_a_text_however_the_runs_are_cut() {
        let run = |stream, first, count| KeyRun { stream, first, count };
        let whole = taken(&[run(3, 0, 10)], 1, 10);
        assert_eq!(taken(&[run(3, 0, 4), run(9, 9, 0), run(3, 4, 6)], 2, 10), whole);
        assert_ne!(taken(&[run(4, 0, 10)], 1, 10), whole);
        let (a, b) = (taken(&[run(3, 0, 4)], 1, 10), taken(&[run(3, 0, 4)], 2, 10));
        assert_eq!(a[..4], b[..4]);
        let all: BTreeSet<u64> = a.iter().chain(&b).chain(&whole).copied().collect();
        assert_eq!(all.len(), 10 + 6 + 6, "what the runs do not cover is like no other token");
    }

    #[test]
    fn skipped_tokens_are_those_that_were_not_asked_for() {
        let runs =
            [KeyRun { stream: 3, first: 0, count: 4 }, KeyRun { stream: 5, first: 2, count: 3 }];
        let whole = taken(&runs, 1, 12);
        for (count, expected) in whole.iter().enumerate() {
            let mut tokens = Tokens::new(&runs, 1, 0);
            tokens.skip(count as u64);
            assert_eq!(tokens.next(), *expected, "{count}");
        }
    }

    #[test]
    fn a_prefix_is_all_its_tokens_in_their_order() {
        let of = |tokens: &[u64]| tokens.iter().fold(Prefix::default(), |p, t| p.with(*t)).hash();
        let different = [of(&[]), of(&[0]), of(&[0, 0]), of(&[1, 2]), of(&[2, 1]), of(&[1, 2, 3])];
        assert_eq!(different.iter().collect::<BTreeSet<_>>().len(), different.len());
        assert!(!different.contains(&0));
    }
}
