//! `bert`: training (or inference) steps of a BERT-style model at one sequence length.
//!
//! Models: fine-tuning with transformers' BERT over PyTorch 2.15: embeddings, layers, head, loss, backward, clipping, AdamW. Rules, sources and what
//! is left out: [`crate::graph::models::bert`] and the operators that it names. Nothing is drawn, so the seed has no effect.
//!
//! Held to recordings of the real thing: `tests/recorded_graph.rs` (peak of requests, within 16 B without the recordings) and
//! `results/tests/recorded_graph.rs` (peaks through `torch.caching`, phases of failures, every large buffer); `vramlab measured` prints the tables. What is
//! missing are 8 B of scalars.

use crate::graph::models::bert::params::{Asked, BATCH_MAX, LEN_MAX, SHARED};
use crate::graph::models::params::join;
use crate::graph::passes::Report;
use crate::graph::{Plan, Player};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<4, 26, 30>(
    [
        doc("batch", "32", "sequences", "sequences in a batch"),
        doc("seq", "512", "tokens", "length of every sequence"),
        doc("steps", "3", "steps", "optimiser steps (batches in inference)"),
        doc(
            "positions",
            "auto",
            "tokens",
            "longest sequence of the position embedding; auto: 512 or seq",
        ),
    ],
    SHARED,
);

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let steps = params.count("steps", 1..=REPEATS_MAX)?;
    let (plan, _) = plan(params)?;
    Ok(Box::new(Player::of(plan, steps, *rates)?))
}

/// The graph that its parameters ask for, and what passes changed.
///
/// # Errors
/// When a parameter's value is refused.
pub fn plan(params: &Params) -> Result<(Plan, Vec<Report>), ParamError> {
    let batch = params.count("batch", 1..=BATCH_MAX)?;
    let seq = params.count("seq", 1..=LEN_MAX)?;
    let positions = match params.text("positions") {
        "auto" => seq.max(512),
        _ => params.count("positions", seq..=LEN_MAX)?,
    };
    Ok(Asked::read(params, batch, positions)?.plan(seq, String::new())?)
}
