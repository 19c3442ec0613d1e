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
use super::pool::{ANYONE, Piece, Pieces, Pool, UNIT};
use super::timeline::{Moment, Slot, Timeline};
use crate::driver::{Address, DriverError, PoolAttribute};
use crate::free_set::{NONE, SIZE_MAX};
use crate::machine::{DriverWork, Origin, Physical, RangeKind};
use crate::units::{Bytes, PoolId, round_up};

/// Chunks are multiples of this (rule `grow`).
const CHUNK_STEP: u64 = Bytes::mib(32).0;

/// What a stream-ordered malloc took.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncMalloced {
    pub(super) address: Address,
    /// Bytes by which the pool grew.
    pub(super) grown: u64,
}

/// Memory that a pool took from the device at once.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    start: Address,
    size: u64,
    pool: PoolId,
    ordinal: u32,
    physical: u64,
    /// Pieces in use.
    used: u32,
    /// Its first piece.
    first: u32,
}

/// The pools of one device.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    granule: u64,
    space: AddressSpace,
    /// By number; 0 is the default pool.
    pools: Vec<Pool>,
    pieces: Pieces,
    chunks: Vec<Chunk>,
    vacant: Vec<u32>,
    by_address: BTreeMap<Address, u32>,
    made: u32,
    /// Chunks given back so far.
    released: u64,
}

impl Pools {
    pub(super) fn new(space: AddressSpace, granule: u64) -> Self {
        Self {
            granule,
            space,
            pools: vec![Pool::new()],
            pieces: Pieces::new(),
            chunks: Vec::new(),
            vacant: Vec::new(),
            by_address: BTreeMap::new(),
            made: 0,
            released: 0,
        }
    }

    /// Adds how often a chunk was taken and given back so far.
    pub(super) fn add_work(&self, work: &mut DriverWork) {
        work.pool_growths += u64::from(self.made);
        work.pool_releases += self.released;
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
            for chunk in self.idle_chunks(id) {
                self.drop_chunk(books, chunk);
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
        if pool.reserved <= keep || pool.idle == 0 {
            return 0;
        }
        let before = pool.reserved;
        for chunk in self.idle_chunks(id) {
            let pool = &self.pools[id.0 as usize];
            if pool.reserved <= keep {
                break;
            }
            if pool.is_over(&self.pieces, time, self.chunks[chunk as usize].first) {
                self.drop_chunk(books, chunk);
            }
        }
        before - self.pools[id.0 as usize].reserved
    }

    /// A pool's chunks without a used piece, the last first. To find them is work, but chunks fall idle far more often than they are given back.
    fn idle_chunks(&self, id: PoolId) -> Vec<u32> {
        let is_idle = |at: &u32| {
            let chunk = &self.chunks[*at as usize];
            chunk.pool == id && chunk.used == 0
        };
        self.by_address.values().rev().copied().filter(is_idle).collect()
    }

    /// Gives a chunk back, all of which is free.
    fn drop_chunk(&mut self, books: &mut Books, at: u32) {
        let Chunk { start, size, pool, first, .. } = self.chunks[at as usize];
        let pool = &mut self.pools[pool.0 as usize];
        pool.reserved -= size;
        pool.idle -= 1;
        let mut piece = first;
        while piece != NONE {
            let next = self.pieces.get(piece).next;
            pool.take_free(&mut self.pieces, piece);
            self.pieces.drop(piece);
            piece = next;
        }
        self.by_address.remove(&start);
        self.vacant.push(at);
        self.released += 1;
        self.space.give(start, size);
        books.give_physical(size);
        books.unreserve(size);
    }

    /// A synchronisation returns to the host: rules `synced` and `release`. Bytes given back.
    pub(super) fn synchronised(&mut self, books: &mut Books, time: &Timeline) -> u64 {
        if self.by_address.is_empty() {
            return 0;
        }
        let mut given = 0;
        for id in 0..self.pools.len() {
            self.pools[id].synchronised(&mut self.pieces, time);
            let keep = self.pools[id].release_threshold;
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
        let units = u32::try_from(taken / UNIT).ok().filter(|units| *units <= SIZE_MAX);
        let (Some(units), Some(start)) = (units, self.space.take(taken)) else {
            books.give_physical(taken);
            return Err(DriverError::OutOfMemory { asked: size, free: books.free() });
        };
        books.reserve(taken);
        let ordinal = self.made;
        self.made += 1;
        let physical = *next_physical;
        *next_physical += 1;
        let chunk = self.vacant.pop().unwrap_or(self.chunks.len() as u32);
        let first = self.pieces.add(Piece::between(NONE, NONE, start, units, chunk));
        let made = Chunk { start, size: taken, pool: id, ordinal, physical, used: 0, first };
        match self.chunks.get_mut(chunk as usize) {
            Some(vacant) => *vacant = made,
            None => self.chunks.push(made),
        }
        self.by_address.insert(start, chunk);
        let pool = &mut self.pools[id.0 as usize];
        pool.reserved += taken;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.idle += 1;
        pool.put_free(&mut self.pieces, first, ANYONE, Moment::default());
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
        self.pool(CALL, id)?;
        if asked == 0 {
            return Err(invalid(CALL, "found size 0, expected at least 1 byte"));
        }
        let units = u32::try_from(asked.div_ceil(UNIT)).ok().filter(|units| *units <= SIZE_MAX);
        let Some(units) = units else {
            return Err(DriverError::OutOfMemory { asked, free: books.free() });
        };
        let Self { pools, pieces, .. } = self;
        let mut found = pools[id.0 as usize].find(pieces, time, slot, units);
        let (mut grown, mut waits) = (0, false);
        if found == NONE {
            (found, grown, waits) = self.obtain(books, time, id, units, slot, next_physical);
        }
        if found == NONE {
            return Err(DriverError::OutOfMemory { asked, free: books.free() });
        }
        let Self { pools, pieces, chunks, .. } = self;
        let pool = &mut pools[id.0 as usize];
        let (owner, moment) = pool.take_free(pieces, found);
        time.follow(slot, &moment, waits);
        pieces.hand_out(found, asked);
        let piece = pieces.get_mut(found);
        let rest = piece.units - units;
        piece.units = units;
        let (address, chunk) = (piece.start, piece.chunk);
        if rest > 0 {
            let (start, next) = (piece.end(), piece.next);
            let rest = pieces.add(Piece::between(found, next, start, rest, chunk));
            pool.put_free(pieces, rest, owner, moment);
        }
        pool.used += asked;
        pool.used_high = pool.used_high.max(pool.used);
        let chunk_state = &mut chunks[chunk as usize];
        chunk_state.used += 1;
        if chunk_state.used == 1 {
            pool.idle -= 1;
        }
        Ok(AsyncMalloced { address, grown })
    }

    /// A piece for which the pool must do more than look: the piece, bytes of growth, and whether the stream must wait for it.
    fn obtain(
        &mut self,
        books: &mut Books,
        time: &Timeline,
        id: PoolId,
        units: u32,
        slot: Slot,
        next_physical: &mut u64,
    ) -> (u32, u64, bool) {
        let Self { pools, pieces, chunks, by_address, .. } = self;
        let of_pool = |at: &u32| Some(&chunks[*at as usize]).filter(|chunk| chunk.pool == id);
        let firsts = by_address.values().filter_map(of_pool).map(|chunk| chunk.first);
        let gathered = pools[id.0 as usize].gather(pieces, time, slot, units, firsts);
        if gathered != NONE {
            return (gathered, 0, false);
        }
        let size = u64::from(units) * UNIT;
        let mut growth = self.grow(books, id, size, next_physical);
        if growth.is_err() && self.release(books, time, id, 0) > 0 {
            growth = self.grow(books, id, size, next_physical);
        }
        let Self { pools, pieces, .. } = self;
        let pool = &pools[id.0 as usize];
        match growth {
            Ok(grown) => (pool.find(pieces, time, slot, units), grown, false),
            Err(_) if pool.internal => (pool.find_any(pieces, units), 0, true),
            Err(_) => (NONE, 0, false),
        }
    }

    fn chunk_around(&self, address: Address) -> Option<&Chunk> {
        let (start, at) = self.by_address.range(..=address).next_back()?;
        let chunk = &self.chunks[*at as usize];
        (address - start < chunk.size).then_some(chunk)
    }

    /// The piece in use that begins here, for [`Pools::free`].
    pub(super) fn used_at(&self, address: Address) -> Option<u32> {
        self.pieces.used_at(address)
    }

    /// Takes back a piece in use, freed by a stream at this moment, or, for [`ANYONE`] before everything, by the host.
    pub(super) fn free(&mut self, books: &mut Books, piece: u32, owner: Slot, moment: Moment) {
        let chunk = &mut self.chunks[self.pieces.get(piece).chunk as usize];
        let pool = &mut self.pools[chunk.pool.0 as usize];
        pool.used -= self.pieces.take_back(piece);
        pool.put_joined(&mut self.pieces, piece, owner, moment);
        chunk.used -= 1;
        if chunk.used == 0 {
            pool.idle += 1;
            let id = chunk.pool;
            self.end_if_idle(books, id);
        }
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let chunk = self.chunk_around(address)?;
        let offset = address - chunk.start;
        Some(Origin { kind: RangeKind::Pool, ordinal: chunk.ordinal, offset })
    }

    pub(super) fn physical(&self, address: Address) -> Option<Physical> {
        let chunk = self.chunk_around(address)?;
        let offset = address - chunk.start;
        Some(Physical { handle: chunk.physical, offset, run: chunk.size - offset })
    }
}
