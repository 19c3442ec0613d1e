//! A paged cache on a device of its own, for cases about caches.

use serde_json::Value;
use vramlab_allocators::{Options, Spec, build, registry::build_cache};
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::Allocator;
use vramlab_sim::kv::{Below, KvCache, KvError, KvUsage};

/// The cache, with what is below it.
pub(super) struct Cache {
    cache: Box<dyn KvCache>,
    arena: Box<dyn Allocator>,
    pub(super) machine: SimMachine,
    ordinal: u64,
}

impl Cache {
    /// `serving.paged` with these options, on a device of `capacity` bytes.
    pub(super) fn new(
        options: impl IntoIterator<Item = (&'static str, String)>,
        capacity: u64,
    ) -> Result<Self, String> {
        let spec = Spec::new("serving.paged", Options::from_pairs(options));
        Ok(Self {
            cache: build_cache(&spec).map_err(|e| e.to_string())?,
            arena: build(&spec).map_err(|e| e.to_string())?,
            machine: SimMachine::of_capacity(capacity),
            ordinal: 0,
        })
    }

    /// As a case of requests says it.
    pub(super) fn of_case(input: &Value) -> Result<Self, String> {
        let number = |key: &str| input[key].as_u64().unwrap_or(0);
        let usable = number("num_blocks").saturating_sub(number("reserved_blocks"));
        let options = [
            ("block_size", number("block_size").max(1).to_string()),
            // block 0 is never used
            ("num_gpu_blocks_override", (usable + 1).to_string()),
            ("enable_prefix_caching", (input["prefix_cache"] == true).to_string()),
        ];
        Self::new(options, 1 << 30)
    }

    pub(super) fn call<T>(
        &mut self,
        act: impl FnOnce(&mut dyn KvCache, &mut Below<'_>) -> Result<T, KvError>,
    ) -> Result<T, KvError> {
        let Self { cache, arena, machine, ordinal } = self;
        let mut below = Below { arena: &mut **arena, driver: machine, ordinal };
        act(&mut **cache, &mut below)
    }

    pub(super) fn usage(&self) -> KvUsage {
        self.cache.usage()
    }
}
