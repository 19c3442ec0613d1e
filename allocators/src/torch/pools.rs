//! Pools, their free sets by stream, and private pools.
//!
//! ```text
//!  stream, small? ──routes──▶ private pool ─┐
//!                 └─────────▶ default pool ─┴▶ set of the stream: free pieces in best-fit order, unmapped pieces by address
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `streams` | blocks never move between streams (RULES 17) |
//! | `use-count` | a begin makes the pool or raises its count, and each needs a release; with none left its segments may go back (RULES 27) |
//! | `route` | of several pools that are begun for a stream, the one begun last gets its requests; in 2.9 the one begun first |
//! | `begun-once` | a pool cannot be begun twice at a time, nor again once its count was 0 and memory is left |

use std::collections::BTreeMap;

use vramlab_sim::units::{PoolId, StreamId};

use crate::parts::free_set::FreeSet;

use super::freeable::Freeable;
use super::stats::{LARGE, SMALL};

/// Streams below this find their sets in a table, others by search.
const TABLED_STREAMS: u32 = 4096;
/// No set yet.
pub(super) const NO_SET: u32 = u32::MAX;

/// Free and unmapped pieces of one stream in one pool.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) free: FreeSet,
    /// By address.
    pub(super) unmapped: BTreeMap<u64, u32>,
    pub(super) stream: StreamId,
    pub(super) pool: u32,
    /// [`SMALL`] or [`LARGE`].
    pub(super) kind: usize,
}

/// A pool of blocks: all streams of one kind, in the default or in a private pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) kind: usize,
    pub(super) private: Option<PoolId>,
    /// Searches while collection was on.
    pub(super) searches: u64,
    /// By stream.
    pub(super) sets: BTreeMap<StreamId, u32>,
}

/// A private pool.
#[derive(Clone, Debug)]
pub(super) struct PrivatePool {
    pub(super) uses: u64,
    /// Device allocations less device frees.
    pub(super) held: i64,
    /// Its small and its large pool.
    pub(super) pools: [u32; 2],
}

/// All of them. Pools 0 and 1 are the default ones.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    pub(super) sets: Vec<Set>,
    pub(super) pools: Vec<Pool>,
    /// Sets of the default pools, by stream.
    table: Vec<[u32; 2]>,
    pub(super) private: BTreeMap<PoolId, PrivatePool>,
    /// Who wants the requests of which stream.
    routes: Vec<(PoolId, StreamId)>,
    newest_route: bool,
    /// Private pools without a use.
    pub(super) freeable: Freeable,
}

impl Pools {
    pub(super) fn new(newest_route: bool) -> Self {
        let mut pools = Self {
            sets: Vec::new(),
            pools: Vec::new(),
            table: Vec::new(),
            private: BTreeMap::new(),
            routes: Vec::new(),
            newest_route,
            freeable: Freeable::default(),
        };
        pools.add_pool(SMALL, None);
        pools.add_pool(LARGE, None);
        pools
    }

    fn add_pool(&mut self, kind: usize, private: Option<PoolId>) -> u32 {
        self.pools.push(Pool { kind, private, searches: 0, sets: BTreeMap::new() });
        self.pools.len() as u32 - 1
    }

    pub(super) fn is_routing(&self) -> bool {
        !self.routes.is_empty()
    }

    /// The set that a request of this kind is served from.
    #[inline]
    pub(super) fn set_for(&mut self, stream: StreamId, kind: usize) -> u32 {
        if self.routes.is_empty()
            && let Some(sets) = self.table.get(stream.0 as usize)
            && sets[kind] != NO_SET
        {
            return sets[kind];
        }
        self.set_by_search(stream, kind)
    }

    #[cold]
    fn set_by_search(&mut self, stream: StreamId, kind: usize) -> u32 {
        let mut wanted = self.routes.iter().filter(|route| route.1 == stream).map(|route| route.0);
        let routed = if self.newest_route { wanted.next_back() } else { wanted.next() };
        let private = routed.and_then(|id| self.private.get(&id));
        let pool = private.map_or(kind as u32, |private| private.pools[kind]);
        self.set_in(pool, stream)
    }

    /// The set of a stream in a pool, made if there is none.
    pub(super) fn set_in(&mut self, pool: u32, stream: StreamId) -> u32 {
        let kind = self.pools[pool as usize].kind;
        if let Some(&set) = self.pools[pool as usize].sets.get(&stream) {
            return set;
        }
        let set = self.sets.len() as u32;
        let free = FreeSet::new();
        self.sets.push(Set { free, unmapped: BTreeMap::new(), stream, pool, kind });
        self.pools[pool as usize].sets.insert(stream, set);
        if self.pools[pool as usize].private.is_none() && stream.0 < TABLED_STREAMS {
            let at = stream.0 as usize;
            if self.table.len() <= at {
                self.table.resize(at + 1, [NO_SET; 2]);
            }
            self.table[at][kind] = set;
        }
        set
    }

    #[inline]
    pub(super) fn set(&self, set: u32) -> &Set {
        &self.sets[set as usize]
    }

    pub(super) fn pool_of(&self, set: u32) -> &Pool {
        &self.pools[self.set(set).pool as usize]
    }

    /// Sets of a pool in the order of streams.
    pub(super) fn sets_of(&self, pool: u32) -> Vec<u32> {
        self.pools[pool as usize].sets.values().copied().collect()
    }

    /// The private pool of this number, made with a use count of 0 if there is none.
    pub(super) fn private_pool(&mut self, id: PoolId) -> &mut PrivatePool {
        if !self.private.contains_key(&id) {
            let pools = [self.add_pool(SMALL, Some(id)), self.add_pool(LARGE, Some(id))];
            self.private.insert(id, PrivatePool { uses: 0, held: 0, pools });
        }
        self.private.entry(id).or_insert(PrivatePool { uses: 0, held: 0, pools: [0, 1] })
    }

    /// Requests of `stream` go to private pool `id`.
    pub(super) fn begin(&mut self, id: PoolId, stream: StreamId) -> Result<(), String> {
        if self.routes.iter().any(|route| route.0 == id) {
            return Err(format!("beginAllocateToPool: already recording to mempool_id (0, {id})"));
        }
        if self.private.get(&id).is_some_and(|pool| pool.uses == 0) {
            return Err(format!(
                "pool {id} was released to a use count of 0 and still holds memory; PyTorch asserts that it is in use"
            ));
        }
        self.private_pool(id).uses += 1;
        self.routes.push((id, stream));
        Ok(())
    }

    pub(super) fn end(&mut self, id: PoolId) -> Result<(), String> {
        let Some(at) = self.routes.iter().position(|route| route.0 == id) else {
            return Err(format!(
                "endAllocatePool: not currently recording to mempool_id (0, {id})"
            ));
        };
        self.routes.remove(at);
        Ok(())
    }

    pub(super) fn release(&mut self, id: PoolId) -> Result<(), String> {
        match self.private.get_mut(&id) {
            Some(pool) if pool.uses > 0 => {
                pool.uses -= 1;
                if pool.uses == 0 {
                    self.freeable.insert(id);
                }
                Ok(())
            }
            _ => Err(format!("pool {id} is not in use; each release needs a begin before it")),
        }
    }

    /// The pool is no more; its number may be used again.
    pub(super) fn forget(&mut self, id: PoolId) {
        self.private.remove(&id);
        self.freeable.remove(id);
    }

    /// A device allocation (or, with -1, a device free) for this set.
    pub(super) fn count_held(&mut self, set: u32, by: i64) {
        if let Some(id) = self.pool_of(set).private
            && let Some(pool) = self.private.get_mut(&id)
        {
            pool.held += by;
        }
    }
}
