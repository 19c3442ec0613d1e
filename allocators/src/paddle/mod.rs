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
//! What the three strategies have around their rules is `shell` in [`crate::parts`]; in Paddle it is:
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `null` | a request for 0 bytes gets a null placement | `allocator_facade.cc`: such a request goes to an allocator of its own |
//! | `streams` | an addition: reuse on another stream waits for the last uses. The real allocators share their chunks among streams without order, and leave that to the stream-safe wrapper, under which each instance sees one stream | - |
//! | `deferred` | an addition: a free whose work the run cannot see is waited for (device synchronisation) before a request fails, and at `empty_cache`; the real ones wait for frees of other threads, `gpu_allocator_retry_time` | `retry_allocator.cc` |
//! | `statistics` | `allocated` counts the sizes of blocks, `reserved` the sizes asked of the driver | `stat_allocator.h`, `gpu_info.cc` |
//!
//! Paddle's default wiring on a GPU: statistics, retry, stream-safe, auto growth, driver; so `paddle.auto_growth+stream_safe`, and with a static graph
//! `paddle.auto_growth+stream_safe+eager_deletion`. A bare name is the allocator alone. Read and recorded at commit
//! 15888d179a30ea7cccf4a43bc67e97b302159994 (21 May 2024), files under `paddle/fluid/memory/allocation`, `paddle/fluid/platform/device/gpu` and `paddle/fluid/framework`.

pub mod auto_growth;
mod chunks;
pub mod eager_deletion;
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
