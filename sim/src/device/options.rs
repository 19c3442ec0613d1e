//! What a simulated device is like.

use super::{AddressPlacement, CostTable};
use crate::driver::Families;
use crate::machine::Direction;
use crate::units::Bytes;

/// A link's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second; infinite if transfers take no time.
    pub bytes_per_second: f64,
    /// ns before the first byte.
    pub latency_ns: u64,
}

impl Link {
    /// Takes no time.
    pub const INSTANT: Self = Self { bytes_per_second: f64::INFINITY, latency_ns: 0 };

    /// ns for `bytes`, rounded to the nearest.
    pub fn ns(&self, bytes: u64) -> u64 {
        self.latency_ns.saturating_add((bytes as f64 / self.bytes_per_second * 1e9).round() as u64)
    }
}

/// A device's links, one for each [`Direction`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Links {
    pub host_to_device: Link,
    pub device_to_host: Link,
    pub device_to_device: Link,
    pub peer_to_peer: Link,
    pub disk: Link,
}

impl Links {
    /// Transfers take no time.
    pub const INSTANT: Self = Self {
        host_to_device: Link::INSTANT,
        device_to_host: Link::INSTANT,
        device_to_device: Link::INSTANT,
        peer_to_peer: Link::INSTANT,
        disk: Link::INSTANT,
    };

    pub(super) const fn get(&self, direction: Direction) -> &Link {
        match direction {
            Direction::HostToDevice => &self.host_to_device,
            Direction::DeviceToHost => &self.device_to_host,
            Direction::DeviceToDevice => &self.device_to_device,
            Direction::PeerToPeer => &self.peer_to_peer,
            Direction::Disk => &self.disk,
        }
    }
}

/// What a simulated device is like. The default is the device of the golden sets: 80 GiB, all free, no cost.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes that the context takes.
    pub context: u64,
    /// Bytes of host memory for the run, managed ranges included. As a rule far more than a run takes.
    pub host_capacity: u64,
    /// Physical granule in bytes.
    pub granule: u64,
    /// Choice of addresses.
    pub placement: AddressPlacement,
    /// Mallocs of up to 1 MiB share a granule.
    pub pack_small: bool,
    /// `cuMemCreate` takes sizes that are no multiple of the granule (they take whole granules).
    pub any_size: bool,
    /// Families of calls that it has.
    pub families: Families,
    /// Speed of transfers.
    pub links: Links,
    /// Price of calls.
    pub costs: CostTable,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            capacity: Bytes::gib(80).0,
            context: 0,
            host_capacity: u64::MAX,
            granule: Bytes::mib(2).0,
            placement: AddressPlacement::FirstFit,
            pack_small: false,
            any_size: false,
            families: Families::ALL,
            links: Links::INSTANT,
            costs: CostTable::zero(),
        }
    }
}
