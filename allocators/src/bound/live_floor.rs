//! `bound.live_floor`: the sum of live requests, the floor of what any strategy can hold.
//!
//! | rule | what it says |
//! |---|---|
//! | `exact` | a request takes as many bytes as it asks for, from the driver |
//! | `at_once` | freed bytes go back at once |
//!
//! So reserved = allocated = requested at all times, and its peak is the floor for strategies that keep everything on the device and move nothing.
//! It is a floor in bytes: its time (a driver call per op, and each free waits) is that of `cuda.malloc`, and on a device that hands out whole granules it runs out
//! of memory before the bytes do.

use vramlab_sim::allocator::Allocator;

use crate::options::{OptionError, Options};
use crate::parts::direct::Direct;
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "bound.live_floor",
    new,
    Status::Model,
    &[],
    "sum of live requests: the floor on one device",
);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("bound.live_floor", &[])?;
    Ok(Box::new(Direct::new("live")))
}
