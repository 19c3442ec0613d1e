//! ONNX Runtime's arena.
//!
//! | phrasing | says |
//! |---|---|
//! | `BFCArena::AllocateRawInternal … Failed to allocate memory for requested buffer of size A` | the device gave no region for it |
//! | `… Available memory of A is smaller than requested bytes of B` | the arena's limit (`gpu_mem_limit`, `max_mem`) leaves A |
//! | `CUDA failure 2: out of memory` | a call outside of the arena |
//!
//! Source: microsoft/onnxruntime, `onnxruntime/core/framework/bfc_arena.cc`, 1.3 to 1.20 (the wording since pull request 4062).

use crate::explain::message::{Framework, Kind, Message, Value};
use crate::explain::tokens::{
    Like::{Number, Word},
    Token, find,
};

pub(super) fn read(text: &str, tokens: &[Token<'_>]) -> Option<Message> {
    let mut message = Message::new(Framework::OnnxRuntime, "1.3 or later (BFCArena)");
    // whole bytes without a unit
    let mut bytes = |name, pattern: &[_]| {
        if let Some(Token::Number(number)) = find(tokens, pattern, pattern.len() - 1)
            && let Some(bytes) = number.whole()
        {
            message.figures.keep(name, Value::bytes(bytes));
        }
    };
    bytes("tried_bytes", &[Word("buffer"), Word("of"), Word("size"), Number]);
    bytes("tried_bytes", &[Word("requested"), Word("bytes"), Word("of"), Number]);
    bytes("available_bytes", &[Word("available"), Word("memory"), Word("of"), Number]);
    if message.figures.get("available_bytes").is_some() {
        message.kind = Kind::PoolLimit;
    } else if message.figures.is_empty() {
        message.kind = Kind::Driver;
        message.era = "any (the driver's own error)";
    }
    let about = !message.figures.is_empty() || text.to_ascii_lowercase().contains("out of memory");
    about.then_some(message)
}
