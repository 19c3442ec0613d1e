//! Our server of a language model beside measured runs of real ones.
//!
//! | module | holds |
//! |---|---|
//! | [`recorded`] | a measured run: its settings, its requests, its curve |
//! | `rerun` | the same requests through our server, on the same card |
//! | [`fit`] | constants of the step time from the first requests of a run |
//! | [`table`] | ours beside measured |
//!
//! | quantity | definition |
//! |---|---|
//! | arrival | when the client sent it; the client's clock is laid over the server's so that no request was queued before it was sent |
//! | `ttft`, `tpot`, `e2e` | from arrival to the first token; from the first to the last, over the tokens between; from arrival to the last token |
//! | P99 | the value that 99 % of the requests do not pass (nearest rank) |
//! | KV use | blocks in use over blocks that can be used, once a second |
//!
//! The size of the cache follows from the card, the share and the weights, and from the 1.24 GB of activations and context that are given to half of their last digit:
//! so ours is a range of blocks. Everything else is at 1.24 GB.
//!
//! The fit sees the first 100 requests of a run, as they arrived, with the requests that came beside them; what is compared are the others. Nothing else is
//! fitted: admission, preemption and queueing follow from the server's settings.

pub mod fit;
pub mod recorded;
mod rerun;
pub mod table;
