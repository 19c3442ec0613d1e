//! Servers of language models: who is served when, how long a step takes, and what users wait for.
//!
//! | module | holds |
//! |---|---|
//! | [`llm`] | the workload `llm`: parameters, and what is built from them |
//! | [`server`] | the server as a source of ops |
//! | [`scheduler`] | vLLM's scheduler, as rules that any cache of keys and values can answer |
//! | [`load`] | requests, drawn or recorded |
//! | [`model`] | language models: bytes of weights and of a token's keys and values, operations of a token |
//! | [`step_time`] | how long a step takes: a roofline, or constants that were fitted |
//! | `books` | what the server counts |

mod books;
pub mod llm;
pub mod load;
pub mod model;
pub mod scheduler;
pub mod server;
pub mod step_time;
