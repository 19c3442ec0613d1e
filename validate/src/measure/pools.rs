//! Stream-ordered pools: a hit, a pool that grows, one that gives memory back.

use vramlab_sim::driver::{DriverExt, PoolAttribute};
use vramlab_sim::units::{Bytes, PoolId, StreamId};

use super::{Bench, Row, Step};

const STREAM: StreamId = StreamId(1);
/// Largest block that is measured.
const MOST: u64 = Bytes::gib(2).0;

impl Bench<'_> {
    pub(super) fn pools(&mut self) -> Step<()> {
        let keep = PoolAttribute::ReleaseThreshold;
        let rows = [
            ("cudaMemPoolCreate", "idle"),
            ("cudaMemPoolSetAttribute", "idle"),
            ("cudaMemPoolGetAttribute", "idle"),
            ("cudaMemPoolDestroy", "idle"),
        ];
        self.rounds(rows, (0, 1), |bench| {
            let (create, pool) = bench.time(|m| m.pool_create())?;
            let (set, ()) = bench.time(|m| m.pool_set(pool, keep, u64::MAX))?;
            let (get, _) = bench.time(|m| m.pool_get(pool, keep))?;
            let (destroy, ()) = bench.time(|m| m.pool_destroy(pool))?;
            Ok([create, set, get, destroy])
        })?;
        let pool = self.machine.pool_create()?;
        self.machine.pool_set(pool, keep, u64::MAX)?;
        for size in self.sizes(MOST) {
            self.hits_and_growth(pool, size)?;
        }
        self.machine.pool_destroy(pool)
    }

    fn hits_and_growth(&mut self, pool: PoolId, size: u64) -> Step<()> {
        // the block that the pool keeps is taken again and again
        let rows = [("cudaMallocAsync", "hit"), ("cudaFreeAsync", "pool")];
        self.rounds(rows, (size, 1), |bench| {
            let (malloc, address) = bench.time(|m| m.malloc_async(pool, size, STREAM))?;
            let (free, ()) = bench.time(|m| m.free_async(address, STREAM))?;
            Ok([malloc, free])
        })?;
        let hit = self.median("cudaMallocAsync", "hit", size);
        self.machine.stream_synchronize(STREAM)?;
        self.machine.pool_trim(pool, 0)?;
        self.rounds([("cudaMemPoolTrimTo", "nothing to give")], (size, 1), |bench| {
            Ok([bench.time(|m| m.pool_trim(pool, 0))?.0])
        })?;
        let idle = self.median("cudaMemPoolTrimTo", "nothing to give", size);
        let mut grown = 0;
        // what comes on top of a hit, and of a call that gives nothing back
        let rows =
            [("pool_grow", "empty pool, above a hit"), ("pool_shrink", "above an idle trim")];
        self.rounds(rows, (0, 1), |bench| {
            let (malloc, address) = bench.time(|m| m.malloc_async(pool, size, STREAM))?;
            grown = bench.machine.pool_get(pool, PoolAttribute::ReservedCurrent)?;
            bench.machine.free_async(address, STREAM)?;
            bench.machine.stream_synchronize(STREAM)?;
            let (trim, ()) = bench.time(|m| m.pool_trim(pool, 0))?;
            Ok([malloc.saturating_sub(hit), trim.saturating_sub(idle)])
        })?;
        // known only now
        for row in self.rows.iter_mut().rev().take(rows.len()).filter(|row| row.bytes == 0) {
            row.bytes = grown;
        }
        Ok(())
    }

    fn median(&self, what: &str, state: &str, bytes: u64) -> u64 {
        let same = |row: &&Row| row.what == what && row.state == state && row.bytes == bytes;
        self.rows.iter().find(same).map_or(0, |row| row.quantiles.p50)
    }
}
