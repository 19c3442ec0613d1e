//! PaddlePaddle.
//!
//! | phrasing | printed by |
//! |---|---|
//! | `Cannot allocate A memory on GPU 0, available memory is only B.` with a hint on `FLAGS_fraction_of_gpu_memory_to_use` | 1.6 and 1.7, naive best fit |
//! | the same without it | 1.8, 2.0, auto growth |
//! | `… memory on GPU 0, C memory has been allocated and available memory is only B.` | since 2.1 |
//! | the same with a hint on managed memory | since 2.3 |
//!
//! A is the piece that the driver was asked for, C all that this process took from the driver, B what the driver has left, or the rest of `FLAGS_gpu_memory_limit_mb`.
//! Source: PaddlePaddle/Paddle, `paddle/fluid/memory/allocation/cuda_allocator.cc` and `paddle/fluid/platform/gpu_info.cc`, 1.6 to 2.6.

use crate::explain::message::{Framework, Message};
use crate::explain::tokens::{
    Like::{Number, Size, Word},
    Token,
};

pub(super) fn read(text: &str, tokens: &[Token<'_>]) -> Option<Message> {
    let lower = text.to_ascii_lowercase();
    let mut message = Message::new(Framework::Paddle, "");
    for (name, pattern, figure) in [
        ("tried_bytes", &[Word("cannot"), Word("allocate"), Size][..], 2),
        ("gpu", &[Word("gpu"), Number], 1),
        ("available_bytes", &[Word("memory"), Word("is"), Word("only"), Size], 3),
        (
            "allocated_bytes",
            &[Size, Word("memory"), Word("has"), Word("been"), Word("allocated")],
            0,
        ),
    ] {
        message.figures.read(name, tokens, pattern, figure);
    }
    (message.era, message.versions) = if lower.contains("cuda managed memory") {
        ("2.3 or later (managed memory hint)", (Some((2, 3)), None))
    } else if message.figures.get("allocated_bytes").is_some() {
        ("2.1 or later (memory has been allocated)", (Some((2, 1)), None))
    } else if lower.contains("flags_fraction_of_gpu_memory_to_use") {
        ("1.6 or 1.7 (naive best fit)", (Some((1, 6)), Some((1, 8))))
    } else {
        ("1.8 or 2.0 (available memory)", (Some((1, 6)), Some((2, 1))))
    };
    Some(message)
}
