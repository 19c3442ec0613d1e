//! What would have helped: settings of an allocator, searched and each proved by a replay, rewrites of a recording, and cards.
//!
//! | module | holds |
//! |---|---|
//! | [`tape`] | an input's ops in memory, decoded once for all replays |
//! | [`setting`] | one choice of settings, as a spec and as the text to paste |
//! | [`ladder`] | which values of which option are tried |
//! | [`trial`] | one setting, replayed: figures, a digest of every placement, a verdict |
//! | [`search`] | which settings are tried, in rounds, within a budget |
//! | [`iterations`], `parts`, [`rewrite`] | what a program could do otherwise: order, warm-up, lengths in buckets, when caches are emptied |
//! | [`climb`] | does live memory climb from iteration to iteration? |
//! | [`card`] | the smallest card on which a run passes |

pub mod card;
pub mod climb;
pub mod iterations;
pub mod ladder;
mod parts;
pub mod rewrite;
pub mod search;
pub mod setting;
pub mod tape;
pub mod trial;
