//! `bert`: training (or inference) steps of a BERT-style model at one sequence length.
//!
//! Models: fine-tuning with transformers' BERT over PyTorch 2.15: embeddings, layers, head, loss, backward, clipping, AdamW.
//! Rules, sources and what is left out: [`super::transformer`] and its files. Nothing is drawn, so the seed has no effect.
//!
//! Peak of live requests against recordings of the real thing (`tests/recorded_bert.rs` prints them all): within 0.1 % for every
//! configuration recorded so far.

use super::cost::Roofline;
use super::emit::Generated;
use super::transformer::settings::{Precision, with_shared};
use super::transformer::{BATCH_MAX, Config, LEN_MAX, Steps};
use crate::params::{ParamDoc, ParamError, Params, doc};
use crate::registry::BoxedSource;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &with_shared::<4, 28>([
    doc("batch", "32", "sequences", "sequences in a batch"),
    doc("seq", "512", "tokens", "length of every sequence"),
    doc("steps", "3", "steps", "optimiser steps (batches in inference)"),
    doc("positions", "auto", "tokens", "longest sequence of the position embedding; auto: 512 or seq"),
]);

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, _seed: u64) -> Result<BoxedSource, ParamError> {
    let batch = params.count("batch", 1..=BATCH_MAX)?;
    let seq = params.count("seq", 1..=LEN_MAX)?;
    let positions = match params.text("positions") {
        "auto" => seq.max(512),
        _ => params.count("positions", seq..=LEN_MAX)?,
    };
    let steps = params.count("steps", 1..=u64::MAX)?;
    let config = Config::from_params(params, batch, positions)?;
    let roofline = Roofline::from_params(params, config.precision != Precision::Fp32)?;
    let script = Steps::new(config, steps, std::iter::repeat(seq), false);
    Ok(Box::new(Generated::new(script, roofline)))
}
