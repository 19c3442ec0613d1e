//! Private pools and captures, as the cache of host memory knows them.

use vramlab_sim::allocator::AllocError;
use vramlab_sim::units::{PoolId, StreamId};

/// Number of the pool for requests that are not routed.
pub(super) const DEFAULT: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Private {
    id: PoolId,
    uses: u32,
}

/// Who goes where.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Pool n + 1, as long as it is known.
    pools: Vec<Option<Private>>,
    /// The routes in force, oldest first.
    begun: Vec<(u32, StreamId)>,
    capturing: Vec<StreamId>,
}

fn refused(why: &str) -> AllocError {
    AllocError::BadSetting(why.into())
}

impl Routes {
    fn number(&self, pool: PoolId) -> Option<u32> {
        let is_it = |known: &Option<Private>| known.is_some_and(|known| known.id == pool);
        self.pools.iter().position(is_it).map(|at| at as u32 + 1)
    }

    /// The pool for a stream's requests.
    pub(super) fn pool_for(&self, stream: StreamId) -> u32 {
        let route = self.begun.iter().find(|(_, routed)| *routed == stream);
        route.map_or(DEFAULT, |(pool, _)| *pool)
    }

    /// Does a request of this stream belong to a capture? Only while there is a route.
    pub(super) fn is_captured(&self, stream: StreamId) -> bool {
        !self.begun.is_empty() && self.capturing.contains(&stream)
    }

    /// Pools, the default one among them.
    pub(super) fn count(&self) -> usize {
        self.pools.len() + 1
    }

    /// The private pool's own number.
    pub(super) fn id(&self, pool: u32) -> Option<PoolId> {
        let at = (pool as usize).checked_sub(1)?;
        self.pools.get(at)?.map(|known| known.id)
    }

    /// Has it no uses left?
    pub(super) fn is_idle(&self, pool: u32) -> bool {
        let at = (pool as usize).checked_sub(1);
        at.and_then(|at| self.pools.get(at)?.as_ref()).is_some_and(|known| known.uses == 0)
    }

    /// It is known no longer.
    pub(super) fn forget(&mut self, pool: u32) {
        if let Some(at) = (pool as usize).checked_sub(1) {
            self.pools[at] = None;
        }
    }

    pub(super) fn begin(&mut self, pool: PoolId, stream: StreamId) -> Result<(), AllocError> {
        let number = self.number(pool);
        if number.is_some_and(|number| self.begun.iter().any(|(begun, _)| *begun == number)) {
            return Err(refused("beginAllocateToPool: already recording to mempool_id"));
        }
        let number = match number {
            Some(number) => number,
            None => {
                let vacant = self.pools.iter().position(Option::is_none);
                let at = vacant.unwrap_or(self.pools.len());
                if vacant.is_none() {
                    self.pools.push(None);
                }
                self.pools[at] = Some(Private { id: pool, uses: 0 });
                at as u32 + 1
            }
        };
        if let Some(Some(private)) = self.pools.get_mut(number as usize - 1) {
            private.uses += 1;
        }
        self.begun.push((number, stream));
        Ok(())
    }

    pub(super) fn end(&mut self, pool: PoolId) -> Result<(), AllocError> {
        let number = self.number(pool);
        let at = self.begun.iter().position(|(begun, _)| Some(*begun) == number);
        let at =
            at.ok_or_else(|| refused("endAllocatePool: not currently recording to mempool_id"))?;
        self.begun.remove(at);
        Ok(())
    }

    pub(super) fn release(&mut self, pool: PoolId) -> Result<(), AllocError> {
        let known = self.pools.iter_mut().flatten().find(|known| known.id == pool);
        match known {
            Some(private) if private.uses > 0 => {
                private.uses -= 1;
                Ok(())
            }
            _ => Err(refused("releasePool: the pool has no uses")),
        }
    }

    pub(super) fn capture_begin(&mut self, stream: StreamId) {
        self.capturing.push(stream);
    }

    pub(super) fn capture_end(&mut self, stream: StreamId) {
        if let Some(at) = self.capturing.iter().rposition(|other| *other == stream) {
            self.capturing.remove(at);
        }
    }
}
