//! Servers of language models: who is served when, how long a step takes, and what users wait for.
//!
//! | module | holds |
//! |---|---|
//! | [`model`] | language models: bytes of weights and of a token's keys and values, operations of a token |
//! | [`scheduler`] | vLLM's scheduler, as rules that any cache of keys and values can answer |
//! | [`step_time`] | how long a step takes: a roofline, or constants that were fitted |

pub mod model;
pub mod scheduler;
pub mod step_time;
