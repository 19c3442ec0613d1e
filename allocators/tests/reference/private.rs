//! Private pools and graph captures (rules 27–29).

use super::{PoolKey, Private, Reference, State, Version};

impl Reference {
    /// Whether events are left alone and nothing is released for a request: during a capture of the current stream; in 2.9
    /// while any stream is routed to a private pool.
    pub(super) fn events_blocked(&self) -> bool {
        match self.version {
            Version::V2_15 => {
                self.captures_told > 0 && self.capturing.contains(&self.current_stream)
            }
            Version::V2_9 => !self.routes.is_empty(),
        }
    }

    /// The private pool that requests on a stream go to, 0 for none. If several are routed, 2.15 takes the newest, 2.9 the oldest.
    pub(super) fn route(&self, stream: u64) -> u64 {
        let mut routed =
            self.routes.iter().filter(|(_, from)| *from == stream).map(|(pool, _)| *pool);
        let chosen = match self.version {
            Version::V2_15 => routed.next_back(),
            Version::V2_9 => routed.next(),
        };
        chosen.unwrap_or(0)
    }

    pub(super) fn pool_begin(&mut self, pool: u64, stream: u64) -> Result<(), String> {
        if self.routes.iter().any(|(other, _)| *other == pool) {
            return Err(format!(
                "pool_begin: expected a pool with no request routed to it, found {pool}"
            ));
        }
        match self.private.get_mut(&pool) {
            None => {
                self.private.insert(pool, Private { uses: 1, segments: 0 });
            }
            Some(known) if known.uses > 0 => known.uses += 1,
            Some(_) => {
                return Err(format!("pool_begin: expected a pool in use, found {pool} released"));
            }
        }
        self.routes.push((pool, stream));
        Ok(())
    }

    pub(super) fn pool_end(&mut self, pool: u64) -> Result<(), String> {
        let at = self.routes.iter().position(|(other, _)| *other == pool);
        let at =
            at.ok_or_else(|| format!("pool_end: expected a pool that was begun, found {pool}"))?;
        self.routes.remove(at);
        Ok(())
    }

    pub(super) fn pool_release(&mut self, pool: u64) -> Result<(), String> {
        let known = self.private.get_mut(&pool).filter(|known| known.uses > 0);
        let known =
            known.ok_or_else(|| format!("pool_release: expected a pool in use, found {pool}"))?;
        known.uses -= 1;
        if known.uses == 0 {
            self.freeable.insert(pool);
        }
        Ok(())
    }

    /// Segments are counted once per growth but taken off once per unmapping, so that an expandable pool can seem empty while
    /// it still has memory. The real allocator then goes on with a pool that it has deleted.
    pub(super) fn forget_if_empty(&mut self, pool: u64) {
        if self.private[&pool].segments == 0 {
            if self
                .blocks
                .values()
                .any(|block| block.pool.owner == pool && block.state != State::Unmapped)
            {
                self.broken =
                    Some(format!("deletion of private pool {pool}, which still has memory"));
            }
            self.private.remove(&pool);
            self.freeable.remove(pool);
        }
    }

    /// The real allocator checks that there was one to take off.
    pub(super) fn count_segment_gone(&mut self, pool: PoolKey) {
        if let Some(known) = self.private.get_mut(&pool.owner) {
            known.segments -= 1;
            if known.segments < 0 {
                self.broken =
                    Some(format!("a segment less than none in private pool {}", pool.owner));
            }
        }
    }

    pub(super) fn capture_begin(&mut self, stream: u64) {
        self.captures_told += 1;
        self.capturing.insert(stream);
        self.current_stream = stream;
    }

    pub(super) fn capture_end(&mut self, stream: u64) {
        self.current_stream = 0;
        self.capturing.remove(&stream);
        self.captures_told = self.captures_told.saturating_sub(1);
    }
}
