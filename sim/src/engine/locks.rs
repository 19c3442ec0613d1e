//! The locks of shared pools, for which host threads queue.
//!
//! Every host thread has a clock of its own. Ops are done in the order of the input; an op on memory begins when its thread is there and its pool's lock is free, and
//! holds the lock until it is done, driver calls included. What a hand-over between threads costs beyond that is not known, and not charged.

use rustc_hash::FxHashMap;

use super::Engine;
use crate::units::{DeviceId, Nanos, StreamId};

/// Which lock an op on memory takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// One for a device's whole pool.
    #[default]
    Pool,
    /// One for each stream's pool.
    Stream,
}

/// The locks of a run.
#[derive(Debug, Default)]
pub(super) struct Locks {
    how: Locking,
    /// There is more than one thread.
    shared: bool,
    /// The thread that is on, and when each lock was last left, by which.
    thread: u32,
    left: FxHashMap<(DeviceId, StreamId), (Nanos, u32)>,
    /// Before there was more than one thread: the last memory op, whose lock the second one may have to wait for.
    alone: Option<(DeviceId, StreamId, Nanos)>,
    /// The latest clock of the threads that were left.
    latest: Nanos,
}

impl Locks {
    pub(super) fn new(how: Locking) -> Self {
        Self { how, ..Self::default() }
    }

    fn key(&self, device: DeviceId, stream: StreamId) -> (DeviceId, StreamId) {
        match self.how {
            Locking::Pool => (device, StreamId(0)),
            Locking::Stream => (device, stream),
        }
    }

    /// The latest clock, if the thread that is on has come to `now`.
    pub(super) fn end(&self, now: Nanos) -> Nanos {
        self.latest.max(now)
    }
}

impl Engine<'_> {
    /// Another host thread goes on.
    pub(super) fn thread(&mut self, thread: u32) {
        self.locks.latest = self.locks.latest.max(self.machine.now());
        if let Some((device, stream, at)) = self.locks.alone.take() {
            let key = self.locks.key(device, stream);
            self.locks.left.insert(key, (at, self.locks.thread));
        }
        self.locks.shared |= thread != self.locks.thread;
        self.locks.thread = thread;
        self.machine.thread(thread);
    }

    /// Takes the lock of a stream's memory on the current device; gives the time before, for [`Self::leave`].
    #[inline]
    pub(super) fn enter(&mut self, stream: StreamId) -> Nanos {
        let start = self.machine.now();
        self.lock(stream);
        start
    }

    /// Leaves the lock; gives the time (ns) since it was asked for, waiting included.
    #[inline]
    pub(super) fn leave(&mut self, stream: StreamId, start: Nanos) -> u64 {
        self.unlock(stream).0 - start.0
    }

    #[inline]
    fn lock(&mut self, stream: StreamId) {
        if !self.locks.shared {
            return;
        }
        let key = self.locks.key(self.device, stream);
        if let Some((free, holder)) = self.locks.left.get(&key)
            && *holder != self.locks.thread
            && *free > self.machine.now()
        {
            self.tally.lock_waited(free.0 - self.machine.now().0);
            self.machine.wait_until(*free);
        }
    }

    #[inline]
    fn unlock(&mut self, stream: StreamId) -> Nanos {
        let now = self.machine.now();
        if self.locks.shared {
            let key = self.locks.key(self.device, stream);
            self.locks.left.insert(key, (now, self.locks.thread));
        } else {
            self.locks.alone = Some((self.device, stream, now));
        }
        now
    }
}
