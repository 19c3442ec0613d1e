//! PyTorch on Apple's devices.
//!
//! `MPS backend out of memory (MPS allocated: A, other allocations: B, max allowed: C). Tried to allocate D on private pool.`
//!
//! C is the high watermark: `PYTORCH_MPS_HIGH_WATERMARK_RATIO` (1.7) times what Metal recommends. B is what Metal holds for this process outside of the
//! allocator, not other processes. Source: pytorch/pytorch, `aten/src/ATen/mps/MPSAllocator.{h,mm}`, 2.0 to 2.9 (`other allocations` since 2.0.0).

use crate::explain::message::{Framework, Message, Value};
use crate::explain::tokens::{
    Like::{Size, Word},
    Token, places,
};

pub(super) fn read(tokens: &[Token<'_>]) -> Option<Message> {
    let mut message = Message::new(Framework::PytorchMps, "1.13 or later (MPS)");
    for (name, pattern, figure) in [
        ("tried_bytes", &[Word("tried"), Word("to"), Word("allocate"), Size][..], 3),
        ("allocated_bytes", &[Word("mps"), Word("allocated"), Size], 2),
        ("other_bytes", &[Word("other"), Word("allocations"), Size], 2),
        ("max_allowed_bytes", &[Word("max"), Word("allowed"), Size], 2),
    ] {
        message.figures.read(name, tokens, pattern, figure);
    }
    for pool in ["private", "shared"] {
        if places(tokens, &[Word("on"), Word(pool)]).next().is_some() {
            message.figures.keep("pool", Value::Text(pool.to_owned()));
        }
    }
    Some(message)
}
