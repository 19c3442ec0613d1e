//! Private pools and graph captures, as notices.
//!
//! | rule | what it says |
//! |---|---|
//! | `routing` | sending a stream's requests to a private pool changes nothing else in 2.15; in 2.9 it holds back events and full releases, as a capture does (RULES 28) |
//! | `capture` | in 2.15 a capture is under way while one was announced and the **current** stream is one that captures; the stream that a capture begins on becomes current, at its end stream 0 does (RULES 29). 2.9 knows it by its routing only |
//! | `legacy` | has neither |

use vramlab_sim::allocator::{AllocError, Reply};
use vramlab_sim::units::{PoolId, StreamId};

use super::Caching;
use super::settings::Version;

/// Captures that were announced.
#[derive(Clone, Debug, Default)]
pub(super) struct Captures {
    streams: Vec<StreamId>,
    current: StreamId,
    hold_back: bool,
}

impl Caching {
    /// Are events and full releases held back?
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        self.captures.hold_back
    }

    fn update_captures(&mut self) {
        self.captures.hold_back = match self.settings.version {
            Version::Legacy => false,
            Version::V2_9 => self.pools.is_routing(),
            Version::V2_15 => self.captures.streams.contains(&self.captures.current),
        };
    }

    pub(super) fn capture_begin(&mut self, stream: StreamId) -> Reply {
        if self.is_legacy() {
            return Reply::Unsupported;
        }
        self.captures.streams.push(stream);
        self.captures.current = stream;
        self.update_captures();
        Reply::Done
    }

    pub(super) fn capture_end(&mut self, stream: StreamId) -> Reply {
        if self.is_legacy() {
            return Reply::Unsupported;
        }
        if let Some(at) = self.captures.streams.iter().rposition(|other| *other == stream) {
            self.captures.streams.remove(at);
        }
        self.captures.current = StreamId(0);
        self.update_captures();
        Reply::Done
    }

    pub(super) fn pool_notice(&mut self, change: PoolChange) -> Result<Reply, AllocError> {
        if self.is_legacy() {
            return Ok(Reply::Unsupported);
        }
        let done = match change {
            PoolChange::Begin(pool, stream) => self.pools.begin(pool, stream),
            PoolChange::End(pool) => self.pools.end(pool),
            PoolChange::Release(pool) => self.pools.release(pool),
        };
        self.update_captures();
        done.map(|()| Reply::Done).map_err(|why| AllocError::BadSetting(why.into()))
    }
}

/// What happens to a private pool.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolChange {
    Begin(PoolId, StreamId),
    End(PoolId),
    Release(PoolId),
}
