//! Values with peaks, in few steps.
//!
//! A value is kept as its peak and its **room** below the peak: going up takes room away, and only when there is none left, which is rare,
//! the peak moves. So one subtraction both changes a value and looks at its peak. Sums of decreases follow from sums of increases.
//! Allocated and active values move alike except while blocks wait, so [`Live`] keeps one recent peak for both, and books it whenever the
//! waiting ones change.

use super::statistics::{Stat, StatByPool};
use super::stats::{LARGE, SMALL};

/// A value that goes up and down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    peak: u64,
    /// Peak less value.
    room: u64,
}

impl Level {
    #[inline(always)]
    pub(super) fn now(self) -> u64 {
        self.peak - self.room
    }

    #[inline(always)]
    pub(super) fn rise(&mut self, by: u64) {
        let (room, passed) = self.room.overflowing_sub(by);
        self.room = room;
        if passed {
            self.new_peak();
        }
    }

    #[cold]
    fn new_peak(&mut self) {
        self.peak = self.peak.wrapping_sub(self.room);
        self.room = 0;
    }

    #[inline(always)]
    pub(super) fn fall(&mut self, by: u64) {
        self.room += by;
    }

    /// The peak becomes the present value.
    #[inline]
    fn reset(&mut self) {
        *self = Self { peak: self.now(), room: 0 };
    }
}

/// A value of both pools together and of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) all: Level,
    kinds: [Level; 2],
    /// Sums of increases, and the values when those were last 0.
    up: [u64; 2],
    base: [u64; 2],
}

impl Flow {
    #[inline(always)]
    pub(super) fn rise(&mut self, kind: usize, by: u64) {
        self.kinds[kind].rise(by);
        self.all.rise(by);
        self.up[kind] += by;
    }

    #[inline(always)]
    pub(super) fn fall(&mut self, kind: usize, by: u64) {
        self.kinds[kind].fall(by);
        self.all.fall(by);
    }

    pub(super) fn reset_peak(&mut self) {
        self.all.reset();
        self.kinds.iter_mut().for_each(Level::reset);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.up = [0; 2];
        self.base = self.kinds.map(Level::now);
    }

    pub(super) fn stat(&self) -> StatByPool {
        let of = |kind: usize| {
            let level = self.kinds[kind];
            stat(level.now(), level.peak, self.up[kind], self.base[kind])
        };
        by_pool(of(SMALL), of(LARGE), self.all.peak)
    }
}

/// Peaks of allocated and of active values.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    allocated: u64,
    active: u64,
}

impl Peaks {
    #[inline]
    fn raise(&mut self, recent: u64, waiting: u64) {
        self.allocated = self.allocated.max(recent);
        self.active = self.active.max(recent + waiting);
    }
}

/// Live blocks: their number, or their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Live {
    /// Its peaks are those since the waiting ones last changed.
    pub(super) flow: Flow,
    /// Freed, but waiting.
    waiting: [u64; 2],
    waiting_base: [u64; 2],
    all: Peaks,
    kinds: [Peaks; 2],
}

impl Live {
    #[inline]
    pub(super) fn all_waiting(&self) -> u64 {
        self.waiting[SMALL] + self.waiting[LARGE]
    }

    /// Books the peaks since the last time.
    pub(super) fn settle(&mut self) {
        self.settle_kind(SMALL);
        self.settle_kind(LARGE);
    }

    /// Books the peaks of both pools together, and of one.
    #[inline]
    fn settle_kind(&mut self, kind: usize) {
        self.all.raise(self.flow.all.peak, self.all_waiting());
        self.kinds[kind].raise(self.flow.kinds[kind].peak, self.waiting[kind]);
        self.flow.all.reset();
        self.flow.kinds[kind].reset();
    }

    #[inline]
    pub(super) fn wait(&mut self, kind: usize, by: u64) {
        self.settle_kind(kind);
        self.flow.fall(kind, by);
        self.waiting[kind] += by;
        self.flow.all.reset();
        self.flow.kinds[kind].reset();
    }

    #[inline]
    pub(super) fn arrive(&mut self, kind: usize, by: u64) {
        self.settle_kind(kind);
        self.waiting[kind] -= by;
    }

    pub(super) fn reset_peak(&mut self) {
        self.all = Peaks::default();
        self.kinds = [Peaks::default(); 2];
        self.flow.reset_peak();
        self.settle();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.flow.reset_accumulated();
        self.waiting_base = self.waiting;
    }

    /// Allocated, active. Call on a settled one.
    pub(super) fn stats(&self) -> (StatByPool, StatByPool) {
        let allocated = |kind: usize| {
            let flow = &self.flow;
            stat(flow.kinds[kind].now(), self.kinds[kind].allocated, flow.up[kind], flow.base[kind])
        };
        let active = |kind: usize| {
            let now = self.flow.kinds[kind].now() + self.waiting[kind];
            let base = self.flow.base[kind] + self.waiting_base[kind];
            stat(now, self.kinds[kind].active, self.flow.up[kind], base)
        };
        (
            by_pool(allocated(SMALL), allocated(LARGE), self.all.allocated),
            by_pool(active(SMALL), active(LARGE), self.all.active),
        )
    }
}

fn stat(current: u64, peak: u64, up: u64, base: u64) -> Stat {
    Stat {
        current: current as i64,
        peak: peak as i64,
        allocated: up as i64,
        freed: (base + up - current) as i64,
    }
}

fn by_pool(small: Stat, large: Stat, peak: u64) -> StatByPool {
    let all = Stat {
        current: small.current + large.current,
        peak: peak as i64,
        allocated: small.allocated + large.allocated,
        freed: small.freed + large.freed,
    };
    StatByPool { all, small_pool: small, large_pool: large }
}
