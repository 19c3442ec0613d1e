//! How long device work takes: a roofline, so that `work` ops have durations that scale as real ones do.
//!
//! | rule | what it says |
//! |---|---|
//! | `roofline` | duration = max(floating-point operations / rate, bytes read and written / bandwidth), rounded up to a nanosecond |
//! | `launch` | never shorter than a kernel's own start, [`KERNEL_NS_MIN`] |
//!
//! Default rates are the data sheet's of an NVIDIA A100 80 GB (SXM): 19.5 TFLOP/s fp32, 312 TFLOP/s fp16 with tensor cores,
//! 2,039 GB/s. Real kernels reach a part of them; nothing here claims otherwise. Left out: caches, occupancy, clocks, host time
//! (the engine charges the host).

use crate::params::{ParamDoc, ParamError, Params, doc};

/// Shortest kernel (ns): about what an empty launch occupies a stream for.
pub const KERNEL_NS_MIN: u64 = 2_000;

/// The parameter of the matrix rate; `auto` is the data sheet's rate for the precision.
pub(crate) const TFLOPS: ParamDoc =
    doc("tflops", "auto", "TFLOP/s", "rate of matrix work; auto: 19.5 for fp32, 312 below");
/// The parameter of the memory bandwidth.
pub(crate) const BANDWIDTH: ParamDoc = doc("bandwidth", "2039", "GB/s", "device memory bandwidth");

/// The rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Floating-point operations per nanosecond.
    flops_per_ns: f64,
    /// Bytes per nanosecond.
    bytes_per_ns: f64,
}

impl Roofline {
    /// From [`TFLOPS`] and [`BANDWIDTH`]; `half` chooses the rate that `auto` means.
    pub(crate) fn from_params(params: &Params, half: bool) -> Result<Self, ParamError> {
        let tflops = match params.text("tflops") {
            "auto" => {
                if half {
                    312.0
                } else {
                    19.5
                }
            }
            _ => params.number("tflops", 0.001..=1e6)?,
        };
        let gb_per_s = params.number("bandwidth", 0.001..=1e6)?;
        Ok(Self { flops_per_ns: tflops * 1e3, bytes_per_ns: gb_per_s })
    }

    /// Of a device that does so many operations and moves so many bytes a second.
    pub fn of(flops_per_second: f64, bytes_per_second: f64) -> Self {
        Self { flops_per_ns: flops_per_second / 1e9, bytes_per_ns: bytes_per_second / 1e9 }
    }

    /// Duration (ns) of work of `flops` operations that moves `bytes`.
    pub fn duration(&self, flops: f64, bytes: u64) -> u64 {
        let compute = flops / self.flops_per_ns;
        let memory = bytes as f64 / self.bytes_per_ns;
        (compute.max(memory).ceil() as u64).max(KERNEL_NS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_the_longer_of_compute_and_memory() {
        const DOCS: &[ParamDoc] = &[TFLOPS, BANDWIDTH];
        let params = Params::defaults(DOCS);
        let fp32 = Roofline::from_params(&params, false).unwrap();
        // a 4096-cube product: 137 GFLOP at 19.5 TFLOP/s
        assert_eq!(fp32.duration(2.0 * 4096f64.powi(3), 3 * 4 * 4096 * 4096), 7_048_152);
        // a copy of 1 GiB, read and written
        assert_eq!(fp32.duration(0.0, 2 << 30), 1_053_205);
        assert_eq!(fp32.duration(0.0, 16), KERNEL_NS_MIN);
        let fp16 = Roofline::from_params(&params, true).unwrap();
        assert!(fp16.duration(1e12, 0) < fp32.duration(1e12, 0) / 15);
    }
}
