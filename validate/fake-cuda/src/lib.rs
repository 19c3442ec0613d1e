//! A stand-in for `libcuda.so.1`: the functions of CUDA's driver API that `vramlab-validate` calls, with CUDA's names and shapes. It touches
//! no GPU: behind the C functions stands a [`vramlab_sim::SimMachine`], so that placements, failures and times follow its rules and two
//! runs can be compared. Tests copy the built file as `libcuda.so.1` into a folder on `LD_LIBRARY_PATH`.
//!
//! | variable | says | default |
//! |---|---|---|
//! | `VRAMLAB_FAKE_CUDA` | what is played: `no_device` (`cuInit` finds none), `no_context` (none can be made), `old` (a driver of CUDA 10.1) | a driver of CUDA 13.0 |
//! | `VRAMLAB_FAKE_CUDA_DEVICE` | a device's file (`sim/devices/*.toml`), or the name of a built-in one: capacity, granule, placement, prices | two devices, of which the second has no pools, no VMM and no managed memory |
//! | `VRAMLAB_FAKE_CUDA_COUNT` | how many such devices | 1 |
//! | `VRAMLAB_FAKE_CUDA_CAPACITY`, `_GRANULE` | bytes, in place of the file's | the file's |
//! | `VRAMLAB_FAKE_CUDA_CLOCK` | `virtual`: calls take no real time, `vramlabClock` tells theirs; `spin`: each call lasts as long as it costs | `virtual` |
//! | `VRAMLAB_FAKE_CUDA_JITTER` | a call costs its price times 1 ± up to so much, with a peak at 1, seeded | 0 |
//! | `VRAMLAB_FAKE_CUDA_FAIL` | faults on cue: `cuMemCreate#3=out_of_memory,cuMemMap#1=invalid_value`: the third call of the one, the first of the other | none |
//! | `VRAMLAB_FAKE_CUDA_REPORT` | a file that gets, at the end of the process, how often each function was called, what was misused (a double free, a foreign address) and what was left | none |
//!
//! A bad setting makes `cuInit` answer `CUDA_ERROR_UNKNOWN` and say why on standard error.
//!
//! Host and managed memory is real memory of the process, so that the host can touch it; what the host touches there is not seen. Kernels are
//! known by their names: those of `vramlab-validate`.
//!
//! `unsafe` here: writing through the pointers that the caller gives, as CUDA's own contract says (valid, or null where refused), and the
//! memory that is mapped for it.
#![cfg(unix)]

pub mod device;
mod enter;
mod fake;
mod faults;
pub mod memory;
pub mod order;
mod report;
mod settings;
mod spaces;
