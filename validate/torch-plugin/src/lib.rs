//! `libvramlab_torch.so`: any strategy of vramlab behind the C interface of PyTorch's pluggable allocator, so that a strategy that won in
//! simulation serves a real run. Memory comes from the CUDA driver, as in `vramlab-validate replay`.
//!
//! ```python
//! import vramlab_torch                      # beside this file; or torch.cuda.memory.CUDAPluggableAllocator(so, "vramlab_alloc", "vramlab_free")
//! vramlab_torch.use("libvramlab_torch.so", strategy="torch.caching:expandable_segments=true", trace="run.jsonl.gz")
//! ```
//!
//! | variable | says | default |
//! |---|---|---|
//! | `VRAMLAB_STRATEGY` | the strategy with its options | `torch.caching` |
//! | `VRAMLAB_LIMIT` | most bytes of a device to hold, such as `16GiB` | nine tenths of what is free at the first request |
//! | `VRAMLAB_TRACE` | a file that gets each op as it comes, as JSON Lines that `vramlab replay` reads; compressed if its name ends with `.gz` | none |
//! | `VRAMLAB_SUMMARY` | a file that gets the figures at the end of the process, one JSON object a device | none |
//!
//! | function | is for | source (`torch/csrc/cuda/CUDAPluggableAllocator.h`, `Module.cpp`, since PyTorch 2.3) |
//! |---|---|---|
//! | [`vramlab_alloc`], [`vramlab_free`] | requests and frees | the two functions that `CUDAPluggableAllocator` is made of |
//! | [`vramlab_init`] | nothing to do: devices are opened at their first request | `set_init_fn` |
//! | [`vramlab_empty_cache`] | gives cached memory of all devices back | `set_reset_fn`, which `torch.cuda.empty_cache` calls |
//! | [`vramlab_memory_fraction`] | a limit, for strategies that have one | `set_memory_fraction_fn` |
//! | [`vramlab_record_stream`] | the memory is used on one more stream | `set_record_stream_fn` |
//! | [`vramlab_begin_pool`], [`vramlab_end_pool`], [`vramlab_release_pool`] | private pools of CUDA graphs | `set_begin_allocate_to_pool`, `set_end_allocate_to_pool_fn`, `set_release_pool` |
//! | [`vramlab_check`], [`vramlab_finish`] | are the settings good? write trace and summary now | ours |
//!
//! | rule | what it says |
//! |---|---|
//! | `null` | out of memory, or any failure: a null pointer, and the numbers on standard error, once. PyTorch does not look at it: its next kernel fails |
//! | `zero` | 0 bytes are a null pointer, which is no request and whose free is none |
//! | `refused` | strategies that plan ahead, need to know which work uses what, cache sequences, manage the host's memory, or align to less than 256 bytes are refused, with the reason: all requests then get a null pointer |
//! | `pool_route` | which requests a private pool is for, PyTorch tells by a C++ object that C cannot call: taken are those of streams that are being captured |
//! | `threads` | one call at a time, whichever thread; nothing unwinds into the caller |
//! | `no_end` | at the end of the process nothing is given back: the driver takes it all |
//!
//! Left out: `set_base_alloc_fn`, which serves sharing between processes, for which PyTorch refuses pluggable allocators anyway.
//!
//! `unsafe` here: the names that are exported, and the text that `vramlab_check` writes to its caller's buffer.

mod device;
mod log;
mod settings;
mod state;
mod streams;
mod summary;

use std::ffi::{c_char, c_int, c_void};

use state::with;

/// Of private pools: PyTorch's `MempoolId_t`, two numbers passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MempoolId {
    first: u64,
    second: u64,
}

/// Asks for `size` bytes for use on `stream`; null if there are none (rule `null`).
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let address = with(|state| state.alloc(size, device, stream.expose_provenance()));
    std::ptr::with_exposed_provenance_mut(address.unwrap_or(0) as usize)
}

/// Takes memory back that [`vramlab_alloc`] gave.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_free(
    pointer: *mut c_void,
    _size: isize,
    device: c_int,
    _stream: *mut c_void,
) {
    with(|state| state.free(pointer.expose_provenance() as u64, device));
}

/// PyTorch says how many devices there are.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_init(_devices: c_int) {}

/// `torch.cuda.empty_cache`.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_empty_cache() {
    with(state::State::empty_cache);
}

/// `torch.cuda.set_per_process_memory_fraction`.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_memory_fraction(fraction: f64, device: c_int) {
    with(|state| state.memory_fraction(fraction, device));
}

/// `Tensor.record_stream`.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    with(|state| {
        state.record_stream(pointer.expose_provenance() as u64, stream.expose_provenance())
    });
}

/// Requests of streams that are being captured go to a private pool from now on (rule `pool_route`). `filter` is a C++ object, left alone.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_begin_pool(device: c_int, pool: MempoolId, _filter: *const c_void) {
    with(|state| state.begin_pool(device, pool));
}

/// No longer.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_end_pool(device: c_int, pool: MempoolId) {
    with(|state| state.end_pool(device, pool));
}

/// The graph of the pool is gone.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_release_pool(device: c_int, pool: MempoolId) {
    with(|state| state.release_pool(device, pool));
}

/// Are settings, driver and device good? 0, or 1 and the reason in `text`, cut to `size` bytes with a zero at the end.
///
/// # Safety
/// `text` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vramlab_check(device: c_int, text: *mut c_char, size: usize) -> c_int {
    let checked = with(|state| state.check(device));
    let fault = || Err("a fault of this library, told on standard error".to_owned());
    let Err(wrong) = checked.unwrap_or_else(fault) else { return 0 };
    if !text.is_null() && size > 0 {
        let length = wrong.len().min(size - 1);
        // SAFETY: at most `size` bytes, for which the caller vouches
        unsafe {
            text.cast::<u8>().copy_from_nonoverlapping(wrong.as_ptr(), length);
            text.add(length).write(0);
        }
    }
    1
}

/// Ends the trace and writes the summary, as the end of the process does.
#[unsafe(no_mangle)]
pub extern "C" fn vramlab_finish() {
    with(state::State::finish);
}
