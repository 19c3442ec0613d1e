//! PaddlePaddle's GPU allocators, and what stands around them.
//!
//! | strategy or wrapper | is | Paddle's class |
//! |---|---|---|
//! | [`auto_growth`] | chunks of the size that misses | `AutoGrowthBestFitAllocator` |
//! | [`vmm_auto_growth`] | one space that grows by mapped pages | `VirtualMemoryAutoGrowthBestFitAllocator` |
//! | [`naive_best_fit`] | a share of the device at once | `NaiveBestFitAllocator`, `BuddyAllocator` |
//! | [`stream_safe`] | a pool for each stream; recorded uses are waited for | `StreamSafeCUDAAllocator`, `RetryAllocator` |
//! | [`eager_deletion`] | dead tensors wait in a collector | `GarbageCollector` |
//!
//! Paddle's default wiring on a GPU: statistics, retry, stream-safe, auto growth, driver; so `paddle.auto_growth+stream_safe`, and with a static graph
//! `paddle.auto_growth+stream_safe+eager_deletion`. A bare name is the allocator alone. Read and recorded at commit
//! 15888d179a30ea7cccf4a43bc67e97b302159994 (21 May 2024), files under `paddle/fluid/memory/allocation`, `paddle/fluid/platform/device/gpu` and `paddle/fluid/framework`.

pub mod auto_growth;
mod body;
mod chunks;
pub mod eager_deletion;
#[cfg(test)]
mod failures;
mod flags;
mod idle;
mod limit;
pub mod naive_best_fit;
mod settings;
pub mod stream_safe;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod vmm_auto_growth;
