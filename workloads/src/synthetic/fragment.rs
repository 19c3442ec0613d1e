//! `fragment`: one buffer at a time, of sizes taken in turn: the loop that articles print to show fragmentation.
//!
//! `for n in 128, 512, 256, 1024: allocate 8×n numbers, free them`. With `hold` every so many-th buffer is kept for a while, which is
//! what it takes to leave holes: the loop as printed leaves none under any allocator that reuses what was just freed. Nothing is
//! drawn, so the seed has no effect. Left out: everything else.

use std::collections::VecDeque;

use super::emit::{Generated, Out, Script};
use crate::graph::DType;
use crate::graph::models::bert::params::LEN_MAX;
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;
use vramlab_sim::units::BufferId;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &[
    doc("lengths", "128/512/256/1024", "numbers", "row lengths in turn, separated by /"),
    doc("rows", "8", "rows", "rows of a buffer"),
    doc("number", "4", "B", "bytes of a number"),
    doc("rounds", "100", "rounds", "how often the lengths are gone through"),
    doc("hold", "0", "buffers", "every so many-th buffer is kept; 0: none"),
    doc("held", "8", "buffers", "so many are kept at most, then the oldest is freed"),
];

struct Fragment {
    sizes: Vec<u64>,
    rounds: u64,
    round: u64,
    hold: u64,
    held_max: usize,
    made: u64,
    held: VecDeque<BufferId>,
}

impl Script for Fragment {
    fn advance(&mut self, out: &mut Out) -> bool {
        if self.round == self.rounds {
            let Some(id) = self.held.pop_front() else { return false };
            out.release(id);
            return true;
        }
        out.mark(format!("round {}", self.round));
        self.round += 1;
        for size in &self.sizes {
            let id = out.alloc("fragment", *size);
            out.work(0.0, &[], &[id]);
            self.made += 1;
            if self.hold == 0 || !self.made.is_multiple_of(self.hold) {
                out.release(id);
                continue;
            }
            self.held.push_back(id);
            if self.held.len() > self.held_max
                && let Some(oldest) = self.held.pop_front()
            {
                out.release(oldest);
            }
        }
        true
    }
}

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let number = params.count("number", 1..=16)?;
    let rows = params.count("rows", 1..=1 << 24)?;
    let lengths = params.counts("lengths", 1..=LEN_MAX)?;
    let script = Fragment {
        sizes: lengths.into_iter().map(|length| rows * length * number).collect(),
        rounds: params.count("rounds", 1..=REPEATS_MAX)?,
        round: 0,
        hold: params.count("hold", 0..=u64::MAX)?,
        held_max: params.count("held", 1..=1 << 20)? as usize,
        made: 0,
        held: VecDeque::new(),
    };
    Ok(Box::new(Generated::new(script, *rates, DType::F32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::live_peak;

    #[test]
    fn peak_is_the_largest_buffer_unless_some_are_held() {
        let peak = |text: &str| {
            let mut params = Params::defaults(PARAMS);
            params.set_text(text).unwrap();
            live_peak(&mut *build(&params, 0, &Rates::free()).unwrap()).unwrap().bytes
        };
        assert_eq!(peak(""), 8 * 1024 * 4);
        assert!(peak("hold=3") > 8 * 1024 * 4);
    }
}
