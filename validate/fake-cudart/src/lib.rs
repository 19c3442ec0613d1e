//! A stand-in for `libcudart`: the functions of CUDA's runtime that allocator libraries call, with CUDA's names and shapes. As the real runtime it
//! does nothing itself: each function is the driver's function of the same meaning, called in the primary context of the thread's device, which is
//! made at the first call. Beside the stand-in driver (`vramlab-fake-cuda`) both therefore keep the same books, and capacity, prices, faults and
//! reports are that driver's to set: `cudaMalloc` fails on cue where `cuMemAlloc_v2` does.
//!
//! | rule | what it says |
//! |---|---|
//! | `lazy` | the driver is loaded, as `libcuda.so.1`, and a context made at the first call that needs one |
//! | `device` | each thread has its own current device, 0 at first |
//! | `codes` | the runtime's error numbers are the driver's, which they are since CUDA 10.1 |
//! | `last` | each thread remembers its last error; `cudaGetLastError` forgets it, `cudaPeekAtLastError` does not |
//! | `streams` | the null stream and the two named ones (1 legacy, 2 per thread) are the driver's null stream |
//! | `copies` | between device and host go by the kind that is named; 4 (default) is taken as within the device |
//!
//! Left out: what launches kernels (`__cudaRegister…`), textures, graphs, copies between devices, and whatever else no allocator calls.
//!
//! `unsafe` here: calling what was found in the driver's library under CUDA's names, with CUDA's shapes, and writing through pointers that the
//! caller gives, as CUDA's own contract says (valid, or null where refused).
#![cfg(unix)]

pub mod device;
mod driver;
pub mod memory;
pub mod order;
