//! The requests that a server gets: drawn, or recorded.
//!
//! | rule | what it says |
//! |---|---|
//! | `lengths` | drawn prompts and answers are log-normal, from 1 token to the greatest; defaults are fitted by median and 95 % point to the public conversation trace of Azure (19,366 requests: 1,020 and 4,083 tokens in, 129 and 451 out; Azure/AzurePublicDataset, 2023) |
//! | `recorded` | arrivals and lengths of the file; without times, arrivals are drawn; a length of 0 counts as 1 token |
//! | `speed` | recorded times between arrivals are divided by it |
//! | `shared` | the first tokens of a drawn prompt are one of so many common texts; of a recorded one, what the file says |
//! | `own` | all other tokens of prompts, and answers, are like no other request's |
//!
//! Purposes of random numbers: `llm.arrivals`, `llm.prompts`, `llm.outputs`, `llm.texts`.

use std::sync::Arc;

use vramlab_sim::kv::KeyRun;
use vramlab_sim::units::Nanos;

use crate::arrivals::{Arrivals, hastened};
use crate::readers::requests::RequestLog;
use crate::rng::Rng;

/// Texts that only one request has are numbered from here on: two for each, its prompt's and its answer's.
const OWN_TEXTS: u64 = 1 << 63;
/// Common texts are numbered from here on, so that they meet none of a file's.
const COMMON_TEXTS: u64 = 1 << 62;

/// A request as it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coming {
    /// Its number, from 0.
    pub number: u64,
    /// When.
    pub at: Nanos,
    /// Tokens of its prompt, 1 or more.
    pub prompt: u64,
    /// Tokens of its answer, 1 or more.
    pub output: u64,
    /// What the prompt's tokens are, all of them.
    pub keys: Vec<KeyRun>,
}

impl Coming {
    /// So much later.
    pub(super) fn after(mut self, time: Nanos) -> Self {
        self.at = Nanos(self.at.0.saturating_add(time.0));
        self
    }
}

/// A log-normal length.
pub(super) struct Length {
    pub(super) rng: Rng,
    pub(super) median: f64,
    /// Standard deviation of the logarithm.
    pub(super) sigma: f64,
    pub(super) most: u64,
}

impl Length {
    fn next(&mut self) -> u64 {
        let drawn = self.rng.lognormal(self.median.ln(), self.sigma).round();
        (drawn as u64).clamp(1, self.most)
    }
}

/// Where the lengths come from.
pub(super) enum Lengths {
    Drawn {
        prompts: Length,
        outputs: Length,
        texts: Rng,
        /// Tokens that prompts share.
        shared: u64,
        /// Common texts.
        groups: u64,
        left: u64,
    },
    Recorded {
        log: Arc<RequestLog>,
        /// Requests of it that are used.
        count: u64,
        speed: f64,
    },
}

/// All requests, one after the other.
pub struct Load {
    pub(super) arrivals: Arrivals,
    pub(super) lengths: Lengths,
    pub(super) number: u64,
}

impl Iterator for Load {
    type Item = Coming;

    fn next(&mut self) -> Option<Coming> {
        let number = self.number;
        let mut coming = match &mut self.lengths {
            Lengths::Drawn { left: 0, .. } => return None,
            Lengths::Drawn { prompts, outputs, texts, shared, groups, left } => {
                *left -= 1;
                let (prompt, output) = (prompts.next(), outputs.next());
                let common = (*shared).min(prompt);
                let mut keys = Vec::new();
                if common > 0 {
                    let stream = COMMON_TEXTS + texts.between(0, *groups - 1);
                    keys.push(KeyRun { stream, first: 0, count: common });
                }
                Coming { number, at: self.arrivals.next(), prompt, output, keys }
            }
            Lengths::Recorded { log, count, speed } => {
                let index = number as usize;
                let request = log.requests().get(index).filter(|_| number < *count)?;
                let at = match request.arrival {
                    Some(at) => hastened(at, *speed),
                    None => self.arrivals.next(),
                };
                let (prompt, output) = (request.prompt_tokens.max(1), request.output_tokens.max(1));
                Coming { number, at, prompt, output, keys: log.keys(index).to_vec() }
            }
        };
        self.number += 1;
        own_rest(&mut coming);
        Some(coming)
    }
}

/// Tokens of the prompt that nothing is said of are its own.
fn own_rest(coming: &mut Coming) {
    let mut told = 0;
    for run in &mut coming.keys {
        run.count = run.count.min(coming.prompt - told);
        told += run.count;
    }
    coming.keys.retain(|run| run.count > 0);
    if told < coming.prompt {
        let stream = OWN_TEXTS + 2 * coming.number;
        coming.keys.push(KeyRun { stream, first: 0, count: coming.prompt - told });
    }
}

/// The text of a request's answer.
pub(super) const fn answer_text(number: u64) -> u64 {
    OWN_TEXTS + 2 * number + 1
}

/// What the tokens from `from` on are, `count` of them, of a prompt and the answer after it.
pub(super) fn keys_of(coming: &Coming, from: u64, count: u64, into: &mut Vec<KeyRun>) {
    into.clear();
    let (mut from, mut left) = (from, count);
    if from < coming.prompt {
        for run in &coming.keys {
            if from >= run.count {
                from -= run.count;
                continue;
            }
            let taken = (run.count - from).min(left);
            if taken == 0 {
                return;
            }
            into.push(KeyRun { stream: run.stream, first: run.first + from, count: taken });
            (from, left) = (0, left - taken);
        }
    } else {
        from -= coming.prompt;
    }
    if left > 0 {
        into.push(KeyRun { stream: answer_text(coming.number), first: from, count: left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shared: u64, left: u64) -> Load {
        let length =
            |purpose, median| Length { rng: Rng::new(0, purpose), median, sigma: 0.9, most: 5000 };
        Load {
            arrivals: Arrivals::poisson(0, "llm.arrivals", 5.0),
            lengths: Lengths::Drawn {
                prompts: length("llm.prompts", 1020.0),
                outputs: length("llm.outputs", 129.0),
                texts: Rng::new(0, "llm.texts"),
                shared,
                groups: 2,
                left,
            },
            number: 0,
        }
    }

    #[test]
    fn value_stability() {
        let mut load = drawn(100, 3);
        let seen: Vec<_> = load
            .by_ref()
            .map(|coming| {
                (coming.at.0, coming.prompt, coming.output, coming.keys[0].stream - COMMON_TEXTS)
            })
            .collect();
        assert_eq!(
            seen,
            [(180_071_343, 2433, 28, 1), (636_972_948, 5000, 135, 1), (666_820_676, 5000, 37, 1)]
        );
    }

    #[test]
    fn a_prompt_is_what_is_shared_and_then_its_own() {
        let keys = vec![KeyRun { stream: 7, first: 0, count: 512 }; 3];
        let mut coming = Coming { number: 4, prompt: 600, output: 9, keys, ..Coming::default() };
        own_rest(&mut coming);
        let run = |stream, first, count| KeyRun { stream, first, count };
        assert_eq!(coming.keys, [run(7, 0, 512), run(7, 0, 88)]);
        coming.prompt = 700;
        own_rest(&mut coming);
        assert_eq!(coming.keys[2], run(OWN_TEXTS + 8, 0, 100));
        let mut keys = Vec::new();
        keys_of(&coming, 500, 120, &mut keys);
        assert_eq!(keys, [run(7, 500, 12), run(7, 0, 88), run(OWN_TEXTS + 8, 0, 20)]);
        keys_of(&coming, 690, 13, &mut keys);
        assert_eq!(keys, [run(OWN_TEXTS + 8, 90, 10), run(OWN_TEXTS + 9, 0, 3)]);
        keys_of(&coming, 703, 1, &mut keys);
        assert_eq!(keys, [run(OWN_TEXTS + 9, 3, 1)]);
        keys_of(&coming, 0, 512, &mut keys);
        assert_eq!(keys, [run(7, 0, 512)]);
    }

    #[test]
    fn drawn_lengths_have_the_median_and_the_tail_that_they_are_given() {
        let mut load = drawn(0, 4000);
        let mut prompts: Vec<u64> = load.by_ref().map(|c| c.prompt).collect();
        prompts.sort_unstable();
        assert!((960..1080).contains(&prompts[2000]), "{}", prompts[2000]);
        assert_eq!(prompts.last(), Some(&5000));
    }
}
