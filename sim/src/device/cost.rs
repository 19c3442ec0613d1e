//! What driver calls cost the host, in ns: base + per-granule + per-byte terms.

use crate::driver::{CALL_KINDS, CALL_NAMES};

/// The price of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// ns a call.
    pub base_ns: f64,
    /// ns for each physical granule touched, a part of one counting as one.
    pub per_granule_ns: f64,
    /// ns for each byte.
    pub per_byte_ns: f64,
}

impl Price {
    /// A price that does not depend on the size.
    pub const fn flat(base_ns: f64) -> Self {
        Self { base_ns, per_granule_ns: 0.0, per_byte_ns: 0.0 }
    }

    /// ns for a call over `bytes` bytes, rounded to the nearest.
    pub fn of(&self, bytes: u64, granule: u64) -> u64 {
        self.times(1, bytes.div_ceil(granule.max(1)), bytes)
    }

    /// ns for `calls` calls that touched so many granules and bytes in all, rounded to the nearest.
    pub fn times(&self, calls: u64, granules: u64, bytes: u64) -> u64 {
        let ns = self.base_ns * calls as f64
            + self.per_granule_ns * granules as f64
            + self.per_byte_ns * bytes as f64;
        ns.round() as u64
    }

    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// A price that is not that of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// A malloc that fits into a granule which small requests share already.
    MallocPacked,
    /// A stream-ordered malloc for which the pool must grow; size: of the growth. Comes on top of the call's own price.
    PoolGrow,
    /// A pool that gives memory back; size: of what it gives. Comes on top of the call's own price.
    PoolShrink,
    /// Queueing work or a transfer.
    Launch,
    /// A batch of a device's faults on managed memory; granules: the 2 MiB blocks served in it; bytes: those that move. The link comes on top.
    FaultBatch,
    /// A fault of the host on managed memory.
    HostFault,
    /// A 2 MiB block of managed memory that leaves the device. The link comes on top.
    Evict,
}

/// What a device asks of the host for each call. The default is free of charge.
#[derive(Clone, Debug, PartialEq)]
pub struct CostTable {
    calls: [Price; CALL_KINDS],
    /// In the order of [`Other`].
    others: [Price; Self::OTHERS.len()],
    free_of_charge: bool,
}

impl Default for CostTable {
    fn default() -> Self {
        Self::zero()
    }
}

impl CostTable {
    /// Everything at no cost.
    pub const fn zero() -> Self {
        const NOTHING: Price = Price::flat(0.0);
        Self {
            calls: [NOTHING; CALL_KINDS],
            others: [NOTHING; Self::OTHERS.len()],
            free_of_charge: true,
        }
    }

    /// Names of the other prices, in the order of [`Other`].
    pub const OTHERS: [&'static str; 7] = [
        "malloc_packed",
        "pool_grow",
        "pool_shrink",
        "launch",
        "fault_batch",
        "host_fault",
        "evict",
    ];

    /// Sets the price of a call by CUDA's name of it, or of one of [`CostTable::OTHERS`]. `false`: no such name.
    pub fn set(&mut self, name: &str, price: Price) -> bool {
        let named = |names: &[&str]| names.iter().position(|known| *known == name);
        match (named(&Self::OTHERS), named(&CALL_NAMES)) {
            (Some(other), _) => self.others[other] = price,
            (None, Some(kind)) => self.calls[kind] = price,
            (None, None) => return false,
        }
        self.free_of_charge = self.calls.iter().chain(&self.others).all(Price::is_zero);
        true
    }

    /// Does every call cost nothing?
    pub const fn is_free_of_charge(&self) -> bool {
        self.free_of_charge
    }

    /// The price of the call of this kind ([`crate::driver::Call::kind`]).
    pub const fn call(&self, kind: usize) -> &Price {
        &self.calls[kind]
    }

    /// Another price.
    pub const fn other(&self, other: Other) -> &Price {
        &self.others[other as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_has_three_terms() {
        let price = Price { base_ns: 50_000.0, per_granule_ns: 332.0, per_byte_ns: 0.0 };
        assert_eq!(price.of(2 << 30, 2 << 20), 50_000 + 332 * 1024);
        assert_eq!(price.of(1, 2 << 20), 50_332);
    }

    #[test]
    fn a_table_knows_whether_it_is_free_of_charge() {
        let mut table = CostTable::zero();
        assert!(table.is_free_of_charge());
        assert!(table.set("cudaMalloc", Price::flat(1.0)) && !table.is_free_of_charge());
        assert!(!table.set("cudaMollac", Price::flat(1.0)));
        for name in CostTable::OTHERS {
            let mut table = CostTable::zero();
            assert!(table.set(name, Price::flat(1.0)) && !table.is_free_of_charge(), "{name}");
        }
    }
}
