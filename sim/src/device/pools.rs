//! Stream-ordered pools of one device: `cudaMallocAsync`, `cudaFreeAsync`.
//!
//! ```text
//! pool 0   chunk p0 │ used │ free, by stream 1 │ free, for anyone │   chunk p1 │ used │ …
//! ```
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `own` | a free block may be used again at once by the stream that freed it | CUDA programming guide 4.3.4.4 |
//! | `synced` | a block whose free a synchronisation covered may be used by any stream | 4.3.4.5 |
//! | `follow` | so may one whose free the asking stream is ordered after (attribute, on) | 4.3.4.4.1 |
//! | `opportunistic` | so may one whose free is over by now (attribute, on) | 4.3.4.4.2 |
//! | `grow` | else the pool takes a chunk from the device, whole times 32 MiB, or, where that does not fit, whole granules | order: 4.3.4.4; step: the figure in rapidsai/rmm#1245 is 2518 × 32 MiB, not documented |
//! | `remap` | where that does not fit either, chunks without a used block are given back first | NVIDIA blog quoted in pytorch/pytorch#110194 |
//! | `internal` | only then the stream is made to wait for another stream's free (attribute, on) | 4.3.4.4.3 |
//! | `release` | at a stream, event or device synchronisation, chunks without a used block go back while the pool holds more than its release threshold (0) | 4.3.4.2; whole chunks, highest address first: a guess |
//! | `mixed` | `cudaFree` takes a pool's range back without any wait; `cudaFreeAsync` takes a malloc's range back in stream order | 4.3.2 |
//! | `step` | blocks are multiples of 512 B, the smallest one that fits is cut from its low end | a guess |
//!
//! Left out: pools shared between processes or devices, maximum sizes, graph memory nodes.

use std::collections::BTreeMap;

use super::address::AddressSpace;
use super::books::Books;
use super::invalid;
use super::pool::{ANYONE, Block, Chunk, Pool, State};
use super::timeline::{Moment, Slot, Timeline};
use crate::driver::{Address, DriverError, PoolAttribute};
use crate::machine::{Origin, Physical, RangeKind};
use crate::units::{Bytes, PoolId, round_up};

/// Blocks are multiples of this (rule `step`).
const BLOCK_STEP: u64 = 512;
/// Chunks are multiples of this (rule `grow`).
const CHUNK_STEP: u64 = Bytes::mib(32).0;

/// What a stream-ordered malloc took.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncMalloced {
    pub(super) address: Address,
    /// Bytes by which the pool grew.
    pub(super) grown: u64,
}

/// The pools of one device.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    granule: u64,
    space: AddressSpace,
    /// By number; 0 is the default pool.
    pools: Vec<Pool>,
    chunks: BTreeMap<Address, Chunk>,
    made: u32,
}

impl Pools {
    pub(super) fn new(space: AddressSpace, granule: u64) -> Self {
        Self { granule, space, pools: vec![Pool::new()], chunks: BTreeMap::new(), made: 0 }
    }

    pub(super) fn create(&mut self) -> PoolId {
        self.pools.push(Pool::new());
        PoolId((self.pools.len() - 1) as u32)
    }

    fn pool(&mut self, call: &'static str, pool: PoolId) -> Result<&mut Pool, DriverError> {
        let made = self.pools.len();
        match self.pools.get_mut(pool.0 as usize) {
            Some(found) if !found.destroyed => Ok(found),
            Some(_) => Err(invalid(call, format!("found pool {pool}, which was destroyed"))),
            None => Err(invalid(call, format!("found pool {pool}, expected one of {made} pools"))),
        }
    }

    pub(super) fn destroy(&mut self, books: &mut Books, pool: PoolId) -> Result<(), DriverError> {
        const CALL: &str = "cudaMemPoolDestroy";
        if pool.0 == 0 {
            return Err(invalid(CALL, "found pool 0, expected one made by cudaMemPoolCreate"));
        }
        self.pool(CALL, pool)?.destroyed = true;
        self.end_if_idle(books, pool);
        Ok(())
    }

    /// A destroyed pool without used blocks gives everything back.
    fn end_if_idle(&mut self, books: &mut Books, id: PoolId) {
        let pool = &self.pools[id.0 as usize];
        if pool.destroyed && pool.used == 0 {
            for chunk in pool.empty.clone() {
                self.drop_chunk(books, id, chunk);
            }
        }
    }

    pub(super) fn set(
        &mut self,
        pool: PoolId,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cudaMemPoolSetAttribute";
        let pool = self.pool(CALL, pool)?;
        let expected = match attribute {
            PoolAttribute::ReleaseThreshold => None,
            PoolAttribute::ReuseFollowEventDependencies
            | PoolAttribute::ReuseAllowOpportunistic
            | PoolAttribute::ReuseAllowInternalDependencies => (value > 1).then_some("0 or 1"),
            PoolAttribute::ReservedHigh | PoolAttribute::UsedHigh => (value > 0).then_some("0"),
            PoolAttribute::ReservedCurrent | PoolAttribute::UsedCurrent => Some("a read"),
        };
        if let Some(expected) = expected {
            let what = format!("found {value} for {attribute:?}, expected {expected}");
            return Err(invalid(CALL, what));
        }
        match attribute {
            PoolAttribute::ReleaseThreshold => pool.release_threshold = value,
            PoolAttribute::ReuseFollowEventDependencies => pool.follow = value == 1,
            PoolAttribute::ReuseAllowOpportunistic => pool.opportunistic = value == 1,
            PoolAttribute::ReuseAllowInternalDependencies => pool.internal = value == 1,
            PoolAttribute::ReservedHigh => pool.reserved_high = pool.reserved,
            PoolAttribute::UsedHigh => pool.used_high = pool.used,
            PoolAttribute::ReservedCurrent | PoolAttribute::UsedCurrent => {}
        }
        Ok(())
    }

    pub(super) fn get(
        &mut self,
        pool: PoolId,
        attribute: PoolAttribute,
    ) -> Result<u64, DriverError> {
        let pool = self.pool("cudaMemPoolGetAttribute", pool)?;
        Ok(match attribute {
            PoolAttribute::ReleaseThreshold => pool.release_threshold,
            PoolAttribute::ReuseFollowEventDependencies => pool.follow.into(),
            PoolAttribute::ReuseAllowOpportunistic => pool.opportunistic.into(),
            PoolAttribute::ReuseAllowInternalDependencies => pool.internal.into(),
            PoolAttribute::ReservedCurrent => pool.reserved,
            PoolAttribute::ReservedHigh => pool.reserved_high,
            PoolAttribute::UsedCurrent => pool.used,
            PoolAttribute::UsedHigh => pool.used_high,
        })
    }

    /// Gives chunks back while the pool holds more than `keep`; bytes given.
    pub(super) fn trim(
        &mut self,
        books: &mut Books,
        time: &Timeline,
        pool: PoolId,
        keep: u64,
    ) -> Result<u64, DriverError> {
        self.pool("cudaMemPoolTrimTo", pool)?;
        Ok(self.release(books, time, pool, keep))
    }

    fn release(&mut self, books: &mut Books, time: &Timeline, id: PoolId, keep: u64) -> u64 {
        let pool = &self.pools[id.0 as usize];
        if pool.reserved <= keep || pool.empty.is_empty() {
            return 0;
        }
        let before = pool.reserved;
        for chunk in pool.empty.clone().into_iter().rev() {
            let pool = &self.pools[id.0 as usize];
            if pool.reserved <= keep {
                break;
            }
            let end = chunk + self.chunks[&chunk].size;
            let over = |block: &Block| matches!(&block.state, State::Free(_, moment) if moment.at <= time.now);
            if pool.blocks.range(chunk..end).all(|(_, block)| over(block)) {
                self.drop_chunk(books, id, chunk);
            }
        }
        before - self.pools[id.0 as usize].reserved
    }

    fn drop_chunk(&mut self, books: &mut Books, id: PoolId, start: Address) {
        let Some(chunk) = self.chunks.remove(&start) else { return };
        let pool = &mut self.pools[id.0 as usize];
        pool.empty.remove(&start);
        pool.reserved -= chunk.size;
        let mut at = start;
        while at < start + chunk.size {
            let size = pool.blocks[&at].size;
            pool.take_free(size, at);
            at += size;
        }
        self.space.give(start, chunk.size);
        books.give_physical(chunk.size);
        books.unreserve(chunk.size);
    }

    /// A synchronisation returns to the host: rules `synced` and `release`. Bytes given back.
    pub(super) fn synchronised(&mut self, books: &mut Books, time: &Timeline) -> u64 {
        if self.chunks.is_empty() {
            return 0;
        }
        let mut given = 0;
        for id in 0..self.pools.len() {
            let Self { pools, chunks, .. } = self;
            let pool = &mut pools[id];
            let mut known = Vec::new();
            for (_, set) in pool.free.iter().filter(|(owner, _)| **owner != ANYONE) {
                let over = set.iter().filter(|(_, at)| time.is_after(None, pool.moment(*at)));
                known.extend(over.copied());
            }
            for (size, address) in known {
                let (_, moment) = pool.take_free(size, address);
                pool.put_joined(chunks, address, size, ANYONE, moment);
            }
            let keep = pool.release_threshold;
            given += self.release(books, time, PoolId(id as u32), keep);
        }
        given
    }

    /// A new chunk of at least `size` bytes; its size.
    fn grow(
        &mut self,
        books: &mut Books,
        id: PoolId,
        size: u64,
        next_physical: &mut u64,
    ) -> Result<u64, DriverError> {
        let take = |books: &mut Books, step| {
            let taken = round_up(size, step);
            books.take_physical(size, taken).map(|()| taken.unwrap_or_default())
        };
        let taken = take(books, CHUNK_STEP.next_multiple_of(self.granule))
            .or_else(|_| take(books, self.granule))?;
        let Some(start) = self.space.take(taken) else {
            books.give_physical(taken);
            return Err(DriverError::OutOfMemory { asked: size, free: books.free() });
        };
        books.reserve(taken);
        let ordinal = self.made;
        self.made += 1;
        let physical = *next_physical;
        *next_physical += 1;
        self.chunks.insert(start, Chunk { size: taken, pool: id, ordinal, physical, used: 0 });
        let pool = &mut self.pools[id.0 as usize];
        pool.reserved += taken;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.empty.insert(start);
        pool.put_free(start, taken, ANYONE, Moment::default());
        Ok(taken)
    }

    pub(super) fn malloc(
        &mut self,
        books: &mut Books,
        time: &mut Timeline,
        id: PoolId,
        asked: u64,
        slot: Slot,
        next_physical: &mut u64,
    ) -> Result<AsyncMalloced, DriverError> {
        const CALL: &str = "cudaMallocAsync";
        let pool = self.pool(CALL, id)?;
        if asked == 0 {
            return Err(invalid(CALL, "found size 0, expected at least 1 byte"));
        }
        let Some(size) = round_up(asked, BLOCK_STEP) else {
            return Err(DriverError::OutOfMemory { asked, free: books.free() });
        };
        let mut grown = 0;
        let mut found = pool.find(time, slot, size);
        let mut waits = false;
        if found.is_none() {
            let Self { pools, chunks, .. } = self;
            found = pools[id.0 as usize].gather(time, chunks, slot, size);
        }
        if found.is_none() {
            let mut growth = self.grow(books, id, size, next_physical);
            if growth.is_err() && self.release(books, time, id, 0) > 0 {
                growth = self.grow(books, id, size, next_physical);
            }
            let pool = &self.pools[id.0 as usize];
            (grown, found) = match growth {
                Ok(grown) => (grown, pool.find(time, slot, size)),
                Err(_) if pool.internal => {
                    waits = true;
                    let sets = pool.free.values();
                    (0, sets.filter_map(|set| set.range((size, 0)..).next().copied()).min())
                }
                Err(_) => (0, None),
            };
        }
        let Some((has, address)) = found else {
            return Err(DriverError::OutOfMemory { asked, free: books.free() });
        };
        let pool = &mut self.pools[id.0 as usize];
        let (owner, moment) = pool.take_free(has, address);
        time.follow(slot, &moment, waits);
        if has > size {
            pool.put_free(address + size, has - size, owner, moment);
        }
        pool.blocks.insert(address, Block { size, state: State::Used(asked) });
        pool.used += asked;
        pool.used_high = pool.used_high.max(pool.used);
        if let Some((start, chunk)) = self.chunks.range_mut(..=address).next_back() {
            chunk.used += 1;
            pool.empty.remove(start);
        }
        Ok(AsyncMalloced { address, grown })
    }

    fn chunk_around(&self, address: Address) -> Option<(Address, Chunk)> {
        let (start, chunk) = self.chunks.range(..=address).next_back()?;
        (address - start < chunk.size).then_some((*start, *chunk))
    }

    /// Is it the beginning of a block in use?
    pub(super) fn is_used(&self, address: Address) -> bool {
        self.chunk_around(address).is_some_and(|(_, chunk)| {
            let blocks = &self.pools[chunk.pool.0 as usize].blocks;
            matches!(blocks.get(&address), Some(Block { state: State::Used(_), .. }))
        })
    }

    /// Takes back a block in use ([`Pools::is_used`]), freed by a stream at this moment, or (`None`) by the host.
    pub(super) fn free(&mut self, books: &mut Books, address: Address, by: Option<(Slot, Moment)>) {
        let Some((start, chunk)) = self.chunk_around(address) else { return };
        let pool = &mut self.pools[chunk.pool.0 as usize];
        let Some(Block { size, state: State::Used(asked) }) = pool.blocks.remove(&address) else {
            return;
        };
        pool.used -= asked;
        let (owner, moment) = by.unwrap_or_else(|| (ANYONE, Moment::default()));
        pool.put_joined(&self.chunks, address, size, owner, moment);
        if let Some(chunk) = self.chunks.get_mut(&start) {
            chunk.used -= 1;
            if chunk.used == 0 {
                pool.empty.insert(start);
            }
        }
        self.end_if_idle(books, chunk.pool);
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let (start, chunk) = self.chunk_around(address)?;
        Some(Origin { kind: RangeKind::Pool, ordinal: chunk.ordinal, offset: address - start })
    }

    pub(super) fn physical(&self, address: Address) -> Option<Physical> {
        let (start, chunk) = self.chunk_around(address)?;
        let offset = address - start;
        Some(Physical { handle: chunk.physical, offset, run: chunk.size - offset })
    }
}
