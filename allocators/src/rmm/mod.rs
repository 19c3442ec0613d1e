//! RAPIDS Memory Manager's memory resources over plain device memory, as rapidsai/rmm has them in 26.06 and 26.08.
//!
//! A resource is made with the program and asks the device then; here it does so at the first request (see [`crate::parts`]'s `resource`), or at once
//! with [`construct`].

pub mod arena;
pub mod binning;
mod blocks;
mod coalescing;
pub mod fixed_size;
pub mod pool;
mod settings;
mod streams;
mod superblocks;
#[cfg(test)]
mod tests;

use vramlab_sim::allocator::{AllocError, Allocator};
use vramlab_sim::driver::Driver;

use crate::options::{OptionError, Options};
use crate::parts::resource::{Front, Resource};

/// Sizes of the pool are rounded up to this, and sizes of resources are multiples of it (`CUDA_ALLOCATION_ALIGNMENT`).
pub(crate) const ALIGNMENT: u64 = 256;

/// Makes a resource as its constructor does: what it asks of the device, it asks now.
///
/// # Errors
/// [`AllocError::BadSetting`] for arguments that the constructor refuses, or a name that no resource has; out of memory; a driver error.
pub fn construct(
    name: &str,
    options: &Options,
    driver: &mut dyn Driver,
) -> Result<Box<dyn Allocator>, AllocError> {
    let refused = |error: OptionError| AllocError::BadSetting(error.0.into());
    match name {
        "rmm.pool" => made(pool::resource(options).map_err(refused)?, driver),
        "rmm.arena" => made(arena::resource(options).map_err(refused)?, driver),
        "rmm.binning" => made(binning::resource(options).map_err(refused)?, driver),
        "rmm.fixed_size" => made(fixed_size::resource(options).map_err(refused)?, driver),
        _ => Err(AllocError::BadSetting(format!("RMM has no resource {name:?} here").into())),
    }
}

fn made<R: Resource + 'static>(
    resource: R,
    driver: &mut dyn Driver,
) -> Result<Box<dyn Allocator>, AllocError> {
    let mut front = Front::new(resource);
    front.make(driver)?;
    Ok(Box::new(front))
}
