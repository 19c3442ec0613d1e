//! How long device work takes: a roofline from the figures of the device's file.
//!
//! | rule | what it says |
//! |---|---|
//! | `roofline` | duration = max(floating-point operations / rate of their type, bytes read and written / bandwidth), rounded up to a nanosecond |
//! | `launch` | never shorter than what queueing it costs: a stream of small kernels is bound by their launches |
//!
//! Rates are the data sheet's ([`vramlab_sim::device::profile`] says where each was seen). Real kernels reach a part of them; nothing here claims
//! otherwise. Left out: caches, occupancy, clocks.

use vramlab_sim::device::Other;
use vramlab_sim::device::profile::Profile;

use crate::graph::DType;

const TYPES: [DType; 7] =
    [DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::Bool];

/// The rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Operations per nanosecond, by type.
    flops_per_ns: [f64; TYPES.len()],
    bytes_per_ns: f64,
    launch_ns: u64,
}

impl Rates {
    /// Those of a device.
    pub fn of(profile: &Profile) -> Self {
        let rate = |dtype: DType| {
            let name = if dtype == DType::I8 { "int8" } else { dtype.name() };
            profile.flops(name) / 1e9
        };
        Self {
            flops_per_ns: TYPES.map(rate),
            bytes_per_ns: profile.memory_bytes_per_second / 1e9,
            launch_ns: profile.options.costs.other(Other::Launch).of(0, 1),
        }
    }

    /// Those of a device that needs no time.
    pub const fn free() -> Self {
        Self {
            flops_per_ns: [f64::INFINITY; TYPES.len()],
            bytes_per_ns: f64::INFINITY,
            launch_ns: 0,
        }
    }

    /// Duration (ns) of work of `flops` operations of type `math` that moves `bytes`.
    pub fn duration(&self, flops: f64, math: DType, bytes: u64) -> u64 {
        let compute = flops / self.flops_per_ns[math as usize];
        let memory = bytes as f64 / self.bytes_per_ns;
        (compute.max(memory).ceil() as u64).max(self.launch_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::device::profile::device;

    #[test]
    fn duration_is_the_longest_of_compute_memory_and_launch() {
        let a100 = Rates::of(&device("a100-80gb").unwrap());
        // a 4096-cube product: 137 GFLOP at 19.5 TFLOP/s
        let product = 2.0 * 4096f64.powi(3);
        assert_eq!(a100.duration(product, DType::F32, 3 * 4 * 4096 * 4096), 7_048_152);
        assert_eq!(a100.duration(product, DType::F16, 0), 440_510);
        // a copy of 1 GiB, read and written
        assert_eq!(a100.duration(0.0, DType::F32, 2 << 30), 1_053_205);
        assert_eq!(a100.duration(0.0, DType::F32, 16), 5_000);
    }

    #[test]
    fn rates_follow_the_device() {
        let t4 = Rates::of(&device("t4-16gb").unwrap());
        let a100 = Rates::of(&device("a100-80gb").unwrap());
        assert!(t4.duration(1e12, DType::F16, 0) > 4 * a100.duration(1e12, DType::F16, 0));
        let zero = Rates::of(&device("zero").unwrap());
        assert!(
            zero.duration(1e12, DType::F32, 1 << 30) < a100.duration(1e12, DType::F32, 1 << 30)
        );
    }
}
