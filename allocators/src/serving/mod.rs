//! Caches of keys and values, as servers of language models have them.
//!
//! | cache | where a sequence's tokens are |
//! |---|---|
//! | [`paged`] | in blocks of a pool, shared by content (vLLM) |
//! | [`radix`] | in pages that a tree of prefixes shares (SGLang) |
//! | [`elastic_pages`] | in blocks on pages that come from the device and go back to it (kvcached) |
//! | [`vattention`] | at contiguous addresses, with pages mapped behind them on demand (vAttention) |
//! | [`contiguous`] | in one buffer of the greatest length, or of a power of two |
//!
//! A cache stands above a strategy, its `arena`, which gives it memory and serves the workload's other requests.

use vramlab_sim::kv::KvCache;

pub mod contiguous;
pub mod elastic_pages;
mod index;
mod layout;
mod manager;
mod options;
pub mod paged;
mod pool;
mod queue;
pub mod radix;
mod refused;
mod sequences;
#[cfg(test)]
mod testing;
mod tokens;
pub mod vattention;

pub(crate) use options::ARENA;

/// Makes any allocator a cache: sequences are buffers of it that double when they are outgrown.
pub(crate) fn any_allocator() -> Box<dyn KvCache> {
    Box::new(contiguous::Contiguous::new(
        contiguous::Length::Doubling,
        options::TokenBytes::usual(),
    ))
}
