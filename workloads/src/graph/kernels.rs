//! Memory that kernels take beside their inputs and outputs, derived from shapes.
//!
//! Models: PyTorch 2.15 with CUDA (the version of the recordings this is checked against).
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `lt` | a product with a fused bias takes 1 MiB, allocated and freed around the call | cublasLt default, `aten/src/ATen/cuda/CUDABlas.cpp` |
//! | `blas` | any other product takes 8,519,680 B (`:4096:2:16:8`: 2 of 4,096 KiB and 8 of 16 KiB), the same way | `CUDABlas.cpp`, recordings |
//! | `blas_cached` | where the workspace is cached one of 8,519,680 B is kept from the first product on (`TORCH_CUBLAS_WORKSPACE_CACHE=1`) | recordings |
//! | `column_sum` | a column sum that is split over blocks takes partial results and one counter per column block | `aten/src/ATen/native/cuda/Reduce.cuh`, `setReduceConfig` |
//! | `efficient` | memory-efficient attention keeps one fp32 log-sum per query, queries padded to 32 | `attention.cu` |
//! | `efficient_backward` | its backward accumulates query gradients in blocks of 64×64 fp32 with a 16-byte lock each | `mem_eff_attention/kernel_backward.h` |
//! | `flash_backward` | FlashAttention-2's backward accumulates query gradients in fp32, queries padded to 128, width to 32 | `flash_attn/flash_api.cpp` |
//!
//! Left out: sorting space of the embedding gradient (it depends on cub; at most a few hundred KiB), convolution and autotuning.

/// Space for a product with a fused bias (rule `lt`) (B).
pub const LT_WORKSPACE: u64 = 1 << 20;
/// Space for any other product (rule `blas`) (B).
pub const BLAS_WORKSPACE: u64 = (2 * 4096 + 8 * 16) * 1024;

/// What of the device decides how a sum is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// How many.
    pub count: u64,
    /// Threads that each can hold.
    pub threads: u64,
}

/// What a split column sum takes (rule `column_sum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumSpace {
    /// Partial results (B).
    pub partial: u64,
    /// Counters (B).
    pub counters: u64,
}

/// Threads in a block of a reduction, before they are divided among vector lanes.
const SUM_THREADS_MAX: u64 = 512;
const WARP: u64 = 32;
const VALUES_PER_THREAD_MIN: u64 = 16;
const VALUES_PER_THREAD_MAX: u64 = 256;

/// Space for the sum over `rows` of a row-major matrix of `columns`; none when each column is summed by one block.
pub fn column_sum_space(rows: u64, columns: u64, device: Multiprocessors) -> Option<SumSpace> {
    // four neighbouring columns per thread where the width allows
    let lanes = [4, 2].into_iter().find(|lanes| columns.is_multiple_of(*lanes)).unwrap_or(1);
    let threads_max = SUM_THREADS_MAX / lanes;
    let across = power_below(columns / lanes).min(threads_max);
    let down = power_below(rows).min(threads_max);
    let width = across.min(WARP);
    let height = down.min(threads_max / width);
    let width = across.min(threads_max / height);

    if rows < (height * VALUES_PER_THREAD_MIN).min(VALUES_PER_THREAD_MAX) {
        return None;
    }
    let values = rows.div_ceil(height);
    let blocks = (columns / lanes).div_ceil(width);
    let blocks_wanted = device.count * (device.threads / (width * height));
    if values < VALUES_PER_THREAD_MAX || blocks > blocks_wanted {
        return None;
    }
    let split = blocks_wanted
        .div_ceil(blocks)
        .min(values.div_ceil(VALUES_PER_THREAD_MIN))
        .max(values.div_ceil(VALUES_PER_THREAD_MAX));
    (split > 1).then(|| SumSpace {
        // fp32 partial sums, per column, per split, per lane of a block's width
        partial: 4 * columns * split * width * lanes,
        counters: 4 * blocks,
    })
}

/// Largest power of two up to `value` (at least 1).
fn power_below(value: u64) -> u64 {
    1 << value.max(1).ilog2()
}

/// Log-sums of memory-efficient attention (B) (rule `efficient`).
pub fn efficient_logsum(batch: u64, heads: u64, len: u64) -> u64 {
    batch * heads * len.next_multiple_of(32) * 4
}

/// Space of its backward (B) (rule `efficient_backward`).
pub fn efficient_backward_space(batch: u64, heads: u64, len: u64, width: u64) -> u64 {
    const BLOCK: u64 = 64;
    let blocks = len.div_ceil(BLOCK) * width.div_ceil(BLOCK);
    batch * heads * blocks * (BLOCK * BLOCK * 4 + 16)
}

/// Query gradients that FlashAttention-2's backward accumulates (B) (rule `flash_backward`).
pub fn flash_backward_space(batch: u64, heads: u64, len: u64, width: u64) -> u64 {
    batch * heads * len.next_multiple_of(128) * width.next_multiple_of(32) * 4
}

/// Row sums that it takes (B).
pub fn flash_backward_rows(batch: u64, heads: u64, len: u64) -> u64 {
    batch * heads * len.next_multiple_of(128) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const A100: Multiprocessors = Multiprocessors { count: 108, threads: 2048 };
    const T4: Multiprocessors = Multiprocessors { count: 40, threads: 1024 };

    /// Sizes seen in recordings of PyTorch 2.15 (BERT-base, 12 heads of 64).
    #[test]
    fn column_sum_splits_as_recorded() {
        let space = |rows, columns, device| {
            column_sum_space(rows, columns, device).map(|s| (s.partial, s.counters))
        };
        assert_eq!(space(16_384, 768, A100), Some((100_663_296, 24)));
        assert_eq!(space(16_384, 3072, A100), Some((113_246_208, 96)));
        assert_eq!(space(16_384, 3072, T4), Some((25_165_824, 96)));
        assert_eq!(space(16_384, 768, T4), Some((21_233_664, 24)));
        assert_eq!(space(1024, 768, A100), Some((6_291_456, 24)));
        assert_eq!(space(8 * 161, 3072, A100), Some((33_030_144, 96)));
        assert_eq!(space(32, 768, A100), None);
    }

    #[test]
    fn attention_space_is_as_recorded() {
        assert_eq!(efficient_logsum(8, 12, 161), 73_728);
        assert_eq!(efficient_backward_space(8, 12, 161, 64), 4_723_200);
        assert_eq!(efficient_backward_space(32, 12, 512, 64), 50_380_800);
        assert_eq!(flash_backward_space(16, 12, 512, 64), 24 << 20);
    }
}
