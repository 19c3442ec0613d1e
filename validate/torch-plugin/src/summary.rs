//! The figures of a live process.

use serde::Serialize;

/// Version of the JSON objects' shape.
pub(crate) const SCHEMA: u32 = 1;

/// Of one device. Sizes are bytes, times ns.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) schema: u32,
    pub(crate) vramlab: &'static str,
    pub(crate) device: i32,
    pub(crate) strategy: String,
    pub(crate) limit: u64,
    pub(crate) allocs: u64,
    pub(crate) frees: u64,
    pub(crate) ooms: u64,
    /// Sum of live requests, and its highest value.
    pub(crate) requested: u64,
    pub(crate) peak_requested: u64,
    /// Held from the device.
    pub(crate) reserved: u64,
    pub(crate) peak_reserved: u64,
    /// Host time of all requests and frees together, and of the longest request.
    pub(crate) alloc_ns: u64,
    pub(crate) alloc_max_ns: u64,
    pub(crate) free_ns: u64,
    pub(crate) driver_calls: std::collections::BTreeMap<&'static str, u64>,
}
