//! The new sequence that was refused last: who waits asks again at every step, and most of what was found then still holds.
//!
//! Nothing here decides. With no block taken, given back or registered since, the same request is looked up to the same blocks; with some, those that were found are
//! looked at one by one, without computing again what their prefixes are.

use vramlab_sim::kv::{KeyRun, KvFull, NewSequence};

use super::tokens::Prefix;

/// A refused request, and what was found for it.
#[derive(Debug, Default)]
pub(super) struct Refused {
    keys: Vec<KeyRun>,
    /// All but the keys.
    ask: NewSequence<'static>,
    /// Blocks that were found, each with the prefix that it ends.
    found: Vec<(u32, Prefix)>,
    full: KvFull,
    /// Changes of the pool's blocks until then.
    changes: u64,
}

impl Refused {
    /// The numbers of the refusal, but for what is free, if nothing could have changed them.
    pub(super) fn still(&self, new: &NewSequence<'_>, changes: u64) -> Option<KvFull> {
        let same = self.changes == changes && self.ask == without_keys(new);
        (same && self.full.needed > 0 && self.keys == new.keys).then_some(self.full)
    }

    /// Blocks that were found for the same tokens, from the first on.
    pub(super) fn found(&self, new: &NewSequence<'_>) -> &[(u32, Prefix)] {
        if self.keys == new.keys { &self.found } else { &[] }
    }

    /// This request was refused so.
    pub(super) fn set(
        &mut self,
        new: &NewSequence<'_>,
        full: KvFull,
        changes: u64,
        found: impl Iterator<Item = (u32, Prefix)>,
    ) {
        if self.keys != new.keys {
            self.keys.clear();
            self.keys.extend_from_slice(new.keys);
        }
        self.found.clear();
        self.found.extend(found);
        (self.ask, self.full, self.changes) = (without_keys(new), full, changes);
    }
}

fn without_keys(new: &NewSequence<'_>) -> NewSequence<'static> {
    NewSequence { keys: &[], ..*new }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::testing::Bench;
    use vramlab_sim::kv::{KvError, Sequence};

    fn text(stream: u64, tokens: u64) -> [KeyRun; 1] {
        [KeyRun { stream, first: 0, count: tokens }]
    }

    fn ask(bench: &mut Bench, stream: u64, tokens: u64) -> Result<(Sequence, u64, u64), KvError> {
        let keys = text(stream, tokens);
        let new = NewSequence { tokens, keys: &keys, ..NewSequence::default() };
        bench.ask(&new).map(|admitted| (admitted.sequence, admitted.hit, admitted.blocks))
    }

    /// Numbers that look drawn.
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    /// A server under pressure asked for its first waiting request at every step, and each time all of its prefix was looked up anew.
    #[test]
    fn what_is_remembered_of_a_refusal_is_what_a_look_up_finds() {
        for spec in [
            "serving.paged:block_size=4,num_gpu_blocks_override=40",
            "serving.paged:block_size=4,num_gpu_blocks_override=40,watermark=0.1",
            "serving.elastic_pages:num_layers=1,block_size=4,token_bytes=262144,gpu_utilization=1",
        ] {
            let (mut one, mut other) = (Bench::new(spec, 64 << 20), Bench::new(spec, 64 << 20));
            let mut live: Vec<(Sequence, u64, u64)> = Vec::new();
            let (mut state, mut refusals, mut kept) = (7, 0, 0);
            for round in 0..4000 {
                // the other forgets what it was refused, since it is refused something else
                let _ = ask(&mut other, 99, 100_000);
                let (stream, tokens) = (1 + draw(&mut state, 3), 8 * (1 + draw(&mut state, 14)));
                let waiting = if draw(&mut state, 4) == 0 { (stream, tokens) } else { (1, 112) };
                let (a, b) =
                    (ask(&mut one, waiting.0, waiting.1), ask(&mut other, waiting.0, waiting.1));
                assert_eq!(a, b, "{spec}, round {round}");
                match a {
                    Ok((sequence, ..)) => live.push((sequence, waiting.0, waiting.1)),
                    Err(_) => refusals += 1,
                }
                let at = draw(&mut state, live.len().max(1) as u64) as usize;
                match live.get_mut(at) {
                    Some((sequence, stream, tokens)) if draw(&mut state, 6) > 0 => {
                        let more = 1 + draw(&mut state, 3);
                        let grown = [&mut one, &mut other]
                            .map(|bench| bench.more(*sequence, *stream, *tokens, more));
                        assert_eq!(grown[0], grown[1], "{spec}, round {round}");
                        *tokens += if grown[0].is_ok() { more } else { 0 };
                        kept += u64::from(grown[0].is_ok());
                    }
                    Some(_) => {
                        let (sequence, ..) = live.swap_remove(at);
                        [&mut one, &mut other].into_iter().for_each(|bench| bench.end(sequence));
                    }
                    None => {}
                }
            }
            assert!(refusals > 300 && kept > 300, "{spec}: {refusals} refusals, {kept} grown");
        }
    }
}
