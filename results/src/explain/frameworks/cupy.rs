//! CuPy's memory pool.
//!
//! | phrasing | printed by |
//! |---|---|
//! | `out of memory to allocate A bytes (total B bytes)` | 2 to 6; B counts the failed request too |
//! | `Out of memory allocating A bytes (allocated so far: B bytes, limit set to: C bytes).` | 7 and later; B is what the pool took from the device, in use or not |
//!
//! Source: cupy/cupy, `cupy/cuda/memory.pyx`; pull request 2242 (the wording), issue 7678 (idle blocks count against the limit).

use crate::explain::message::{Framework, Message};
use crate::explain::tokens::{
    Like::{Size, Word},
    Token,
};

pub(super) fn read(tokens: &[Token<'_>]) -> Option<Message> {
    let mut message = Message::new(Framework::Cupy, "7 or later (allocated so far)");
    for (name, pattern, figure) in [
        ("tried_bytes", &[Word("memory"), Word("allocating"), Size][..], 2),
        ("tried_bytes", &[Word("to"), Word("allocate"), Size], 2),
        ("allocated_bytes", &[Word("allocated"), Word("so"), Word("far"), Size], 3),
        ("with_request_bytes", &[Word("total"), Size], 1),
        ("limit_bytes", &[Word("limit"), Word("set"), Word("to"), Size], 3),
    ] {
        message.figures.read(name, tokens, pattern, figure);
    }
    if message.figures.get("with_request_bytes").is_some() {
        message.era = "2 to 6 (total)";
    }
    Some(message)
}
