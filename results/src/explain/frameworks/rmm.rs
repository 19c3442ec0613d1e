//! RMM, the memory manager of RAPIDS.
//!
//! | phrasing | says |
//! |---|---|
//! | `std::bad_alloc: [out_of_memory:] CUDA error … cudaErrorMemoryAllocation out of memory` | the driver refused what the pool, or a resource without one, asked for |
//! | `RMM failure at: …pool_memory_resource.hpp:N: Maximum pool size exceeded` | the pool is at its limit and has no piece that is large enough |
//! | `(failed to allocate 8.000000 GiB)` | the request, since 25.04 |
//! | `Not enough room to grow, current/max/try size = A, B, C` | as the pool stands, may become, and tried to grow by |
//! | `[A][Stream 0x1][Upstream N B][FAILURE maximum pool size exceeded]` | the same in its debug log |
//!
//! Source: rapidsai/rmm, `cpp/include/rmm/mr/pool_memory_resource.hpp`, 0.15 to 25.06; pull request 1827 (request and reason in the text).

use crate::explain::message::{Framework, Kind, Message};
use crate::explain::tokens::{
    Like::{Size, Word},
    Token,
};

pub(super) fn begins(lower: &str) -> bool {
    let has = |words: &str| lower.contains(words);
    let rmm = has("rmm");
    has("maximum pool size exceeded")
        || has("pool size exceeded")
        || has("bad_alloc") && (rmm || has("cuda error") || has("out_of_memory"))
        || rmm && has("failure") && (has("memory") || has("alloc"))
        || has("not enough room to grow")
}

pub(super) fn read(text: &str, tokens: &[Token<'_>]) -> Option<Message> {
    let lower = text.to_ascii_lowercase();
    let mut message = Message::new(Framework::Rmm, "0.15 or later");
    let grow = [Word("size"), Size, Size, Size];
    for (name, pattern, figure) in [
        ("tried_bytes", &[Word("failed"), Word("to"), Word("allocate"), Size][..], 3),
        ("upstream_bytes", &[Word("upstream"), Size], 1),
        ("pool_bytes", &grow, 1),
        ("limit_bytes", &grow, 2),
        ("growth_bytes", &grow, 3),
    ] {
        message.figures.read(name, tokens, pattern, figure);
    }
    message.kind = if lower.contains("pool size exceeded") {
        Kind::PoolLimit
    } else if lower.contains("room to grow") {
        Kind::Growth
    } else {
        Kind::Driver
    };
    Some(message)
}
