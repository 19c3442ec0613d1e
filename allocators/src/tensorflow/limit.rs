//! How much of a device the allocator may hold. It is looked up at the first request.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `memory_limit` | so many bytes | `tf.config.LogicalDeviceConfiguration`, golden cases |
//! | `fraction` | this part of the device's total memory, truncated | `SingleVirtualDeviceMemoryLimit` in `tensorflow/core/common_runtime/gpu/gpu_device.cc`; XLA: `xla/pjrt/gpu/gpu_helpers.cc` |
//! | `system_memory` | without a fraction: the free memory less a reserve for the system, if that is less than all of it. TensorFlow's own reserve (`auto`) is 225 MiB where less than 2 GiB are free, else 1536 MiB (compute capability 8) | `MinSystemMemory` in the same file |
//! | `pages` | the device's memory counts in whole pages of 2 MiB, as a driver gives it | |
//!
//! The capacity of a simulated device is what the allocator can get, so the reserve is 0 unless it is given.

use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::Bytes;

use crate::parts::bfc::chunks::REGION_MAX;

/// Device memory is handed out in pages of this.
const PAGE: u64 = Bytes::mib(2).0;
/// Free memory below which the smaller reserve holds.
const SMALL_DEVICE: u64 = Bytes::gib(2).0;
const SMALL_RESERVE: u64 = Bytes::mib(225).0;
/// Of compute capability 8.x; 6.x has 500 MiB, 7.x 1050 MiB, 9.x 1800 MiB in newer versions.
const RESERVE: u64 = Bytes::mib(1536).0;

/// Where the limit comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// Bytes.
    Bytes(u64),
    /// A part of the device's memory.
    Fraction(f64),
    /// The device's free memory, less this reserve (or TensorFlow's own).
    AllBut(Option<u64>),
}

impl Limit {
    /// Bytes.
    ///
    /// # Errors
    /// A driver error.
    pub(super) fn bytes(self, driver: &mut dyn Driver) -> Result<u64, DriverError> {
        let (free, total) = driver.mem_info()?;
        let whole = |bytes: u64| bytes / PAGE * PAGE;
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Fraction(part) => ((total as f64 * part) as u64).min(whole(total)),
            Self::AllBut(reserve) => {
                let free = whole(free);
                let usual = if free < SMALL_DEVICE { SMALL_RESERVE } else { RESERVE };
                let reserve = reserve.unwrap_or(usual);
                if reserve < free { free - reserve } else { free }
            }
        };
        Ok(bytes.min(REGION_MAX))
    }
}
