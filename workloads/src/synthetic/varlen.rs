//! `varlen`: BERT over batches whose length varies: what makes a caching allocator's reserved memory climb.
//!
//! Each batch is padded to one length, so every activation scales with it (eager attention scores with its square), while weights,
//! gradients and moments stay. How lengths follow one another:
//!
//! | mode | a batch's length |
//! |---|---|
//! | `cycle` | `lengths` in turn |
//! | `lognormal` | drawn: exp of a normal variable (`mu`, `sigma`), from `min` to `max` |
//! | `sorted` | as drawn for every sequence of a window of `window` batches, sorted within it; a batch is as long as its longest |
//! | `bucketed` | as `lognormal`, rounded up to a multiple of `bucket` |
//! | `padded` | always `max` |
//!
//! Source: the loop over 128, 512, 256, 1,024 is the one that articles on fragmentation print; log-normal lengths are how text
//! corpora are usually described (`mu=5.3,sigma=0.6` was recorded with real PyTorch code). With `mode=cycle` and a recording's list of
//! lengths the recorded runs are met (`tests/recorded_graph.rs`). Generator purpose: `varlen.lengths`.
//!
//! Left out: sequences of one batch that differ (nested tensors), a data loader that prefetches.

use crate::graph::Player;
use crate::graph::models::bert::params::{Asked, BATCH_MAX, LEN_MAX, SHARED};
use crate::graph::models::params::join;
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;
use crate::rng::Rng;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<11, 26, 37>(
    [
        doc("mode", "cycle", "-", "cycle, lognormal, sorted, bucketed or padded"),
        doc("batch", "8", "sequences", "sequences in a batch"),
        doc("steps", "40", "steps", "optimiser steps (batches in inference)"),
        doc("lengths", "128/512/256/1024", "tokens", "mode=cycle: lengths in turn, separated by /")
            .only("mode", &["cycle"]),
        doc("mu", "5.3", "ln tokens", "mean of the length's logarithm")
            .unless("mode", &["cycle", "padded"]),
        doc("sigma", "0.6", "ln tokens", "its standard deviation")
            .unless("mode", &["cycle", "padded"]),
        doc("min", "1", "tokens", "shortest length drawn").unless("mode", &["cycle", "padded"]),
        doc("max", "1024", "tokens", "longest length drawn").unless("mode", &["cycle"]),
        doc("bucket", "128", "tokens", "mode=bucketed: lengths are multiples of this")
            .only("mode", &["bucketed"]),
        doc("window", "16", "batches", "mode=sorted: batches sorted together")
            .only("mode", &["sorted"]),
        doc(
            "positions",
            "auto",
            "tokens",
            "longest sequence of the position embedding; auto: 512 or the longest",
        ),
    ],
    SHARED,
);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Cycle,
    Lognormal,
    Sorted,
    Bucketed,
    Padded,
}

/// The lengths of the batches, without end.
struct Lengths {
    mode: Mode,
    rng: Rng,
    cycle: Vec<u64>,
    at: usize,
    mu: f64,
    sigma: f64,
    min: u64,
    max: u64,
    bucket: u64,
    batch: u64,
    window: u64,
    /// Lengths of the window's batches, last first.
    sorted: Vec<u64>,
}

impl Lengths {
    fn draw(&mut self) -> u64 {
        (self.rng.lognormal(self.mu, self.sigma).round() as u64).clamp(self.min, self.max)
    }

    fn draw_window(&mut self) {
        let mut all: Vec<u64> = (0..self.window * self.batch).map(|_| self.draw()).collect();
        all.sort_unstable();
        self.sorted = all
            .chunks_exact(self.batch as usize)
            .filter_map(|batch| batch.last().copied())
            .rev()
            .collect();
    }
}

impl Iterator for Lengths {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self.mode {
            Mode::Cycle => {
                let length = self.cycle[self.at];
                self.at = (self.at + 1) % self.cycle.len();
                Some(length)
            }
            Mode::Lognormal => Some(self.draw()),
            Mode::Sorted => {
                if self.sorted.is_empty() {
                    self.draw_window();
                }
                self.sorted.pop()
            }
            Mode::Bucketed => Some(self.draw().next_multiple_of(self.bucket).min(self.max)),
            Mode::Padded => Some(self.max),
        }
    }
}

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let batch = params.count("batch", 1..=BATCH_MAX)?;
    let max = params.count("max", 1..=LEN_MAX)?;
    let lengths = Lengths {
        mode: params.choice(
            "mode",
            &[
                ("cycle", Mode::Cycle),
                ("lognormal", Mode::Lognormal),
                ("sorted", Mode::Sorted),
                ("bucketed", Mode::Bucketed),
                ("padded", Mode::Padded),
            ],
        )?,
        rng: Rng::new(seed, "varlen.lengths"),
        cycle: params.counts("lengths", 1..=LEN_MAX)?,
        at: 0,
        mu: params.number("mu", 0.0..=12.0)?,
        sigma: params.number("sigma", 0.0..=4.0)?,
        min: params.count("min", 1..=max)?,
        max,
        bucket: params.count("bucket", 1..=LEN_MAX)?,
        batch,
        window: params.count("window", 1..=4096)?,
        sorted: Vec::new(),
    };
    let longest = match lengths.mode {
        Mode::Cycle => lengths.cycle.iter().copied().max().unwrap_or(max),
        _ => max,
    };
    let positions = match params.text("positions") {
        "auto" => longest.max(512),
        _ => params.count("positions", longest..=LEN_MAX)?,
    };
    let steps = params.count("steps", 1..=REPEATS_MAX)?;
    let asked = Asked::read(params, batch, positions)?;
    asked.plan(longest, String::new())?;
    let make = move |seq| asked.plan(seq, format!("seq {seq}")).map(|(plan, _)| plan);
    Ok(Box::new(Player::new(Box::new(make), Box::new(lengths), steps, *rates)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::{Answered, Nanos, Op, Step};

    /// Lengths as the marks tell them.
    fn lengths(text: &str) -> Vec<u64> {
        let mut params = Params::defaults(PARAMS);
        params.set_text("layers=1,hidden=8,heads=1,ffn=8,vocabulary=10,phase=inference").unwrap();
        params.set_text(text).unwrap();
        let mut source = build(&params, 0, &Rates::free()).unwrap();
        let mut found = Vec::new();
        loop {
            match source.next(Nanos(0), Answered::Done).unwrap() {
                Step::Op(Op::Mark { name }) => {
                    let text = source.text(name);
                    if let Some((_, rest)) = text.split_once("seq ") {
                        found.push(rest.split(' ').next().unwrap().parse().unwrap());
                    }
                }
                Step::End => return found,
                _ => {}
            }
        }
    }

    #[test]
    fn modes_shape_lengths_as_they_say() {
        assert_eq!(lengths("steps=5"), [128, 512, 256, 1024, 128]);
        assert_eq!(lengths("steps=3,mode=padded,max=77"), [77, 77, 77]);
        let drawn = lengths("steps=200,mode=lognormal,min=20,max=900");
        assert!(drawn.iter().all(|length| (20..=900).contains(length)));
        assert!(drawn.iter().max() > Some(&400) && drawn.iter().min() < Some(&100));
        let bucketed = lengths("steps=200,mode=bucketed,bucket=64,max=900");
        assert!(bucketed.iter().all(|length| length % 64 == 0 || *length == 900));
        let sorted = lengths("steps=32,mode=sorted,window=16,batch=4");
        assert!(sorted[..16].is_sorted() && sorted[16..].is_sorted());
        assert!(!sorted.is_sorted());
    }
}
