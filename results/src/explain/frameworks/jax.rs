//! XLA's errors in JAX.
//!
//! | phrasing | figures |
//! |---|---|
//! | `RESOURCE_EXHAUSTED: Out of memory while trying to allocate N bytes.`, then `BufferAssignment stats` | the request; bytes of the program by kind |
//! | `Failed to allocate request for 2.00GiB (N B) on device ordinal 0` | the request |
//! | `Attempting to allocate A. That was not possible. There are B free. Due to fragmentation, the largest contiguous region of free memory is C` | request, free, largest piece (TPU) |
//! | `Ran out of memory in memory space hbm. Used A of B hbm. Exceeded hbm capacity by C` | the program, the device (TPU) |
//!
//! Source: openxla/xla, `xla/service/buffer_assignment.cc` (stats), `xla/pjrt`, `xla/stream_executor`; logs in public repositories, JAX 0.2 to 0.4.

use crate::explain::message::{Framework, Kind, Message};
use crate::explain::tokens::{
    Like::{Number, Size, Word},
    Token,
};

pub(super) fn begins(lower: &str) -> bool {
    let has = |words: &str| lower.contains(words);
    (has("resource_exhausted") || has("resource exhausted"))
        && (has("memory") || has("allocate") || has("allocating"))
        || has("bufferassignment oom")
}

pub(super) fn read(text: &str, tokens: &[Token<'_>]) -> Option<Message> {
    let mut message = Message::new(Framework::Jax, "0.3 or later (RESOURCE_EXHAUSTED)");
    for (name, pattern, figure) in [
        ("tried_bytes", &[Word("allocate"), Size][..], 1),
        ("tried_bytes", &[Word("allocating"), Size], 1),
        // in words and in bytes
        ("tried_bytes", &[Word("request"), Word("for"), Size, Size], 3),
        ("tried_bytes", &[Word("request"), Word("for"), Size], 2),
        ("parameter_bytes", &[Word("parameter"), Word("allocation"), Size], 2),
        ("constant_bytes", &[Word("constant"), Word("allocation"), Size], 2),
        ("live_out_bytes", &[Word("maybe_live_out"), Word("allocation"), Size], 2),
        ("temp_bytes", &[Word("temp"), Word("allocation"), Size], 2),
        ("total_bytes", &[Word("total"), Word("allocation"), Size], 2),
        ("fragmentation_bytes", &[Word("total"), Word("fragmentation"), Size], 2),
        ("free_bytes", &[Word("are"), Size, Word("free")], 1),
        ("largest_free_bytes", &[Word("free"), Word("memory"), Word("is"), Size], 3),
        ("total_bytes", &[Word("used"), Size, Word("of"), Size, Word("hbm")], 1),
        ("capacity_bytes", &[Word("used"), Size, Word("of"), Size, Word("hbm")], 3),
        ("exceeded_bytes", &[Word("capacity"), Word("by"), Size], 2),
        ("gpu", &[Word("device"), Word("ordinal"), Number], 2),
    ] {
        message.figures.read(name, tokens, pattern, figure);
    }
    if message.figures.get("largest_free_bytes").is_some() {
        message.kind = Kind::Pieces;
        message.era = "0.2 or later (TPU)";
    } else if message.figures.get("capacity_bytes").is_some() {
        message.era = "0.3 or later (TPU, at compilation)";
    }
    let figures = !message.figures.is_empty();
    (figures || text.to_ascii_lowercase().contains("memory")).then_some(message)
}
