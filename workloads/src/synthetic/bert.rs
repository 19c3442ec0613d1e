//! `bert`: training (or inference) steps of a BERT-style model at one sequence length.
//!
//! Models: fine-tuning with transformers' BERT over PyTorch 2.15: embeddings, layers, head, loss, backward, clipping, AdamW.
//! Rules, sources and what is left out: [`crate::graph::models::bert`] and its files. Nothing is drawn, so the seed has no effect.
//!
//! Highest sum of live requests against recordings of the real thing. `tests/recorded_bert.rs` holds these to 16 B without the recordings,
//! and every recorded set-up that parameters express to 3 %; measured on 21 set-ups: 0.0032 % at most.
//!
//! | changed from the defaults | ours | recorded | deviation |
//! |---|---|---|---|
//! | nothing | 11,706,924,600 B | 11,706,924,612 B | −12 B |
//! | `attention=eager` | 22,569,123,384 | 22,569,123,396 | −12 B |
//! | `precision=amp16` | 8,128,151,224 | 8,128,151,240 | −16 B |
//! | `precision=amp16,attention=eager` | 16,977,083,800 | 16,977,083,816 | −16 B |
//! | `precision=amp16,mask=ragged` | 8,337,866,136 | 8,337,866,144 | −8 B |
//! | `checkpoint=5` | 7,800,979,000 | 7,800,979,012 | −12 B |
//! | `checkpoint=all` | 3,021,697,568 | 3,021,697,580 | −12 B |
//! | `checkpoint=all,attention=eager` | 3,926,880,800 | 3,926,880,812 | −12 B |
//! | `workspace=cached` | 11,715,444,280 | 11,715,444,292 | −12 B |
//! | `optimizer=adamw_fused,set_to_none=false` | 12,142,485,852 | 12,142,485,864 | −12 B |
//! | `sms=40,sm_threads=1024` (T4) | 11,627,494,968 | 11,627,494,980 | −12 B |
//! | `batch=8` | 3,920,952,504 | 3,920,952,516 | −12 B |
//! | `batch=8,seq=128` | 2,189,708,456 | 2,189,708,464 | −8 B |
//! | `batch=8,accumulation=4` | 4,356,512,952 | 4,356,512,964 | −12 B |
//! | `head=mlm,loss=sum,output=dropped,precision=fp16,optimizer=none,batch=16` | 3,929,905,556 | 3,929,778,584 | +0.0032 % |
//! | the same with `batch=8,attention=eager` | 3,609,761,908 | 3,609,700,472 | +0.0017 % |
//!
//! The order of requests is the recorded one too, but for small index and sorting buffers: driven through a model of PyTorch's caching
//! allocator, peak allocated, peak reserved and the number of segments equalled the recorded ones in all eight set-ups tried (fp32, eager,
//! amp16, `checkpoint=all`, `batch=8`; `varlen` over a cycle, with and without expandable segments, and over drawn lengths).
//!
//! The missing bytes are scalars of loss and gradient scaling; the last two runs did not put token types and masks on the device.
use crate::graph::models::bert::params::{Asked, BATCH_MAX, LEN_MAX, SHARED};
use crate::graph::models::params::join;
use crate::graph::passes::Report;
use crate::graph::{Plan, Player};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<4, 25, 29>(
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
