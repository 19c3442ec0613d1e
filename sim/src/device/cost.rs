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
        let granules = bytes.div_ceil(granule.max(1)) as f64;
        let ns = self.base_ns + self.per_granule_ns * granules + self.per_byte_ns * bytes as f64;
        ns.round() as u64
    }

    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// What a device asks of the host for each call. The default is free of charge.
#[derive(Clone, Debug, PartialEq)]
pub struct CostTable {
    calls: [Price; CALL_KINDS],
    /// A malloc that fits into a granule which small requests share already.
    malloc_packed: Price,
    /// A stream-ordered malloc for which the pool must grow; size: of the growth. Comes on top of the call's own price.
    pool_grow: Price,
    /// A pool that gives memory back; size: of what it gives. Comes on top of the call's own price.
    pool_shrink: Price,
    /// Queueing work or a transfer.
    launch: Price,
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
            malloc_packed: NOTHING,
            pool_grow: NOTHING,
            pool_shrink: NOTHING,
            launch: NOTHING,
            free_of_charge: true,
        }
    }

    /// Sets the price of a call by CUDA's name of it, or of `malloc_packed`, `pool_grow`, `pool_shrink`, `launch`. `false`: no such name.
    pub fn set(&mut self, name: &str, price: Price) -> bool {
        let slot = match name {
            "malloc_packed" => &mut self.malloc_packed,
            "pool_grow" => &mut self.pool_grow,
            "pool_shrink" => &mut self.pool_shrink,
            "launch" => &mut self.launch,
            _ => match CALL_NAMES.iter().position(|known| *known == name) {
                Some(kind) => &mut self.calls[kind],
                None => return false,
            },
        };
        *slot = price;
        let others = [self.malloc_packed, self.pool_grow, self.pool_shrink, self.launch];
        self.free_of_charge = self.calls.iter().chain(&others).all(Price::is_zero);
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

    /// The price of a malloc that shares a granule.
    pub const fn malloc_packed(&self) -> &Price {
        &self.malloc_packed
    }

    /// The price of a pool's growth.
    pub const fn pool_grow(&self) -> &Price {
        &self.pool_grow
    }

    /// The price of a pool's giving memory back.
    pub const fn pool_shrink(&self) -> &Price {
        &self.pool_shrink
    }

    /// The price of queueing work.
    pub const fn launch(&self) -> &Price {
        &self.launch
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
    }
}
