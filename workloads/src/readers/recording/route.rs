//! Which requests go to which private pool: a recording says it of each request, a strategy is told when it changes.

use rustc_hash::FxHashMap;
use vramlab_sim::units::{PoolId, StreamId};

/// What a strategy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Requests of the stream no longer go to this pool.
    End(PoolId),
    /// From here on they go to this one.
    Begin(PoolId, StreamId),
}

/// Where requests of each stream go.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    pools: FxHashMap<StreamId, PoolId>,
}

impl Routes {
    /// What must be told before a request of `stream` goes to `pool` (or to none).
    pub fn turn(
        &mut self,
        stream: StreamId,
        pool: Option<PoolId>,
    ) -> impl Iterator<Item = Turn> + use<> {
        let old = self.pools.get(&stream).copied();
        let (mut end, mut begin) = (None, None);
        if old != pool {
            end = self.pools.remove(&stream).map(Turn::End);
            if let Some(pool) = pool {
                self.pools.insert(stream, pool);
                begin = Some(Turn::Begin(pool, stream));
            }
        }
        end.into_iter().chain(begin)
    }
}
