//! `tensorflow.xla`: the allocator of [`super::bfc`] as XLA's GPU client sets it up for JAX.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `fraction` | the limit is `XLA_PYTHON_CLIENT_MEM_FRACTION` (0.75) of the device's total memory, truncated, whoever else uses the device | `CreateBFCAllocator` in `xla/pjrt/gpu/gpu_helpers.cc`, openxla/xla at 00df9eefeb54; JAX documentation, "GPU memory allocation" |
//! | `preallocate` | with `XLA_PYTHON_CLIENT_PREALLOCATE` the first region is the whole limit (here at the first request, in XLA when the client starts); else regions grow | the same |
//! | `no_collection` | garbage collection stays off, and a rest of 128 MiB is split off: the allocator's own defaults | the same |
//!
//! All other rules are those of [`super::bfc`]. The arithmetic of these three is not checked against the real one yet.

use super::bfc::Bfc;
use super::options::{self, Settings};
use crate::options::Options;
use crate::parts::bfc::arena::Booked;
use crate::registry::{Made, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "tensorflow.xla",
    new,
    Status::Rules("XLA's GPU client, as JAX uses it"),
    options::XLA,
    "tensorflow.bfc as JAX sets it up: 75 % of the device in one region",
);

fn new(options: &Options) -> Made {
    Ok(Box::new(Booked::shell(Bfc::new(Settings::xla(STRATEGY.name, options)?))))
}
