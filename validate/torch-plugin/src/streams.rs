//! Private pools: which pools are open, and which streams go to them (rule `pool_route`).

use std::collections::BTreeMap;

use vramlab_sim::units::{PoolId, StreamId};

use crate::MempoolId;

/// The pools of a device.
#[derive(Default)]
pub(crate) struct Pools {
    known: BTreeMap<MempoolId, Pool>,
}

struct Pool {
    id: PoolId,
    open: bool,
    streams: Vec<StreamId>,
    /// How often it was begun for a stream, and not released yet.
    uses: u64,
}

impl Pools {
    /// Opens a pool.
    pub(crate) fn begin(&mut self, pool: MempoolId) {
        let id = PoolId(self.known.len() as u32 + 1);
        let pool = self.known.entry(pool);
        let new = Pool { id, open: false, streams: Vec::new(), uses: 0 };
        pool.or_insert(new).open = true;
    }

    /// Is any open?
    pub(crate) fn any_open(&self) -> bool {
        self.known.values().any(|pool| pool.open)
    }

    /// A stream that is captured asks: the pools that it is to be routed to and was not yet.
    pub(crate) fn route(&mut self, stream: StreamId) -> Vec<PoolId> {
        let open = self.known.values_mut().filter(|pool| pool.open);
        let new = open.filter(|pool| !pool.streams.contains(&stream)).map(|pool| {
            pool.streams.push(stream);
            pool.uses += 1;
            pool.id
        });
        new.collect()
    }

    /// Closes a pool: the streams that went to it.
    pub(crate) fn end(&mut self, pool: MempoolId) -> Option<(PoolId, Vec<StreamId>)> {
        let pool = self.known.get_mut(&pool).filter(|pool| pool.open)?;
        pool.open = false;
        Some((pool.id, std::mem::take(&mut pool.streams)))
    }

    /// Releases a pool: how many uses end.
    pub(crate) fn release(&mut self, pool: MempoolId) -> Option<(PoolId, u64)> {
        let pool = self.known.get_mut(&pool)?;
        Some((pool.id, std::mem::take(&mut pool.uses)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_serves_each_captured_stream_once_and_ends_with_its_uses() {
        let (mut pools, one) = (Pools::default(), MempoolId { first: 0, second: 7 });
        assert!(!pools.any_open() && pools.route(StreamId(1)).is_empty());
        pools.begin(one);
        assert_eq!(pools.route(StreamId(1)), [PoolId(1)]);
        assert!(pools.route(StreamId(1)).is_empty(), "routed already");
        assert_eq!(pools.route(StreamId(2)), [PoolId(1)]);
        assert_eq!(pools.end(one), Some((PoolId(1), vec![StreamId(1), StreamId(2)])));
        assert!(pools.end(one).is_none() && pools.route(StreamId(3)).is_empty());
        assert_eq!(pools.release(one), Some((PoolId(1), 2)));
        assert_eq!(pools.release(one), Some((PoolId(1), 0)));
        assert!(pools.release(MempoolId { first: 1, second: 1 }).is_none());
    }
}
